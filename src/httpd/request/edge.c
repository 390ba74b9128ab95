#include "httpd/request/edge.h"

#include <apr_buckets.h>
#include <apr_cstr.h>
#include <httpd.h>
#include <util_filter.h>

#define OUTPUT_NAME "IDEMPOTENCY_EDGE_OUT"
#define INPUT_NAME  "IDEMPOTENCY_EDGE_IN"
#define EDGE_TYPE   (AP_FTYPE_RESOURCE - 5)

static apr_status_t output_filter(ap_filter_t *f, apr_bucket_brigade *bb)
{
    idem_ctx_t *ctx = f->ctx;
    apr_status_t rv;

    if (ctx->phase != IDEM_PHASE_RUNNING) {
        ap_remove_output_filter(f);
        return ap_pass_brigade(f->next, bb);
    }
    if (ctx->running == f->r && ctx->running_counts && !APR_BRIGADE_EMPTY(bb)) {
        ctx->passed_anything = 1;
    }
    rv = ap_pass_brigade(f->next, bb);
    if (rv != APR_SUCCESS && ctx->phase == IDEM_PHASE_RUNNING) {
        /* Nothing has left yet, so it was no client that failed: what follows is not the response that was meant. */
        ctx->broken = 1;
    }
    return rv;
}

static apr_status_t input_filter(ap_filter_t *f, apr_bucket_brigade *bb, ap_input_mode_t mode, apr_read_type_e block,
                                 apr_off_t readbytes)
{
    idem_ctx_t *ctx = f->ctx;
    apr_status_t rv = ap_get_brigade(f->next, bb, mode, block, readbytes);

    if (rv != APR_SUCCESS && !APR_STATUS_IS_EAGAIN(rv) && ctx->phase == IDEM_PHASE_RUNNING) {
        ctx->body_failed = 1;
    }
    return rv;
}

void idem_edge_insert(request_rec *r, idem_ctx_t *ctx)
{
    ap_add_output_filter(OUTPUT_NAME, ctx, r, r->connection);
    if (r->input_filters != r->proto_input_filters) {
        ap_add_input_filter(INPUT_NAME, ctx, r, r->connection);
    }
}

int idem_edge_was_bypassed(const request_rec *r, const idem_ctx_t *ctx)
{
    const ap_filter_t *f;

    for (f = r->output_filters; f; f = f->next) {
        if (f->ctx == ctx && !apr_cstr_casecmp(f->frec->name, OUTPUT_NAME)) {
            return 0;
        }
    }
    return 1;
}

void idem_edge_register(void)
{
    ap_register_output_filter(OUTPUT_NAME, output_filter, NULL, EDGE_TYPE);
    ap_register_input_filter(INPUT_NAME, input_filter, NULL, EDGE_TYPE);
}

#include "httpd/request/taken.h"

#include <apr_strings.h>
#include <httpd.h>
#include <http_core.h>
#include <mod_core.h>
#include <util_filter.h>

#include "httpd/request/body.h"
#include "httpd/request/route.h"

#define KEEPER_NAME  "IDEMPOTENCY_KEEPER"
#define WITNESS_NAME "IDEMPOTENCY_WITNESS"

struct idem_taken_t {
    ap_filter_t *witness; /* below httpd's HTTP_IN: nobody gets past it */
    ap_filter_t *keeper;  /* above it, where others read the body; NULL: not for this request */
    idem_spool_t spool;
    apr_off_t limit;
    int touched;          /* seen by the witness */
    int seen;             /* seen by the keeper */
    int ended;            /* the keeper has seen the end of the body */
    int too_large;
    int lost;
};

static int announces_body(const request_rec *r)
{
    const char *length = apr_table_get(r->headers_in, "Content-Length");

    return apr_table_get(r->headers_in, "Transfer-Encoding") || (length && strcmp(length, "0"));
}

/* Notes that somebody reads, and is gone. */
static apr_status_t witness_filter(ap_filter_t *f, apr_bucket_brigade *bb, ap_input_mode_t mode, apr_read_type_e block,
                                   apr_off_t readbytes)
{
    idem_taken_t *taken = f->ctx;
    ap_filter_t *next = f->next;

    if (mode != AP_MODE_SPECULATIVE) {
        taken->touched = 1;
        ap_remove_input_filter(f);
    }
    return ap_get_brigade(next, bb, mode, block, readbytes);
}

static apr_status_t keep(idem_taken_t *taken, apr_bucket *e)
{
    const char *data;
    apr_size_t len;
    apr_status_t rv = apr_bucket_read(e, &data, &len, APR_BLOCK_READ);

    if (rv != APR_SUCCESS) {
        return rv;
    }
    if (taken->spool.length + (apr_off_t)len > taken->limit) {
        taken->too_large = 1;
        idem_spool_drop(&taken->spool);
        return APR_SUCCESS;
    }
    return idem_spool_add(&taken->spool, data, len);
}

static apr_status_t keeper_filter(ap_filter_t *f, apr_bucket_brigade *bb, ap_input_mode_t mode, apr_read_type_e block,
                                  apr_off_t readbytes)
{
    idem_taken_t *taken = f->ctx;
    apr_bucket *before = APR_BRIGADE_LAST(bb);
    apr_bucket *e;
    apr_status_t rv = ap_get_brigade(f->next, bb, mode, block, readbytes);

    /* once there is another status httpd only reads the body away, to have the next request */
    if (f->r->status != HTTP_OK || mode == AP_MODE_SPECULATIVE || (rv != APR_SUCCESS && APR_STATUS_IS_EAGAIN(rv))) {
        return rv;
    }
    taken->seen = 1;
    if (rv != APR_SUCCESS || (mode != AP_MODE_READBYTES && mode != AP_MODE_GETLINE)) {
        taken->lost = 1;
        return rv;
    }
    /* what was in the brigade before is none of this body */
    for (e = APR_BUCKET_NEXT(before); e != APR_BRIGADE_SENTINEL(bb); e = APR_BUCKET_NEXT(e)) {
        if (APR_BUCKET_IS_EOS(e)) {
            taken->ended = 1;
        }
        else if (!APR_BUCKET_IS_METADATA(e) && !taken->lost && !taken->too_large && keep(taken, e) != APR_SUCCESS) {
            taken->lost = 1;
        }
    }
    return APR_SUCCESS;
}

/* May this request have a key, as far as that can be told so early? */
static int may_have_key(const request_rec *r, const idem_ctx_t *ctx)
{
    const apr_array_header_t *fields = ctx->server->key_fields;
    int i;

    for (i = 0; i < fields->nelts; i++) {
        if (apr_table_get(r->headers_in, APR_ARRAY_IDX(fields, i, const char *))) {
            return 1;
        }
    }
    return ctx->server->makes_keys || ctx->minted_key;
}

/* For a request that was not watched: httpd's own filter makes its notes at the first read. */
static int was_read(const request_rec *r)
{
    const ap_filter_t *f;

    for (f = r->proto_input_filters; f && f->frec->ftype < AP_FTYPE_CONNECTION; f = f->next) {
        if (f->ctx && (f->frec == ap_http_input_filter_handle || !strcmp(f->frec->name, "h2_c2_request_in"))) {
            return 1;
        }
    }
    return 0;
}

void idem_taken_watch(request_rec *r, idem_ctx_t *ctx)
{
    ctx->unwatched = !may_have_key(r, ctx);
    if (!ctx->unwatched && announces_body(r) && !ctx->taken) {
        ctx->taken = apr_pcalloc(ctx->pool, sizeof(*ctx->taken));
        ctx->taken->witness = ap_add_input_filter(WITNESS_NAME, ctx->taken, r, r->connection);
    }
}

/* Will this request be fingerprinted, as far as can be seen now? */
static int is_keyed(const request_rec *r, const idem_ctx_t *ctx, const idem_dir_t *conf)
{
    return (conf->mode == IDEM_MODE_ENFORCE || conf->mode == IDEM_MODE_READ_ONLY) && idem_route_takes(conf->route, r->method) &&
           (conf->server_key || ctx->minted_key || apr_table_get(r->headers_in, conf->key_header));
}

int idem_taken_begin(request_rec *r)
{
    idem_ctx_t *ctx = idem_context_get(r);
    const idem_dir_t *conf;
    idem_taken_t *taken;

    if (ctx && ctx->unwatched && !r->prev && may_have_key(r, ctx) && !was_read(r)) {
        /* another module has added it since */
        idem_taken_watch(r, ctx);
    }
    taken = ctx ? ctx->taken : NULL;
    if (!taken || taken->keeper || r->prev || ctx->phase > IDEM_PHASE_BOUND) {
        return DECLINED;
    }
    conf = ctx->bound ? ctx->bound : idem_config_dir(r);
    if (!conf->route || conf->route->kind == IDEM_ROUTE_NONE) {
        return DECLINED;
    }
    conf = idem_config_resolve(r->pool, conf);
    if (is_keyed(r, ctx, conf)) {
        taken->limit = idem_body_largest(r, conf);
        idem_spool_begin(&taken->spool, ctx->pool, conf->body_memory);
        taken->keeper = ap_add_input_filter(KEEPER_NAME, taken, r, r->connection);
    }
    return DECLINED;
}

void idem_taken_end(const idem_ctx_t *ctx)
{
    idem_taken_t *taken = ctx->taken;

    if (taken && taken->keeper) {
        ap_remove_input_filter(taken->keeper);
        taken->keeper = NULL;
    }
    if (taken && taken->witness) {
        ap_remove_input_filter(taken->witness);
        taken->witness = NULL;
    }
}

/* mod_ssl reads the body before it asks for a certificate, and takes httpd's filter out: its own has all of the body. */
static int reads_anew(const request_rec *r)
{
    const ap_filter_t *f;

    for (f = r->proto_input_filters; f; f = f->next) {
        if (f->frec == ap_http_input_filter_handle) {
            return 0;
        }
    }
    return 1;
}

idem_taken_e idem_taken_what(const request_rec *r, const idem_ctx_t *ctx, idem_spool_t **spool, int *ended)
{
    idem_taken_t *taken = ctx->taken;

    if (!taken && ctx->unwatched && was_read(r)) {
        return IDEM_TAKEN_LOST;
    }
    if (!taken || !taken->seen) {
        return r->read_length > 0 || (taken && taken->touched && !reads_anew(r)) ? IDEM_TAKEN_LOST : IDEM_TAKEN_NOTHING;
    }
    /* with r->kept_body another module gives the handler a body of its own making */
    if (taken->lost || r->kept_body) {
        return IDEM_TAKEN_LOST;
    }
    *spool = &taken->spool;
    *ended = taken->ended;
    return taken->too_large ? IDEM_TAKEN_TOO_LARGE : IDEM_TAKEN_KEPT;
}

void idem_taken_insert(request_rec *r)
{
    const idem_ctx_t *ctx = idem_context_get(r);
    ap_filter_t *f;
    ap_filter_t *next;

    if (!ctx || !ctx->taken || !ctx->taken->seen || ctx->phase < IDEM_PHASE_READY) {
        return;
    }
    for (f = r->input_filters; f && f->frec->ftype < AP_FTYPE_PROTOCOL; f = next) {
        next = f->next;
        if (!strcmp(f->frec->name, "oidc_filter_in_filter")) {
            ap_remove_input_filter(f);
        }
    }
}

void idem_taken_register(void)
{
    ap_register_input_filter(WITNESS_NAME, witness_filter, NULL, AP_FTYPE_PROTOCOL);
    ap_register_input_filter(KEEPER_NAME, keeper_filter, NULL, AP_FTYPE_PROTOCOL - 1);
}

#include "httpd/request/capture.h"

#include <apr_cstr.h>
#include <apr_buckets.h>
#include <apr_strings.h>
#include <httpd.h>
#include <http_core.h>
#include <http_connection.h>
#include <http_log.h>
#include <http_protocol.h>

#include "httpd/logging.h"
#include "httpd/request/pile.h"
#include "httpd/request/replay.h"
#include "httpd/request/settle.h"

APLOG_USE_MODULE(idempotency);

#define FILTER_NAME "IDEMPOTENCY_CAPTURE"

typedef enum {
    CAPTURE_HOLDING, /* nothing has left */
    CAPTURE_PASSING, /* settled without a body: everything goes through */
    CAPTURE_DEAD     /* given up, or replaced by a later answer: everything is swallowed */
} capture_e;

/* One filter in one chain. The newest one of a context is in ctx->capture. */
struct idem_capture_t {
    idem_ctx_t *ctx;
    ap_filter_t *filter;
    idem_pile_t held;
    int shows_error;     /* in the chain of an answer that says what went wrong with an earlier one */
    capture_e state;
};

static void insert(request_rec *r, int after_error)
{
    idem_ctx_t *ctx = idem_context_get(r);
    idem_capture_t *capture;

    if (ctx && ctx->phase == IDEM_PHASE_SETTLED && (after_error || r->prev)) {
        /* httpd could not send what was settled, and has thrown its fields away (one of them was none) */
        idem_replay_mark_error(r, ctx);
    }
    if (!ctx || ctx->phase < IDEM_PHASE_READY || ctx->phase == IDEM_PHASE_SETTLED) {
        return;
    }
    if (ctx->capture && ctx->capture->state == CAPTURE_HOLDING) {
        ctx->capture->state = CAPTURE_DEAD;
        idem_pile_drop(&ctx->capture->held);
    }
    capture = apr_pcalloc(r->pool, sizeof(*capture));
    capture->ctx = ctx;
    capture->shows_error = after_error || (r->prev && ap_is_HTTP_ERROR(r->status));
    idem_pile_begin(&capture->held, r->pool);
    capture->filter = ap_add_output_filter(FILTER_NAME, capture, r, r->connection);
    ctx->capture = capture;
    if (after_error && ctx->running == r && !ctx->error_status) {
        /* shown from inside a handler (mod_proxy_fcgi), and an ErrorDocument elsewhere hides by its 302 what it was */
        ctx->error_status = ap_is_HTTP_ERROR(r->status) ? r->status : HTTP_INTERNAL_SERVER_ERROR;
    }
}

void idem_capture_insert(request_rec *r)
{
    insert(r, 0);
}

void idem_capture_insert_error(request_rec *r)
{
    insert(r, 1);
}

ap_filter_t *idem_capture_position(request_rec *r, const idem_ctx_t *ctx)
{
    return ctx->capture && ctx->capture->filter->r == r ? ctx->capture->filter->next : r->output_filters;
}

/*
 * The response cannot be had whole. Nothing of it has left, so the client gets an error in its place: an error bucket
 * makes httpd build one, and that answer comes through a new filter of ours, which settles.
 */
static apr_status_t give_up(ap_filter_t *f, idem_capture_t *capture, int status)
{
    apr_bucket_brigade *bb = apr_brigade_create(f->r->pool, f->c->bucket_alloc);

    capture->ctx->broken = 1;
    capture->state = CAPTURE_DEAD;
    idem_pile_drop(&capture->held);
    APR_BRIGADE_INSERT_TAIL(bb, ap_bucket_error_create(status, NULL, f->r->pool, f->c->bucket_alloc));
    APR_BRIGADE_INSERT_TAIL(bb, apr_bucket_eos_create(f->c->bucket_alloc));
    ap_pass_brigade(f->next, bb);
    return APR_EGENERAL;
}

/* Another owner's answer, or what there is to say of it, in place of what was held. The rest is swallowed. */
static apr_status_t answer_instead(ap_filter_t *f, idem_capture_t *capture)
{
    request_rec *r = f->r;

    capture->state = CAPTURE_DEAD;
    idem_pile_drop(&capture->held);
    apr_table_clear(r->headers_out);
    apr_table_clear(r->err_headers_out);
    r->content_encoding = NULL;
    r->content_languages = NULL;
    idem_replay_answer(r, capture->ctx);
    return APR_SUCCESS;
}

/* Settled; now it may leave. end: the response is complete. */
static apr_status_t release(ap_filter_t *f, idem_capture_t *capture, int end)
{
    apr_bucket_brigade *bb = apr_brigade_create(f->r->pool, f->c->bucket_alloc);
    apr_bucket *held = idem_pile_bucket(&capture->held, f->c->bucket_alloc);

    if (held) {
        APR_BRIGADE_INSERT_TAIL(bb, held);
    }
    if (end) {
        APR_BRIGADE_INSERT_TAIL(bb, apr_bucket_eos_create(f->c->bucket_alloc));
        ap_remove_output_filter(f);
    }
    capture->state = CAPTURE_PASSING;
    idem_replay_unmark(f->r, capture->ctx);
    idem_replay_mark(f->r, capture->ctx);
    return ap_pass_brigade(f->next, bb);
}

/* Events have no end to wait for, and some answers are not to lie in a table: only that they were given is kept. */
static int keeps_body(const request_rec *r, const idem_ctx_t *ctx)
{
    return ctx->conf->snapshot_body && !(r->content_type && !apr_cstr_casecmpn(r->content_type, "text/event-stream", 17));
}

/* A response that has less than it announced was cut on its way. */
static int is_cut(const request_rec *r, const idem_capture_t *capture)
{
    const char *announced = apr_table_get(r->headers_out, "Content-Length");
    apr_off_t length;
    char *end;

    return announced && !r->header_only && !AP_STATUS_IS_HEADER_ONLY(r->status) &&
           apr_strtoff(&length, announced, &end, 10) == APR_SUCCESS && !*end && length > (apr_off_t)capture->held.len;
}

static int is_script(const request_rec *r)
{
    return (r->handler && (!strcmp(r->handler, "cgi-script") || !strcmp(r->handler, CGI_MAGIC_TYPE))) ||
           (r->proxyreq && r->filename && strncmp(r->filename, "proxy:http", 10));
}

/* A length that httpd itself would not have believed is not for the client: a script may have counted characters. */
static void drop_hint(request_rec *r, const idem_ctx_t *ctx)
{
    if (ctx->length_is_a_hint && is_script(r)) {
        apr_table_unset(r->headers_out, "Content-Length");
    }
}

/* What a backend has ended its response with is no response: 1xx only announces one, and httpd would send nothing else. */
static int is_interim(const request_rec *r)
{
    if (!ap_is_HTTP_INFO(r->status)) {
        return 0;
    }
    ap_log_rerror(APLOG_MARK, APLOG_ERR, 0, r, IDEM_LOG("0703") "the backend's only status is %d, which is none of a response",
                  r->status);
    return 1;
}

/* The end of the response has come. */
static apr_status_t complete(ap_filter_t *f, idem_capture_t *capture)
{
    if (is_cut(f->r, capture)) {
        ap_log_rerror(APLOG_MARK, APLOG_ERR, 0, f->r, IDEM_LOG("0701") "the response is shorter than announced");
        return give_up(f, capture, HTTP_BAD_GATEWAY);
    }
    if (is_interim(f->r) || (capture->ctx->broken && !capture->shows_error)) {
        return give_up(f, capture, HTTP_BAD_GATEWAY);
    }
    drop_hint(f->r, capture->ctx);
    return idem_settle(f->r, capture->ctx, keeps_body(f->r, capture->ctx) ? &capture->held : NULL)
               ? release(f, capture, 1)
               : answer_instead(f, capture);
}

/* Takes one bucket of data. *passing is set where the response is not to be held any longer. */
static apr_status_t hold(ap_filter_t *f, idem_capture_t *capture, apr_bucket *e, int *passing)
{
    const char *data;
    apr_size_t len;
    apr_status_t rv = apr_bucket_read(e, &data, &len, APR_BLOCK_READ);

    if (APR_STATUS_IS_ECONNRESET(rv) && !APR_BUCKET_IS_SOCKET(e)) {
        /* A script of mod_cgid that did not read its whole request: what it was handed as a pipe is a socket, and says
         * this behind the last octet, where a pipe has its end. */
        apr_bucket_delete(e);
        return APR_SUCCESS;
    }
    if (rv != APR_SUCCESS) {
        return rv;
    }
    if (!keeps_body(f->r, capture->ctx) || (apr_off_t)(capture->held.len + len) > capture->ctx->conf->max_snapshot) {
        *passing = 1;
        return APR_SUCCESS;
    }
    /* copied, so that what a script wrote in small pieces does not keep a bucket of 8000 octets for each */
    rv = idem_pile_add(&capture->held, data, len);
    if (rv == APR_SUCCESS) {
        apr_bucket_delete(e);
    }
    return rv;
}

/* Settles without a body, sends what was held, and lets the rest follow. */
static apr_status_t pass_through(ap_filter_t *f, idem_capture_t *capture, apr_bucket_brigade *bb)
{
    apr_status_t rv;

    if (is_interim(f->r)) {
        apr_brigade_cleanup(bb);
        return give_up(f, capture, HTTP_BAD_GATEWAY);
    }
    drop_hint(f->r, capture->ctx);
    if (!idem_settle(f->r, capture->ctx, NULL)) {
        apr_brigade_cleanup(bb);
        return answer_instead(f, capture);
    }
    rv = release(f, capture, 0);
    if (rv == APR_SUCCESS) {
        ap_remove_output_filter(f);
        rv = ap_pass_brigade(f->next, bb);
    }
    return rv;
}

static int status_of_failure(apr_status_t rv)
{
    return APR_STATUS_IS_TIMEUP(rv) ? HTTP_GATEWAY_TIME_OUT : HTTP_BAD_GATEWAY;
}

static apr_status_t capture_filter(ap_filter_t *f, apr_bucket_brigade *bb)
{
    idem_capture_t *capture = f->ctx;
    idem_ctx_t *ctx = capture->ctx;
    int passing = 0;

    if (capture->state == CAPTURE_DEAD) {
        apr_brigade_cleanup(bb);
        return APR_EGENERAL;
    }
    if (ctx->phase != IDEM_PHASE_RUNNING || capture->state == CAPTURE_PASSING) {
        /* nothing was reserved for this request, or it is settled: none of our business */
        ap_remove_output_filter(f);
        return ap_pass_brigade(f->next, bb);
    }
    while (!APR_BRIGADE_EMPTY(bb)) {
        apr_bucket *e = APR_BRIGADE_FIRST(bb);
        apr_status_t rv;

        if (APR_BUCKET_IS_EOS(e)) {
            apr_brigade_cleanup(bb);
            return complete(f, capture);
        }
        if (AP_BUCKET_IS_ERROR(e)) {
            int status = ((ap_bucket_error *)e->data)->status;

            apr_brigade_cleanup(bb);
            return give_up(f, capture, status);
        }
        if (APR_BUCKET_IS_METADATA(e)) {
            /* a flush would send what is not settled yet */
            apr_bucket_delete(e);
            continue;
        }
        rv = hold(f, capture, e, &passing);
        if (rv != APR_SUCCESS) {
            ap_log_rerror(APLOG_MARK, APLOG_ERR, rv, f->r, IDEM_LOG("0702") "the response cannot be read to its end");
            apr_brigade_cleanup(bb);
            return give_up(f, capture, status_of_failure(rv));
        }
        if (passing) {
            return pass_through(f, capture, bb);
        }
    }
    return APR_SUCCESS;
}

void idem_capture_register(void)
{
    ap_register_output_filter(FILTER_NAME, capture_filter, NULL, AP_FTYPE_CONTENT_SET - 3);
}

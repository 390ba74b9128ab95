#include "httpd/request/body.h"

#include <apr_buckets.h>
#include <apr_strings.h>
#include <httpd.h>
#include <http_core.h>
#include <http_log.h>
#include <http_protocol.h>
#include <util_filter.h>

#include "core/digest.h"
#include "core/media.h"
#include "httpd/logging.h"
#include "httpd/request/recipe.h"
#include "httpd/request/spool.h"
#include "httpd/request/taken.h"

APLOG_USE_MODULE(idempotency);

#define READ_SIZE   65536
#define FILTER_NAME "IDEMPOTENCY_BODY"

struct idem_body_t {
    apr_pool_t *pool;
    apr_bucket_alloc_t *alloc;
    idem_spool_t spool;         /* all of it, for the handler and for a look through another recipe */
    apr_bucket_brigade *rest;   /* what nobody has read yet; made at the first read */
};

/* The payload reader while the body comes in. */
typedef struct feeding_t {
    const idem_dir_t *conf;
    idem_payload_t *payload;
    int rejected;
} feeding_t;

static void digest_octets(void *baton, const void *octets, apr_size_t len)
{
    idem_sha256_update(baton, octets, len);
}

idem_payload_t *idem_body_reader(idem_ctx_t *ctx, const idem_recipe_t *recipe, idem_sha256_t *sha)
{
    const char *type = ctx->request->content_type;
    int known;

    return idem_payload_create(ctx->pool, recipe->mode, idem_recipe_contract(ctx->conf, recipe, &known),
                               recipe->mode == IDEM_PAYLOAD_MULTIPART ? idem_media_parameter(ctx->pool, type, "boundary")
                                                                      : NULL,
                               digest_octets, sha);
}

/* IdempotencyMaxBody or LimitRequestBody, whichever is smaller. */
apr_off_t idem_body_largest(const request_rec *r, const idem_dir_t *conf)
{
    apr_off_t limit = ap_get_limit_req_body(r);

    return limit > 0 && limit < conf->max_body ? limit : conf->max_body;
}

/* One piece for the payload reader; what it refuses is wanted whole all the same where an earlier contract may take it. */
static apr_status_t feed(void *baton, const void *octets, apr_size_t len)
{
    feeding_t *feeding = baton;

    if (!feeding->rejected && idem_payload_feed(feeding->payload, octets, len) != APR_SUCCESS) {
        feeding->rejected = 1;
    }
    return feeding->rejected && (!feeding->conf->contracts || feeding->conf->contracts->nelts < 2) ? APR_EGENERAL : APR_SUCCESS;
}

/* One brigade of input: kept and fed. *ended is set at the end of the body. */
static idem_body_result_e take(request_rec *r, idem_spool_t *spool, feeding_t *feeding, apr_bucket_brigade *bb, int *ended,
                               int *status)
{
    apr_off_t limit = idem_body_largest(r, feeding->conf);
    apr_bucket *e;

    for (e = APR_BRIGADE_FIRST(bb); e != APR_BRIGADE_SENTINEL(bb); e = APR_BUCKET_NEXT(e)) {
        const char *data;
        apr_size_t len;
        apr_status_t rv;

        if (APR_BUCKET_IS_EOS(e)) {
            *ended = 1;
            return IDEM_BODY_OK;
        }
        if (APR_BUCKET_IS_METADATA(e)) {
            continue;
        }
        rv = apr_bucket_read(e, &data, &len, APR_BLOCK_READ);
        if (rv != APR_SUCCESS) {
            *status = ap_map_http_request_error(rv, HTTP_BAD_REQUEST);
            return IDEM_BODY_FAILED;
        }
        if (spool->length + (apr_off_t)len > limit) {
            return IDEM_BODY_TOO_LARGE;
        }
        rv = idem_spool_add(spool, data, len);
        if (rv != APR_SUCCESS) {
            ap_log_rerror(APLOG_MARK, APLOG_ERR, rv, r, IDEM_LOG("0201") "the request body cannot be kept in a temporary file");
            *status = HTTP_INTERNAL_SERVER_ERROR;
            return IDEM_BODY_FAILED;
        }
        if (feed(feeding, data, len) != APR_SUCCESS) {
            return IDEM_BODY_REJECTED;
        }
    }
    return IDEM_BODY_OK;
}

static idem_body_result_e read_rest(request_rec *r, idem_spool_t *spool, feeding_t *feeding, int *status)
{
    apr_bucket_brigade *bb = apr_brigade_create(r->pool, r->connection->bucket_alloc);
    idem_body_result_e result = IDEM_BODY_OK;
    int proxyreq = r->proxyreq;
    int ended = 0;

    /*
     * httpd's own check of LimitRequestBody sends its HTML page from within this very call. It leaves a proxied request
     * alone, so for the time of the first read this is one; the limit is kept above, with an answer of ours.
     */
    r->proxyreq = proxyreq == PROXYREQ_NONE ? PROXYREQ_REVERSE : proxyreq;
    while (result == IDEM_BODY_OK && !ended) {
        apr_status_t rv = ap_get_brigade(r->proto_input_filters, bb, AP_MODE_READBYTES, APR_BLOCK_READ, READ_SIZE);

        if (rv != APR_SUCCESS) {
            /* LimitRequestBody: httpd has answered already where it says AP_FILTER_ERROR */
            *status = ap_map_http_request_error(rv, HTTP_BAD_REQUEST);
            result = *status == HTTP_REQUEST_ENTITY_TOO_LARGE ? IDEM_BODY_TOO_LARGE : IDEM_BODY_FAILED;
            break;
        }
        result = take(r, spool, feeding, bb, &ended, status);
        apr_brigade_cleanup(bb);
    }
    r->proxyreq = proxyreq;
    apr_brigade_destroy(bb);
    return result == IDEM_BODY_OK && feeding->rejected ? IDEM_BODY_REJECTED : result;
}

/* The length that the client announced; -1: none, which with a transfer coding means "until it ends". */
static apr_off_t announced_length(const request_rec *r, int *has_body)
{
    const char *length = apr_table_get(r->headers_in, "Content-Length");
    apr_off_t value;
    char *end;

    *has_body = 1;
    if (apr_table_get(r->headers_in, "Transfer-Encoding")) {
        return -1;
    }
    if (length && apr_strtoff(&value, length, &end, 10) == APR_SUCCESS && end != length && !*end && value >= 0) {
        return value;
    }
    *has_body = length != NULL;
    return -1;
}

/* Puts our filter where the protocol's filters stood: it has all they could give. */
static void hand_over(request_rec *r, idem_body_t *body)
{
    apr_table_unset(r->headers_in, "Transfer-Encoding");
    apr_table_setn(r->headers_in, "Content-Length", apr_off_t_toa(r->pool, body->spool.length));
    while (r->proto_input_filters->frec->ftype < AP_FTYPE_CONNECTION) {
        ap_remove_input_filter(r->proto_input_filters);
    }
    ap_add_input_filter(FILTER_NAME, body, r, r->connection);
}

static const char *describe_fault(apr_pool_t *p, const idem_payload_fault_t *fault)
{
    if (!fault) {
        return NULL;
    }
    return fault->pointer ? apr_psprintf(p, "%s (at \"%s\")", fault->detail, fault->pointer) : fault->detail;
}

/* The body: what others have read of it already, then the rest. */
static idem_body_result_e read_all(request_rec *r, idem_ctx_t *ctx, idem_spool_t *spool, feeding_t *feeding, int *status)
{
    idem_spool_t *kept = NULL;
    int ended = 0;

    switch (idem_taken_what(r, ctx, &kept, &ended)) {
    case IDEM_TAKEN_LOST:
        return IDEM_BODY_CONSUMED;
    case IDEM_TAKEN_TOO_LARGE:
        return IDEM_BODY_TOO_LARGE;
    case IDEM_TAKEN_KEPT:
        *spool = *kept;
        /* httpd's old way of reading a body takes this for the sign that there is none any more */
        r->read_length = 0;
        if (idem_spool_read(spool, feed, feeding) != APR_SUCCESS || (ended && feeding->rejected)) {
            return feeding->rejected ? IDEM_BODY_REJECTED : IDEM_BODY_CONSUMED;
        }
        break;
    default:
        break;
    }
    return ended ? IDEM_BODY_OK : read_rest(r, spool, feeding, status);
}

idem_body_result_e idem_body_read(request_rec *r, idem_ctx_t *ctx, const idem_recipe_t *recipe,
                                  unsigned char digest[IDEM_FINGERPRINT_LEN], const char **detail, int *status)
{
    idem_sha256_t *sha = idem_sha256_init(ctx->pool);
    feeding_t feeding = {ctx->conf, idem_body_reader(ctx, recipe, sha), 0};
    idem_body_t *body = apr_pcalloc(ctx->pool, sizeof(*body));
    int has_body;
    apr_off_t announced = announced_length(r, &has_body);
    idem_body_result_e result = IDEM_BODY_OK;

    body->pool = ctx->pool;
    body->alloc = r->connection->bucket_alloc;
    idem_spool_begin(&body->spool, ctx->pool, ctx->conf->body_memory);
    ctx->body = body;
    if (announced > idem_body_largest(r, ctx->conf)) {
        return IDEM_BODY_TOO_LARGE;
    }
    if (has_body) {
        result = read_all(r, ctx, &body->spool, &feeding, status);
        if (result == IDEM_BODY_OK && announced >= 0 && announced != body->spool.length) {
            return IDEM_BODY_CONSUMED;
        }
    }
    else if (r->read_length > 0) {
        return IDEM_BODY_CONSUMED;
    }
    if (result == IDEM_BODY_OK && idem_payload_finish(feeding.payload) != APR_SUCCESS) {
        result = IDEM_BODY_REJECTED;
    }
    if (result == IDEM_BODY_REJECTED) {
        *detail = describe_fault(ctx->pool, idem_payload_fault(feeding.payload));
    }
    else if (result == IDEM_BODY_OK) {
        idem_sha256_final(sha, digest);
    }
    if (has_body && (result == IDEM_BODY_OK || result == IDEM_BODY_REJECTED)) {
        hand_over(r, body);
    }
    return result;
}

static apr_status_t feed_again(void *payload, const void *octets, apr_size_t len)
{
    return idem_payload_feed(payload, octets, len);
}

int idem_body_digest(idem_ctx_t *ctx, const idem_recipe_t *recipe, unsigned char digest[IDEM_FINGERPRINT_LEN])
{
    idem_sha256_t *sha = idem_sha256_init(ctx->pool);
    idem_payload_t *payload = idem_body_reader(ctx, recipe, sha);

    if (idem_spool_read(&ctx->body->spool, feed_again, payload) != APR_SUCCESS || idem_payload_finish(payload) != APR_SUCCESS) {
        return 0;
    }
    idem_sha256_final(sha, digest);
    return 1;
}

/* Makes the brigade that readers take from, at the first read. */
static void open_rest(idem_body_t *body)
{
    if (!body->rest) {
        body->rest = apr_brigade_create(body->pool, body->alloc);
        idem_spool_append_to(&body->spool, body->rest);
    }
}

/*
 * AP_FTYPE_PROTOCOL, in place of HTTP_IN: several requests of one chain read from it, each goes on where the former
 * stopped, and after the end there is an end for ever, as httpd's own filter has it.
 */
static apr_status_t body_filter(ap_filter_t *f, apr_bucket_brigade *bb, ap_input_mode_t mode, apr_read_type_e block,
                                apr_off_t readbytes)
{
    idem_body_t *body = f->ctx;
    apr_bucket *end;
    apr_status_t rv;

    if (mode != AP_MODE_READBYTES && mode != AP_MODE_GETLINE) {
        return APR_ENOTIMPL;
    }
    open_rest(body);
    if (APR_BRIGADE_EMPTY(body->rest)) {
        APR_BRIGADE_INSERT_TAIL(bb, apr_bucket_eos_create(f->c->bucket_alloc));
        return APR_SUCCESS;
    }
    if (mode == AP_MODE_GETLINE) {
        return apr_brigade_split_line(bb, body->rest, block, HUGE_STRING_LEN);
    }
    rv = apr_brigade_partition(body->rest, readbytes, &end);
    if (rv != APR_SUCCESS && rv != APR_INCOMPLETE) {
        return rv;
    }
    while (!APR_BRIGADE_EMPTY(body->rest) && APR_BRIGADE_FIRST(body->rest) != end) {
        apr_bucket *e = APR_BRIGADE_FIRST(body->rest);

        APR_BUCKET_REMOVE(e);
        APR_BRIGADE_INSERT_TAIL(bb, e);
    }
    if (APR_BRIGADE_EMPTY(body->rest)) {
        APR_BRIGADE_INSERT_TAIL(bb, apr_bucket_eos_create(f->c->bucket_alloc));
    }
    return APR_SUCCESS;
}

void idem_body_register(void)
{
    ap_register_input_filter(FILTER_NAME, body_filter, NULL, AP_FTYPE_PROTOCOL);
}

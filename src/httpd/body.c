#include "httpd/body.h"

#include <apr_buckets.h>
#include <apr_file_io.h>
#include <apr_strings.h>
#include <httpd.h>
#include <http_core.h>
#include <http_log.h>
#include <http_protocol.h>
#include <util_filter.h>

#include "core/digest.h"
#include "core/media.h"
#include "httpd/logging.h"
#include "httpd/recipe.h"

APLOG_USE_MODULE(idempotency);

#define READ_SIZE   65536
#define FILTER_NAME "IDEMPOTENCY_BODY"
#define WITNESS_NAME "IDEMPOTENCY_WITNESS"

struct idem_body_t {
    apr_pool_t *pool;
    apr_bucket_alloc_t *alloc;
    apr_bucket_brigade *memory; /* the whole body, while it is small */
    apr_file_t *file;           /* the whole body, once it was not; without a name in the file system */
    apr_off_t length;
    apr_bucket_brigade *rest;   /* what nobody has read yet; made at the first read */
};

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

/* A file without a name: a killed process leaves no payload behind. */
static apr_status_t open_spill(idem_body_t *body)
{
    const char *dir;
    char *name;
    apr_status_t rv = apr_temp_dir_get(&dir, body->pool);

    if (rv != APR_SUCCESS) {
        return rv;
    }
    name = apr_pstrcat(body->pool, dir, "/idempotency.XXXXXX", NULL);
    rv = apr_file_mktemp(&body->file, name, APR_FOPEN_CREATE | APR_FOPEN_READ | APR_FOPEN_WRITE | APR_FOPEN_EXCL |
                         APR_FOPEN_BINARY, body->pool);
    return rv == APR_SUCCESS ? apr_file_remove(name, body->pool) : rv;
}

/* Moves what is in memory to the file. */
static apr_status_t spill(idem_body_t *body)
{
    apr_status_t rv = open_spill(body);

    while (rv == APR_SUCCESS && !APR_BRIGADE_EMPTY(body->memory)) {
        apr_bucket *e = APR_BRIGADE_FIRST(body->memory);
        const char *data;
        apr_size_t len;

        rv = apr_bucket_read(e, &data, &len, APR_BLOCK_READ);
        if (rv == APR_SUCCESS) {
            rv = apr_file_write_full(body->file, data, len, NULL);
        }
        apr_bucket_delete(e);
    }
    return rv;
}

static apr_status_t keep(idem_body_t *body, const char *data, apr_size_t len, apr_off_t memory)
{
    apr_status_t rv = APR_SUCCESS;

    if (!body->file && body->length + (apr_off_t)len > memory) {
        rv = spill(body);
    }
    if (rv == APR_SUCCESS) {
        rv = body->file ? apr_file_write_full(body->file, data, len, NULL)
                        : apr_brigade_write(body->memory, NULL, NULL, data, len);
    }
    body->length += (apr_off_t)len;
    return rv;
}

/* IdempotencyMaxBody or LimitRequestBody, whichever is smaller. */
apr_off_t idem_body_largest(const request_rec *r, const idem_ctx_t *ctx)
{
    apr_off_t limit = ap_get_limit_req_body(r);

    return limit > 0 && limit < ctx->conf->max_body ? limit : ctx->conf->max_body;
}

/* One brigade of input: kept and fed. *ended is set at the end of the body. */
static idem_body_result_e take(request_rec *r, idem_ctx_t *ctx, idem_payload_t *payload, apr_bucket_brigade *bb,
                               int *ended, int *rejected, int *status)
{
    apr_off_t limit = idem_body_largest(r, ctx);
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
        if (ctx->body->length + (apr_off_t)len > limit) {
            return IDEM_BODY_TOO_LARGE;
        }
        rv = keep(ctx->body, data, len, ctx->conf->body_memory);
        if (rv != APR_SUCCESS) {
            ap_log_rerror(APLOG_MARK, APLOG_ERR, rv, r, IDEM_LOG("0201") "the request body cannot be kept in a temporary file");
            *status = HTTP_INTERNAL_SERVER_ERROR;
            return IDEM_BODY_FAILED;
        }
        if (!*rejected && idem_payload_feed(payload, data, len) != APR_SUCCESS) {
            *rejected = 1;
            /* an earlier contract may take it: then it is wanted whole */
            if (!ctx->conf->contracts || ctx->conf->contracts->nelts < 2) {
                return IDEM_BODY_REJECTED;
            }
        }
    }
    return IDEM_BODY_OK;
}

static idem_body_result_e read_all(request_rec *r, idem_ctx_t *ctx, idem_payload_t *payload, int *status)
{
    apr_bucket_brigade *bb = apr_brigade_create(r->pool, r->connection->bucket_alloc);
    idem_body_result_e result = IDEM_BODY_OK;
    int proxyreq = r->proxyreq;
    int rejected = 0;
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
        result = take(r, ctx, payload, bb, &ended, &rejected, status);
        apr_brigade_cleanup(bb);
    }
    r->proxyreq = proxyreq;
    apr_brigade_destroy(bb);
    return result == IDEM_BODY_OK && rejected ? IDEM_BODY_REJECTED : result;
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
    apr_table_setn(r->headers_in, "Content-Length", apr_off_t_toa(r->pool, body->length));
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

idem_body_result_e idem_body_read(request_rec *r, idem_ctx_t *ctx, const idem_recipe_t *recipe,
                                  unsigned char digest[IDEM_FINGERPRINT_LEN], const char **detail, int *status)
{
    idem_sha256_t *sha = idem_sha256_init(ctx->pool);
    idem_payload_t *payload = idem_body_reader(ctx, recipe, sha);
    idem_body_t *body = apr_pcalloc(ctx->pool, sizeof(*body));
    int has_body;
    apr_off_t announced = announced_length(r, &has_body);
    idem_body_result_e result = IDEM_BODY_OK;

    body->pool = ctx->pool;
    body->alloc = r->connection->bucket_alloc;
    body->memory = apr_brigade_create(ctx->pool, body->alloc);
    ctx->body = body;
    if (ctx->witness && !ctx->body_touched) {
        ap_remove_input_filter(ctx->witness);
    }
    if (announced > idem_body_largest(r, ctx)) {
        return IDEM_BODY_TOO_LARGE;
    }
    if (r->read_length > 0 || ctx->body_touched) {
        return IDEM_BODY_CONSUMED;
    }
    if (has_body) {
        result = read_all(r, ctx, payload, status);
        if (result == IDEM_BODY_OK && announced >= 0 && announced != body->length) {
            return IDEM_BODY_CONSUMED;
        }
    }
    if (result == IDEM_BODY_OK && idem_payload_finish(payload) != APR_SUCCESS) {
        result = IDEM_BODY_REJECTED;
    }
    if (result == IDEM_BODY_REJECTED) {
        *detail = describe_fault(ctx->pool, idem_payload_fault(payload));
    }
    else if (result == IDEM_BODY_OK) {
        idem_sha256_final(sha, digest);
    }
    if (has_body && (result == IDEM_BODY_OK || result == IDEM_BODY_REJECTED)) {
        hand_over(r, body);
    }
    return result;
}

static apr_status_t feed_file(idem_body_t *body, idem_payload_t *payload)
{
    char *buffer = apr_palloc(body->pool, READ_SIZE);
    apr_off_t at = 0;
    apr_status_t rv = apr_file_seek(body->file, APR_SET, &at);

    while (rv == APR_SUCCESS) {
        apr_size_t len = READ_SIZE;

        rv = apr_file_read(body->file, buffer, &len);
        if (rv == APR_SUCCESS) {
            rv = idem_payload_feed(payload, buffer, len);
        }
    }
    return rv == APR_EOF ? APR_SUCCESS : rv;
}

static apr_status_t feed_memory(idem_body_t *body, idem_payload_t *payload)
{
    apr_bucket *e;
    apr_status_t rv = APR_SUCCESS;

    for (e = APR_BRIGADE_FIRST(body->memory); rv == APR_SUCCESS && e != APR_BRIGADE_SENTINEL(body->memory);
         e = APR_BUCKET_NEXT(e)) {
        const char *data;
        apr_size_t len;

        rv = apr_bucket_read(e, &data, &len, APR_BLOCK_READ);
        if (rv == APR_SUCCESS) {
            rv = idem_payload_feed(payload, data, len);
        }
    }
    return rv;
}

int idem_body_digest(idem_ctx_t *ctx, const idem_recipe_t *recipe, unsigned char digest[IDEM_FINGERPRINT_LEN])
{
    idem_sha256_t *sha = idem_sha256_init(ctx->pool);
    idem_payload_t *payload = idem_body_reader(ctx, recipe, sha);
    apr_status_t rv = ctx->body->file ? feed_file(ctx->body, payload) : feed_memory(ctx->body, payload);

    if (rv != APR_SUCCESS || idem_payload_finish(payload) != APR_SUCCESS) {
        return 0;
    }
    idem_sha256_final(sha, digest);
    return 1;
}

/* Makes the brigade that readers take from, at the first read. */
static void open_rest(idem_body_t *body)
{
    apr_bucket *e;

    if (body->rest) {
        return;
    }
    body->rest = apr_brigade_create(body->pool, body->alloc);
    if (!body->file) {
        /* copies share the octets; ours stay for a look through another recipe, whoever reads the body before that */
        for (e = APR_BRIGADE_FIRST(body->memory); e != APR_BRIGADE_SENTINEL(body->memory); e = APR_BUCKET_NEXT(e)) {
            apr_bucket *copy;

            if (apr_bucket_copy(e, &copy) == APR_SUCCESS) {
                APR_BRIGADE_INSERT_TAIL(body->rest, copy);
            }
        }
        return;
    }
    apr_brigade_insert_file(body->rest, body->file, 0, body->length, body->pool);
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

/* Notes that somebody reads the body before we do, and is gone. */
static apr_status_t witness_filter(ap_filter_t *f, apr_bucket_brigade *bb, ap_input_mode_t mode, apr_read_type_e block,
                                   apr_off_t readbytes)
{
    idem_ctx_t *ctx = f->ctx;
    ap_filter_t *next = f->next;

    ctx->body_touched = 1;
    ap_remove_input_filter(f);
    return ap_get_brigade(next, bb, mode, block, readbytes);
}

void idem_body_watch(request_rec *r, idem_ctx_t *ctx)
{
    int has_body;

    announced_length(r, &has_body);
    if (has_body) {
        ctx->witness = ap_add_input_filter(WITNESS_NAME, ctx, r, r->connection);
    }
}

void idem_body_register(void)
{
    ap_register_input_filter(WITNESS_NAME, witness_filter, NULL, AP_FTYPE_PROTOCOL);
    ap_register_input_filter(FILTER_NAME, body_filter, NULL, AP_FTYPE_PROTOCOL);
}

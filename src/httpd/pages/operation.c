#include "httpd/pages/operation.h"

#include <yajl/yajl_gen.h>

#include <apr_strings.h>
#include <http_config.h>
#include <http_log.h>
#include <http_protocol.h>

#include "core/uuid.h"
#include "httpd/child/child.h"
#include "httpd/request/identity.h"
#include "httpd/logging.h"
#include "httpd/request/lookup.h"
#include "httpd/pages/page.h"

APLOG_USE_MODULE(idempotency);

#define HANDLER "idempotency-operation"

/* The identity of this request, as a keyed one would have it. */
static int identify(request_rec *r, idem_ctx_t *ctx)
{
    if (!ctx->conf) {
        ctx->conf = idem_config_resolve(ctx->pool, idem_config_dir(r));
    }
    return idem_identity_resolve(r, ctx);
}

/* The operation id at the end of the path, or NULL. */
static const char *named_operation(const request_rec *r, unsigned char operation[IDEM_UUID_LEN])
{
    const char *slash = strrchr(r->uri, '/');
    const char *text = slash ? slash + 1 : r->uri;

    return idem_uuid_parse(text, operation) == APR_SUCCESS ? text : NULL;
}

static void put_time(yajl_gen gen, apr_pool_t *p, const char *name, apr_time_t when)
{
    idem_page_string(gen, name);
    if (!when || when == APR_INT64_MAX) {
        yajl_gen_null(gen);
    }
    else {
        idem_page_string(gen, idem_page_time(p, when));
    }
}

static int show(request_rec *r, const idem_record_t *record, int status)
{
    yajl_gen gen = yajl_gen_alloc(NULL);

    yajl_gen_map_open(gen);
    idem_page_string(gen, "operation");
    idem_page_string(gen, idem_uuid_text(r->pool, record->operation));
    idem_page_string(gen, "state");
    idem_page_string(gen, idem_state_name(record->state));
    idem_page_string(gen, "generation");
    yajl_gen_integer(gen, record->generation);
    put_time(gen, r->pool, "created", record->created_at);
    put_time(gen, r->pool, "settled", record->settled_at);
    put_time(gen, r->pool, "expires", record->expires_at);
    idem_page_string(gen, "status");
    if (record->response_code) {
        yajl_gen_integer(gen, record->response_code);
    }
    else {
        yajl_gen_null(gen);
    }
    idem_page_string(gen, "links");
    yajl_gen_map_open(gen);
    idem_page_string(gen, "self");
    idem_page_string(gen, r->uri);
    yajl_gen_map_close(gen);
    yajl_gen_map_close(gen);
    return idem_page_send_json(r, gen, status);
}

static int cancel(request_rec *r, idem_store_t *store, idem_record_t *record)
{
    apr_time_t deadline = apr_time_now() + store->timeout;

    switch (store->provider->cancel(store, record->scope.tenant, record->operation, record->generation, "caller", deadline,
                                    r->pool)) {
    case IDEM_STORE_OK:
        ap_log_rerror(APLOG_MARK, APLOG_INFO, 0, r, IDEM_LOG("1220") "operation %s was cancelled by its caller",
                      idem_uuid_text(r->pool, record->operation));
        r->status = HTTP_NO_CONTENT;
        return idem_page_send(r, NULL, "", 0);
    case IDEM_STORE_UNAVAILABLE:
    case IDEM_STORE_AMBIGUOUS:
        return HTTP_SERVICE_UNAVAILABLE;
    default:
        return show(r, record, HTTP_CONFLICT);
    }
}

int idem_operation_handler(request_rec *r)
{
    idem_ctx_t *ctx = idem_context_get(r);
    unsigned char operation[IDEM_UUID_LEN];
    idem_record_t *record = NULL;
    idem_store_t *store;
    int status = idem_page_begin(r, HANDLER, (AP_METHOD_BIT << M_GET) | (AP_METHOD_BIT << M_DELETE));

    if (status != OK) {
        return status;
    }
    if (!ctx) {
        return DECLINED;
    }
    store = idem_context_store(ctx);
    if (!store) {
        return HTTP_SERVICE_UNAVAILABLE;
    }
    if (!identify(r, ctx)) {
        return HTTP_FORBIDDEN;
    }
    if (!named_operation(r, operation)) {
        return HTTP_NOT_FOUND;
    }
    switch (idem_lookup_operation(ctx, operation, &record)) {
    case IDEM_STORE_OK:
        break;
    case IDEM_STORE_NOT_FOUND:
        return HTTP_NOT_FOUND;
    default:
        return HTTP_SERVICE_UNAVAILABLE;
    }
    return r->method_number == M_DELETE ? cancel(r, store, record) : show(r, record, HTTP_OK);
}

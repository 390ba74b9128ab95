#include "httpd/request/prepare.h"

#include <apr_strings.h>
#include <httpd.h>
#include <http_log.h>
#include <http_protocol.h>

#include "httpd/request/body.h"
#include "httpd/request/identity.h"
#include "httpd/request/key.h"
#include "httpd/logging.h"
#include "httpd/request/recipe.h"
#include "httpd/request/route.h"
#include "httpd/request/shadow.h"
#include "httpd/request/taken.h"
#include "httpd/setup/values.h"

APLOG_USE_MODULE(idempotency);

/* As CGI sees names: "-" and "_" are one, case does not count. */
static int is_ours(const char *name)
{
    char folded[32];
    size_t i;

    for (i = 0; name[i] && i < sizeof(folded) - 1; i++) {
        folded[i] = name[i] == '_' ? '-' : name[i];
    }
    folded[i] = '\0';
    return idem_values_is_backend_header(folded);
}

int idem_prepare_scrub(request_rec *r)
{
    const apr_array_header_t *fields = apr_table_elts(r->headers_in);
    const apr_table_entry_t *field = (const apr_table_entry_t *)fields->elts;
    apr_array_header_t *doomed = NULL;
    idem_ctx_t *ctx = idem_context_get(r);
    int i;

    if (!ctx || r->prev) {
        return DECLINED;
    }
    /* when the request was created httpd had not read its Host yet, and knew only the first server of the address */
    ctx->server = idem_config_server(r->server);
    if (!ctx->server->has_routes) {
        return DECLINED;
    }
    idem_taken_watch(r, ctx);
    for (i = 0; i < fields->nelts; i++) {
        if ((field[i].key[0] == 'I' || field[i].key[0] == 'i') && is_ours(field[i].key)) {
            doomed = doomed ? doomed : apr_array_make(r->pool, 2, sizeof(const char *));
            APR_ARRAY_PUSH(doomed, const char *) = field[i].key;
        }
    }
    for (i = 0; doomed && i < doomed->nelts; i++) {
        apr_table_unset(r->headers_in, APR_ARRAY_IDX(doomed, i, const char *));
    }
    return DECLINED;
}

int idem_prepare_scope(request_rec *r, idem_ctx_t *ctx)
{
    const char *why = NULL;
    idem_scope_result_e result;

    if (!idem_identity_resolve(r, ctx)) {
        if (ctx->conf->no_identity == IDEM_NO_IDENTITY_BYPASS) {
            ctx->phase = IDEM_PHASE_PASSED;
            ctx->outcome_note = "bypassed";
        }
        else {
            idem_context_refuse(ctx, IDEM_PROBLEM_IDENTITY_MISSING, NULL);
        }
        return 0;
    }
    if (!ctx->route_name) {
        ctx->route_name = idem_route_name(r, ctx, &why);
    }
    if (!ctx->route_name) {
        idem_context_refuse(ctx, IDEM_PROBLEM_ROUTE_UNRESOLVED, why);
        return 0;
    }
    ctx->scope.version = IDEM_SCOPE_VERSION;
    ctx->scope.route = ctx->route_name;
    ctx->scope.revision = ctx->route->revision;
    ctx->scope.key = ctx->key;
    result = idem_scope_check(&ctx->scope);
    if (result != IDEM_SCOPE_OK) {
        ap_log_rerror(APLOG_MARK, APLOG_ERR, 0, r, IDEM_LOG("0301") "no scope for this request: %s",
                      idem_scope_result_text(r->pool, result));
        idem_context_refuse(ctx, IDEM_PROBLEM_ROUTE_UNRESOLVED, NULL);
        return 0;
    }
    return 1;
}

static const char *header_value(void *baton, const char *name)
{
    return apr_table_get(((const request_rec *)baton)->headers_in, name);
}

/* The request as the fingerprint sees it, all but its payload. */
idem_request_t *idem_prepare_describe(request_rec *r, idem_ctx_t *ctx)
{
    const request_rec *received = idem_context_received(r);
    idem_request_t *request = apr_pcalloc(ctx->pool, sizeof(*request));

    request->method = received->method;
    request->host = r->hostname;
    request->port = received->parsed_uri.port_str && received->parsed_uri.port != ap_run_default_port(r)
                        ? received->parsed_uri.port
                        : 0;
    request->target = received->unparsed_uri;
    request->content_type = apr_table_get(r->headers_in, "Content-Type");
    request->content_coding = apr_table_get(r->headers_in, "Content-Encoding");
    request->header = header_value;
    request->header_baton = r;
    return request;
}

static int refuse_body(request_rec *r, idem_ctx_t *ctx, idem_body_result_e result, const char *detail, int status)
{
    switch (result) {
    case IDEM_BODY_TOO_LARGE:
        idem_context_refuse(ctx, IDEM_PROBLEM_PAYLOAD_TOO_LARGE, NULL);
        return OK;
    case IDEM_BODY_CONSUMED:
        ap_log_rerror(APLOG_MARK, APLOG_ERR, 0, r, IDEM_LOG("0302")
                      "another module has read the request body already: it cannot be fingerprinted");
        idem_context_refuse(ctx, IDEM_PROBLEM_BODY_CONSUMED, NULL);
        return OK;
    case IDEM_BODY_REJECTED:
        idem_context_refuse(ctx, IDEM_PROBLEM_PAYLOAD_REJECTED, detail);
        return OK;
    default:
        ctx->phase = IDEM_PHASE_PASSED;
        return status;
    }
}

/*
 * A body that the newest contract refuses may be the retry of a request that an earlier one took: its record is to
 * answer then, and a new operation is not to begin.
 */
static int fits_earlier_contract(idem_ctx_t *ctx, idem_request_t *request, const char *detail)
{
    int i;

    for (i = 1; ctx->conf->contracts && i < ctx->conf->contracts->nelts; i++) {
        const idem_recipe_t *recipe = idem_recipe_with(ctx->pool, ctx, ctx->recipe, i);

        if (idem_body_digest(ctx, recipe, request->payload)) {
            ctx->recipe = recipe;
            ctx->look_only = detail ? detail : "";
            return 1;
        }
    }
    return 0;
}

static int fingerprint(request_rec *r, idem_ctx_t *ctx)
{
    idem_request_t *request = idem_prepare_describe(r, ctx);
    const char *detail = NULL;
    idem_recipe_t *recipe = idem_recipe_of(r, ctx, &detail);
    int status = HTTP_INTERNAL_SERVER_ERROR;
    idem_body_result_e result;

    if (!recipe) {
        idem_context_refuse(ctx, IDEM_PROBLEM_PAYLOAD_REJECTED, detail);
        return OK;
    }
    ctx->recipe = recipe;
    ctx->request = request;
    result = idem_body_read(r, ctx, recipe, request->payload, &detail, &status);
    if (result != IDEM_BODY_OK && !(result == IDEM_BODY_REJECTED && fits_earlier_contract(ctx, request, detail))) {
        return refuse_body(r, ctx, result, detail, status);
    }
    idem_fingerprint_frame(ctx->pool, ctx->recipe, request, &ctx->framed, &ctx->framed_len);
    idem_sha256(ctx->framed, ctx->framed_len, ctx->fingerprint);
    ctx->phase = IDEM_PHASE_READY;
    return OK;
}

int idem_prepare(request_rec *r)
{
    idem_ctx_t *ctx = idem_context_get(r);

    if (ctx) {
        idem_taken_end(ctx);
    }
    if (ctx && ctx->shadow) {
        idem_shadow_follow(r, ctx);
    }
    if (!ctx || ctx->phase > IDEM_PHASE_BOUND) {
        return DECLINED;
    }
    idem_route_bind(r, ctx, 1);
    if (ctx->phase != IDEM_PHASE_BOUND || ap_is_HTTP_ERROR(r->status)) {
        return DECLINED;
    }
    if (!idem_route_takes(ctx->route, r->method) || idem_key_none(r, ctx)) {
        ctx->phase = IDEM_PHASE_PASSED;
        return DECLINED;
    }
    ctx->conf = idem_config_resolve(ctx->pool, ctx->bound);
    if (ctx->conf->mode == IDEM_MODE_OFF) {
        ctx->phase = IDEM_PHASE_PASSED;
        return DECLINED;
    }
    if (ctx->conf->mode == IDEM_MODE_SHADOW) {
        idem_shadow_begin(r, ctx);
        return DECLINED;
    }
    /* nothing of the body is read for a request that is refused by its header alone */
    if (!idem_key_read(r, ctx) || !idem_prepare_scope(r, ctx)) {
        return ctx->phase == IDEM_PHASE_PASSED ? DECLINED : OK;
    }
    return fingerprint(r, ctx);
}

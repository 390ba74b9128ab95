#include "httpd/request/key.h"

#include <apr_strings.h>
#include <httpd.h>
#include <http_log.h>

#include "core/sfv.h"
#include "httpd/logging.h"
#include "httpd/mod_idempotency.h"

APLOG_USE_MODULE(idempotency);

static int refuse(idem_ctx_t *ctx, idem_problem_e problem, const char *words)
{
    idem_context_refuse(ctx, problem, words);
    return 0;
}

/* The key of a request of the server's own workers; NULL: it has none. *broken: there is one, and it cannot be used. */
static const char *server_key(request_rec *r, idem_ctx_t *ctx, int *broken)
{
    const char *error = NULL;
    const char *key = ctx->minted_key;
    idem_scope_result_e result;

    if (!key && ctx->conf->server_key) {
        key = ap_expr_str_exec(r, ctx->conf->server_key, &error);
    }
    if (error) {
        ap_log_rerror(APLOG_MARK, APLOG_ERR, 0, r, IDEM_LOG("0311") "IdempotencyServerKey: the expression failed: %s", error);
        *broken = 1;
        return NULL;
    }
    if (!key || !*key) {
        return NULL;
    }
    result = idem_scope_check_part(IDEM_SCOPE_IN_KEY, key);
    if (result != IDEM_SCOPE_OK) {
        ap_log_rerror(APLOG_MARK, APLOG_ERR, 0, r, IDEM_LOG("0312") "IdempotencyServerKey: %s",
                      idem_scope_result_text(r->pool, result));
        *broken = 1;
        return NULL;
    }
    return apr_pstrdup(ctx->pool, key);
}

/* The key that the client sent. */
static int client_key(idem_ctx_t *ctx, const char *value)
{
    const idem_dir_t *conf = ctx->conf;
    idem_key_result_e result;
    apr_size_t len = 0;

    result = idem_key_parse(ctx->pool, value, strlen(value), (idem_key_syntax_e)conf->key_syntax, &ctx->key, &len);
    if (result == IDEM_KEY_OK) {
        result = idem_key_check_length(len, (apr_size_t)conf->key_min, (apr_size_t)conf->key_max);
    }
    if (result != IDEM_KEY_OK) {
        return refuse(ctx, IDEM_PROBLEM_KEY_MALFORMED, apr_pstrcat(ctx->pool, conf->key_header, ": ", idem_key_result_text(result), NULL));
    }
    if (conf->key_pattern && !idem_pattern_matches(conf->key_pattern, ctx->key, len)) {
        return refuse(ctx, IDEM_PROBLEM_KEY_MALFORMED, apr_pstrcat(ctx->pool, conf->key_header, ": the key is not of the form that this resource takes.", NULL));
    }
    return 1;
}

int idem_key_none(const request_rec *r, const idem_ctx_t *ctx)
{
    const idem_dir_t *conf = ctx->bound;

    return (conf->key_required == IDEM_UNSET ? ctx->route->kind != IDEM_ROUTE_NAMED : !conf->key_required) &&
           conf->mode != IDEM_MODE_SHADOW && !conf->server_key && !ctx->minted_key &&
           !apr_table_get(r->headers_in, conf->key_header ? conf->key_header : IDEM_KEY_FIELD);
}

int idem_key_read(request_rec *r, idem_ctx_t *ctx)
{
    const char *value = apr_table_get(r->headers_in, ctx->conf->key_header);
    int broken = 0;
    const char *minted = server_key(r, ctx, &broken);

    if (broken) {
        return refuse(ctx, IDEM_PROBLEM_KEY_MALFORMED, "The key that the server makes for this request cannot be used.");
    }
    if (minted && value) {
        return refuse(ctx, IDEM_PROBLEM_KEY_MALFORMED, apr_pstrcat(ctx->pool, ctx->conf->key_header, ": the server itself gives this request its key.", NULL));
    }
    ctx->scope.ns = minted ? IDEM_SCOPE_NS_SERVER : IDEM_SCOPE_NS_CLIENT;
    if (minted) {
        ctx->key = minted;
        return 1;
    }
    if (value) {
        return client_key(ctx, value);
    }
    if (ctx->conf->key_required) {
        return refuse(ctx, IDEM_PROBLEM_KEY_MISSING, apr_pstrcat(ctx->pool, "This request needs the header field ", ctx->conf->key_header, ".", NULL));
    }
    ctx->phase = IDEM_PHASE_PASSED;
    return 0;
}

static apr_status_t idempotency_server_key(request_rec *r, const char *key)
{
    idem_ctx_t *ctx = idem_context_get(r);

    if (!ctx || idem_scope_check_part(IDEM_SCOPE_IN_KEY, key) != IDEM_SCOPE_OK) {
        return APR_EINVAL;
    }
    if (ctx->phase > IDEM_PHASE_BOUND) {
        return APR_EBUSY;
    }
    ctx->minted_key = apr_pstrdup(ctx->pool, key);
    return APR_SUCCESS;
}

void idem_key_register(void)
{
    APR_REGISTER_OPTIONAL_FN(idempotency_server_key);
}

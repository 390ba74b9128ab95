#include "httpd/identity.h"

#include <apr_strings.h>
#include <httpd.h>
#include <http_log.h>
#include <mod_ssl.h>

#include "httpd/logging.h"

APLOG_USE_MODULE(idempotency);

void idem_identity_before_authentication(request_rec *r, idem_ctx_t *ctx)
{
    const idem_dir_t *conf = idem_config_dir(r);

    if (!ctx->early_env && (ctx->phase == IDEM_PHASE_BOUND || conf->route || conf->tenant)) {
        ctx->early_env = apr_table_copy(ctx->pool, r->subprocess_env);
    }
}

static int is_trusted(const idem_ctx_t *ctx, const char *name)
{
    const apr_array_header_t *names = ctx->conf->trust_env;
    int i;

    for (i = 0; names && i < names->nelts; i++) {
        if (!strcmp(name, APR_ARRAY_IDX(names, i, const char *))) {
            return 1;
        }
    }
    return 0;
}

/* A variable that authentication set: what stood there before it began is the client's word. */
static const char *read_env(const request_rec *r, const idem_ctx_t *ctx, const char *name, const char **why)
{
    const char *value = apr_table_get(r->subprocess_env, name);
    const char *early = ctx->early_env ? apr_table_get(ctx->early_env, name) : NULL;

    if (value && !is_trusted(ctx, name) && (!ctx->early_env || (early && !strcmp(value, early)))) {
        *why = "was set before authentication began; IdempotencyTrustEnv would take it";
        return NULL;
    }
    return value;
}

static const char *read_ssl(const request_rec *r, const char *name, const char **why)
{
    APR_OPTIONAL_FN_TYPE(ssl_var_lookup) *lookup = APR_RETRIEVE_OPTIONAL_FN(ssl_var_lookup);
    request_rec *request = (request_rec *)r;
    const char *verified;

    if (!lookup) {
        *why = "cannot be read: mod_ssl is not loaded";
        return NULL;
    }
    verified = lookup(r->pool, r->server, r->connection, request, (char *)"SSL_CLIENT_VERIFY");
    if (!verified || strcmp(verified, "SUCCESS")) {
        *why = "is not trusted: the client certificate was not verified";
        return NULL;
    }
    return lookup(r->pool, r->server, r->connection, request, (char *)name);
}

static const char *read_source(const request_rec *r, const idem_ctx_t *ctx, const idem_source_t *source, const char **why)
{
    switch (source->kind) {
    case IDEM_SOURCE_USER:
        return r->user;
    case IDEM_SOURCE_ENV:
        return read_env(r, ctx, source->argument, why);
    case IDEM_SOURCE_NOTE:
        return apr_table_get(r->notes, source->argument);
    case IDEM_SOURCE_SSL:
        return read_ssl(r, source->argument, why);
    case IDEM_SOURCE_SERVER:
        return r->server->server_hostname;
    case IDEM_SOURCE_CONST:
        return source->argument;
    }
    return NULL;
}

static const char *resolve(request_rec *r, idem_ctx_t *ctx, const char *directive, const apr_array_header_t *sources)
{
    const char **values;
    const char *joined;
    idem_scope_result_e result;
    int i;

    if (!sources || !sources->nelts) {
        ap_log_rerror(APLOG_MARK, APLOG_ERR, 0, r, IDEM_LOG("0101") "identity missing: no %s applies to this request",
                      directive);
        return NULL;
    }
    values = apr_palloc(ctx->pool, sizeof(*values) * (apr_size_t)sources->nelts);
    for (i = 0; i < sources->nelts; i++) {
        const idem_source_t *source = &APR_ARRAY_IDX(sources, i, idem_source_t);
        const char *why = "is missing or empty";
        const char *value = read_source(r, ctx, source, &why);

        if (!value || !*value) {
            ap_log_rerror(APLOG_MARK, APLOG_ERR, 0, r, IDEM_LOG("0102") "identity missing: %s source '%s' %s", directive,
                          source->text, why);
            return NULL;
        }
        values[i] = apr_pstrdup(ctx->pool, value);
    }
    joined = idem_scope_join(ctx->pool, values, sources->nelts, &result);
    if (!joined) {
        ap_log_rerror(APLOG_MARK, APLOG_ERR, 0, r, IDEM_LOG("0103") "identity missing: %s: %s", directive,
                      idem_scope_result_text(r->pool, result));
    }
    return joined;
}

int idem_identity_resolve(request_rec *r, idem_ctx_t *ctx)
{
    ctx->scope.tenant = resolve(r, ctx, "IdempotencyTenant", ctx->conf->tenant);
    ctx->scope.principal = ctx->scope.tenant ? resolve(r, ctx, "IdempotencyPrincipal", ctx->conf->principal) : NULL;
    return ctx->scope.principal != NULL;
}

#include "httpd/request/identity.h"

#include <apr_cstr.h>
#include <apr_strings.h>
#include <httpd.h>
#include <http_log.h>
#include <mod_ssl.h>

#include "httpd/child/child.h"
#include "httpd/logging.h"

APLOG_USE_MODULE(idempotency);

void idem_identity_before_authentication(request_rec *r, idem_ctx_t *ctx)
{
    if (ctx->phase <= IDEM_PHASE_BOUND && (idem_config_dir(r)->asks_environment || (ctx->bound && ctx->bound->asks_environment))) {
        ctx->early_env = apr_table_copy(ctx->pool, r->subprocess_env);
        ctx->early_of = r;
    }
}

/* A variable that authentication set: what stood there before it began is the client's word. */
static const char *read_env(const request_rec *r, const idem_ctx_t *ctx, const char *name, const char **why)
{
    const char *value = apr_table_get(r->subprocess_env, name);
    int known = ctx->early_of == r;
    const char *early = known ? apr_table_get(ctx->early_env, name) : NULL;

    if (value && !idem_config_trusts(ctx->conf, name) && (!known || (early && !strcmp(value, early)))) {
        *why = "was set before authentication began; IdempotencyTrustEnv would take it";
        return NULL;
    }
    return value;
}

/* A variable of mod_ssl, or NULL where that is not loaded. */
static const char *ssl_variable(const request_rec *r, const char *name)
{
    APR_OPTIONAL_FN_TYPE(ssl_var_lookup) *lookup = APR_RETRIEVE_OPTIONAL_FN(ssl_var_lookup);

    return lookup ? lookup(r->pool, r->server, r->connection, (request_rec *)r, (char *)name) : NULL;
}

/*
 * Has httpd verified the client's certificate? Under optional_no_ca it lets in any, and what it found out is lost when
 * the client resumes the TLS session: then SSL_CLIENT_VERIFY is SUCCESS for a certificate that the client signed
 * itself (seen with TLS 1.2). So where such a rule is in force anywhere, a resumed session proves nothing.
 */
static int is_verified(const request_rec *r, const idem_ctx_t *ctx, const char **why)
{
    const char *verified = ssl_variable(r, "SSL_CLIENT_VERIFY");
    const char *resumed;

    if (!verified || strcmp(verified, "SUCCESS")) {
        *why = verified ? "is not trusted: the client certificate was not verified" : "cannot be read: mod_ssl is not loaded";
        return 0;
    }
    resumed = ctx->server->loose_certificates ? ssl_variable(r, "SSL_SESSION_RESUMED") : NULL;
    if (resumed && !strcmp(resumed, "Resumed")) {
        *why = "is not trusted: with SSLVerifyClient optional_no_ca nobody knows whether the certificate of a resumed TLS "
               "session was verified";
        return 0;
    }
    return 1;
}

static const char *read_ssl(const request_rec *r, const idem_ctx_t *ctx, const char *name, const char **why)
{
    return is_verified(r, ctx, why) ? ssl_variable(r, name) : NULL;
}

/*
 * SSLUserName takes a user's name out of any certificate, one that the client signed by itself included: there is a
 * user then, and nobody has authenticated him.
 */
static const char *read_user(const request_rec *r, const idem_ctx_t *ctx, const char **why)
{
    int by_certificate = r->user && r->ap_auth_type && !apr_cstr_casecmp(r->ap_auth_type, "ClientCert");

    if (r->user && !r->ap_auth_type) {
        /* older releases of mod_ssl leave the type unset */
        const char *verified = ssl_variable(r, "SSL_CLIENT_VERIFY");

        by_certificate = verified && *verified && strcmp(verified, "NONE");
    }
    return !by_certificate || is_verified(r, ctx, why) ? r->user : NULL;
}

static const char *read_source(const request_rec *r, const idem_ctx_t *ctx, const idem_source_t *source, const char **why)
{
    switch (source->kind) {
    case IDEM_SOURCE_USER:
        return read_user(r, ctx, why);
    case IDEM_SOURCE_ENV:
        return read_env(r, ctx, source->argument, why);
    case IDEM_SOURCE_NOTE:
        return apr_table_get(r->notes, source->argument);
    case IDEM_SOURCE_SSL:
        return read_ssl(r, ctx, source->argument, why);
    case IDEM_SOURCE_SERVER:
        return r->server->server_hostname;
    case IDEM_SOURCE_CONST:
        return source->argument;
    }
    return NULL;
}

static const char *resolve(request_rec *r, idem_ctx_t *ctx, int level, const char *directive,
                           const apr_array_header_t *sources)
{
    const char **values;
    const char *joined;
    idem_scope_result_e result;
    int i;

    if (!sources || !sources->nelts) {
        ap_log_rerror(APLOG_MARK, level, 0, r, IDEM_LOG("0101") "identity missing: no %s applies to this request",
                      directive);
        return NULL;
    }
    values = apr_palloc(ctx->pool, sizeof(*values) * (apr_size_t)sources->nelts);
    for (i = 0; i < sources->nelts; i++) {
        const idem_source_t *source = &APR_ARRAY_IDX(sources, i, idem_source_t);
        const char *why = "is missing or empty";
        const char *value = read_source(r, ctx, source, &why);

        if (!value || !*value) {
            ap_log_rerror(APLOG_MARK, level, 0, r, IDEM_LOG("0102") "identity missing: %s source '%s' %s", directive,
                          source->text, why);
            return NULL;
        }
        values[i] = apr_pstrdup(ctx->pool, value);
    }
    joined = idem_scope_join(ctx->pool, values, sources->nelts, &result);
    if (!joined) {
        int blamed = IDEM_SCOPE_SOURCE(result);

        ap_log_rerror(APLOG_MARK, level, 0, r, IDEM_LOG("0103") "identity missing: %s%s%s%s: %s", directive,
                      blamed ? " source '" : "", blamed ? APR_ARRAY_IDX(sources, blamed - 1, idem_source_t).text : "",
                      blamed ? "'" : "", idem_scope_result_text(r->pool, result));
    }
    return joined;
}

/* Who the caller was in the scope version before. Where that cannot be told it had no records either. */
static void resolve_former(request_rec *r, idem_ctx_t *ctx)
{
    const idem_dir_t *conf = ctx->conf;

    ctx->former.tenant = NULL;
    if (idem_scope_version_number(conf->scope_version) <= 1) {
        return;
    }
    ctx->former = ctx->caller;
    if (conf->former_tenant) {
        ctx->former.tenant = resolve(r, ctx, APLOG_DEBUG, "IdempotencyFormerTenant", conf->former_tenant);
    }
    if (conf->former_principal) {
        ctx->former.principal = resolve(r, ctx, APLOG_DEBUG, "IdempotencyFormerPrincipal", conf->former_principal);
    }
    if (!ctx->former.principal) {
        ctx->former.tenant = NULL;
    }
}

int idem_identity_resolve(request_rec *r, idem_ctx_t *ctx)
{
    /* where such requests are let through, a line for each would only fill the log */
    int level = ctx->conf->no_identity == IDEM_NO_IDENTITY_BYPASS ? APLOG_INFO : APLOG_ERR;

    ctx->scope.tenant = resolve(r, ctx, level, "IdempotencyTenant", ctx->conf->tenant);
    ctx->scope.principal = ctx->scope.tenant ? resolve(r, ctx, level, "IdempotencyPrincipal", ctx->conf->principal) : NULL;
    if (!ctx->scope.principal && level == APLOG_INFO && idem_child_first_bypass(ctx->server->store)) {
        ap_log_rerror(APLOG_MARK, APLOG_WARNING, 0, r, IDEM_LOG("0104")
                      "requests without identity pass without protection here (IdempotencyNoIdentity Bypass): this one "
                      "is the first that this child sees, the others are lines of level info");
    }
    ctx->caller.tenant = ctx->scope.tenant;
    ctx->caller.principal = ctx->scope.principal;
    if (ctx->scope.principal) {
        resolve_former(r, ctx);
    }
    return ctx->scope.principal != NULL;
}

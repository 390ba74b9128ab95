#include "httpd/request/route.h"

#include <apr_escape.h>
#include <apr_strings.h>

#include "core/digest.h"
#include "core/target.h"

#define AUTO_MAX  200 /* octets of an automatic name; a longer one is cut and told apart by its digest */
#define AUTO_HEAD 120

static int same_route(const idem_route_t *a, const idem_route_t *b)
{
    return a == b || (a && b && a->kind == b->kind && !strcmp(a->name, b->name));
}

void idem_route_bind(request_rec *r, idem_ctx_t *ctx, int at_fixups)
{
    const idem_dir_t *conf = idem_config_dir(r);
    int unbound = ctx->phase == IDEM_PHASE_OPEN;

    if (!conf->route || conf->route->kind == IDEM_ROUTE_NONE || ap_is_HTTP_ERROR(r->status)) {
        return;
    }
    if (conf == ctx->bound) {
        return;
    }
    if (unbound || (at_fixups && ctx->phase == IDEM_PHASE_BOUND && same_route(ctx->route, conf->route))) {
        ctx->bound = conf;
        ctx->route = conf->route;
        ctx->phase = IDEM_PHASE_BOUND;
    }
    if (!ctx->route_name && ctx->route->captures) {
        /* LocationMatch's captures become REDIRECT_MATCH_x on the next request: take them while they are there */
        const char *why;

        ctx->route_name = idem_route_name(r, ctx, &why);
    }
}

int idem_route_takes(const idem_route_t *route, const char *method)
{
    const apr_array_header_t *methods = route->methods;
    int i;

    for (i = 0; i < methods->nelts; i++) {
        if (!strcmp(method, APR_ARRAY_IDX(methods, i, const char *))) {
            return 1;
        }
    }
    return 0;
}

static const char *automatic_name(apr_pool_t *p, const request_rec *r)
{
    unsigned char digest[IDEM_SHA256_LEN];
    const char *path;
    const char *query;
    const char *name;
    apr_size_t len;

    r = idem_context_received(r);
    idem_target_split(p, r->unparsed_uri, &path, &query);
    name = apr_pstrcat(p, r->method, " ", path, NULL);
    len = strlen(name);
    if (len <= AUTO_MAX) {
        return name;
    }
    idem_sha256(name, len, digest);
    return apr_psprintf(p, "%.*s~%s", AUTO_HEAD, name, apr_pescape_hex(p, digest, sizeof(digest), 0));
}

/* The value of a capture that starts at "%{", or NULL. */
static const char *capture(const request_rec *r, const char *at, const char *end)
{
    const char *value = apr_table_get(r->subprocess_env, apr_pstrmemdup(r->pool, at + 2, (apr_size_t)(end - at - 2)));

    return idem_scope_check_source(value) == IDEM_SCOPE_OK ? value : NULL;
}

const char *idem_route_name(request_rec *r, const idem_ctx_t *ctx, const char **why)
{
    const char *name = "";
    const char *rest = ctx->route->name;
    const char *at;

    if (ctx->route->kind == IDEM_ROUTE_AUTO) {
        return automatic_name(ctx->pool, r);
    }
    while ((at = strstr(rest, "%{")) != NULL) {
        const char *end = strchr(at, '}');
        const char *value = end ? capture(r, at, end) : NULL;

        if (!value) {
            *why = "A part of the request's path that names the resource is empty, too long, or holds control characters.";
            return NULL;
        }
        name = apr_pstrcat(ctx->pool, name, apr_pstrmemdup(ctx->pool, rest, (apr_size_t)(at - rest)), value, NULL);
        rest = end + 1;
    }
    name = *name ? apr_pstrcat(ctx->pool, name, rest, NULL) : rest;
    if (idem_scope_check_source(name) != IDEM_SCOPE_OK) {
        *why = "The parts of the request's path that name the resource are too long.";
        return NULL;
    }
    return name;
}

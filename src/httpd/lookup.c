#include "httpd/lookup.h"

#include <apr_strings.h>
#include <httpd.h>
#include <http_log.h>

#include "httpd/aliases.h"
#include "httpd/body.h"
#include "httpd/child.h"
#include "httpd/logging.h"
#include "httpd/recipe.h"

APLOG_USE_MODULE(idempotency);

/* The scope of a member of the caller's tree, in a revision of the route. */
static idem_scope_t scope_of(const idem_ctx_t *ctx, const idem_identity_t *member, const char *revision)
{
    idem_scope_t scope = ctx->scope;

    scope.tenant = member->tenant;
    scope.principal = member->principal;
    scope.revision = revision;
    return scope;
}

static int members_of(idem_ctx_t *ctx, idem_identity_t members[IDEM_ALIAS_MAX_MEMBERS], int *version)
{
    int count = idem_aliases_members(idem_child_aliases(ctx->server->store), &ctx->caller, members, version, ctx->pool);

    if (!count) {
        members[0] = ctx->caller;
        count = 1;
    }
    return count;
}

void idem_lookup_scopes(idem_ctx_t *ctx, idem_reserve_t *wanted)
{
    const apr_array_header_t *accepts = ctx->route->accepts;
    idem_identity_t members[IDEM_ALIAS_MAX_MEMBERS];
    int count = members_of(ctx, members, &wanted->alias_version);
    int revisions = 1 + (accepts ? accepts->nelts : 0);
    idem_scope_t *older;
    int i;
    int j;

    ctx->scope = scope_of(ctx, &members[0], ctx->route->revision);
    wanted->scope = ctx->scope;
    wanted->older = NULL;
    wanted->older_count = 0;
    if (count * revisions == 1) {
        return;
    }
    older = apr_palloc(ctx->pool, sizeof(*older) * (apr_size_t)(count * revisions));
    for (i = 0; i < count; i++) {
        for (j = 0; j < revisions; j++) {
            const char *revision = j ? APR_ARRAY_IDX(accepts, j - 1, const char *) : ctx->route->revision;

            if (i + j && wanted->older_count < IDEM_MAX_OLDER) {
                older[wanted->older_count++] = scope_of(ctx, &members[i], revision);
            }
        }
    }
    wanted->older = older;
}

int idem_lookup_refresh(request_rec *r, idem_ctx_t *ctx, idem_reserve_t *wanted)
{
    idem_store_t *store = idem_context_store(ctx);
    int before = wanted->alias_version;

    if (ctx->aliases_read++ || idem_aliases_read(idem_child_aliases(ctx->server->store), store, ctx->pool) != IDEM_STORE_OK) {
        return 0;
    }
    idem_lookup_scopes(ctx, wanted);
    if (wanted->alias_version != before) {
        ap_log_rerror(APLOG_MARK, APLOG_DEBUG, 0, r, IDEM_LOG("2001") "aliases have changed: looking again");
    }
    return wanted->alias_version != before;
}

/* Is a record of this very request, by the recipe that it was made with? As idem_lookup_decisive says it. */
static int same_request(idem_ctx_t *ctx, const idem_reserve_t *wanted, const idem_record_t *found)
{
    const idem_recipe_t *recipe;
    idem_request_t request;
    unsigned char fingerprint[IDEM_FINGERPRINT_LEN];
    int known = 0;

    if (found->recipe.len == wanted->recipe.len && !memcmp(found->recipe.octets, wanted->recipe.octets, found->recipe.len)) {
        return !memcmp(found->fingerprint, ctx->fingerprint, IDEM_FINGERPRINT_LEN);
    }
    recipe = idem_recipe_parse(ctx->pool, (const char *)found->recipe.octets, found->recipe.len);
    if (recipe) {
        idem_recipe_contract(ctx->conf, recipe, &known);
    }
    if (!recipe || !known) {
        return -1;
    }
    request = *ctx->request;
    if ((recipe->mode != ctx->recipe->mode || strcmp(recipe->schema, ctx->recipe->schema)) &&
        !idem_body_digest(ctx, recipe, request.payload)) {
        return 0;
    }
    idem_fingerprint(ctx->pool, recipe, &request, fingerprint);
    return !memcmp(found->fingerprint, fingerprint, IDEM_FINGERPRINT_LEN);
}

const idem_record_t *idem_lookup_decisive(idem_ctx_t *ctx, const idem_reserve_t *wanted, int *same)
{
    const idem_record_t *unclear = NULL;
    int nearest = 0;
    int i;

    if (wanted->found_count <= 1) {
        *same = same_request(ctx, wanted, wanted->found);
        return wanted->found;
    }
    for (i = 0; i < wanted->found_count; i++) {
        *same = same_request(ctx, wanted, wanted->all_found[i]);
        if (*same > 0) {
            return wanted->all_found[i];
        }
        unclear = *same < 0 && !unclear ? wanted->all_found[i] : unclear;
        nearest = i ? nearest : *same;
    }
    /* one that nobody can read may be the one: no verdict on the others can rule that out */
    *same = unclear ? -1 : nearest;
    return unclear ? unclear : wanted->all_found[0];
}

idem_store_result_e idem_lookup_operation(idem_ctx_t *ctx, const unsigned char *operation, idem_record_t **record)
{
    idem_store_t *store = idem_context_store(ctx);
    idem_store_result_e read = idem_aliases_read(idem_child_aliases(ctx->server->store), store, ctx->pool);
    idem_identity_t members[IDEM_ALIAS_MAX_MEMBERS];
    int version;
    int count = members_of(ctx, members, &version);
    idem_store_result_e result;
    int i;

    if (read != IDEM_STORE_OK) {
        return IDEM_STORE_UNAVAILABLE;
    }
    /* the tenant is part of the address where the table is spread; who has been several may have had several */
    result = store->provider->find_operation(store, count == 1 ? ctx->caller.tenant : NULL, operation, record,
                                             apr_time_now() + store->timeout, ctx->pool);

    for (i = 0; result == IDEM_STORE_OK && i < count; i++) {
        if (!strcmp((*record)->scope.tenant, members[i].tenant) &&
            !strcmp((*record)->scope.principal, members[i].principal)) {
            return IDEM_STORE_OK;
        }
    }
    return result == IDEM_STORE_OK ? IDEM_STORE_NOT_FOUND : result;
}

#include "httpd/request/lookup.h"

#include <apr_strings.h>
#include <httpd.h>
#include <http_log.h>

#include "httpd/child/aliases.h"
#include "httpd/request/body.h"
#include "httpd/child/child.h"
#include "httpd/logging.h"
#include "httpd/request/recipe.h"

APLOG_USE_MODULE(idempotency);

/* What a caller is in one scope version: the identities that have become one, the newest first. */
typedef struct composition_t {
    const char *version;
    idem_identity_t members[IDEM_ALIAS_MAX_MEMBERS];
    int count;
    int aliases; /* version of the aliases that say so */
} composition_t;

static idem_scope_t scope_of(const idem_ctx_t *ctx, const composition_t *composition, int member, const char *revision)
{
    idem_scope_t scope = ctx->scope;

    scope.version = composition->version;
    scope.tenant = composition->members[member].tenant;
    scope.principal = composition->members[member].principal;
    scope.revision = revision;
    return scope;
}

/* Returns the scope version that the registry is written in. */
static const char *compose(idem_ctx_t *ctx, composition_t *composition, const char *version, const idem_identity_t *identity)
{
    const char *writes;

    composition->version = version;
    composition->count = idem_aliases_members(idem_child_aliases(ctx->server->store), identity, composition->members,
                                              &composition->aliases, &writes, ctx->pool);
    if (!composition->count) {
        composition->members[0] = *identity;
        composition->count = 1;
    }
    return writes;
}

/* The compositions that a record of this request may have, the one that is written first; their number. */
static int compositions_of(idem_ctx_t *ctx, composition_t both[2])
{
    const char *version = ctx->conf->scope_version;
    const char *writes = compose(ctx, &both[0], version, &ctx->caller);

    ctx->foreign_version = strcmp(writes, version) != 0;
    if (!ctx->former.tenant) {
        return 1;
    }
    compose(ctx, &both[1], apr_psprintf(ctx->pool, "v%d", idem_scope_version_number(version) - 1), &ctx->former);
    if (!strcmp(writes, both[1].version)) {
        composition_t present = both[0];

        both[0] = both[1];
        both[1] = present;
        ctx->foreign_version = 0;
    }
    return 2;
}

/* The aliases may change between two looks at them; the store refuses the older version. */
static int aliases_of(const composition_t *both, int count)
{
    return count > 1 && both[1].aliases < both[0].aliases ? both[1].aliases : both[0].aliases;
}

void idem_lookup_scopes(idem_ctx_t *ctx, idem_reserve_t *wanted)
{
    const apr_array_header_t *accepts = ctx->route->accepts;
    composition_t both[2];
    int count = compositions_of(ctx, both);
    int revisions = 1 + (accepts ? accepts->nelts : 0);
    int all = (both[0].count + (count > 1 ? both[1].count : 0)) * revisions;
    idem_scope_t *older;
    int c;
    int i;
    int j;

    ctx->scope = scope_of(ctx, &both[0], 0, ctx->route->revision);
    wanted->scope = ctx->scope;
    wanted->alias_version = aliases_of(both, count);
    wanted->older = NULL;
    wanted->older_count = 0;
    if (all == 1) {
        return;
    }
    older = apr_palloc(ctx->pool, sizeof(*older) * (apr_size_t)all);
    for (c = 0; c < count; c++) {
        for (i = 0; i < both[c].count; i++) {
            for (j = 0; j < revisions; j++) {
                const char *revision = j ? APR_ARRAY_IDX(accepts, j - 1, const char *) : ctx->route->revision;

                if (c + i + j && wanted->older_count < IDEM_MAX_OLDER) {
                    older[wanted->older_count++] = scope_of(ctx, &both[c], i, revision);
                }
            }
        }
    }
    wanted->older = older;
}

int idem_lookup_may_write(const idem_ctx_t *ctx)
{
    return !ctx->look_only && !ctx->over_quota && !ctx->foreign_version && ctx->conf->mode != IDEM_MODE_READ_ONLY;
}

int idem_lookup_refresh(request_rec *r, idem_ctx_t *ctx, idem_reserve_t *wanted)
{
    idem_store_t *store = idem_context_store(ctx);
    int before = wanted->alias_version;

    if (ctx->aliases_read++ || idem_aliases_read(idem_child_aliases(ctx->server->store), store, ctx->pool) != IDEM_STORE_OK) {
        return 0;
    }
    idem_lookup_scopes(ctx, wanted);
    wanted->may_write = idem_lookup_may_write(ctx);
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

    if (!found->known_contract) {
        return -1;
    }
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
    composition_t both[2];
    idem_store_result_e result;
    int count;
    int c;
    int i;

    if (read != IDEM_STORE_OK) {
        return IDEM_STORE_UNAVAILABLE;
    }
    count = compositions_of(ctx, both);
    /* the tenant is part of the address where the table is spread; who has been several may have had several */
    result = store->provider->find_operation(store, count == 1 && both[0].count == 1 ? ctx->caller.tenant : NULL, operation,
                                             record, apr_time_now() + store->timeout, ctx->pool);
    for (c = 0; result == IDEM_STORE_OK && c < count; c++) {
        for (i = 0; i < both[c].count; i++) {
            if (!strcmp((*record)->scope.version, both[c].version) &&
                !strcmp((*record)->scope.tenant, both[c].members[i].tenant) &&
                !strcmp((*record)->scope.principal, both[c].members[i].principal)) {
                return IDEM_STORE_OK;
            }
        }
    }
    return result == IDEM_STORE_OK ? IDEM_STORE_NOT_FOUND : result;
}

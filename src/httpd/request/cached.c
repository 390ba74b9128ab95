#include "httpd/request/cached.h"

#include <string.h>

#include <httpd.h>
#include <http_log.h>

#include "core/digest.h"
#include "core/uuid.h"
#include "httpd/child/cache.h"
#include "httpd/request/dispatch.h"
#include "httpd/logging.h"
#include "httpd/request/lookup.h"
#include "store/replay_entry.h"

APLOG_USE_MODULE(idempotency);

#define LIVES       apr_time_from_sec(30)
#define MOST_SCOPES 8 /* that are looked for; a request with more asks the registry */

/*
 * May this request be answered by memory at all? Where it looks at several scopes, they have to differ in the revision
 * alone: who has become whom only the registry knows for certain, so a caller with an alias asks it every time.
 */
static int may_use(const idem_ctx_t *ctx, const idem_reserve_t *wanted)
{
    int i;

    if (!ctx->server->cache || wanted->older_count >= MOST_SCOPES) {
        return 0;
    }
    for (i = 0; i < wanted->older_count; i++) {
        const idem_scope_t *older = &wanted->older[i];

        if (strcmp(older->version, wanted->scope.version) || strcmp(older->tenant, wanted->scope.tenant) ||
            strcmp(older->principal, wanted->scope.principal)) {
            return 0;
        }
    }
    return 1;
}

/* What stands for the list of scopes that a request looks at: the record that decides for one list need not for another.
 * Zeros for one scope. */
static void list_digest(const idem_reserve_t *wanted, unsigned char digest[IDEM_SHA256_LEN], apr_pool_t *p)
{
    idem_sha256_t *sha;
    unsigned char one[IDEM_SHA256_LEN];
    int i;

    memset(digest, 0, IDEM_SHA256_LEN);
    if (!wanted->older_count) {
        return;
    }
    sha = idem_sha256_init(p);
    for (i = -1; i < wanted->older_count; i++) {
        idem_scope_digest(i < 0 ? &wanted->scope : &wanted->older[i], one);
        idem_sha256_update(sha, one, sizeof(one));
    }
    idem_sha256_final(sha, digest);
}

/* One scope. A request that looks at this one alone takes whatever record it has; any other only what decided for its list. */
static int find_one(request_rec *r, idem_ctx_t *ctx, const idem_scope_t *scope, const unsigned char *list,
                    idem_replay_entry_t *entry)
{
    static const unsigned char alone[IDEM_SHA256_LEN];
    unsigned char id[IDEM_SHA256_LEN];
    idem_octets_t octets;

    idem_scope_digest(scope, id);
    octets.octets = ctx->cache_room;
    octets.len = idem_cache_get(ctx->server->cache, r, id, ctx->cache_room);
    return octets.len && idem_replay_decode(octets, entry, ctx->pool) && entry->until > idem_dispatch_moment() &&
           !memcmp(entry->registry, ctx->server->registry_digest, IDEM_SHA256_LEN) &&
           (!memcmp(list, alone, IDEM_SHA256_LEN) || !memcmp(list, entry->list, IDEM_SHA256_LEN)) &&
           !idem_scope_compare(&entry->record.scope, scope);
}

const idem_record_t *idem_cached_find(request_rec *r, idem_ctx_t *ctx, const idem_reserve_t *wanted)
{
    unsigned char list[IDEM_SHA256_LEN];
    idem_replay_entry_t *entry;
    idem_reserve_t look;
    int i;

    if (!may_use(ctx, wanted)) {
        return NULL;
    }
    if (!ctx->cache_room) {
        ctx->cache_room = apr_palloc(ctx->pool, idem_cache_most(ctx->server->cache));
    }
    list_digest(wanted, list, ctx->pool);
    look = *wanted;
    entry = apr_palloc(ctx->pool, sizeof(*entry));
    for (i = -1; i < wanted->older_count; i++) {
        int same = 0;

        if (!find_one(r, ctx, i < 0 ? &wanted->scope : &wanted->older[i], list, entry)) {
            continue;
        }
        look.found = &entry->record;
        look.found_count = 1;
        idem_lookup_decisive(ctx, &look, &same);
        if (same > 0) {
            ap_log_rerror(APLOG_MARK, APLOG_DEBUG, 0, r, IDEM_LOG("2301") "operation %s: answered by the replay cache",
                          idem_uuid_text(r->pool, entry->record.operation));
            return &entry->record;
        }
    }
    return NULL;
}

static void keep(request_rec *r, idem_ctx_t *ctx, const idem_reserve_t *wanted, idem_replay_entry_t *entry,
                 apr_interval_time_t remaining)
{
    apr_interval_time_t now = idem_dispatch_moment();
    apr_size_t len = idem_replay_size(&entry->record);
    unsigned char id[IDEM_SHA256_LEN];
    unsigned char *octets;

    entry->until = ctx->reserved_at + (remaining < LIVES ? remaining : LIVES);
    if (!len || len > idem_cache_most(ctx->server->cache) || entry->until <= now) {
        return;
    }
    memcpy(entry->registry, ctx->server->registry_digest, IDEM_SHA256_LEN);
    list_digest(wanted, entry->list, r->pool);
    octets = apr_palloc(r->pool, len);
    idem_replay_encode(entry, octets);
    idem_scope_digest(&entry->record.scope, id);
    idem_cache_put(ctx->server->cache, r, id, octets, len, entry->until - now);
}

void idem_cached_keep(request_rec *r, idem_ctx_t *ctx, const idem_reserve_t *wanted, const idem_record_t *found)
{
    idem_replay_entry_t entry = {0};

    if (!may_use(ctx, wanted)) {
        return;
    }
    entry.record = *found;
    /* in the first generation the store's present is as long after created_at as the record is old */
    keep(r, ctx, wanted, &entry, found->expires_at - (found->created_at + found->age));
}

void idem_cached_keep_settled(request_rec *r, idem_ctx_t *ctx, const idem_settle_t *settle)
{
    const idem_reserve_t *wanted = ctx->reserve;
    idem_replay_entry_t entry = {0};
    idem_record_t *record = &entry.record;

    if (!wanted || !may_use(ctx, wanted) || settle->result != IDEM_STORE_OK || !settle->response_headers.octets ||
        !settle->response_body.octets) {
        return;
    }
    record->scope = wanted->scope;
    memcpy(record->operation, settle->operation, sizeof(record->operation));
    record->generation = settle->generation;
    record->state = settle->state;
    record->outcome = settle->outcome;
    memcpy(record->fingerprint, wanted->fingerprint, sizeof(record->fingerprint));
    record->recipe = wanted->recipe;
    record->response_code = settle->response_code;
    record->response_headers = settle->response_headers;
    record->response_body = settle->response_body;
    record->response_digest = settle->response_digest;
    /* it was settled after it was reserved, so it expires no sooner */
    keep(r, ctx, wanted, &entry, wanted->retention);
}

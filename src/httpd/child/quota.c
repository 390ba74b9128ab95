#include "httpd/child/quota.h"

#include <apr_cstr.h>
#include <apr_hash.h>
#include <apr_strings.h>
#include <apr_thread_mutex.h>
#include <httpd.h>
#include <http_log.h>

#include "httpd/child/child.h"
#include "httpd/logging.h"
#include "httpd/setup/values.h"

APLOG_USE_MODULE(idempotency);

#define MOST_PRINCIPALS 4096
#define MOST_AT_ONCE    32                    /* in one statement */
#define IDLE            apr_time_from_sec(60) /* then a principal is forgotten */
#define FAR_AWAY        apr_time_from_sec(3600)
#define LARGEST         1000000

/* What this child knows of one principal. */
typedef struct entry_t {
    const char *key;          /* tenant, 01, principal */
    idem_identity_t identity;
    apr_pool_t *pool;
    apr_time_t used;
    apr_time_t due;           /* when it is to be counted; 0: now */
    long live;                /* in the store, when it was counted */
    long begun;               /* here, since then */
    long pending;             /* of these, those that the count under way will see */
    long others;              /* in flight elsewhere, when it was counted */
    long running;             /* in flight here */
} entry_t;

struct idem_quotas_t {
    apr_thread_mutex_t *lock;
    apr_pool_t *pool;
    apr_hash_t *entries;
    void (*wake)(void *baton);
    void *baton;
    int full;                 /* said once */
};

idem_quotas_t *idem_quotas_create(apr_pool_t *pchild, void (*wake)(void *baton), void *baton)
{
    idem_quotas_t *quotas = apr_pcalloc(pchild, sizeof(*quotas));

    if (apr_pool_create(&quotas->pool, pchild) != APR_SUCCESS ||
        apr_thread_mutex_create(&quotas->lock, APR_THREAD_MUTEX_DEFAULT, quotas->pool) != APR_SUCCESS) {
        return NULL;
    }
    quotas->entries = apr_hash_make(quotas->pool);
    quotas->wake = wake;
    quotas->baton = baton;
    return quotas;
}

static const char *key_of(apr_pool_t *p, const idem_identity_t *identity)
{
    return apr_pstrcat(p, identity->tenant, "\x01", identity->principal, NULL);
}

/* Under the lock. NULL: there is no room, and such a principal has no quota for now. */
static entry_t *make_entry(idem_quotas_t *quotas, const char *key, const idem_identity_t *identity)
{
    apr_pool_t *pool;
    entry_t *entry;

    if (apr_hash_count(quotas->entries) >= MOST_PRINCIPALS || apr_pool_create(&pool, quotas->pool) != APR_SUCCESS) {
        return NULL;
    }
    entry = apr_pcalloc(pool, sizeof(*entry));
    entry->pool = pool;
    entry->key = apr_pstrdup(pool, key);
    entry->identity.tenant = apr_pstrdup(pool, identity->tenant);
    entry->identity.principal = apr_pstrdup(pool, identity->principal);
    apr_hash_set(quotas->entries, entry->key, APR_HASH_KEY_STRING, entry);
    return entry;
}

static int has_quota(const idem_ctx_t *ctx)
{
    return ctx->conf->quota_live > 0 || ctx->conf->quota_inflight > 0;
}

static idem_identity_t who(const idem_ctx_t *ctx)
{
    idem_identity_t identity = {ctx->scope.tenant, ctx->scope.principal};

    return identity;
}

int idem_quota_allows(request_rec *r, const idem_ctx_t *ctx)
{
    idem_quotas_t *quotas = idem_child_quotas(ctx->server->store);
    const idem_dir_t *conf = ctx->conf;
    idem_identity_t identity = who(ctx);
    const char *key;
    entry_t *entry;
    int allows = 1;
    int is_new = 0;
    int full = 0;

    if (!has_quota(ctx)) {
        return 1;
    }
    key = key_of(ctx->pool, &identity);
    apr_thread_mutex_lock(quotas->lock);
    entry = apr_hash_get(quotas->entries, key, APR_HASH_KEY_STRING);
    if (!entry) {
        entry = make_entry(quotas, key, &identity);
        is_new = entry != NULL;
        full = !entry && !quotas->full;
        quotas->full |= full;
    }
    if (entry) {
        entry->used = apr_time_now();
        allows = (conf->quota_live <= 0 || entry->live + entry->begun < conf->quota_live) &&
                 (conf->quota_inflight <= 0 || entry->others + entry->running < conf->quota_inflight);
    }
    apr_thread_mutex_unlock(quotas->lock);
    if (full) {
        ap_log_rerror(APLOG_MARK, APLOG_WARNING, 0, r, IDEM_LOG("2101") "IdempotencyQuota: more than %d principals in this "
                      "child within a minute: the others have no quota", MOST_PRINCIPALS);
    }
    if (is_new) {
        quotas->wake(quotas->baton);
    }
    return allows;
}

static void count_here(idem_ctx_t *ctx, int begun, int running)
{
    idem_quotas_t *quotas = idem_child_quotas(ctx->server->store);
    entry_t *entry;

    apr_thread_mutex_lock(quotas->lock);
    entry = apr_hash_get(quotas->entries, ctx->quota_key, APR_HASH_KEY_STRING);
    if (entry) {
        entry->begun += begun;
        entry->running += running;
        entry->used = apr_time_now();
    }
    apr_thread_mutex_unlock(quotas->lock);
}

void idem_quota_begin(idem_ctx_t *ctx)
{
    idem_identity_t identity = who(ctx);

    if (has_quota(ctx)) {
        ctx->quota_key = key_of(ctx->pool, &identity);
        count_here(ctx, 1, 1);
    }
}

void idem_quota_end(idem_ctx_t *ctx)
{
    if (ctx->quota_key) {
        count_here(ctx, 0, -1);
        ctx->quota_key = NULL;
    }
}

/* Takes out those that are due (copies of their identities), drops the idle ones, and says when the next is due. */
static int take_due(idem_quotas_t *quotas, idem_identity_t *identities, apr_time_t *again, apr_pool_t *p)
{
    apr_time_t now = apr_time_now();
    apr_hash_index_t *index;
    int count = 0;

    *again = now + FAR_AWAY;
    apr_thread_mutex_lock(quotas->lock);
    for (index = apr_hash_first(p, quotas->entries); index; index = apr_hash_next(index)) {
        entry_t *entry = apr_hash_this_val(index);

        if (!entry->running && entry->due && now - entry->used > IDLE) {
            apr_hash_set(quotas->entries, entry->key, APR_HASH_KEY_STRING, NULL);
            apr_pool_destroy(entry->pool);
            quotas->full = 0;
            continue;
        }
        if (entry->due <= now && count < MOST_AT_ONCE) {
            identities[count].tenant = apr_pstrdup(p, entry->identity.tenant);
            identities[count++].principal = apr_pstrdup(p, entry->identity.principal);
            entry->pending = entry->begun;
            entry->due = now + IDEM_QUOTA_INTERVAL;
        }
        *again = entry->due < *again ? entry->due : *again;
    }
    apr_thread_mutex_unlock(quotas->lock);
    return count;
}

static void enter(idem_quotas_t *quotas, const idem_identity_t *identity, const idem_count_t *count, apr_pool_t *p)
{
    entry_t *entry;

    apr_thread_mutex_lock(quotas->lock);
    entry = apr_hash_get(quotas->entries, key_of(p, identity), APR_HASH_KEY_STRING);
    if (entry) {
        /* what began while the store was counting may be in both for one interval: near enough, and never too low */
        entry->live = count->live;
        entry->begun -= entry->pending;
        entry->pending = 0;
        entry->others = count->inflight > entry->running ? count->inflight - entry->running : 0;
    }
    apr_thread_mutex_unlock(quotas->lock);
}

apr_time_t idem_quotas_count(idem_quotas_t *quotas, idem_store_t *store, const char *version, apr_pool_t *p)
{
    idem_identity_t identities[MOST_AT_ONCE];
    idem_count_t counts[MOST_AT_ONCE];
    apr_time_t again;
    int rounds = MOST_PRINCIPALS / MOST_AT_ONCE;
    int count;
    int i;

    while (rounds-- > 0 && (count = take_due(quotas, identities, &again, p)) > 0) {
        if (store->provider->count(store, version, identities, count, LARGEST, counts, apr_time_now() + store->timeout, p) !=
            IDEM_STORE_OK) {
            break;
        }
        for (i = 0; i < count; i++) {
            enter(quotas, &identities[i], &counts[i], p);
        }
    }
    return again;
}

const char *idem_quota_set(cmd_parms *cmd, void *conf, int argc, char *const argv[])
{
    idem_dir_t *dir = conf;
    int i;

    (void)cmd;
    dir->quota_live = 0;
    dir->quota_inflight = 0;
    if (argc == 1 && !apr_cstr_casecmp(argv[0], "None")) {
        return NULL;
    }
    for (i = 0; i < argc; i++) {
        int is_live = !apr_cstr_casecmpn(argv[i], "live=", 5);
        int is_inflight = !apr_cstr_casecmpn(argv[i], "inflight=", 9);

        if ((!is_live && !is_inflight) || !idem_values_number(strchr(argv[i], '=') + 1, 1, LARGEST,
                                                              is_live ? &dir->quota_live : &dir->quota_inflight)) {
            argc = 0;
        }
    }
    return argc < 1 || argc > 2 ? "IdempotencyQuota: takes live=N, inflight=N or both, N from 1 to 1000000, or None" : NULL;
}

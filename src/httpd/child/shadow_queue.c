#include <httpd.h>
#include <http_log.h>

#include "httpd/child/shadow_queue.h"

#include <string.h>

#include <apr_hash.h>
#include <apr_strings.h>
#include <apr_thread_mutex.h>

#include "core/uuid.h"
#include "httpd/logging.h"

APLOG_USE_MODULE(idempotency);

#define MOST_JOBS    1024
#define AT_ONCE      16                     /* jobs of one round: the thread has a heartbeat to send */
#define MOST_COUNTS  512                    /* different counts that wait to be written */
#define WRITE_EVERY  apr_time_from_sec(2)
#define FAR_AWAY     apr_time_from_sec(3600)

typedef struct tally_t {
    const char *route;
    const char *kind;
    const char *groups;
    apr_int64_t count;
} tally_t;

struct idem_shadow_queue_t {
    apr_thread_mutex_t *lock;
    idem_shadow_job_t *first;
    idem_shadow_job_t **end;
    int length;                 /* queued, or being filled in */
    apr_int64_t dropped;
    /* the thread's alone */
    apr_pool_t *pool;
    apr_hash_t *tallies;
    apr_time_t write_at;
};

idem_shadow_queue_t *idem_shadow_queue_create(apr_pool_t *pchild)
{
    idem_shadow_queue_t *queue = apr_pcalloc(pchild, sizeof(*queue));

    if (apr_thread_mutex_create(&queue->lock, APR_THREAD_MUTEX_DEFAULT, pchild) != APR_SUCCESS ||
        apr_pool_create(&queue->pool, pchild) != APR_SUCCESS) {
        return NULL;
    }
    queue->end = &queue->first;
    queue->tallies = apr_hash_make(queue->pool);
    return queue;
}

idem_shadow_job_t *idem_shadow_queue_job(idem_shadow_queue_t *queue)
{
    idem_shadow_job_t *job;
    apr_pool_t *p = NULL;

    apr_thread_mutex_lock(queue->lock);
    /* a pool without a parent: it goes from one thread to another */
    if (queue->length == MOST_JOBS || apr_pool_create_unmanaged_ex(&p, NULL, NULL) != APR_SUCCESS) {
        queue->dropped++;
        p = NULL;
    }
    queue->length += p != NULL;
    apr_thread_mutex_unlock(queue->lock);
    if (!p) {
        return NULL;
    }
    job = apr_pcalloc(p, sizeof(*job));
    job->pool = p;
    return job;
}

int idem_shadow_queue_add(idem_shadow_queue_t *queue, idem_shadow_job_t *job)
{
    int idle;

    apr_thread_mutex_lock(queue->lock);
    idle = !queue->first;
    *queue->end = job;
    queue->end = &job->next;
    apr_thread_mutex_unlock(queue->lock);
    return idle;
}

int idem_shadow_queue_any(idem_shadow_queue_t *queue)
{
    int any;

    if (!queue) {
        return 0;
    }
    apr_thread_mutex_lock(queue->lock);
    any = queue->first != NULL;
    apr_thread_mutex_unlock(queue->lock);
    return any;
}

static idem_shadow_job_t *take(idem_shadow_queue_t *queue)
{
    idem_shadow_job_t *job;

    apr_thread_mutex_lock(queue->lock);
    job = queue->first;
    if (job) {
        queue->first = job->next;
        queue->end = queue->first ? queue->end : &queue->first;
        queue->length--;
    }
    apr_thread_mutex_unlock(queue->lock);
    return job;
}

static void count(idem_shadow_queue_t *queue, const char *route, const char *kind, const char *groups, apr_int64_t n)
{
    const char *name = apr_pstrcat(queue->pool, route, "\n", kind, "\n", groups, NULL);
    tally_t *tally = apr_hash_get(queue->tallies, name, APR_HASH_KEY_STRING);

    if (!tally) {
        tally = apr_pcalloc(queue->pool, sizeof(*tally));
        tally->route = apr_pstrdup(queue->pool, route);
        tally->kind = apr_pstrdup(queue->pool, kind);
        tally->groups = apr_pstrdup(queue->pool, groups);
        apr_hash_set(queue->tallies, name, APR_HASH_KEY_STRING, tally);
    }
    tally->count += n;
}

/* Writes what was counted. What the store does not take stays for the next time. */
static void write_counts(idem_shadow_queue_t *queue, idem_store_t *store, apr_pool_t *p)
{
    apr_hash_index_t *at;
    apr_int64_t dropped;

    apr_thread_mutex_lock(queue->lock);
    dropped = queue->dropped;
    queue->dropped = 0;
    apr_thread_mutex_unlock(queue->lock);
    if (dropped) {
        count(queue, "(any)", "dropped", "", dropped);
    }
    for (at = apr_hash_first(p, queue->tallies); at; at = apr_hash_next(at)) {
        tally_t *tally = apr_hash_this_val(at);

        if (!tally->count) {
            continue;
        }
        if (store->provider->shadow_count(store, tally->route, tally->kind, tally->groups, tally->count,
                                          apr_time_now() + store->timeout, p) != IDEM_STORE_OK) {
            return;
        }
        tally->count = 0;
    }
    apr_pool_clear(queue->pool);
    queue->tallies = apr_hash_make(queue->pool);
}

/* When the first request ended, by this service's clocks: kept where a record has its headers. */
static apr_time_t ended_at(const idem_record_t *found)
{
    apr_time_t ended = 0;

    if (found->response_headers.len == sizeof(ended)) {
        memcpy(&ended, found->response_headers.octets, sizeof(ended));
    }
    return ended;
}

static int same_recipe(const idem_reserve_t *wanted, const idem_record_t *found)
{
    return found->known_contract && found->recipe.len == wanted->recipe.len &&
           !memcmp(found->recipe.octets, wanted->recipe.octets, found->recipe.len);
}

static int same_request(const idem_reserve_t *wanted, const idem_record_t *found)
{
    return same_recipe(wanted, found) && !memcmp(found->fingerprint, wanted->fingerprint, IDEM_FINGERPRINT_LEN);
}

/* Of several records the one of this very request decides, else one that cannot be compared, else the nearest: as Enforce
 * has it (lookup.c), but that what is kept here is compared only under the recipe it was made with. */
static const idem_record_t *decisive(const idem_reserve_t *wanted)
{
    const idem_record_t *unclear = NULL;
    int i;

    for (i = 0; i < wanted->found_count; i++) {
        const idem_record_t *found = wanted->all_found[i];

        if (same_request(wanted, found)) {
            return found;
        }
        unclear = !unclear && !same_recipe(wanted, found) ? found : unclear;
    }
    return unclear ? unclear : wanted->found;
}

static const char *verdict_on(const idem_shadow_job_t *job, const idem_reserve_t *wanted, const char **groups)
{
    const idem_record_t *found = wanted->older_count ? decisive(wanted) : wanted->found;

    if (!same_recipe(wanted, found)) {
        return "outcome-unknown";
    }
    if (!same_request(wanted, found)) {
        *groups = idem_fingerprint_differing(job->pool, wanted->fingerprint_parts.octets, wanted->fingerprint_parts.len,
                                             found->fingerprint_parts.octets, found->fingerprint_parts.len);
        return "key-reused";
    }
    if (found->expired) {
        return job->reuse_allowed && found->tombstone_over ? "executed" : "key-expired";
    }
    if (!idem_machine_is_final(found->state) || job->begun < ended_at(found)) {
        return "in-progress";
    }
    return found->response_code ? "replayed" : "outcome-unknown";
}

/* A first request: its record is settled as it ended. One of unknown outcome is a final without a code here: nobody is to
 * be asked about what only would have been. */
static void settle(idem_store_t *store, const idem_shadow_job_t *job, const idem_reserve_t *wanted)
{
    idem_settle_t settle = {0};
    idem_settle_t *list[1] = {&settle};

    settle.tenant = wanted->scope.tenant;
    memcpy(settle.operation, wanted->operation, IDEM_UUID_LEN);
    settle.generation = 1;
    settle.outcome = job->outcome == IDEM_OUTCOME_UNKNOWN ? IDEM_OUTCOME_FAILED : job->outcome;
    settle.response_code = job->outcome == IDEM_OUTCOME_UNKNOWN ? 0 : job->status;
    settle.response_headers.octets = (const unsigned char *)&job->ended;
    settle.response_headers.len = sizeof(job->ended);
    settle.actor = "shadow";
    settle.reason = "shadow";
    store->provider->settle(store, list, 1, apr_time_now() + store->timeout, job->pool);
}

static void fill(idem_reserve_t *wanted, const idem_shadow_job_t *job, const idem_store_t *store)
{
    unsigned char *parts = apr_palloc(job->pool, IDEM_PARTS_LEN);

    wanted->contract = IDEM_CONTRACT_NAME;
    memcpy(wanted->fingerprint, job->fingerprint, IDEM_FINGERPRINT_LEN);
    wanted->recipe.octets = (const unsigned char *)job->recipe;
    wanted->recipe.len = strlen(job->recipe);
    idem_fingerprint_parts(job->pool, job->framed, job->framed_len, store->digest_key, parts);
    wanted->fingerprint_parts.octets = parts;
    wanted->fingerprint_parts.len = IDEM_PARTS_LEN;
    /* a record that is left behind is nothing to be asked about, and goes by age */
    wanted->state = IDEM_STATE_RESERVED;
    wanted->effect = IDEM_EFFECT_REPEATABLE;
    wanted->reuse_allowed = 1;
    wanted->lease = job->lease;
    wanted->max_run = job->max_run;
    wanted->quiet = job->quiet;
    wanted->retention = job->retention;
    wanted->tombstone = job->tombstone;
    wanted->may_write = 1;
    idem_uuid_v7_pair(wanted->operation, wanted->owner_token, apr_time_now());
}

/* Where to look, and first where to write: under each identity that the caller has become or been, the revisions that the
 * route accepts. */
static void fill_scopes(idem_reserve_t *wanted, const idem_shadow_job_t *job, idem_aliases_t *aliases)
{
    idem_identity_t members[IDEM_ALIAS_MAX_MEMBERS];
    idem_identity_t identity = {job->scope.tenant, job->scope.principal};
    const char *writes; /* a scope version that is not ours */
    int count = idem_aliases_members(aliases, &identity, members, &wanted->alias_version, &writes, job->pool);
    int revisions = 1 + (job->accepts ? job->accepts->nelts : 0);
    idem_scope_t *older;
    int i;
    int j;

    if (!count) {
        members[count++] = identity;
    }
    older = apr_palloc(job->pool, sizeof(*older) * (apr_size_t)(count * revisions));
    wanted->older = older;
    wanted->older_count = 0;
    for (i = 0; i < count; i++) {
        for (j = 0; j < revisions; j++) {
            idem_scope_t scope = job->scope;

            scope.tenant = members[i].tenant;
            scope.principal = members[i].principal;
            scope.revision = j ? APR_ARRAY_IDX(job->accepts, j - 1, const char *) : job->scope.revision;
            if (i + j == 0) {
                wanted->scope = scope;
            }
            else if (wanted->older_count < IDEM_MAX_OLDER) {
                older[wanted->older_count++] = scope;
            }
        }
    }
}

static void ask(idem_reserve_t *wanted, const idem_shadow_job_t *job, idem_store_t *store, idem_aliases_t *aliases)
{
    idem_reserve_t *list[1] = {wanted};

    fill_scopes(wanted, job, aliases);
    store->provider->reserve(store, list, 1, apr_time_now() + store->timeout, job->pool);
}

/* What Enforce would have answered. */
static const char *decide(idem_shadow_job_t *job, idem_store_t *store, idem_aliases_t *aliases, const char **groups)
{
    idem_reserve_t wanted = {0};

    fill(&wanted, job, store);
    ask(&wanted, job, store, aliases);
    if (wanted.result == IDEM_STORE_FENCED && idem_aliases_read(aliases, store, job->pool) == IDEM_STORE_OK) {
        ask(&wanted, job, store, aliases); /* it may have been the aliases that have changed */
    }
    switch (wanted.result) {
    case IDEM_STORE_OK:
        settle(store, job, &wanted);
        return "executed";
    case IDEM_STORE_FOUND:
        return verdict_on(job, &wanted, groups);
    case IDEM_STORE_FENCED:
        return "writer-fenced";
    default:
        return "store-unavailable";
    }
}

apr_time_t idem_shadow_queue_work(idem_shadow_queue_t *queue, idem_store_t *store, idem_aliases_t *aliases,
                                  server_rec *s, apr_pool_t *p)
{
    idem_shadow_job_t *job = NULL;
    int left = AT_ONCE;

    if (!queue || !store->digest_key_known) {
        return apr_time_now() + FAR_AWAY;
    }
    while (left-- > 0 && apr_hash_count(queue->tallies) < MOST_COUNTS && (job = take(queue)) != NULL) {
        const char *groups = "";
        const char *kind = job->refused ? job->refused : decide(job, store, aliases, &groups);

        ap_log_error(APLOG_MARK, APLOG_INFO, 0, s, IDEM_LOG("0610") "shadow: %s%s%s, scope %s", kind, *groups ? ": " : "", groups,
                     job->refused ? "-" : idem_scope_log_digest(job->pool, &job->scope, store->digest_key, sizeof(store->digest_key)));
        count(queue, job->route, kind, groups, 1);
        apr_pool_destroy(job->pool);
    }
    if (apr_time_now() >= queue->write_at) {
        write_counts(queue, store, p);
        queue->write_at = apr_time_now() + WRITE_EVERY;
    }
    return job ? apr_time_now() : queue->write_at;
}

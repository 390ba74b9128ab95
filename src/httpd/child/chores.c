#include "httpd/child/chores.h"

#include <string.h>

#include <apr_strings.h>
#include <apr_thread_mutex.h>

#include "core/scope.h"
#include "core/snapshot.h"
#include "store/settlement.h"

#define MOST_CHORES    1024
#define FIRST_DELAY    apr_time_from_msec(200)
#define LONGEST_DELAY  apr_time_from_sec(15)
/* A statement that was sent to a frozen server may run when it thaws: so long its row is looked for. */
#define LONGEST_ROUND  apr_time_from_msec(500) /* the heartbeat waits for its end */
#define GIVE_UP_AFTER  apr_time_from_sec(3600)
#define FAR_AWAY       apr_time_from_sec(3600)

typedef struct entry_t {
    idem_chore_t chore;
    char tenant[IDEM_SCOPE_MAX_JOINED + 1];
    apr_time_t added;
    apr_time_t due;
    apr_interval_time_t delay;
    int seen;          /* withdrawn once without finding anything: nothing live is known of it */
    struct entry_t *next;
} entry_t;

/* The array is filled once; entries move between two lists. */
struct idem_chores_t {
    apr_thread_mutex_t *lock;
    entry_t *queue;
    entry_t *unused;
    apr_pool_t *pool;
    int made;
};

idem_chores_t *idem_chores_create(apr_pool_t *pchild)
{
    idem_chores_t *chores = apr_pcalloc(pchild, sizeof(*chores));

    if (apr_pool_create(&chores->pool, pchild) != APR_SUCCESS ||
        apr_thread_mutex_create(&chores->lock, APR_THREAD_MUTEX_DEFAULT, chores->pool) != APR_SUCCESS) {
        return NULL;
    }
    return chores;
}

static entry_t *new_entry(idem_chores_t *chores)
{
    entry_t *entry = chores->unused;

    if (entry) {
        chores->unused = entry->next;
        return entry;
    }
    if (chores->made == MOST_CHORES) {
        return NULL;
    }
    chores->made++;
    return apr_palloc(chores->pool, sizeof(*entry));
}

int idem_chores_add(idem_chores_t *chores, const idem_chore_t *chore, const char *tenant)
{
    entry_t *entry;

    apr_thread_mutex_lock(chores->lock);
    entry = new_entry(chores);
    if (entry) {
        memset(entry, 0, sizeof(*entry));
        entry->chore = *chore;
        apr_cpystrn(entry->tenant, tenant, sizeof(entry->tenant));
        entry->added = apr_time_now();
        entry->due = entry->added;
        entry->delay = FIRST_DELAY;
        entry->next = chores->queue;
        chores->queue = entry;
    }
    apr_thread_mutex_unlock(chores->lock);
    return entry != NULL;
}

static idem_store_result_e perform(idem_store_t *store, const entry_t *entry, apr_pool_t *p)
{
    apr_time_t deadline = apr_time_now() + store->timeout;
    idem_settlement_t settlement = {0};
    unsigned char *head;

    if (entry->chore.kind == IDEM_CHORE_WITHDRAW) {
        return store->provider->withdraw(store, entry->tenant, entry->chore.operation, entry->chore.owner_token,
                                         entry->chore.generation, deadline, p);
    }
    settlement.settle.tenant = entry->tenant;
    memcpy(settlement.settle.operation, entry->chore.operation, IDEM_UUID_LEN);
    settlement.settle.generation = entry->chore.generation;
    settlement.settle.outcome = entry->chore.outcome;
    settlement.settle.actor = "httpd";
    settlement.settle.reason = "ended without a response";
    settlement.backend_first = entry->chore.backend_first;
    idem_snapshot_encode_headers(p, apr_table_make(p, 1), NULL, &head, &settlement.empty_head.len);
    settlement.empty_head.octets = head;
    idem_settlement_apply(store, &settlement, deadline, p);
    return settlement.settle.result;
}

static int is_unanswered(idem_store_result_e result)
{
    return result == IDEM_STORE_UNAVAILABLE || result == IDEM_STORE_AMBIGUOUS;
}

/* What a result means for a chore: 1 where it is done with. */
static int is_done(entry_t *entry, idem_store_result_e result)
{
    if (is_unanswered(result) || result == IDEM_STORE_BUSY) {
        return 0;
    }
    if (entry->chore.kind == IDEM_CHORE_WITHDRAW && result == IDEM_STORE_NOT_FOUND) {
        entry->seen = 1;
        return apr_time_now() - entry->added > GIVE_UP_AFTER;
    }
    return 1;
}

/* Takes the first chore that is due out of the queue. */
static entry_t *take_due(idem_chores_t *chores, apr_time_t now)
{
    entry_t **link;
    entry_t *entry = NULL;

    apr_thread_mutex_lock(chores->lock);
    for (link = &chores->queue; *link; link = &(*link)->next) {
        if ((*link)->due <= now) {
            entry = *link;
            *link = entry->next;
            break;
        }
    }
    apr_thread_mutex_unlock(chores->lock);
    return entry;
}

static void put_away(idem_chores_t *chores, entry_t *entry, int done)
{
    apr_thread_mutex_lock(chores->lock);
    if (done) {
        entry->next = chores->unused;
        chores->unused = entry;
    }
    else {
        entry->due = apr_time_now() + entry->delay;
        entry->delay = entry->delay * 2 > LONGEST_DELAY ? LONGEST_DELAY : entry->delay * 2;
        entry->next = chores->queue;
        chores->queue = entry;
    }
    apr_thread_mutex_unlock(chores->lock);
}

static apr_time_t next_due(idem_chores_t *chores)
{
    apr_time_t due = apr_time_now() + FAR_AWAY;
    const entry_t *entry;

    apr_thread_mutex_lock(chores->lock);
    for (entry = chores->queue; entry; entry = entry->next) {
        due = entry->due < due ? entry->due : due;
    }
    apr_thread_mutex_unlock(chores->lock);
    return due;
}

apr_time_t idem_chores_work(idem_chores_t *chores, idem_store_t *store, apr_pool_t *p, int all)
{
    /* what is put back is due later than this, so the loop ends */
    apr_time_t now = all ? apr_time_now() + LONGEST_DELAY : apr_time_now();
    apr_time_t until = apr_time_now() + LONGEST_ROUND;
    int left = MOST_CHORES;
    entry_t *entry;

    while (left-- > 0 && (all || apr_time_now() < until) && (entry = take_due(chores, now)) != NULL) {
        idem_store_result_e result = perform(store, entry, p);

        put_away(chores, entry, is_done(entry, result) || (all && entry->seen));
        if (is_unanswered(result)) {
            break;
        }
    }
    return next_due(chores);
}

int idem_chores_left(idem_chores_t *chores)
{
    const entry_t *entry;
    int left = 0;

    apr_thread_mutex_lock(chores->lock);
    for (entry = chores->queue; entry; entry = entry->next) {
        left += !entry->seen;
    }
    apr_thread_mutex_unlock(chores->lock);
    return left;
}

int idem_chores_any(idem_chores_t *chores)
{
    int any;

    apr_thread_mutex_lock(chores->lock);
    any = chores->queue != NULL;
    apr_thread_mutex_unlock(chores->lock);
    return any;
}

#include "httpd/child/conns.h"

#include <httpd.h>
#include <http_log.h>

#include "httpd/setup/config.h"
#include "httpd/child/conns_pool.h"
#include "httpd/logging.h"

APLOG_USE_MODULE(idempotency);

/*
 * Of a store that nobody has heard from for so long only so many threads wait. A request for a static file is to have a
 * thread within 100 ms; but a store that is slow is not refused for being so, hence a multiple of its pace of late.
 */
#define SHORTEST_SILENCE apr_time_from_msec(70)
#define LONGEST_SILENCE  apr_time_from_msec(250)
#define SILENCE_PACES    4
#define LOOK             apr_time_from_msec(15) /* so often whoever waits looks at it again */
#define MOST_DOUBTS      3                      /* statements in a row without an answer: then nobody waits */

void idem_conns_away(idem_conns_t *conns, idem_pgsql_ready_e reason, const char *message)
{
    int changed;

    apr_thread_mutex_lock(conns->lock);
    changed = !conns->away || reason != conns->last_reason;
    conns->away = 1;
    conns->last_reason = reason;
    conns->failures++;
    apr_thread_cond_broadcast(conns->changed);
    apr_thread_mutex_unlock(conns->lock);
    if (changed) {
        ap_log_error(APLOG_MARK, APLOG_ERR, 0, conns->registry,
                     IDEM_LOG("0902") "the registry cannot be used, keyed requests get 503: %s", message);
    }
}

/* Is it known already that waiting is in vain? */
static int is_in_vain(const idem_conns_t *conns, int own)
{
    int none = conns->open <= conns->broken_count;

    if (own) {
        /* it is the one who opens: waiting would be for itself */
        return none && !conns->idle_count;
    }
    return conns->closed || conns->away ||
           (none && conns->opening_since && apr_time_now() - conns->opening_since > conns->patience);
}

static int busy(const idem_conns_t *conns)
{
    return conns->waiting + conns->open - conns->idle_count - conns->broken_count;
}

/* Has nobody had an answer for a while, with too many waiting for one? Under the lock. */
static int is_crowded(const idem_conns_t *conns)
{
    apr_time_t since = conns->last_good > conns->busy_since ? conns->last_good : conns->busy_since;
    apr_interval_time_t silence = conns->pace * SILENCE_PACES;

    silence = silence < SHORTEST_SILENCE ? SHORTEST_SILENCE : silence;
    return conns->most_busy && busy(conns) >= conns->most_busy && apr_time_now() - since >= silence;
}

/* An answer came over this connection. Under the lock. */
static void learn_pace(idem_conns_t *conns, const idem_conns_entry_t *entry, apr_time_t now)
{
    apr_interval_time_t silence = now - (conns->last_good > entry->lent ? conns->last_good : entry->lent);

    conns->pace -= conns->pace / 16; /* forgotten little by little */
    conns->pace = silence > conns->pace ? silence : conns->pace;
    conns->pace = conns->pace > LONGEST_SILENCE / SILENCE_PACES ? LONGEST_SILENCE / SILENCE_PACES : conns->pace;
    conns->last_good = now;
}

/*
 * While the store is away one request at a time, and not too often, has the owner thread try at once and waits for what
 * comes of it: so the first request after an outage is served. Not where an attempt takes long: then all are refused
 * at once. Under the lock.
 */
static void try_again(idem_conns_t *conns, apr_time_t deadline)
{
    unsigned failures = conns->failures;
    apr_interval_time_t left = deadline - apr_time_now();

    if (!conns->away || conns->closed || conns->trial || apr_time_now() < conns->next_trial) {
        return;
    }
    conns->trial = 1;
    conns->next_attempt = 0;
    while (left > 0 && conns->away && conns->failures == failures) {
        conns->wake(conns->wake_baton);
        apr_thread_cond_timedwait(conns->changed, conns->lock, left);
        left = deadline - apr_time_now();
    }
    conns->trial = 0;
}

static apr_status_t borrow(idem_conns_t *conns, apr_time_t deadline, int own, idem_conn_t **conn)
{
    idem_conns_entry_t *entry;

    apr_thread_mutex_lock(conns->lock);
    if (!own) {
        conns->busy_since = busy(conns) ? conns->busy_since : apr_time_now();
        try_again(conns, deadline);
    }
    while (is_in_vain(conns, own) || !conns->idle_count || (!own && apr_time_now() >= conns->fresh_until)) {
        apr_interval_time_t left = deadline - apr_time_now();
        int vain = is_in_vain(conns, own) || (!own && is_crowded(conns));

        if (left <= 0 || vain) {
            apr_thread_mutex_unlock(conns->lock);
            return vain ? APR_ECONNREFUSED : APR_TIMEUP;
        }
        conns->waiting++;
        conns->wake(conns->wake_baton);
        /* the crowd is looked at again */
        apr_thread_cond_timedwait(conns->changed, conns->lock, left < LOOK || own ? left : LOOK);
        conns->waiting--;
    }
    entry = conns->idle[--conns->idle_count];
    entry->lent = apr_time_now();
    *conn = &entry->conn;
    apr_thread_mutex_unlock(conns->lock);
    return APR_SUCCESS;
}

static apr_status_t borrow_for_request(void *baton, apr_time_t deadline, idem_conn_t **conn)
{
    return borrow(baton, deadline, 0, conn);
}

static apr_status_t borrow_for_owner(void *baton, apr_time_t deadline, idem_conn_t **conn)
{
    return borrow(baton, deadline, 1, conn);
}

static void give_back(void *baton, idem_conn_t *conn)
{
    idem_conns_t *conns = baton;
    idem_conns_entry_t *entry = (idem_conns_entry_t *)conn;

    entry->last_used = apr_time_now();
    apr_thread_mutex_lock(conns->lock);
    conns->idle[conns->idle_count++] = entry;
    learn_pace(conns, entry, entry->last_used);
    conns->doubts = 0;
    apr_thread_cond_signal(conns->changed);
    apr_thread_mutex_unlock(conns->lock);
}

static void give_back_broken(void *baton, idem_conn_t *conn, const char *reason)
{
    idem_conns_t *conns = baton;
    int lost = PQstatus(conn->native) != CONNECTION_OK;
    int silent = !lost && PQtransactionStatus(conn->native) == PQTRANS_ACTIVE;
    int doubts;

    ap_log_error(APLOG_MARK, APLOG_DEBUG, 0, conns->registry, IDEM_LOG("0901") "a connection to the registry is given up: %s",
                 reason);
    apr_thread_mutex_lock(conns->lock);
    conns->broken[conns->broken_count++] = (idem_conns_entry_t *)conn;
    conns->doubts += silent;
    doubts = conns->doubts;
    /* where one connection is lost the server has probably restarted: the idle ones are looked at as well */
    while ((lost || doubts >= MOST_DOUBTS) && conns->idle_count) {
        conns->broken[conns->broken_count++] = conns->idle[--conns->idle_count];
    }
    if (!conns->away) {
        conns->next_attempt = 0;
    }
    apr_thread_mutex_unlock(conns->lock);
    if (doubts >= MOST_DOUBTS) {
        idem_conns_away(conns, IDEM_PGSQL_UNREACHABLE, "several statements in a row had no answer");
    }
    conns->wake(conns->wake_baton);
}

/* The store's own queue, in the crowd's count as if it waited in borrow. */
static int queue(void *baton, int change)
{
    idem_conns_t *conns = baton;
    int welcome = 1;

    apr_thread_mutex_lock(conns->lock);
    if (change > 0) {
        conns->busy_since = busy(conns) ? conns->busy_since : apr_time_now();
    }
    else {
        conns->waiting--;
    }
    if (change >= 0) {
        welcome = !is_in_vain(conns, 0) && !is_crowded(conns);
        conns->waiting += welcome || !change;
    }
    apr_thread_mutex_unlock(conns->lock);
    return welcome;
}

idem_conns_t *idem_conns_create(apr_pool_t *pchild, server_rec *registry, const char *params, int most, int most_busy,
                                apr_interval_time_t patience, idem_conns_wake_fn wake, void *baton)
{
    idem_conns_t *conns = apr_pcalloc(pchild, sizeof(*conns));

    conns->registry = registry;
    conns->params = params;
    conns->grown = 1;
    conns->most = most > IDEM_CONNS_MOST ? IDEM_CONNS_MOST : most;
    conns->most_busy = most_busy;
    conns->pace = LONGEST_SILENCE / SILENCE_PACES; /* not known yet */
    conns->patience = patience;
    conns->wake = wake;
    conns->wake_baton = baton;
    conns->source = (idem_conn_source_t){conns, borrow_for_request, give_back, give_back_broken, queue};
    conns->own_source = (idem_conn_source_t){conns, borrow_for_owner, give_back, give_back_broken, NULL};
    if (apr_pool_create(&conns->pool, pchild) != APR_SUCCESS ||
        apr_thread_mutex_create(&conns->lock, APR_THREAD_MUTEX_DEFAULT, conns->pool) != APR_SUCCESS ||
        apr_thread_cond_create(&conns->changed, conns->pool) != APR_SUCCESS) {
        return NULL;
    }
    return conns;
}

const idem_conn_source_t *idem_conns_source(idem_conns_t *conns)
{
    return &conns->source;
}

const idem_conn_source_t *idem_conns_own_source(idem_conns_t *conns)
{
    return &conns->own_source;
}

void idem_conns_proved(idem_conns_t *conns, apr_time_t until)
{
    int was_away;

    apr_thread_mutex_lock(conns->lock);
    was_away = conns->away;
    conns->away = 0;
    conns->doubts = 0;
    conns->next_trial = 0;
    conns->fresh_until = until;
    apr_thread_cond_broadcast(conns->changed);
    apr_thread_mutex_unlock(conns->lock);
    if (was_away) {
        ap_log_error(APLOG_MARK, APLOG_NOTICE, 0, conns->registry, IDEM_LOG("0903") "the registry can be used again");
    }
}

void idem_conns_unproved(idem_conns_t *conns, apr_time_t begun)
{
    apr_time_t now = apr_time_now();
    int others_good;

    apr_thread_mutex_lock(conns->lock);
    conns->next_trial = now - begun < IDEM_CONNS_QUICK ? now + apr_time_from_msec(200) : APR_INT64_MAX;
    others_good = conns->last_good >= begun && now < conns->fresh_until;
    apr_thread_mutex_unlock(conns->lock);
    if (!others_good) {
        idem_conns_away(conns, IDEM_PGSQL_UNREACHABLE, "this child's heartbeat does not get through");
    }
}

int idem_conns_want_proof(idem_conns_t *conns)
{
    int wanted;

    apr_thread_mutex_lock(conns->lock);
    wanted = conns->away || conns->doubts;
    apr_thread_mutex_unlock(conns->lock);
    return wanted;
}

void idem_conns_count(idem_conns_t *conns, int *open, int *idle, int *away)
{
    apr_thread_mutex_lock(conns->lock);
    *open = conns->open;
    *idle = conns->idle_count;
    *away = conns->away != 0;
    apr_thread_mutex_unlock(conns->lock);
}

int idem_conns_have(idem_conns_t *conns)
{
    int have;

    apr_thread_mutex_lock(conns->lock);
    have = conns->open > conns->broken_count;
    apr_thread_mutex_unlock(conns->lock);
    return have;
}

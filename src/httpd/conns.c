#include "httpd/conns.h"

#include <sys/socket.h>

#include <apr_dbd.h>
#include <apr_optional.h>
#include <apr_thread_cond.h>
#include <apr_thread_mutex.h>
#include <httpd.h>
#include <http_log.h>
#include <mod_dbd.h>

#include "httpd/config.h"
#include "httpd/logging.h"
#include "store/pgsql.h"

APLOG_USE_MODULE(idempotency);

#define MOST_CONNECTIONS 128
#define PROBE_INTERVAL   apr_time_from_msec(500)
#define IDLE_LIMIT       apr_time_from_sec(60)
#define IDLE_KEEP        1
#define FAR_AWAY         apr_time_from_sec(3600)

/* A connection as the pool keeps it. conn is first: what is lent is this. */
typedef struct entry_t {
    idem_conn_t conn;
    ap_dbd_t *dbd;
    apr_time_t last_used;
} entry_t;

struct idem_conns_t {
    apr_pool_t *pool;
    server_rec *registry;
    apr_thread_mutex_t *lock;
    apr_thread_cond_t *changed;       /* something was given back, opened, or it became known that the store is away */
    int most;
    int open;                         /* lent, idle and broken ones */
    int waiting;
    entry_t *idle[MOST_CONNECTIONS];
    int idle_count;
    entry_t *broken[MOST_CONNECTIONS];
    int broken_count;
    int away;                         /* the breaker: the last attempt to connect failed */
    int closed;
    apr_time_t opening_since;         /* 0: nobody is connecting */
    apr_time_t next_attempt;
    apr_time_t fresh_until;
    apr_interval_time_t patience;
    idem_pgsql_ready_e last_reason;
    idem_conns_wake_fn wake;
    void *wake_baton;
    idem_conn_source_t source;
    idem_conn_source_t own_source;
};

/* Is it known already that waiting is in vain? */
static int is_away(const idem_conns_t *conns)
{
    return conns->closed || conns->away ||
           (conns->opening_since && apr_time_now() - conns->opening_since > conns->patience);
}

static apr_status_t borrow(idem_conns_t *conns, apr_time_t deadline, int own, idem_conn_t **conn)
{
    apr_status_t rv = APR_SUCCESS;

    apr_thread_mutex_lock(conns->lock);
    while (!conns->idle_count || (!own && apr_time_now() >= conns->fresh_until)) {
        apr_interval_time_t left = deadline - apr_time_now();

        if (left <= 0 || rv == APR_TIMEUP || (!conns->idle_count && is_away(conns))) {
            int away = is_away(conns);

            apr_thread_mutex_unlock(conns->lock);
            return away ? APR_ECONNREFUSED : APR_TIMEUP;
        }
        conns->waiting++;
        conns->wake(conns->wake_baton);
        rv = apr_thread_cond_timedwait(conns->changed, conns->lock, left);
        conns->waiting--;
    }
    *conn = &conns->idle[--conns->idle_count]->conn;
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
    entry_t *entry = (entry_t *)conn;

    entry->last_used = apr_time_now();
    apr_thread_mutex_lock(conns->lock);
    conns->idle[conns->idle_count++] = entry;
    apr_thread_cond_signal(conns->changed);
    apr_thread_mutex_unlock(conns->lock);
}

static void give_back_broken(void *baton, idem_conn_t *conn, const char *reason)
{
    idem_conns_t *conns = baton;
    int lost = PQstatus(conn->native) != CONNECTION_OK;

    ap_log_error(APLOG_MARK, APLOG_DEBUG, 0, conns->registry, IDEM_LOG("0901") "a connection to the registry is given up: %s",
                 reason);
    apr_thread_mutex_lock(conns->lock);
    conns->broken[conns->broken_count++] = (entry_t *)conn;
    /* where one connection is lost the server has probably restarted: the idle ones are looked at as well */
    while (lost && conns->idle_count) {
        conns->broken[conns->broken_count++] = conns->idle[--conns->idle_count];
    }
    conns->next_attempt = 0;
    apr_thread_mutex_unlock(conns->lock);
    conns->wake(conns->wake_baton);
}

idem_conns_t *idem_conns_create(apr_pool_t *pchild, server_rec *registry, int most, apr_interval_time_t patience,
                                idem_conns_wake_fn wake, void *baton)
{
    idem_conns_t *conns = apr_pcalloc(pchild, sizeof(*conns));

    conns->registry = registry;
    conns->most = most > MOST_CONNECTIONS ? MOST_CONNECTIONS : most;
    conns->patience = patience;
    conns->wake = wake;
    conns->wake_baton = baton;
    conns->source = (idem_conn_source_t){conns, borrow_for_request, give_back, give_back_broken};
    conns->own_source = (idem_conn_source_t){conns, borrow_for_owner, give_back, give_back_broken};
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

/* Gives a connection back to mod_dbd. One in doubt is cut first, so that mod_dbd's next look at it finds it bad. */
static void end_connection(idem_conns_t *conns, entry_t *entry, int cut)
{
    APR_OPTIONAL_FN_TYPE(ap_dbd_close) *close_dbd = APR_RETRIEVE_OPTIONAL_FN(ap_dbd_close);
    PGconn *native = entry->conn.native;

    if (cut && PQsocket(native) >= 0) {
        shutdown(PQsocket(native), SHUT_RDWR);
        PQconsumeInput(native);
    }
    close_dbd(conns->registry, entry->dbd);
    apr_pool_destroy(entry->conn.pool);
    apr_thread_mutex_lock(conns->lock);
    conns->open--;
    apr_thread_mutex_unlock(conns->lock);
}

/* Says once that the store went away, and why; and once that it is back. */
static void report(idem_conns_t *conns, idem_pgsql_ready_e reason, const char *message)
{
    int changed = conns->away != (reason != IDEM_PGSQL_READY) || (conns->away && reason != conns->last_reason);

    apr_thread_mutex_lock(conns->lock);
    conns->away = reason != IDEM_PGSQL_READY;
    conns->last_reason = reason;
    apr_thread_cond_broadcast(conns->changed);
    apr_thread_mutex_unlock(conns->lock);
    if (changed && conns->away) {
        ap_log_error(APLOG_MARK, APLOG_ERR, 0, conns->registry,
                     IDEM_LOG("0902") "the registry cannot be used, keyed requests get 503: %s", message);
    }
    else if (changed) {
        ap_log_error(APLOG_MARK, APLOG_NOTICE, 0, conns->registry, IDEM_LOG("0903") "the registry can be used again");
    }
}

static entry_t *connect_entry(idem_conns_t *conns, const char **message)
{
    APR_OPTIONAL_FN_TYPE(ap_dbd_open) *open_dbd = APR_RETRIEVE_OPTIONAL_FN(ap_dbd_open);
    apr_pool_t *pool;
    entry_t *entry;

    if (apr_pool_create(&pool, conns->pool) != APR_SUCCESS) {
        *message = "out of memory";
        return NULL;
    }
    entry = apr_pcalloc(pool, sizeof(*entry));
    entry->conn.pool = pool;
    entry->dbd = open_dbd ? open_dbd(pool, conns->registry) : NULL;
    if (!entry->dbd || strcmp(apr_dbd_name(entry->dbd->driver), "pgsql")) {
        *message = "mod_dbd has no connection to give (see its own message)";
        apr_pool_destroy(pool);
        return NULL;
    }
    entry->conn.native = apr_dbd_native_handle(entry->dbd->driver, entry->dbd->handle);
    entry->last_used = apr_time_now();
    return entry;
}

/* Opens one connection. Blocks as long as mod_dbd and the server do; nobody else waits for it longer than they like. */
static void open_one(idem_conns_t *conns, idem_store_t *store)
{
    const char *message = "";
    idem_pgsql_ready_e ready = IDEM_PGSQL_UNREACHABLE;
    entry_t *entry;

    apr_thread_mutex_lock(conns->lock);
    conns->opening_since = apr_time_now();
    apr_thread_mutex_unlock(conns->lock);

    entry = connect_entry(conns, &message);
    apr_thread_mutex_lock(conns->lock);
    conns->open += entry != NULL;
    apr_thread_mutex_unlock(conns->lock);
    if (entry) {
        ready = idem_pgsql_make_ready(store, &entry->conn, apr_time_now() + conns->patience, entry->conn.pool, &message);
    }
    report(conns, ready, message);

    apr_thread_mutex_lock(conns->lock);
    conns->opening_since = 0;
    conns->next_attempt = ready == IDEM_PGSQL_READY ? 0 : apr_time_now() + PROBE_INTERVAL;
    if (ready == IDEM_PGSQL_READY) {
        conns->idle[conns->idle_count++] = entry;
        apr_thread_cond_broadcast(conns->changed);
    }
    apr_thread_mutex_unlock(conns->lock);
    if (entry && ready != IDEM_PGSQL_READY) {
        end_connection(conns, entry, 1);
    }
}

/* Takes one broken or one long idle connection out of the pool; NULL where there is none. */
static entry_t *take_unwanted(idem_conns_t *conns, int *cut)
{
    entry_t *entry = NULL;
    int i;

    apr_thread_mutex_lock(conns->lock);
    *cut = conns->broken_count > 0;
    if (*cut) {
        entry = conns->broken[--conns->broken_count];
    }
    else if (conns->open > IDLE_KEEP && conns->idle_count > 0 && !conns->waiting &&
             apr_time_now() - conns->idle[0]->last_used > IDLE_LIMIT) {
        /* the stack's bottom has been idle longest */
        entry = conns->idle[0];
        conns->idle_count--;
        for (i = 0; i < conns->idle_count; i++) {
            conns->idle[i] = conns->idle[i + 1];
        }
    }
    apr_thread_mutex_unlock(conns->lock);
    return entry;
}

/* Is another connection wanted now? While the store is away, one is, as a probe, until somebody gets through. */
static int wants_one(idem_conns_t *conns)
{
    int wanted;

    apr_thread_mutex_lock(conns->lock);
    wanted = !conns->closed && conns->open < conns->most && conns->waiting > conns->idle_count;
    wanted |= !conns->closed && conns->away && !conns->open;
    wanted &= apr_time_now() >= conns->next_attempt;
    apr_thread_mutex_unlock(conns->lock);
    return wanted;
}

apr_time_t idem_conns_tend(idem_conns_t *conns, idem_store_t *store)
{
    entry_t *entry;
    apr_time_t again;
    int cut;

    while ((entry = take_unwanted(conns, &cut)) != NULL) {
        end_connection(conns, entry, cut);
    }
    if (wants_one(conns)) {
        open_one(conns, store);
    }
    apr_thread_mutex_lock(conns->lock);
    again = apr_time_now() + FAR_AWAY;
    if (conns->away && !conns->open) {
        again = conns->next_attempt;
    }
    else if (conns->waiting > conns->idle_count && conns->open < conns->most) {
        again = conns->next_attempt;
    }
    else if (conns->idle_count > IDLE_KEEP) {
        again = apr_time_now() + IDLE_LIMIT;
    }
    apr_thread_mutex_unlock(conns->lock);
    return again;
}

void idem_conns_fresh_until(idem_conns_t *conns, apr_time_t until)
{
    apr_thread_mutex_lock(conns->lock);
    conns->fresh_until = until;
    apr_thread_cond_broadcast(conns->changed);
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

void idem_conns_close(idem_conns_t *conns)
{
    entry_t *entry;
    int more = 1;
    int cut;

    while (more) {
        apr_thread_mutex_lock(conns->lock);
        conns->closed = 1;
        apr_thread_cond_broadcast(conns->changed);
        cut = conns->broken_count > 0;
        entry = cut                 ? conns->broken[--conns->broken_count]
                : conns->idle_count ? conns->idle[--conns->idle_count]
                                    : NULL;
        apr_thread_mutex_unlock(conns->lock);
        more = entry != NULL;
        if (entry) {
            end_connection(conns, entry, cut);
        }
    }
}

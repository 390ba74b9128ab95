/* Opening and ending connections, by the owner thread. */
#include <string.h>

#include <apr_optional.h>
#include <httpd.h>
#include <http_log.h>

#include "httpd/setup/config.h"
#include "httpd/child/conns_pool.h"
#include "httpd/logging.h"

APLOG_USE_MODULE(idempotency);

#define SHORTEST_BACKOFF apr_time_from_msec(200)
#define LONGEST_BACKOFF  apr_time_from_sec(2)
#define IDLE_LIMIT       apr_time_from_sec(60)
#define IDLE_KEEP        1
#define FAR_AWAY         apr_time_from_sec(3600)

/* Gives a connection back to mod_dbd. One in doubt is cut first, so that mod_dbd's next look at it finds it bad. */
static void end_connection(idem_conns_t *conns, idem_conns_entry_t *entry, int cut)
{
    APR_OPTIONAL_FN_TYPE(ap_dbd_close) *close_dbd = APR_RETRIEVE_OPTIONAL_FN(ap_dbd_close);

    if (cut) {
        idem_pgsql_cut(entry->conn.native);
    }
    close_dbd(conns->registry, entry->dbd);
    apr_pool_destroy(entry->conn.pool);
    apr_thread_mutex_lock(conns->lock);
    conns->open--;
    apr_thread_mutex_unlock(conns->lock);
}

static idem_conns_entry_t *connect_entry(idem_conns_t *conns, const char **message)
{
    APR_OPTIONAL_FN_TYPE(ap_dbd_open) *open_dbd = APR_RETRIEVE_OPTIONAL_FN(ap_dbd_open);
    apr_pool_t *pool;
    idem_conns_entry_t *entry;

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

/*
 * No connection came about. With others open that is a lack and no outage: they serve on. One quick failure is no
 * outage either: a server that restarts ends even connections that it has just taken.
 */
static void report_failure(idem_conns_t *conns, idem_pgsql_ready_e reason, const char *message)
{
    int serving;
    int first;
    int once;

    apr_thread_mutex_lock(conns->lock);
    serving = conns->open - conns->broken_count;
    first = serving && conns->grown;
    conns->grown = 0;
    once = !conns->away && !conns->failed_once && reason == IDEM_PGSQL_UNREACHABLE &&
           apr_time_now() - conns->opening_since < IDEM_CONNS_QUICK;
    conns->failed_once = once;
    apr_thread_mutex_unlock(conns->lock);
    if (!serving && !once) {
        idem_conns_away(conns, reason, message);
    }
    else if (serving && first) {
        ap_log_error(APLOG_MARK, APLOG_WARNING, 0, conns->registry,
                     IDEM_LOG("0904") "no further connection to the registry, %d serve: %s", serving, message);
    }
}

/*
 * When to try again: soon at first, then less often, and not all children at the same moment. Soon as well where the
 * next attempt decides: somebody waits for it, and what failed before was a further connection.
 */
static apr_time_t after_failure(idem_conns_t *conns)
{
    apr_time_t now = apr_time_now();

    conns->next_trial = now - conns->opening_since < IDEM_CONNS_QUICK ? now + SHORTEST_BACKOFF : APR_INT64_MAX;
    conns->backoff = conns->backoff && !conns->failed_once ? conns->backoff * 2 : SHORTEST_BACKOFF;
    conns->backoff = conns->backoff > LONGEST_BACKOFF ? LONGEST_BACKOFF : conns->backoff;
    return now + conns->backoff - now % (conns->backoff / 4);
}

/*
 * Opens one connection. Looks by itself first: mod_dbd would write a line for every attempt, wait for as long as it
 * takes, and say only that there is none.
 */
static void open_one(idem_conns_t *conns, idem_store_t *store)
{
    const char *message = "";
    idem_pgsql_ready_e ready;
    idem_conns_entry_t *entry = NULL;
    apr_pool_t *p;

    if (apr_pool_create(&p, conns->pool) != APR_SUCCESS) {
        return;
    }
    apr_thread_mutex_lock(conns->lock);
    conns->opening_since = apr_time_now();
    apr_thread_mutex_unlock(conns->lock);

    ready = idem_pgsql_probe(store, conns->params, conns->patience, p, &message);
    if (ready == IDEM_PGSQL_READY) {
        ready = IDEM_PGSQL_UNREACHABLE;
        entry = connect_entry(conns, &message);
    }
    if (entry) {
        ready = idem_pgsql_make_ready(store, &entry->conn, apr_time_now() + conns->patience, p, &message);
    }
    if (ready != IDEM_PGSQL_READY) {
        report_failure(conns, ready, message);
    }
    apr_thread_mutex_lock(conns->lock);
    conns->open += entry != NULL;
    if (ready == IDEM_PGSQL_READY) {
        conns->grown = 1;
        conns->failed_once = 0;
        conns->backoff = 0;
        conns->next_attempt = 0;
        conns->idle[conns->idle_count++] = entry;
        apr_thread_cond_broadcast(conns->changed);
    }
    else {
        conns->next_attempt = after_failure(conns);
    }
    conns->opening_since = 0;
    apr_thread_mutex_unlock(conns->lock);
    if (entry && ready != IDEM_PGSQL_READY) {
        end_connection(conns, entry, 1);
    }
    apr_pool_destroy(p);
}

/* Takes one broken or one long idle connection out of the pool; NULL where there is none. */
static idem_conns_entry_t *take_unwanted(idem_conns_t *conns, int *cut)
{
    idem_conns_entry_t *entry = NULL;
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

/*
 * Is another connection wanted? By those who wait, by the owner thread, and, while the store is away or in doubt, until
 * somebody gets through. Under the lock.
 */
static int wants_one(const idem_conns_t *conns, int needed)
{
    if (conns->closed || conns->open >= conns->most) {
        return 0;
    }
    return conns->waiting > conns->idle_count || (!conns->idle_count && (conns->away || conns->doubts)) ||
           (needed && !conns->open);
}

static int may_open_one(idem_conns_t *conns, int needed)
{
    int may;

    apr_thread_mutex_lock(conns->lock);
    may = wants_one(conns, needed) && apr_time_now() >= conns->next_attempt;
    apr_thread_mutex_unlock(conns->lock);
    return may;
}

apr_time_t idem_conns_tend(idem_conns_t *conns, idem_store_t *store, int needed)
{
    idem_conns_entry_t *entry;
    apr_time_t again;
    int cut;

    while ((entry = take_unwanted(conns, &cut)) != NULL) {
        end_connection(conns, entry, cut);
    }
    if (may_open_one(conns, needed)) {
        open_one(conns, store);
    }
    apr_thread_mutex_lock(conns->lock);
    again = apr_time_now() + FAR_AWAY;
    if (wants_one(conns, needed)) {
        again = conns->next_attempt;
    }
    else if (conns->idle_count > IDLE_KEEP) {
        again = apr_time_now() + IDLE_LIMIT;
    }
    apr_thread_mutex_unlock(conns->lock);
    return again;
}

void idem_conns_close(idem_conns_t *conns)
{
    idem_conns_entry_t *entry;
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

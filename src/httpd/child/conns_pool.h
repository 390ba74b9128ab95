/*
 * conns_pool.h - the inside of conns.h: the pool itself, shared by conns.c (lending, breaker) and conns_tend.c (opening
 * and ending, by the owner thread).
 */
#ifndef IDEM_HTTPD_CONNS_POOL_H
#define IDEM_HTTPD_CONNS_POOL_H

#include <apr_dbd.h>
#include <apr_thread_cond.h>
#include <apr_thread_mutex.h>
#include <mod_dbd.h>

#include "httpd/child/conns.h"
#include "store/pgsql.h"

#define IDEM_CONNS_MOST  128
#define IDEM_CONNS_QUICK apr_time_from_msec(250) /* an attempt that a request may wait for */

/* A connection as the pool keeps it. conn is first: what is lent is this. */
typedef struct idem_conns_entry_t {
    idem_conn_t conn;
    ap_dbd_t *dbd;
    apr_time_t last_used;
    apr_time_t lent;
} idem_conns_entry_t;

struct idem_conns_t {
    apr_pool_t *pool;
    server_rec *registry;
    const char *params;               /* DBDParams, for looking without mod_dbd */
    apr_thread_mutex_t *lock;
    apr_thread_cond_t *changed;       /* something was given back, opened, or it became known that the store is away */
    int most;
    int most_busy;                    /* threads that may be with a store that is silent; 0: any number */
    int open;                         /* lent, idle and broken ones */
    int waiting;
    idem_conns_entry_t *idle[IDEM_CONNS_MOST];
    int idle_count;
    idem_conns_entry_t *broken[IDEM_CONNS_MOST];
    int broken_count;
    int away;                         /* the breaker is open: request threads are refused at once */
    int failed_once;                  /* the last attempt failed quickly: the next one decides */
    int closed;
    int trial;                        /* a request waits for the next attempt, the only one while away */
    unsigned failures;                /* of attempts to use the store again */
    apr_time_t next_trial;            /* APR_INT64_MAX: the last attempt took long */
    int doubts;                       /* statements without an answer since the last one that had one */
    int grown;                        /* 0: it was said that no further connection can be had */
    apr_time_t last_good;             /* when a connection last came back in order */
    apr_interval_time_t pace;         /* the longest time without an answer of late, with somebody there */
    apr_time_t busy_since;            /* when a request thread last came and found no other there */
    apr_time_t opening_since;         /* 0: nobody is connecting */
    apr_time_t next_attempt;
    apr_interval_time_t backoff;
    apr_time_t fresh_until;
    apr_interval_time_t patience;
    idem_pgsql_ready_e last_reason;
    idem_conns_wake_fn wake;
    void *wake_baton;
    idem_conn_source_t source;
    idem_conn_source_t own_source;
};

/* Opens the breaker, or says why it stays open: one line for each change. By any thread, not under the lock. */
void idem_conns_away(idem_conns_t *conns, idem_pgsql_ready_e reason, const char *message);

#endif

/*
 * conns.h - the open connections of one store in one child. CONTRACT section 9.
 *
 * mod_dbd connects and resets on the caller's thread, for as long as that takes, and waits without end when its pool
 * is empty. So only the child's own thread calls mod_dbd (open and repair); request threads take what is open, wait
 * at most until their deadline, and are refused at once while the store is known to be away.
 */
#ifndef IDEM_HTTPD_CONNS_H
#define IDEM_HTTPD_CONNS_H

#include <httpd.h>

#include "store/store.h"

typedef struct idem_conns_t idem_conns_t;

/*
 * Called by any thread that needs the owner thread to look: a connection is wanted or broken.
 */
typedef void (*idem_conns_wake_fn)(void *baton);

/*
 * params: DBDParams of that server. most: connections at a time, 1 upwards. most_busy: so many request threads may be
 * waiting for a store that has not answered anybody for a while, the others are refused and so stay free for requests
 * without a key; 0: any number. patience: how long opening a connection may take. NULL where there is no memory or no lock to be had.
 */
idem_conns_t *idem_conns_create(apr_pool_t *pchild, server_rec *registry, const char *params, int most, int most_busy,
                                apr_interval_time_t patience, idem_conns_wake_fn wake, void *baton);

/* The source for request threads, and the one for the owner thread, which needs no fresh heartbeat. */
const idem_conn_source_t *idem_conns_source(idem_conns_t *conns);
const idem_conn_source_t *idem_conns_own_source(idem_conns_t *conns);

/*
 * By the owner thread only: ends broken connections, opens what is wanted, gives back what is idle. needed: it wants to
 * have one for itself. Blocks as long as
 * mod_dbd does. Returns when it wants to be called again, apr_time_now() + something.
 */
apr_time_t idem_conns_tend(idem_conns_t *conns, idem_store_t *store, int needed);

/*
 * The breaker. It opens where no connection is to be had, where several statements in a row had no answer, or where
 * the heartbeat does not get through; then request threads are refused at once. Only the owner thread closes it: by a
 * heartbeat over a connection that works, which it tries less and less often, at least every 2 s.
 *
 * By the owner thread: a heartbeat was taken, request threads may use connections until then; or one that was begun
 * at that time was not.
 */
void idem_conns_proved(idem_conns_t *conns, apr_time_t until);
void idem_conns_unproved(idem_conns_t *conns, apr_time_t begun);

/* 1 where a heartbeat is to be sent out of turn: the breaker is open, or a statement had no answer. */
int idem_conns_want_proof(idem_conns_t *conns);

/* How many are open, and idle, and whether the store is known to be away. */
void idem_conns_count(idem_conns_t *conns, int *open, int *idle, int *away);

/* 1 while at least one connection is open. */
int idem_conns_have(idem_conns_t *conns);

/* By the owner thread, at the end: no more lending. Ends the idle connections. */
void idem_conns_close(idem_conns_t *conns);

#endif

/*
 * pgsql.h - the registry in PostgreSQL: the provider, and the care of one connection. CONTRACT sections 7 and 9.
 */
#ifndef IDEM_PGSQL_H
#define IDEM_PGSQL_H

#include <libpq-fe.h>

#include "store/store.h"

extern const idem_store_provider_t idem_store_pgsql;

/* Why a connection may not be lent. */
typedef enum {
    IDEM_PGSQL_READY,
    IDEM_PGSQL_UNREACHABLE, /* no answer, or not by the deadline */
    IDEM_PGSQL_NO_SCHEMA,   /* never migrated, or no right to read it */
    IDEM_PGSQL_WRONG_SCHEMA,/* another schema version than this build's */
    IDEM_PGSQL_IN_RECOVERY, /* a standby */
    IDEM_PGSQL_NOT_DURABLE, /* fsync is off */
    IDEM_PGSQL_REFUSED      /* a statement was refused; the message has SQLSTATE and the server's words */
} idem_pgsql_ready_e;

/*
 * Makes an open connection fit to be lent: non-blocking, client_encoding UTF8, timeouts, synchronous_commit,
 * schema version, recovery and fsync looked at, digest key read into the store, statements prepared.
 * Returns by the deadline. *message (in p) is one sentence for the log wherever the result is not READY.
 * Called by the thread that opens connections, never by a request.
 */
idem_pgsql_ready_e idem_pgsql_make_ready(idem_store_t *store, idem_conn_t *conn, apr_time_t deadline, apr_pool_t *p,
                                         const char **message);

/*
 * Looks, over a connection that it opens and ends, whether the server can be used: as idem_pgsql_make_ready says, or
 * UNREACHABLE. params: libpq's, as DBDParams has them; NULL for libpq's defaults. Connecting ends after `patience` (2 s
 * at least) for each host that is named, unless params have a connect_timeout of their own; the rest after another.
 */
idem_pgsql_ready_e idem_pgsql_probe(idem_store_t *store, const char *params, apr_interval_time_t patience,
                                    apr_pool_t *p, const char **message);

/* Ends a connection in doubt without a word to the server: whoever looks at it next finds it bad. Never waits. */
void idem_pgsql_cut(PGconn *native);

/* 1 where connecting with these parameters ends some time (connect_timeout, or a service that may name one). */
int idem_pgsql_connect_is_bounded(const char *params);

#endif

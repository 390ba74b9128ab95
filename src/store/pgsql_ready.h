/*
 * pgsql_ready.h - what a connection is like, and making it fit; see pgsql.h for the public half. Internal.
 */
#ifndef IDEM_PGSQL_READY_H
#define IDEM_PGSQL_READY_H

#include "store/pgsql.h"
#include "store/pgsql_exec.h"

/* 1 where the connection was made ready and is still the same session. */
int idem_pg_is_ready(const idem_store_t *store, const idem_conn_t *conn);

/* 1 where the statement is prepared on a connection that is ready. */
int idem_pg_is_prepared(const idem_conn_t *conn, const idem_pg_statement_t *statement);

/*
 * How long the server may work on a statement, and wait for a lock in it. It gives up before the client does, so that a
 * late answer is an error and not a guess; on a lock before that, because a statement that met one is sent again.
 */
apr_interval_time_t idem_pg_statement_timeout(const idem_store_t *store);
apr_interval_time_t idem_pg_lock_timeout(const idem_store_t *store);

/* idem_pgsql_make_ready for any thread: the store is not changed. */
idem_pgsql_ready_e idem_pg_ready(const idem_store_t *store, idem_conn_t *conn, idem_pg_moment_t until, apr_pool_t *p,
                                 const char **message);

#endif

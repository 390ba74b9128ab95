/*
 * pgsql_call.h - one call of the provider: a connection is borrowed, statements run, refusals that pass are sent
 * again, the connection is given back or reported broken; all inside one deadline. Internal to the provider.
 */
#ifndef IDEM_PGSQL_CALL_H
#define IDEM_PGSQL_CALL_H

#include "store/pgsql.h"
#include "store/pgsql_sql.h"

typedef struct idem_pg_call_t {
    idem_store_t *store;
    apr_pool_t *p;
    apr_time_t deadline;
    idem_pg_moment_t until; /* the same, by the monotonic clock */
    apr_time_t borrow_by;   /* a connection that is had later is of no use */
    idem_conn_t *conn;      /* borrowed, or NULL */
    int lost;               /* an earlier sending got no answer: it may have been done, or still be */
    int refused;            /* the server would not run the last statement, and not for want of a connection */
} idem_pg_call_t;

void idem_pg_call_begin(idem_pg_call_t *call, idem_store_t *store, apr_time_t deadline, apr_pool_t *p);

/*
 * For a call that had better not be made than be left without an answer: it takes no connection so late that the server
 * could still be waiting for a lock at the deadline.
 */
void idem_pg_call_not_late(idem_pg_call_t *call);
/* 1: it takes no connection any more. */
int idem_pg_call_is_late(const idem_pg_call_t *call);

/*
 * Runs a statement. OK: *rows is set, and lives until PQclear. UNAVAILABLE: certainly not done, by no sending.
 * AMBIGUOUS: at least one sending got no answer. A repeatable statement is sent again over another connection once
 * where the connection died; call->lost tells afterwards that this happened.
 */
idem_store_result_e idem_pg_call_run(idem_pg_call_t *call, const idem_pg_statement_t *statement,
                                     const idem_pg_params_t *params, PGresult **rows);

/* As above for a statement that returns no rows of interest. */
idem_store_result_e idem_pg_call_do(idem_pg_call_t *call, const idem_pg_statement_t *statement,
                                    const idem_pg_params_t *params);

/* A short wait before looking again, longer with every round; 0 where the deadline leaves no room for it. */
int idem_pg_call_pause(const idem_pg_call_t *call, int round);

/* Gives the connection back. */
void idem_pg_call_end(idem_pg_call_t *call);

/* A whole call around one statement: what idem_pg_call_run says. rows NULL: none are of interest. */
idem_store_result_e idem_pg_call_once(idem_store_t *store, const idem_pg_statement_t *statement,
                                      const idem_pg_params_t *params, PGresult **rows, apr_time_t deadline, apr_pool_t *p);

/*
 * A whole call around one transition statement (see pgsql_sql.c for what it answers): OK, STALE, BUSY, FENCED,
 * UNAVAILABLE, AMBIGUOUS. wait_for_lock 1: BUSY is looked at again until the deadline, then UNAVAILABLE.
 */
idem_store_result_e idem_pg_call_transition(idem_store_t *store, const idem_pg_statement_t *statement,
                                            const idem_pg_params_t *params, int wait_for_lock, apr_time_t deadline,
                                            apr_pool_t *p);

/* What the owner's row says of this process (CONTRACT section 1); inside a call that goes on. */
idem_store_result_e idem_pg_call_heartbeat(idem_pg_call_t *call);

/* Values of a binary row. */
int idem_pg_get_bool(const PGresult *rows, int row, int column);       /* SQL NULL: 0 */
int idem_pg_get_int(const PGresult *rows, int row, int column);        /* SQL NULL: 0 */
apr_interval_time_t idem_pg_get_interval(const PGresult *rows, int row, int column);
apr_time_t idem_pg_get_time(const PGresult *rows, int row, int column);/* SQL NULL: 0, infinity: APR_INT64_MAX */
char *idem_pg_get_text(const PGresult *rows, int row, int column, apr_pool_t *p); /* SQL NULL: NULL */
void idem_pg_get_octets(const PGresult *rows, int row, int column, idem_octets_t *octets, apr_pool_t *p);
/* Exactly len octets, or all zero. */
void idem_pg_get_fixed(const PGresult *rows, int row, int column, unsigned char *to, apr_size_t len);

/* The record in a row whose IDEM_SQL_RECORD_COLUMNS begin at a column, or NULL where they are SQL NULL. */
idem_record_t *idem_pg_get_record(const PGresult *rows, int row, int column, apr_pool_t *p);

/* One sending of a reserve that looks at several scopes. OK, FOUND, NOT_FOUND (neither), FENCED (other
 * aliases), or as idem_pg_call_run. */
idem_store_result_e idem_pg_chain_reserve(idem_pg_call_t *call, idem_reserve_t *wanted);

/* The same where nothing may be written. FOUND, NOT_FOUND, FENCED, UNAVAILABLE. */
idem_store_result_e idem_pg_chain_find(idem_store_t *store, idem_reserve_t *wanted, apr_time_t deadline, apr_pool_t *p);

/* 1 where the record is this very reserve's: a sending whose answer was lost had been done. */
int idem_pg_is_own(const idem_reserve_t *wanted, const idem_record_t *record);
/* What a reserve and a settlement are made of, in the order of idem_pg_reserve and idem_pg_settle. */
void idem_pg_add_reserve(idem_pg_params_t *params, const idem_store_t *store, const idem_reserve_t *wanted);
void idem_pg_add_settle(idem_pg_params_t *params, const idem_settle_t *settle, idem_event_e event);

/* FOUND with wanted->found set, or OK where the record is this reserve's own: an earlier sending had been done. */
idem_store_result_e idem_pg_found(idem_reserve_t *wanted, idem_record_t *record);

/* As the vtable's calls for n > 1. */
void idem_pg_write_batch(idem_store_t *, idem_reserve_t *const *, int n, idem_settle_t *const *, int settle_count,
                         apr_time_t deadline, apr_pool_t *);

/* The calls of the vtable, one file a family. */
void idem_pgsql_reserve(idem_store_t *, idem_reserve_t *const *, int n, apr_time_t deadline, apr_pool_t *);
idem_store_result_e idem_pgsql_aliases(idem_store_t *, idem_alias_book_t *, int *version, const char **writes, int *due,
                                       apr_time_t deadline, apr_pool_t *);
idem_store_result_e idem_pgsql_end_aliases(idem_store_t *, int *ended, apr_time_t deadline, apr_pool_t *);
idem_store_result_e idem_pgsql_count(idem_store_t *, const char *version, const idem_identity_t *identities, int n, int most,
                                     idem_count_t *counts, apr_time_t deadline, apr_pool_t *);
void idem_pgsql_settle(idem_store_t *, idem_settle_t *const *, int n, apr_time_t deadline, apr_pool_t *);
idem_store_result_e idem_pgsql_take_over(idem_store_t *, idem_take_over_t *, apr_time_t deadline, apr_pool_t *);
idem_store_result_e idem_pgsql_dispatch(idem_store_t *, const char *tenant, const unsigned char *operation,
                                        int generation, idem_state_e to, apr_time_t deadline, apr_pool_t *);
idem_store_result_e idem_pgsql_mark_unknown(idem_store_t *, const idem_record_t *seen, const char *actor,
                                            const char *reason, apr_time_t deadline, apr_pool_t *);
idem_store_result_e idem_pgsql_overview(idem_store_t *, idem_overview_t *, apr_time_t deadline, apr_pool_t *);
idem_store_result_e idem_pgsql_announce(idem_store_t *, const char *server, const char *route, const char *revision,
                                        const char *sources, int most, const char **before, int *live, apr_time_t deadline, apr_pool_t *);
idem_store_result_e idem_pgsql_cancel(idem_store_t *, const char *tenant, const unsigned char *operation, int generation,
                                      const char *actor, apr_time_t deadline, apr_pool_t *);
idem_store_result_e idem_pgsql_sweep(idem_store_t *, idem_sweep_t *, apr_time_t deadline, apr_pool_t *);
idem_store_result_e idem_pgsql_recover(idem_store_t *, idem_recovery_t *, apr_time_t deadline, apr_pool_t *);
idem_store_result_e idem_pgsql_shadow_count(idem_store_t *, const char *route, const char *kind, const char *groups,
                                            apr_int64_t count, apr_time_t deadline, apr_pool_t *);
idem_store_result_e idem_pgsql_withdraw(idem_store_t *, const char *tenant, const unsigned char *operation,
                                        const unsigned char *owner_token, int generation, apr_time_t deadline,
                                        apr_pool_t *);

#endif

/*
 * pgsql_exec.h - one statement on one connection: parameters, a bounded round trip, and what is certain afterwards.
 * CONTRACT section 9.
 *
 * Nothing here blocks beyond the given time, and nothing cancels: a connection whose statement was not answered
 * cannot be used again, and the caller has to say so to its source.
 */
#ifndef IDEM_PGSQL_EXEC_H
#define IDEM_PGSQL_EXEC_H

#include <libpq-fe.h>

#include "store/store.h"

#define IDEM_PG_MAX_PARAMS 40

/* Microseconds of the monotonic clock: a step of the wall clock neither ends a wait nor prolongs it. */
typedef apr_int64_t idem_pg_moment_t;

idem_pg_moment_t idem_pg_moment(void);
/* The moment at which a deadline of the wall clock (apr_time_now) will have come, as seen now. */
idem_pg_moment_t idem_pg_moment_of(apr_time_t deadline);

/*
 * A statement's text and the types of its parameters, one letter each: t text, T text[], b bytea, u uuid,
 * i int4, l int8, o bool, v interval, and in capitals an array of those. Static; a statement is known by its address.
 */
typedef struct idem_pg_statement_t {
    const char *name;  /* under which it is prepared */
    const char *types;
    const char *sql;
    int repeatable;    /* may be sent again after a loss: it recognises what the first sending did */
} idem_pg_statement_t;

/* The server's number of a type, by its letter. */
Oid idem_pg_type(char letter);

/* Parameters in the order of $1, $2 ... Values are not copied where they have octets of their own. */
typedef struct idem_pg_params_t {
    apr_pool_t *p;
    int count;
    const char *values[IDEM_PG_MAX_PARAMS];
    int lengths[IDEM_PG_MAX_PARAMS];
} idem_pg_params_t;

void idem_pg_params_begin(idem_pg_params_t *params, apr_pool_t *p);
void idem_pg_add_text(idem_pg_params_t *params, const char *text);            /* NULL: SQL NULL */
void idem_pg_add_texts(idem_pg_params_t *params, const char *const *texts);   /* NULL-terminated */
void idem_pg_add_octets(idem_pg_params_t *params, const idem_octets_t *octets);
void idem_pg_add_present(idem_pg_params_t *params, const idem_octets_t *octets); /* NULL octets: empty */
void idem_pg_add_digest(idem_pg_params_t *params, const unsigned char *octets, apr_size_t len);
void idem_pg_add_uuid(idem_pg_params_t *params, const unsigned char *uuid);   /* NULL or all zero: SQL NULL */
void idem_pg_add_int(idem_pg_params_t *params, int value);
void idem_pg_add_int_or_null(idem_pg_params_t *params, int value);            /* 0: SQL NULL */
void idem_pg_add_long(idem_pg_params_t *params, apr_int64_t value);
void idem_pg_add_bool(idem_pg_params_t *params, int value);
void idem_pg_add_interval(idem_pg_params_t *params, apr_interval_time_t value);
void idem_pg_add_scope(idem_pg_params_t *params, const idem_scope_t *scope);  /* seven texts */

/*
 * The parameters of a statement for many rows from those of n rows. one, many: the types of the statement for one row and
 * of that for many; where they differ in a column, it becomes an array of all rows', else the first row's stands for all.
 */
void idem_pg_add_columns(idem_pg_params_t *params, const char *one, const char *many, const idem_pg_params_t *rows, int n);

/* How a round trip ended. */
typedef enum {
    IDEM_PG_ROWS,    /* ran and is committed */
    IDEM_PG_REFUSED, /* the server answered with an error: certainly rolled back */
    IDEM_PG_UNSENT,  /* the connection was dead before the statement left: certainly not run */
    IDEM_PG_LOST     /* left, and no answer: it may have run, or may still run */
} idem_pg_end_e;

typedef struct idem_pg_reply_t {
    PGresult *rows;     /* with ROWS; the caller clears it */
    char sqlstate[6];   /* with REFUSED; "" where the server gave none */
    char words[200];    /* with REFUSED: the server's primary message; with UNSENT and LOST: what happened */
    int timed_out;      /* with LOST: it was the deadline, not the connection */
} idem_pg_reply_t;

/* Sends a statement, prepared under its name (prepared 1) or with its text, and waits until the server has
 * committed it. The connection is fit for another statement exactly with ROWS and REFUSED and PQstatus OK. */
idem_pg_end_e idem_pg_execute(PGconn *native, const idem_pg_statement_t *statement, int prepared,
                              const idem_pg_params_t *params, idem_pg_moment_t until, idem_pg_reply_t *reply);

/* Prepares a statement under its name. LOST here too means that nothing was written. */
idem_pg_end_e idem_pg_prepare(PGconn *native, const idem_pg_statement_t *statement, idem_pg_moment_t until,
                              idem_pg_reply_t *reply);

/* 1 where the connection is open, idle, outside a transaction, and without an answer that nobody has read. */
int idem_pg_is_clean(PGconn *native);

#endif

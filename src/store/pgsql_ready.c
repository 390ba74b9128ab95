#include "store/pgsql_ready.h"

#include <string.h>

#include <apr_strings.h>

#include "store/pgsql_call.h"
#include "store/schema.h"

/* What the provider notes on a connection, in its pool. */
typedef struct notes_t {
    int ready;
    int pid;                   /* of the server process: another one is another session */
    int prepared;              /* the frequent statements are prepared */
    int max_connections;
    unsigned char digest_key[32];
} notes_t;

int idem_pg_is_ready(const idem_store_t *store, const idem_conn_t *conn)
{
    const notes_t *notes = conn->state;

    return notes && notes->ready && notes->pid == PQbackendPID(conn->native) && notes->prepared == store->use_prepared;
}

int idem_pg_is_prepared(const idem_conn_t *conn, const idem_pg_statement_t *statement)
{
    const notes_t *notes = conn->state;
    int i;

    for (i = 0; notes->prepared && idem_pg_frequent[i]; i++) {
        if (idem_pg_frequent[i] == statement) {
            return 1;
        }
    }
    return 0;
}

/* libpq would write the server's parting words to stderr; what matters of them is seen in the results. */
static void ignore_notice(void *baton, const PGresult *notice)
{
    (void)baton;
    (void)notice;
}

/* A statement that only looks. READY: *rows is set. */
static idem_pgsql_ready_e look(idem_conn_t *conn, const idem_pg_statement_t *statement, const idem_pg_params_t *params,
                               idem_pg_moment_t until, apr_pool_t *p, PGresult **rows, const char **message)
{
    idem_pg_reply_t reply;

    switch (idem_pg_execute(conn->native, statement, 0, params, until, &reply)) {
    case IDEM_PG_ROWS:
        *rows = reply.rows;
        return IDEM_PGSQL_READY;
    case IDEM_PG_REFUSED:
        if (!strcmp(reply.sqlstate, "42P01") || !strcmp(reply.sqlstate, "42501")) {
            *message = apr_psprintf(p, "the registry cannot be read (%s): run idempotencyctl migrate, "
                                       "grant idempotency_writer to this role, look at its search_path", reply.words);
            return IDEM_PGSQL_NO_SCHEMA;
        }
        *message = apr_psprintf(p, "the server refused %s, SQLSTATE %s: %s", statement->name, reply.sqlstate, reply.words);
        return IDEM_PGSQL_REFUSED;
    default:
        *message = apr_psprintf(p, "the server does not answer: %s", reply.words);
        return IDEM_PGSQL_UNREACHABLE;
    }
}

static idem_pgsql_ready_e check_server(idem_conn_t *conn, notes_t *notes, idem_pg_moment_t until, apr_pool_t *p,
                                       const char **message)
{
    idem_pgsql_ready_e ready;
    idem_pg_params_t none;
    PGresult *rows;

    if (PQserverVersion(conn->native) < 130000) {
        *message = apr_psprintf(p, "the server is PostgreSQL %d, 13 is needed", PQserverVersion(conn->native) / 10000);
        return IDEM_PGSQL_REFUSED;
    }
    idem_pg_params_begin(&none, p);
    ready = look(conn, &idem_pg_server, &none, until, p, &rows, message);
    if (ready != IDEM_PGSQL_READY) {
        return ready;
    }
    notes->max_connections = idem_pg_get_int(rows, 0, 3);
    if (idem_pg_get_bool(rows, 0, 0)) {
        *message = "the server is in recovery: a standby cannot reserve";
        ready = IDEM_PGSQL_IN_RECOVERY;
    }
    else if (!idem_pg_get_bool(rows, 0, 1)) {
        *message = "the server runs with fsync off: it forgets what it has confirmed";
        ready = IDEM_PGSQL_NOT_DURABLE;
    }
    else if (!idem_pg_get_bool(rows, 0, 2)) {
        *message = "the database's encoding is not UTF8";
        ready = IDEM_PGSQL_REFUSED;
    }
    PQclear(rows);
    return ready;
}

static idem_pgsql_ready_e check_schema(idem_conn_t *conn, notes_t *notes, idem_pg_moment_t until, apr_pool_t *p,
                                       const char **message)
{
    idem_pgsql_ready_e ready;
    idem_pg_params_t none;
    PGresult *rows;

    idem_pg_params_begin(&none, p);
    ready = look(conn, &idem_pg_control, &none, until, p, &rows, message);
    if (ready != IDEM_PGSQL_READY) {
        return ready;
    }
    if (PQntuples(rows) != 1) {
        *message = "idempotency_control has no row: run idempotencyctl migrate";
        ready = IDEM_PGSQL_NO_SCHEMA;
    }
    else if (idem_pg_get_int(rows, 0, 0) != IDEM_SCHEMA_VERSION) {
        *message = apr_psprintf(p, "the registry has schema version %d, this build works with %d: %s",
                                idem_pg_get_int(rows, 0, 0), IDEM_SCHEMA_VERSION,
                                idem_pg_get_int(rows, 0, 0) < IDEM_SCHEMA_VERSION ? "run idempotencyctl migrate"
                                                                                  : "install a newer build");
        ready = IDEM_PGSQL_WRONG_SCHEMA;
    }
    else {
        idem_pg_get_fixed(rows, 0, 1, notes->digest_key, sizeof(notes->digest_key));
    }
    PQclear(rows);
    return ready;
}

apr_interval_time_t idem_pg_statement_timeout(const idem_store_t *store)
{
    /* never 0, which to the server is no limit at all */
    return store->timeout > 5000 ? store->timeout * 4 / 5 : 4000;
}

apr_interval_time_t idem_pg_lock_timeout(const idem_store_t *store)
{
    return idem_pg_statement_timeout(store) / 3;
}

/* A connection that was idle went back to mod_dbd's pool, and comes from there again with what was prepared on it. */
static int has_statement(const PGresult *names, const char *name)
{
    int i;

    for (i = 0; i < PQntuples(names); i++) {
        if (!strcmp(PQgetvalue(names, i, 0), name)) {
            return 1;
        }
    }
    return 0;
}

static idem_pgsql_ready_e prepare_missing(idem_conn_t *conn, const PGresult *names, idem_pg_moment_t until, apr_pool_t *p,
                                          const char **message)
{
    int i;

    for (i = 0; idem_pg_frequent[i]; i++) {
        idem_pg_reply_t reply;
        idem_pg_end_e end = has_statement(names, idem_pg_frequent[i]->name)
                                ? IDEM_PG_ROWS
                                : idem_pg_prepare(conn->native, idem_pg_frequent[i], until, &reply);

        if (end == IDEM_PG_REFUSED && !strcmp(reply.sqlstate, "55P03")) {
            /* somebody has locked a table; no fault of the connection, and what is missing is prepared when it is met */
            break;
        }
        if (end == IDEM_PG_REFUSED && strcmp(reply.sqlstate, "42P05")) {
            *message = apr_psprintf(p, "the server cannot prepare %s, SQLSTATE %s: %s", idem_pg_frequent[i]->name,
                                    reply.sqlstate, reply.words);
            return IDEM_PGSQL_REFUSED;
        }
        if (end == IDEM_PG_UNSENT || end == IDEM_PG_LOST) {
            *message = apr_psprintf(p, "the server does not answer: %s", reply.words);
            return IDEM_PGSQL_UNREACHABLE;
        }
    }
    return IDEM_PGSQL_READY;
}

/* Session settings and prepared statements. Not behind a pooler that hands sessions around: they would leak. */
static idem_pgsql_ready_e prepare(const idem_store_t *store, idem_conn_t *conn, idem_pg_moment_t until, apr_pool_t *p,
                                  const char **message)
{
    idem_pgsql_ready_e ready;
    idem_pg_params_t params;
    PGresult *rows;

    idem_pg_params_begin(&params, p);
    idem_pg_add_text(&params, apr_psprintf(p, "%" APR_TIME_T_FMT "ms", idem_pg_statement_timeout(store) / 1000));
    idem_pg_add_text(&params, apr_psprintf(p, "%" APR_TIME_T_FMT "ms", idem_pg_lock_timeout(store) / 1000));
    ready = look(conn, &idem_pg_settings, &params, until, p, &rows, message);
    if (ready != IDEM_PGSQL_READY) {
        return ready;
    }
    PQclear(rows);
    idem_pg_params_begin(&params, p);
    ready = look(conn, &idem_pg_names, &params, until, p, &rows, message);
    if (ready == IDEM_PGSQL_READY) {
        ready = prepare_missing(conn, rows, until, p, message);
        PQclear(rows);
    }
    return ready;
}

static idem_pgsql_ready_e check_encoding(idem_conn_t *conn, apr_pool_t *p, const char **message)
{
    const char *encoding = pg_encoding_to_char(PQclientEncoding(conn->native));

    if (!strcmp(encoding, "UTF8")) {
        return IDEM_PGSQL_READY;
    }
    *message = apr_psprintf(p, "client_encoding is %s, say client_encoding=UTF8 in the connection's parameters", encoding);
    return IDEM_PGSQL_REFUSED;
}

idem_pgsql_ready_e idem_pg_ready(const idem_store_t *store, idem_conn_t *conn, idem_pg_moment_t until, apr_pool_t *p,
                                 const char **message)
{
    notes_t *notes = conn->state;
    idem_pgsql_ready_e ready;

    if (!notes) {
        conn->state = notes = apr_pcalloc(conn->pool, sizeof(*notes));
    }
    notes->ready = 0;
    notes->prepared = 0;
    PQsetNoticeReceiver(conn->native, ignore_notice, NULL);
    ready = check_server(conn, notes, until, p, message);
    if (ready == IDEM_PGSQL_READY) {
        ready = check_schema(conn, notes, until, p, message);
    }
    if (ready == IDEM_PGSQL_READY && store->use_prepared) {
        ready = prepare(store, conn, until, p, message);
    }
    if (ready == IDEM_PGSQL_READY) {
        ready = check_encoding(conn, p, message);
    }
    if (ready == IDEM_PGSQL_READY) {
        notes->ready = 1;
        notes->prepared = store->use_prepared;
        notes->pid = PQbackendPID(conn->native);
    }
    return ready;
}

idem_pgsql_ready_e idem_pgsql_make_ready(idem_store_t *store, idem_conn_t *conn, apr_time_t deadline, apr_pool_t *p,
                                         const char **message)
{
    idem_pgsql_ready_e ready = idem_pg_ready(store, conn, idem_pg_moment_of(deadline), p, message);

    if (ready == IDEM_PGSQL_READY && !store->digest_key_known) {
        const notes_t *notes = conn->state;

        store->max_connections = notes->max_connections;
        memcpy(store->digest_key, notes->digest_key, sizeof(store->digest_key));
        store->digest_key_known = 1;
    }
    return ready;
}

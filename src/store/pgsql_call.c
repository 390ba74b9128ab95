#include "store/pgsql_call.h"

#include <string.h>
#include <unistd.h>

#include <apr_strings.h>

#include "store/pgsql_ready.h"

/* Connections that were dead before anything was sent; after a restart of the server that is every idle one. */
#define MAX_DEAD 64
#define MAX_ROUNDS 8 /* of preparing again, or taking another connection */

void idem_pg_call_begin(idem_pg_call_t *call, idem_store_t *store, apr_time_t deadline, apr_pool_t *p)
{
    memset(call, 0, sizeof(*call));
    call->store = store;
    call->p = p;
    call->deadline = deadline;
    call->until = idem_pg_moment_of(deadline);
    call->borrow_by = deadline;
}

/* The time for which a server may wait for a lock, and a little for its saying so. */
static apr_interval_time_t lock_time(const idem_pg_call_t *call)
{
    return idem_pg_lock_timeout(call->store) + call->store->timeout / 20;
}

void idem_pg_call_not_late(idem_pg_call_t *call)
{
    call->borrow_by = call->deadline - lock_time(call);
}

static void log_line(const idem_pg_call_t *call, int level, const char *format, const char *what, const char *words)
{
    if (call->store->log) {
        call->store->log(call->store->log_baton, level, apr_psprintf(call->p, format, what, words));
    }
}

static void drop(idem_pg_call_t *call, const char *reason)
{
    call->store->source->broken(call->store->source->baton, call->conn, reason);
    call->conn = NULL;
}

void idem_pg_call_end(idem_pg_call_t *call)
{
    if (!call->conn) {
        return;
    }
    if (idem_pg_is_clean(call->conn->native)) {
        call->store->source->give_back(call->store->source->baton, call->conn);
        call->conn = NULL;
    }
    else {
        drop(call, "not idle after its statement");
    }
}

int idem_pg_call_pause(const idem_pg_call_t *call, int round)
{
    /* 2, 4, ... 64 ms, and a part that differs between those who wait for one another */
    apr_interval_time_t pause = apr_time_from_msec(1 << (round < 5 ? round + 1 : 6));

    pause += (apr_interval_time_t)(((apr_uintptr_t)call >> 4 ^ (apr_uintptr_t)idem_pg_moment()) % (apr_uintptr_t)pause);
    if (idem_pg_moment() + pause >= call->until) {
        return 0;
    }
    apr_sleep(pause);
    return 1;
}

int idem_pg_call_is_late(const idem_pg_call_t *call)
{
    return idem_pg_moment() >= call->until - (call->deadline - call->borrow_by);
}

/* A borrowed connection on which statements can run. OK, or UNAVAILABLE: none by the deadline. */
static idem_store_result_e get_connection(idem_pg_call_t *call)
{
    const idem_conn_source_t *source = call->store->source;
    const char *message;
    int dead;

    for (dead = 0; !call->conn && dead < MAX_DEAD && !idem_pg_call_is_late(call); dead++) {
        if (source->borrow(source->baton, call->borrow_by, &call->conn) != APR_SUCCESS) {
            call->conn = NULL;
            return IDEM_STORE_UNAVAILABLE;
        }
        if (!idem_pg_is_ready(call->store, call->conn)) {
            /* it was reset behind our back: settings and statements are gone */
            idem_pgsql_ready_e ready = idem_pg_ready(call->store, call->conn, call->until, call->p, &message);

            if (ready != IDEM_PGSQL_READY) {
                drop(call, message);
            }
            if (ready != IDEM_PGSQL_READY && ready != IDEM_PGSQL_UNREACHABLE) {
                log_line(call, 3, "%s: %s", "a connection cannot be used", message);
                return IDEM_STORE_UNAVAILABLE;
            }
        }
    }
    return call->conn ? IDEM_STORE_OK : IDEM_STORE_UNAVAILABLE;
}

/* What a refusal calls for. */
typedef enum {
    GIVE_UP,
    SEND_AGAIN,          /* it passes: another transaction was in the way */
    WAIT_AGAIN,          /* it may pass: the server has waited for a lock for as long as it is told to */
    PREPARE_AGAIN,       /* the server does not know the statement (any more) */
    ANOTHER_CONNECTION,  /* this connection has no future; the statement was not run */
    GIVE_UP_CONNECTION   /* both */
} refusal_e;

static refusal_e weigh_refusal(const char *sqlstate)
{
    static const struct {
        const char *prefix;
        refusal_e refusal;
    } refusals[] = {
        {"40001", SEND_AGAIN},         /* serialization failure */
        {"40P01", SEND_AGAIN},         /* deadlock */
        {"55P03", WAIT_AGAIN},         /* lock_timeout */
        {"26000", PREPARE_AGAIN},
        {"0A000", ANOTHER_CONNECTION}, /* a cached plan of before a migration */
        {"57P", ANOTHER_CONNECTION},   /* shutting down, starting up */
        {"08", ANOTHER_CONNECTION},
        {"25", GIVE_UP_CONNECTION},    /* read-only: it has become a standby; or a transaction left open */
    };
    apr_size_t i;

    for (i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        if (!strncmp(sqlstate, refusals[i].prefix, strlen(refusals[i].prefix))) {
            return refusals[i].refusal;
        }
    }
    return GIVE_UP;
}

/* Is there time for the server to wait for the lock once more and say so? A statement that is still waiting at the
 * deadline would be one without an answer. */
static int has_time_for_lock(const idem_pg_call_t *call)
{
    return call->until - idem_pg_moment() > lock_time(call);
}

/* The statement is not prepared on this connection. 1: now it is, or another connection is to be taken; 0: *reply says
 * why it cannot be. */
static int prepare_again(idem_pg_call_t *call, const idem_pg_statement_t *statement, idem_pg_reply_t *reply)
{
    idem_pg_reply_t prepared;

    switch (idem_pg_prepare(call->conn->native, statement, call->until, &prepared)) {
    case IDEM_PG_ROWS:
        return 1;
    case IDEM_PG_REFUSED:
        *reply = prepared;
        /* 42P05: behind a pooler another connection has prepared it here; it is the same text */
        return !strcmp(prepared.sqlstate, "42P05");
    default:
        drop(call, prepared.words);
        return 1;
    }
}

/* Acts on a refusal. 1: send again. */
static int survive_refusal(idem_pg_call_t *call, const idem_pg_statement_t *statement, idem_pg_reply_t *reply, int round)
{
    refusal_e refusal = weigh_refusal(reply->sqlstate);

    if (refusal == PREPARE_AGAIN) {
        if (round >= MAX_ROUNDS || prepare_again(call, statement, reply)) {
            return round < MAX_ROUNDS;
        }
        refusal = weigh_refusal(reply->sqlstate);
    }
    switch (refusal) {
    case SEND_AGAIN:
        return !call->store->once && idem_pg_call_pause(call, round);
    case WAIT_AGAIN:
        /* only where the server will give up before we do: what it said up to now is certain */
        return !call->store->once && has_time_for_lock(call) && idem_pg_call_pause(call, round);
    case ANOTHER_CONNECTION:
        drop(call, apr_pstrcat(call->p, "SQLSTATE ", reply->sqlstate, NULL));
        return round < MAX_ROUNDS;
    case GIVE_UP_CONNECTION:
        drop(call, apr_pstrcat(call->p, "SQLSTATE ", reply->sqlstate, NULL));
        return 0;
    default:
        return 0;
    }
}

idem_store_result_e idem_pg_call_run(idem_pg_call_t *call, const idem_pg_statement_t *statement,
                                     const idem_pg_params_t *params, PGresult **rows)
{
    int repeated = 0;
    int round;

    call->refused = 0;
    for (round = 0;; round++) {
        idem_pg_reply_t reply;

        if (get_connection(call) != IDEM_STORE_OK) {
            break;
        }
        switch (idem_pg_execute(call->conn->native, statement, idem_pg_is_prepared(call->conn, statement), params,
                                call->until, &reply)) {
        case IDEM_PG_ROWS:
            *rows = reply.rows;
            return IDEM_STORE_OK;
        case IDEM_PG_UNSENT:
            drop(call, reply.words);
            if (round < MAX_DEAD) {
                continue;
            }
            break;
        case IDEM_PG_LOST:
            call->lost = 1;
            drop(call, reply.words);
            log_line(call, 4, "%s had no answer: %s", statement->name, reply.words);
            if (statement->repeatable && !reply.timed_out && !repeated++) {
                continue;
            }
            break;
        case IDEM_PG_REFUSED:
            if (survive_refusal(call, statement, &reply, round)) {
                continue;
            }
            call->refused = call->conn != NULL;
            /* what was asked for in company is asked for alone: that will be the news */
            log_line(call, call->store->once ? 6 : 3, apr_pstrcat(call->p, "%s was refused, SQLSTATE ", reply.sqlstate, ": %s", NULL),
                     statement->name, reply.words);
            break;
        }
        break;
    }
    return call->lost ? IDEM_STORE_AMBIGUOUS : IDEM_STORE_UNAVAILABLE;
}

idem_store_result_e idem_pg_call_do(idem_pg_call_t *call, const idem_pg_statement_t *statement,
                                    const idem_pg_params_t *params)
{
    PGresult *rows = NULL;
    idem_store_result_e result = idem_pg_call_run(call, statement, params, &rows);

    PQclear(rows);
    return result;
}

idem_store_result_e idem_pg_call_once(idem_store_t *store, const idem_pg_statement_t *statement,
                                      const idem_pg_params_t *params, PGresult **rows, apr_time_t deadline, apr_pool_t *p)
{
    idem_pg_call_t call;
    idem_store_result_e result;

    idem_pg_call_begin(&call, store, deadline, p);
    result = rows ? idem_pg_call_run(&call, statement, params, rows) : idem_pg_call_do(&call, statement, params);
    idem_pg_call_end(&call);
    return result;
}

idem_store_result_e idem_pg_call_heartbeat(idem_pg_call_t *call)
{
    idem_pg_params_t params;
    idem_store_result_e result;
    int lost = call->lost;

    idem_pg_params_begin(&params, call->p);
    idem_pg_add_uuid(&params, call->store->owner);
    idem_pg_add_text(&params, call->store->host);
    idem_pg_add_int(&params, (int)getpid());
    result = idem_pg_call_do(call, &idem_pg_heartbeat, &params);
    call->lost = lost; /* a lost heartbeat says nothing about the call that needed it */
    return result;
}

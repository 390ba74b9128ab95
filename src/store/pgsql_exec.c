#include "store/pgsql_exec.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

idem_pg_moment_t idem_pg_moment(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (idem_pg_moment_t)now.tv_sec * APR_USEC_PER_SEC + now.tv_nsec / 1000;
}

idem_pg_moment_t idem_pg_moment_of(apr_time_t deadline)
{
    return idem_pg_moment() + (deadline - apr_time_now());
}

Oid idem_pg_type(char letter)
{
    static const struct {
        char letter;
        Oid type;
    } types[] = {
        {'t', 25}, {'b', 17}, {'u', 2950}, {'i', 23}, {'l', 20}, {'o', 16}, {'v', 1186},
        {'T', 1009}, {'B', 1001}, {'U', 2951}, {'I', 1007}, {'L', 1016}, {'O', 1000}, {'V', 1187},
    };
    apr_size_t i;

    for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (types[i].letter == letter) {
            return types[i].type;
        }
    }
    return 0;
}

static int types_of(const idem_pg_statement_t *statement, Oid *types)
{
    int count;

    for (count = 0; count < IDEM_PG_MAX_PARAMS && statement->types[count]; count++) {
        types[count] = idem_pg_type(statement->types[count]);
    }
    return count;
}

static void say(idem_pg_reply_t *reply, const char *words)
{
    apr_size_t len = strcspn(words, "\n");

    snprintf(reply->words, sizeof(reply->words), "%.*s", (int)(len < sizeof(reply->words) ? len : sizeof(reply->words) - 1),
             words);
}

/* Waits until the socket can be read (or written, where asked). 1: it can, 0: the time is over. */
static int wait_socket(PGconn *native, int for_writing, idem_pg_moment_t until)
{
    struct pollfd fd = {PQsocket(native), POLLIN, 0};
    int ready;

    if (for_writing) {
        fd.events |= POLLOUT;
    }
    do {
        idem_pg_moment_t left = until - idem_pg_moment();

        if (left <= 0) {
            return 0;
        }
        /* rounded up: a last wait of 0 ms would spin */
        ready = poll(&fd, 1, (int)(left > 3600 * APR_USEC_PER_SEC ? 3600000 : (left + 999) / 1000));
    } while (ready == 0 || (ready < 0 && errno == EINTR));
    return 1; /* an error of the socket is found by the next read */
}

/* The next result of the statement under way, NULL after the last. 0: no answer, reply says why. */
static int next_result(PGconn *native, idem_pg_moment_t until, PGresult **result, idem_pg_reply_t *reply)
{
    int unflushed = PQflush(native);

    while (unflushed > 0 || PQisBusy(native)) {
        if (!wait_socket(native, unflushed > 0, until)) {
            reply->timed_out = 1;
            say(reply, "no answer by the deadline");
            return 0;
        }
        /* read even while writing: a server that is itself waiting to write would never read on */
        if (!PQconsumeInput(native)) {
            break;
        }
        if (unflushed > 0) {
            unflushed = PQflush(native);
        }
    }
    if (PQstatus(native) != CONNECTION_OK) {
        say(reply, PQerrorMessage(native));
        return 0;
    }
    *result = PQgetResult(native);
    return 1;
}

static void keep_error(const PGresult *result, idem_pg_reply_t *reply)
{
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *primary = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

    snprintf(reply->sqlstate, sizeof(reply->sqlstate), "%s", sqlstate ? sqlstate : "");
    /* DETAIL is never taken, it quotes rows; of class 22 the message itself quotes values */
    say(reply, !primary || !strncmp(reply->sqlstate, "22", 2) ? "refused" : primary);
}

/*
 * Reads the answer to its end. Only that end means committed: the server completes the command first, then commits,
 * then reports that it is ready, and an error may still come in between.
 */
static idem_pg_end_e read_answer(PGconn *native, idem_pg_moment_t until, idem_pg_reply_t *reply)
{
    PGresult *rows = NULL;
    PGresult *result;
    int refused = 0;

    for (;;) {
        if (!next_result(native, until, &result, reply)) {
            PQclear(rows);
            return IDEM_PG_LOST;
        }
        if (!result) {
            break;
        }
        switch (PQresultStatus(result)) {
        case PGRES_TUPLES_OK:
        case PGRES_COMMAND_OK:
            PQclear(rows);
            rows = result;
            break;
        default:
            refused = 1;
            keep_error(result, reply);
            PQclear(result);
            break;
        }
    }
    if (refused) {
        PQclear(rows);
        /* an error without SQLSTATE is libpq's own, about the connection */
        return reply->sqlstate[0] ? IDEM_PG_REFUSED : IDEM_PG_LOST;
    }
    if (!rows || PQtransactionStatus(native) != PQTRANS_IDLE) {
        PQclear(rows);
        say(reply, "an answer out of order");
        return IDEM_PG_LOST;
    }
    reply->rows = rows;
    return IDEM_PG_ROWS;
}

/*
 * Finds out, without waiting, whether the server has hung up: after its restart every idle connection still says OK.
 * What is noticed here has certainly not been sent anything.
 */
static int is_alive(PGconn *native)
{
    int unread;

    if (PQstatus(native) != CONNECTION_OK || PQtransactionStatus(native) != PQTRANS_IDLE) {
        return 0;
    }
    /* parting words first, then the end; more than a few messages are not a server that is idle */
    for (unread = 0; unread < 8; unread++) {
        struct pollfd fd = {PQsocket(native), POLLIN, 0};

        if (poll(&fd, 1, 0) <= 0) {
            return 1;
        }
        if (!PQconsumeInput(native) || PQisBusy(native)) {
            return 0;
        }
    }
    return 0;
}

static int make_ready_to_send(PGconn *native, idem_pg_reply_t *reply)
{
    memset(reply, 0, sizeof(*reply));
    if (!is_alive(native)) {
        say(reply, "the server had closed the connection");
        return 0;
    }
    /* not once for all: PQreset makes a connection blocking again */
    if (!PQisnonblocking(native) && PQsetnonblocking(native, 1)) {
        say(reply, "cannot be made non-blocking");
        return 0;
    }
    return 1;
}

idem_pg_end_e idem_pg_execute(PGconn *native, const idem_pg_statement_t *statement, int prepared,
                              const idem_pg_params_t *params, idem_pg_moment_t until, idem_pg_reply_t *reply)
{
    Oid types[IDEM_PG_MAX_PARAMS];
    int formats[IDEM_PG_MAX_PARAMS];
    int count = types_of(statement, types);
    int sent;
    int i;

    if (!make_ready_to_send(native, reply)) {
        return IDEM_PG_UNSENT;
    }
    if (count != params->count) {
        say(reply, "parameters do not fit the statement");
        return IDEM_PG_UNSENT;
    }
    for (i = 0; i < count; i++) {
        formats[i] = 1;
    }
    if (prepared) {
        sent = PQsendQueryPrepared(native, statement->name, count, params->values, params->lengths, formats, 1);
    }
    else {
        sent = PQsendQueryParams(native, statement->sql, count, types, params->values, params->lengths, formats, 1);
    }
    if (!sent) {
        say(reply, PQerrorMessage(native));
        /* a long statement may have left in part, and a part is not run; but a whole one may have left too */
        return IDEM_PG_LOST;
    }
    return read_answer(native, until, reply);
}

idem_pg_end_e idem_pg_prepare(PGconn *native, const idem_pg_statement_t *statement, idem_pg_moment_t until,
                              idem_pg_reply_t *reply)
{
    Oid types[IDEM_PG_MAX_PARAMS];
    int count = types_of(statement, types);
    idem_pg_end_e end;

    if (!make_ready_to_send(native, reply)) {
        return IDEM_PG_UNSENT;
    }
    if (!PQsendPrepare(native, statement->name, statement->sql, count, types)) {
        say(reply, PQerrorMessage(native));
        return IDEM_PG_LOST;
    }
    end = read_answer(native, until, reply);
    PQclear(reply->rows);
    reply->rows = NULL;
    return end;
}

int idem_pg_is_clean(PGconn *native)
{
    return PQstatus(native) == CONNECTION_OK && PQtransactionStatus(native) == PQTRANS_IDLE && !PQisBusy(native);
}

/* Looking at a server over a connection of one's own, and ending one that is in doubt. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <apr_strings.h>

#include "store/pgsql.h"

/* libpq takes 1 for 2 */
#define SHORTEST_CONNECT apr_time_from_sec(2)
/* A read takes 8 KiB or more; what a socket can still hold after it was shut is far less than this. */
#define MOST_READS 4096

/* What libpq says, in one line. */
static const char *in_one_line(apr_pool_t *p, const char *words)
{
    char *line = apr_pstrdup(p, words);
    apr_size_t len = strlen(line);
    char *end;

    while (len && (line[len - 1] == '\n' || line[len - 1] == ' ')) {
        line[--len] = '\0';
    }
    while ((end = strchr(line, '\n')) != NULL) {
        *end = ' ';
    }
    return line;
}

static PGconn *open_connection(const char *params, apr_interval_time_t patience, apr_pool_t *p)
{
    apr_interval_time_t longest = patience > SHORTEST_CONNECT ? patience : SHORTEST_CONNECT;
    /* a later word counts: what the parameters say of themselves goes before ours */
    const char *keywords[] = {"connect_timeout", NULL, NULL};
    const char *values[] = {apr_itoa(p, (int)apr_time_sec(longest + APR_USEC_PER_SEC - 1)), NULL, NULL};

    if (params && (strchr(params, '=') || strstr(params, "://"))) {
        keywords[1] = "dbname";
        values[1] = params;
    }
    return PQconnectdbParams(keywords, values, 1);
}

idem_pgsql_ready_e idem_pgsql_probe(idem_store_t *store, const char *params, apr_interval_time_t patience,
                                    apr_pool_t *p, const char **message)
{
    idem_conn_t conn = {open_connection(params, patience, p), NULL, p};
    idem_pgsql_ready_e ready = IDEM_PGSQL_UNREACHABLE;

    if (!conn.native) {
        *message = "out of memory";
        return ready;
    }
    if (PQstatus(conn.native) != CONNECTION_OK) {
        *message = apr_pstrcat(p, "no connection: ", in_one_line(p, PQerrorMessage(conn.native)), NULL);
    }
    else {
        ready = idem_pgsql_make_ready(store, &conn, apr_time_now() + patience, p, message);
    }
    PQfinish(conn.native);
    return ready;
}

void idem_pgsql_cut(PGconn *native)
{
    int reads;

    if (PQsocket(native) < 0) {
        return;
    }
    shutdown(PQsocket(native), SHUT_RDWR);
    /* an answer that came too late is still there to be read, and would hide the end behind it */
    for (reads = 0; reads < MOST_READS && PQstatus(native) == CONNECTION_OK && PQconsumeInput(native); reads++) {
    }
}

int idem_pgsql_connect_is_bounded(const char *params)
{
    PQconninfoOption *options = PQconninfoParse(params ? params : "", NULL);
    const PQconninfoOption *option;
    int bounded = getenv("PGCONNECT_TIMEOUT") != NULL || getenv("PGSERVICE") != NULL;

    for (option = options; option && option->keyword; option++) {
        /* what a service file says is known only to whoever may read it */
        if (option->val && (!strcmp(option->keyword, "service") ||
                            (!strcmp(option->keyword, "connect_timeout") && atoi(option->val) > 0))) {
            bounded = 1;
        }
    }
    PQconninfoFree(options);
    return bounded;
}

#include "ctl/store.h"

#include <apr_strings.h>

#include "store/pgsql.h"

#define TIMEOUT apr_time_from_sec(10) /* of one call */

typedef struct source_t {
    idem_conn_source_t face;
    idem_conn_t conn;
    int lost;
} source_t;

static apr_status_t borrow(void *baton, apr_time_t deadline, idem_conn_t **conn)
{
    source_t *source = baton;

    (void)deadline;
    *conn = &source->conn;
    return source->lost ? APR_ECONNREFUSED : APR_SUCCESS;
}

static void give_back(void *baton, idem_conn_t *conn)
{
    (void)baton;
    (void)conn;
}

static void broken(void *baton, idem_conn_t *conn, const char *reason)
{
    source_t *source = baton;

    (void)conn;
    source->lost = 1;
    idem_ctl_fail(IDEM_CTL_STORE, "the connection is lost: %s", reason);
}

static void say(void *baton, int level, const char *message)
{
    (void)baton;
    if (level <= 4) {
        idem_ctl_fail(IDEM_CTL_STORE, "%s", message);
    }
}

idem_store_t *idem_ctl_store(idem_ctl_t *ctl)
{
    idem_store_t *store = apr_pcalloc(ctl->p, sizeof(*store));
    source_t *source = apr_pcalloc(ctl->p, sizeof(*source));
    const char *message = "";

    source->face = (idem_conn_source_t){source, borrow, give_back, broken, NULL};
    source->conn.native = ctl->native;
    source->conn.pool = ctl->p;
    store->provider = &idem_store_pgsql;
    store->source = &source->face;
    store->host = "idempotencyctl";
    store->writer_epoch = 1;
    store->use_prepared = 1;
    store->timeout = TIMEOUT;
    store->log = say;
    if (idem_pgsql_make_ready(store, &source->conn, apr_time_now() + TIMEOUT, ctl->p, &message) != IDEM_PGSQL_READY) {
        idem_ctl_fail(IDEM_CTL_STORE, "the registry cannot be used: %s", message);
        return NULL;
    }
    return store;
}

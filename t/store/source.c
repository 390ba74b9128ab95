#include "source.h"

#include <poll.h>
#include <string.h>

#include <apr_strings.h>

/* Connects by the deadline, or not. */
static PGconn *connect_by(const char *conninfo, apr_time_t deadline, char *message, apr_size_t size)
{
    PGconn *native = PQconnectStart(conninfo);
    PostgresPollingStatusType wanted = PGRES_POLLING_WRITING;

    while (PQstatus(native) != CONNECTION_BAD && wanted != PGRES_POLLING_OK && wanted != PGRES_POLLING_FAILED) {
        struct pollfd fd = {PQsocket(native), wanted == PGRES_POLLING_READING ? POLLIN : POLLOUT, 0};
        apr_interval_time_t left = deadline - apr_time_now();

        if (left <= 0 || poll(&fd, 1, (int)(left / 1000 + 1)) == 0) {
            break;
        }
        wanted = PQconnectPoll(native);
    }
    if (wanted != PGRES_POLLING_OK) {
        apr_snprintf(message, size, "no connection: %s", PQerrorMessage(native));
        PQfinish(native);
        return NULL;
    }
    return native;
}

static apr_status_t borrow(void *baton, apr_time_t deadline, idem_conn_t **conn)
{
    source_t *source = baton;
    char reason[400] = "";
    const char *message = reason;
    idem_conn_t *fresh = NULL;
    apr_pool_t *pool;

    apr_thread_mutex_lock(source->mutex);
    if (source->idle_count) {
        *conn = source->idle[--source->idle_count];
        apr_thread_mutex_unlock(source->mutex);
        return APR_SUCCESS;
    }
    source->opened++;
    apr_thread_mutex_unlock(source->mutex);

    apr_pool_create(&pool, NULL);
    fresh = apr_pcalloc(pool, sizeof(*fresh));
    fresh->pool = pool;
    fresh->native = connect_by(source->conninfo, deadline, reason, sizeof(reason));
    if (!fresh->native
        || idem_pgsql_make_ready(source->store, fresh, deadline, pool, &message) != IDEM_PGSQL_READY) {
        apr_thread_mutex_lock(source->mutex);
        apr_cpystrn(source->message, message, sizeof(source->message));
        apr_thread_mutex_unlock(source->mutex);
        PQfinish(fresh->native);
        apr_pool_destroy(pool);
        return APR_ECONNREFUSED;
    }
    *conn = fresh;
    return APR_SUCCESS;
}

static void end(idem_conn_t *conn)
{
    PQfinish(conn->native);
    apr_pool_destroy(conn->pool);
}

static void give_back(void *baton, idem_conn_t *conn)
{
    source_t *source = baton;

    apr_thread_mutex_lock(source->mutex);
    if (source->idle_count < SOURCE_MAX) {
        source->idle[source->idle_count++] = conn;
        conn = NULL;
    }
    apr_thread_mutex_unlock(source->mutex);
    if (conn) {
        end(conn);
    }
}

static void broken(void *baton, idem_conn_t *conn, const char *reason)
{
    source_t *source = baton;

    (void)reason;
    apr_thread_mutex_lock(source->mutex);
    source->broken++;
    apr_thread_mutex_unlock(source->mutex);
    end(conn);
}

void source_init(source_t *source, idem_store_t *store, const char *conninfo, apr_pool_t *p)
{
    memset(source, 0, sizeof(*source));
    source->face.baton = source;
    source->face.borrow = borrow;
    source->face.give_back = give_back;
    source->face.broken = broken;
    source->store = store;
    source->conninfo = conninfo;
    source->pool = p;
    apr_thread_mutex_create(&source->mutex, APR_THREAD_MUTEX_DEFAULT, p);
}

void source_close(source_t *source)
{
    while (source->idle_count) {
        end(source->idle[--source->idle_count]);
    }
}

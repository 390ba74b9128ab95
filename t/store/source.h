/*
 * source.h - connections for the driver: a pool as httpd's, without httpd.
 */
#ifndef IDEM_TEST_SOURCE_H
#define IDEM_TEST_SOURCE_H

#include <apr_thread_mutex.h>

#include "store/pgsql.h"

#define SOURCE_MAX 64

typedef struct source_t {
    idem_conn_source_t face;  /* what the store gets; its baton is this */
    idem_store_t *store;
    const char *conninfo;
    apr_pool_t *pool;
    apr_thread_mutex_t *mutex;
    idem_conn_t *idle[SOURCE_MAX];
    int idle_count;
    int opened;               /* connections made since the start */
    int broken;               /* connections given back as broken */
    char message[400];        /* of the last connection that was not made ready */
} source_t;

void source_init(source_t *source, idem_store_t *store, const char *conninfo, apr_pool_t *p);

/* Ends all idle connections. */
void source_close(source_t *source);

#endif

/*
 * child_thread.h - the thread of a child's store, and what it shares with child.c. Internal to these two.
 */
#ifndef IDEM_HTTPD_CHILD_THREAD_H
#define IDEM_HTTPD_CHILD_THREAD_H

#include <apr_thread_proc.h>

#include "httpd/child/child.h"
#include "httpd/child/chores.h"
#include "httpd/child/conns.h"

struct idem_child_store_t {
    server_rec *registry;
    const idem_server_t *conf;    /* of a server that uses it */
    idem_store_t store;      /* as request threads use it */
    idem_store_t own;        /* the same, with connections that need no fresh heartbeat: for the thread */
    idem_conns_t *conns;
    idem_chores_t *chores;
    struct idem_sweeping_t *sweeping;
    struct idem_shadow_queue_t *shadow;
    apr_array_header_t *journals; /* of idem_journaling_t *, one for each folder */
    idem_aliases_t *aliases;
    idem_quotas_t *quotas;
    apr_interval_time_t lease;    /* the shortest of all routes that use this store */
    apr_interval_time_t interval; /* between heartbeats */
    apr_time_t next_heartbeat;
    apr_time_t next_proof;        /* not before then out of turn */
    int size_checked;
    int announced;
    apr_thread_t *thread;
    int wake[2];             /* a pipe: waking is safe even from a signal handler, where prefork destroys its pools */
    int done[2];             /* readable once the thread has ended */
    volatile apr_uint32_t stop;
    volatile apr_uint32_t running;
    volatile apr_uint32_t bypassed;
    idem_child_store_t *next;
};

/* Starts the thread of a child that is filled in. */
apr_status_t idem_child_thread_start(idem_child_store_t *child, apr_pool_t *pchild);

/* Cleanup of pchild (data is the child): lets the thread say goodbye, and waits for it with patience that ends. */
apr_status_t idem_child_thread_stop(void *data);

#endif

/*
 * shadow_queue.h - what requests of Shadow routes leave for the child's thread, and what it makes of it.
 */
#ifndef IDEM_HTTPD_SHADOW_QUEUE_H
#define IDEM_HTTPD_SHADOW_QUEUE_H

#include "core/fingerprint.h"
#include "core/scope.h"
#include "httpd/child/aliases.h"
#include "store/store.h"

/* One request, everything in a pool of its own. */
typedef struct idem_shadow_job_t {
    apr_pool_t *pool;
    const char *route;
    const char *refused;           /* the word of what would have refused it without a look at the registry; else NULL */
    idem_scope_t scope;            /* of the caller as it is now */
    const apr_array_header_t *accepts; /* of const char *: revisions that the route looks at besides; NULL: none */
    const char *recipe;
    unsigned char fingerprint[IDEM_FINGERPRINT_LEN];
    const unsigned char *framed;
    apr_size_t framed_len;
    apr_interval_time_t lease, max_run, quiet, retention, tombstone;
    int reuse_allowed;
    apr_time_t begun, ended;
    int status;                    /* what the client got */
    idem_outcome_e outcome;        /* what Enforce would have made of it */
    struct idem_shadow_job_t *next;
} idem_shadow_job_t;

typedef struct idem_shadow_queue_t idem_shadow_queue_t;

/* NULL where there is no lock to be had. */
idem_shadow_queue_t *idem_shadow_queue_create(apr_pool_t *pchild);

/* An empty job, or NULL where the queue is full: then the request is counted as dropped. */
idem_shadow_job_t *idem_shadow_queue_job(idem_shadow_queue_t *queue);
/* 1 where the thread was idle: it is to be woken. */
int idem_shadow_queue_add(idem_shadow_queue_t *queue, idem_shadow_job_t *job);

/* Is there anything to be done? Then the thread needs a connection. */
int idem_shadow_queue_any(idem_shadow_queue_t *queue);

/* By the child's thread, while the store can be reached: a few jobs. Returns when it wants to be called again. */
apr_time_t idem_shadow_queue_work(idem_shadow_queue_t *queue, idem_store_t *store, idem_aliases_t *aliases,
                                  server_rec *s, apr_pool_t *p);

#endif

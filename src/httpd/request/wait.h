/*
 * wait.h - waiting for the first request's answer: IdempotencyWait. CONTRACT sections 4 and 11.
 *
 * A request that waits holds its thread and nothing else: no connection to the registry, no lock. At most a quarter of
 * a child's threads wait at a time, so that waiting cannot keep other requests from being served; with one thread a
 * child (prefork) nobody waits.
 */
#ifndef IDEM_HTTPD_WAIT_H
#define IDEM_HTTPD_WAIT_H

#include "httpd/request/context.h"

/* One request's waiting. Zeroed before the first call. */
typedef struct idem_wait_t {
    apr_interval_time_t until; /* by idem_dispatch_moment() */
    apr_interval_time_t pause;
    int counted;
} idem_wait_t;

/* Hook child_init: counts who waits in this child. */
void idem_wait_child_init(apr_pool_t *pchild, server_rec *main_server);

/*
 * For a context whose answer is in-progress: sleeps a little, and leaves it READY to ask the store again. 0 where it
 * is to be answered as it is: the time is over, too many wait, the client has gone, or the child is about to end.
 */
int idem_wait_again(request_rec *r, idem_ctx_t *ctx, idem_wait_t *wait);

/* Afterwards, however it ended. */
void idem_wait_end(const idem_ctx_t *ctx, idem_wait_t *wait);

#endif

/*
 * inflight.h - the operations that are executed at this moment, by all children of this server, in shared memory: so
 * that the status page can name them and say how long they have run. CONTRACT section 10.
 *
 * No index of the registry knows them (a settlement is to touch none), and another server's are on its own page. Of
 * more than the table holds some are only counted.
 */
#ifndef IDEM_HTTPD_INFLIGHT_H
#define IDEM_HTTPD_INFLIGHT_H

#include "httpd/request/context.h"

#define IDEM_INFLIGHT_SLOTS 1024
#define IDEM_INFLIGHT_ROUTE 80 /* octets of a route's name that are kept, its end included */

typedef struct idem_running_t {
    apr_uint32_t pid; /* 0: nobody's */
    apr_time_t since;
    unsigned char operation[IDEM_UUID_LEN];
    char route[IDEM_INFLIGHT_ROUTE];
} idem_running_t;

/* All zero is an empty one. */
typedef struct idem_inflight_t {
    apr_uint32_t next; /* where the next one begins to look for a place */
    idem_running_t slots[IDEM_INFLIGHT_SLOTS];
} idem_inflight_t;

/* The context's operation begins, and ends, to be executed here: in the page's table, in the number that decides whether
 * this child's heartbeat is needed, and in its caller's quota. Never blocks. */
void idem_inflight_begin(idem_ctx_t *ctx);
void idem_inflight_end(idem_ctx_t *ctx);

/* Those there are, oldest first, of idem_running_t in p, at most `most`; *count is how many. What a killed process has
 * left is none. */
apr_array_header_t *idem_inflight_read(const idem_inflight_t *inflight, int most, int *count, apr_pool_t *p);

/* Clears what killed processes have left. */
void idem_inflight_bury(idem_inflight_t *inflight);

#endif

/*
 * sweeping.h - the sweep as a child of httpd does it: on its own thread, one short batch at a time, now and then.
 * CONTRACT section 8.
 */
#ifndef IDEM_HTTPD_SWEEPING_H
#define IDEM_HTTPD_SWEEPING_H

#include <apr_pools.h>

#include "store/store.h"

typedef struct idem_sweeping_t idem_sweeping_t;
struct idem_counters_t;

/* silence: an owner that was silent for so long may have records that lapsed. counters, or NULL: where its work is shown. */
idem_sweeping_t *idem_sweeping_create(apr_pool_t *pchild, apr_interval_time_t silence, struct idem_counters_t *counters);

/* By the child's thread, while the store can be reached: at most one batch. Returns when it wants to be called again. */
apr_time_t idem_sweeping_work(idem_sweeping_t *sweeping, idem_store_t *store, apr_pool_t *p);

#endif

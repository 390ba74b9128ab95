/*
 * combine.h - reserves and settlements of several threads in one statement. CONTRACT section 9.
 *
 * A statement and its commit cost nearly the same for one row as for many. So one thread writes at a time. Whoever comes
 * meanwhile waits in a queue; when the writer has finished, the oldest in the queue leads: it takes a connection, then all
 * that wait by then (so many rows and octets at most), sends one statement for both kinds, and hands every other its
 * result. Up to `writers` are at work where one will not do: more wait than one statement takes, or the writer is slow.
 * There is no thread of its own for that, and nobody waits for company: a call that finds nobody at work goes its way at
 * once, with its own memory.
 *
 * - Every caller has its own deadline. Before its row was sent, leaving is certain (UNAVAILABLE); after it, AMBIGUOUS.
 * - A row that its statement did not decide (a refusal, another state than the usual) is asked for alone afterwards by its
 *   own caller: nobody is kept by another's trouble. To a store that has not answered for a while a leader goes alone.
 * - Reserves go in the order of the primary key, before any settlement of their statement has locked its row, and no
 *   settlement waits for a lock of its own: two batches never deadlock. One that goes with a reserve waits as long as that.
 * - Large rows, rare settlements, looks at several scopes and what only looks are not combined.
 * - What a leader touches of a waiter is a copy with a pool of its own, so a waiter may leave and its request end.
 */
#ifndef IDEM_COMBINE_H
#define IDEM_COMBINE_H

#include "store/store.h"

#define IDEM_COMBINE_WRITERS 2                  /* where nothing else is said */
#define IDEM_COMBINE_MOST_ROWS 64
#define IDEM_COMBINE_MOST_OCTETS (256 * 1024)   /* of all rows of a batch */
#define IDEM_COMBINE_LARGE_ROW (32 * 1024)      /* from here on a row goes alone */
#define IDEM_COMBINE_PATIENCE 32                /* a writer that takes longer than this part of the store's timeout is slow */

/*
 * Puts itself in front of store's provider, which must be set and stays the one that does the work; writers is 1
 * upwards. Everything lives in p, which must outlive all calls. The calls may come from any number of threads. 0 where
 * there are no locks to be had: then the store is as it was.
 */
int idem_combine_install(idem_store_t *store, int writers, apr_pool_t *p);

/* What has been combined so far, for whoever looks on. */
typedef struct idem_combine_counts_t {
    apr_uint32_t statements; /* with more than one row */
    apr_uint32_t rows;       /* in those */
    apr_uint32_t alone;      /* rows that were asked for again, alone */
    apr_uint32_t waiting;    /* in the queue now */
    apr_uint32_t writing;    /* writers at work now */
} idem_combine_counts_t;

void idem_combine_count(const idem_store_t *store, idem_combine_counts_t *counts);

#endif

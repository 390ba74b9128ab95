/*
 * counters.h - what all children of a server have done, in shared memory, kept over a graceful restart.
 *
 * Totals are exact: every child adds to them atomically. The hour behind them is kept by the minute and may lose a
 * request or two at the turn of a minute. CONTRACT section 10 (idempotency-status).
 */
#ifndef IDEM_HTTPD_COUNTERS_H
#define IDEM_HTTPD_COUNTERS_H

#include <httpd.h>

#include "core/problem.h"
#include "store/sweep.h"

/* What became of a keyed request: the words of %{idempotency-outcome}n. Problems follow, in their order. */
enum {
    IDEM_COUNT_EXECUTED,
    IDEM_COUNT_REPLAYED,
    IDEM_COUNT_REJECTED,
    IDEM_COUNT_UNKNOWN,
    IDEM_COUNT_UNPROTECTED,
    IDEM_COUNT_PROBLEMS,
    IDEM_COUNTED = IDEM_COUNT_PROBLEMS + IDEM_PROBLEM_COUNT
};

/* Calls to the store whose time is kept. */
typedef enum { IDEM_TIMED_RESERVE, IDEM_TIMED_SETTLE, IDEM_TIMED } idem_timed_e;

#define IDEM_COUNT_MINUTES 60
#define IDEM_TIME_BUCKETS  74 /* see idem_counters_bound; the last one has all that is longer */
#define IDEM_TIME_STEPS    4  /* from one power of two to the next */

/* One child's own view of its connections, written by its thread. */
typedef struct idem_child_view_t {
    apr_int32_t pid;
    apr_int32_t open;    /* connections */
    apr_int32_t idle;
    apr_int32_t away;    /* the breaker is open */
    apr_int32_t running; /* operations that it executes */
    apr_int32_t chores;  /* writes that wait for the store */
    apr_time_t seen;
} idem_child_view_t;

/* What the sweeps of this server's children have done. */
typedef struct idem_swept_t {
    apr_uint64_t batches;
    apr_uint64_t looked;
    apr_uint64_t expired;
    apr_uint64_t removed;
    apr_uint64_t unknown;  /* became UNKNOWN: their owner is gone */
    apr_int64_t longest;   /* batch, in microseconds */
    apr_time_t last;       /* end of the latest batch; 0: none yet */
} idem_swept_t;

typedef struct idem_counters_t idem_counters_t;
struct idem_inflight_t;

/* Everything at one moment, for the page. */
typedef struct idem_counters_view_t {
    apr_time_t since;
    apr_uint64_t totals[IDEM_COUNTED];
    apr_uint32_t minutes[IDEM_COUNT_MINUTES][IDEM_COUNTED]; /* oldest first; the last one is the present minute */
    apr_uint64_t times[IDEM_TIMED][IDEM_TIME_BUCKETS];
    idem_swept_t swept;
    idem_child_view_t children[256];
    int child_count;
} idem_counters_view_t;

/* Hook post_config: the counters of this process and its children; those of before a restart where they fit. NULL where
 * no shared memory is to be had. */
idem_counters_t *idem_counters_open(server_rec *s);

/* The word of an outcome, and its number; IDEM_COUNTED for a word that is none. */
const char *idem_counters_word(int outcome);
int idem_counters_number(const char *word);

/* All take NULL for no counters, and never block. */
void idem_counters_add(idem_counters_t *counters, const char *word);
void idem_counters_time(idem_counters_t *counters, idem_timed_e call, apr_interval_time_t took);
/* One batch of the sweep. */
void idem_counters_swept(idem_counters_t *counters, const idem_sweep_t *batch, apr_interval_time_t took);
void idem_counters_child(idem_counters_t *counters, const idem_child_view_t *view);
void idem_counters_child_gone(idem_counters_t *counters, apr_int32_t pid);
void idem_counters_read(idem_counters_t *counters, idem_counters_view_t *view);

/* The table of what is executed now (httpd/child/inflight.h); NULL for no counters. */
struct idem_inflight_t *idem_counters_inflight(idem_counters_t *counters);

/* Microseconds below which the calls of a bucket stayed: 128, 160, 192, 224, 256, 320 ... */
apr_interval_time_t idem_counters_bound(int bucket);

/* Microseconds below which a share (0 to 1) of the calls stayed; 0 where there was none. An upper bound within 1.25x. */
apr_interval_time_t idem_counters_percentile(const idem_counters_view_t *view, idem_timed_e call, double share);

#endif

/*
 * sweep.h - what age does to records, and what the death of a process leaves behind. CONTRACT sections 4 and 8.
 *
 * Both work in bounded batches, each one statement; who calls decides how many at a time. At most one worker of a store
 * is at it, by a lock that lives as long as the statement. Neither waits for a row that somebody has locked.
 */
#ifndef IDEM_STORE_SWEEP_H
#define IDEM_STORE_SWEEP_H

#include "store/store.h"

#define IDEM_SWEEP_FIRST 100 /* rows of a first batch; later ones as many as fit into the time */
#define IDEM_SWEEP_MOST  400
#define IDEM_SWEEP_SPAN  apr_time_from_sec(2 * 3600) /* operations that an owner began so long before it died are looked for */

/* One batch of the sweep. */
struct idem_sweep_t {
    int most;         /* rows to look at */
    const char *actor;
    int busy;         /* out: another worker is at it, or this writer is fenced: nothing was done */
    int looked;       /* out: rows that were due, and stories of records that are gone; below most: nothing more is */
    int expired;      /* out: became tombstones */
    int removed;      /* out: are gone, with their events and effects */
    int doubtful;     /* out: became UNKNOWN */
};

/* Owners that died, one after the other, and in batches what they had begun. */
struct idem_recovery_t {
    apr_interval_time_t silence; /* an owner that was silent for so long is looked at */
    const char *actor;
    const apr_array_header_t *done; /* of const char *: owners that need no further look */
    int most;                    /* rows to look at */
    char owner[37];              /* in and out: whom this is about; "": find one */
    unsigned char lowest[IDEM_UUID_LEN]; /* in and out: of what is to be looked at */
    unsigned char before[IDEM_UUID_LEN];
    int busy;                    /* out: as above */
    int looked;                  /* out: operations that were read */
    int doubtful;                /* out: became UNKNOWN */
    int waiting;                 /* in and out: of this owner, not lapsed yet */
    int finished;                /* out: this owner was looked at whole */
};

/* How many rows the next batch is to have, by the time that the last one took. */
int idem_sweep_next(int most, apr_interval_time_t took);

/* How long to leave the registry to requests after a batch that took so long: the sweep takes a quarter of the time. */
apr_interval_time_t idem_sweep_rest(apr_interval_time_t took);

#endif

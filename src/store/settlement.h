/*
 * settlement.h - a settlement as a whole: what the response says, and what a backend may have settled by itself
 * before. CONTRACT section 4 "Settlement". Used by a request, by the child's thread and by the journal's readers.
 */
#ifndef IDEM_SETTLEMENT_H
#define IDEM_SETTLEMENT_H

#include "store/store.h"

typedef struct idem_settlement_t {
    idem_settle_t settle;      /* outcome: as rules 1, 2, 4, 5 and 6 decide */
    int backend_first;         /* rule 3: where the backend has settled in this generation, its state counts */
    int response_whole;        /* the response in settle is complete and made by the backend */
    idem_octets_t empty_head;  /* a head without fields: says that a response came and was not kept */

    int by_backend;            /* out: it was the backend that has settled */
} idem_settlement_t;

/*
 * Applies it by compare-and-set, once more where the backend settled in between. The result is in settle.result and
 * settle.state as settle() of the provider leaves them; with by_backend settle.outcome is the backend's.
 * Safe to be repeated, and to be done by several at once.
 */
void idem_settlement_apply(idem_store_t *store, idem_settlement_t *settlement, apr_time_t deadline, apr_pool_t *p);

#endif

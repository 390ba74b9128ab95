#include "store/settlement.h"

#include <string.h>

#define ROUNDS 2 /* a backend that commits between the look and the write is seen by the second look */

/* The backend has settled: what is left is to add the response, if it left none and this one is fit to be it. */
static void add_response(idem_store_t *store, idem_settlement_t *settlement, const idem_record_t *record,
                         apr_time_t deadline, apr_pool_t *p)
{
    idem_settle_t *settle = &settlement->settle;
    idem_settle_t added = *settle;
    idem_settle_t *batch = &added;

    settlement->by_backend = 1;
    settle->outcome = record->outcome;
    settle->state = record->state;
    settle->result = IDEM_STORE_OK;
    if (record->response_headers.octets || record->response_body.octets) {
        return;
    }
    added.outcome = record->outcome;
    if (!settlement->response_whole || !idem_machine_fits(record->state, settle->response_code)) {
        added.response_code = record->response_code;
        added.response_headers = settlement->empty_head;
        added.response_body = (idem_octets_t){NULL, 0};
        added.response_digest = (idem_octets_t){NULL, 0};
    }
    store->provider->settle(store, &batch, 1, deadline, p);
    settle->result = added.result;
    settle->state = added.state;
}

/* The backend has said that nothing happened: its record is gone, or stays with nobody to own it. */
static int is_rejected(idem_settlement_t *settlement, const idem_record_t *record)
{
    static const unsigned char nobody[IDEM_UUID_LEN];
    idem_settle_t *settle = &settlement->settle;

    if (record && (record->generation != settle->generation || record->outcome != IDEM_OUTCOME_REJECTED ||
                   memcmp(record->owner, nobody, sizeof(nobody)))) {
        return 0;
    }
    settlement->by_backend = 1;
    settle->outcome = IDEM_OUTCOME_REJECTED;
    settle->state = record ? record->state : IDEM_STATE_NONE;
    settle->result = IDEM_STORE_OK;
    return 1;
}

void idem_settlement_apply(idem_store_t *store, idem_settlement_t *settlement, apr_time_t deadline, apr_pool_t *p)
{
    idem_settle_t *settle = &settlement->settle;
    idem_settle_t *batch = settle;
    idem_record_t *record = NULL;
    int round;

    settlement->by_backend = 0;
    for (round = 0; round < ROUNDS; round++) {
        if (settlement->backend_first) {
            settle->result = store->provider->find_operation(store, settle->tenant, settle->operation, &record, deadline, p);
            if (settle->result == IDEM_STORE_UNAVAILABLE || settle->result == IDEM_STORE_AMBIGUOUS) {
                settle->result = IDEM_STORE_UNAVAILABLE; /* it only looked */
                return;
            }
            if (is_rejected(settlement, settle->result == IDEM_STORE_OK ? record : NULL)) {
                return;
            }
            if (record->generation == settle->generation && idem_machine_is_final(record->state)) {
                add_response(store, settlement, record, deadline, p);
                return;
            }
            if (record->generation == settle->generation && record->outcome == IDEM_OUTCOME_UNKNOWN) {
                /* it said so, or an attempt is open: no response makes that a success or a failure */
                settlement->by_backend = 1;
                settle->outcome = IDEM_OUTCOME_UNKNOWN;
            }
        }
        store->provider->settle(store, &batch, 1, deadline, p);
        if ((settle->result != IDEM_STORE_STALE && settle->result != IDEM_STORE_NOT_FOUND) || !settlement->backend_first) {
            return;
        }
    }
}

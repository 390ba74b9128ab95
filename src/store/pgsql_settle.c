#include <string.h>

#include "store/pgsql_call.h"

#define MAX_STATES (IDEM_STATE_COUNT + 1)

/*
 * Each of these sends one statement. OK: applied, settle->state is set. NOT_FOUND: no row fitted.
 */
static idem_store_result_e apply_plain(idem_pg_call_t *call, idem_settle_t *settle, idem_event_e event, int late)
{
    idem_state_e to = idem_machine_next(IDEM_STATE_EXECUTING, event);
    idem_pg_params_t params;
    PGresult *rows;
    idem_store_result_e result;

    idem_pg_params_begin(&params, call->p);
    idem_pg_add_text(&params, settle->tenant);
    idem_pg_add_uuid(&params, settle->operation);
    idem_pg_add_int(&params, settle->generation);
    idem_pg_add_texts(&params, idem_machine_sources(event));
    idem_pg_add_text(&params, idem_state_name(to));
    idem_pg_add_text(&params, idem_outcome_name(settle->outcome));
    idem_pg_add_int_or_null(&params, settle->response_code);
    idem_pg_add_octets(&params, &settle->response_headers);
    idem_pg_add_octets(&params, &settle->response_body);
    idem_pg_add_octets(&params, &settle->response_digest);
    if (late) {
        idem_pg_add_bool(&params, idem_machine_is_final(to));
        idem_pg_add_text(&params, settle->actor ? settle->actor : "httpd");
        idem_pg_add_text(&params, settle->reason);
    }
    result = idem_pg_call_run(call, late ? &idem_pg_settle_late : &idem_pg_settle, &params, &rows);
    if (result == IDEM_STORE_OK) {
        settle->state = to;
        result = PQntuples(rows) ? IDEM_STORE_OK : IDEM_STORE_NOT_FOUND;
        PQclear(rows);
    }
    return result;
}

/* The states from which an operation of this generation that did nothing leaves no record, as names. */
static const char *const *removable_states(int generation, apr_pool_t *p)
{
    const char **names = apr_pcalloc(p, MAX_STATES * sizeof(*names));
    int count = 0;
    int state;

    for (state = IDEM_STATE_NONE + 1; state < IDEM_STATE_COUNT; state++) {
        if (idem_machine_reject_removes(state, generation, 0)) {
            names[count++] = idem_state_name(state);
        }
    }
    return names;
}

static idem_store_result_e apply_reject(idem_pg_call_t *call, idem_settle_t *settle)
{
    idem_state_e stays = idem_machine_next(IDEM_STATE_EXECUTING, IDEM_EVENT_REJECT);
    idem_pg_params_t params;
    PGresult *rows;
    idem_store_result_e result;

    idem_pg_params_begin(&params, call->p);
    idem_pg_add_text(&params, settle->tenant);
    idem_pg_add_uuid(&params, settle->operation);
    idem_pg_add_int(&params, settle->generation);
    idem_pg_add_texts(&params, idem_machine_sources(IDEM_EVENT_REJECT));
    idem_pg_add_texts(&params, removable_states(settle->generation, call->p));
    idem_pg_add_text(&params, idem_state_name(stays));
    idem_pg_add_text(&params, idem_outcome_name(IDEM_OUTCOME_REJECTED));
    idem_pg_add_text(&params, idem_state_name(IDEM_STATE_NONE));
    idem_pg_add_text(&params, settle->actor ? settle->actor : "httpd");
    idem_pg_add_text(&params, settle->reason);
    result = idem_pg_call_run(call, &idem_pg_settle_reject, &params, &rows);
    if (result == IDEM_STORE_OK) {
        result = PQntuples(rows) ? IDEM_STORE_OK : IDEM_STORE_NOT_FOUND;
        settle->state = PQntuples(rows) && idem_pg_get_bool(rows, 0, 0) ? IDEM_STATE_NONE : stays;
        PQclear(rows);
    }
    return result;
}

static idem_store_result_e apply_release(idem_pg_call_t *call, idem_settle_t *settle)
{
    idem_pg_params_t params;
    PGresult *rows;
    idem_store_result_e result;

    idem_pg_params_begin(&params, call->p);
    idem_pg_add_text(&params, settle->tenant);
    idem_pg_add_uuid(&params, settle->operation);
    idem_pg_add_int(&params, settle->generation);
    idem_pg_add_texts(&params, idem_machine_sources(IDEM_EVENT_RELEASE));
    idem_pg_add_text(&params, idem_state_name(idem_machine_next(IDEM_STATE_EXECUTING, IDEM_EVENT_DOUBT)));
    idem_pg_add_text(&params, idem_outcome_name(IDEM_OUTCOME_UNKNOWN));
    idem_pg_add_text(&params, idem_outcome_name(IDEM_OUTCOME_RELEASED));
    idem_pg_add_text(&params, settle->actor ? settle->actor : "httpd");
    idem_pg_add_text(&params, settle->reason);
    result = idem_pg_call_run(call, &idem_pg_settle_release, &params, &rows);
    if (result == IDEM_STORE_OK) {
        result = PQntuples(rows) ? IDEM_STORE_OK : IDEM_STORE_NOT_FOUND;
        if (PQntuples(rows)) {
            settle->state = idem_state_parse(idem_pg_get_text(rows, 0, 0, call->p));
        }
        PQclear(rows);
    }
    return result;
}

/*
 * No row fitted: why not? OK: an earlier sending of this settlement did it. BUSY: it fits, somebody holds its lock.
 * STALE and NOT_FOUND are what they say.
 */
static idem_store_result_e settle_why(idem_pg_call_t *call, idem_settle_t *settle, idem_event_e event)
{
    idem_pg_params_t params;
    PGresult *rows;
    idem_store_result_e result;
    int generation;
    int same;

    idem_pg_params_begin(&params, call->p);
    idem_pg_add_text(&params, settle->tenant);
    idem_pg_add_uuid(&params, settle->operation);
    idem_pg_add_octets(&params, &settle->response_digest);
    idem_pg_add_int_or_null(&params, settle->response_code);
    result = idem_pg_call_run(call, &idem_pg_settle_why, &params, &rows);
    if (result != IDEM_STORE_OK) {
        return result;
    }
    settle->state = IDEM_STATE_NONE;
    if (!PQntuples(rows)) {
        PQclear(rows);
        return call->lost && event == IDEM_EVENT_REJECT ? IDEM_STORE_OK : IDEM_STORE_NOT_FOUND;
    }
    settle->state = idem_state_parse(idem_pg_get_text(rows, 0, 0, call->p));
    generation = idem_pg_get_int(rows, 0, 1);
    same = idem_pg_get_bool(rows, 0, 2);
    PQclear(rows);
    if (generation != settle->generation) {
        return IDEM_STORE_STALE;
    }
    if (idem_machine_next(settle->state, event) != IDEM_STATE_COUNT) {
        return IDEM_STORE_BUSY;
    }
    return same && settle->state == idem_machine_next(IDEM_STATE_EXECUTING, event) ? IDEM_STORE_OK : IDEM_STORE_STALE;
}

static idem_store_result_e settle_once(idem_pg_call_t *call, idem_settle_t *settle, idem_event_e event)
{
    idem_store_result_e result;

    switch (event) {
    case IDEM_EVENT_REJECT:
        return apply_reject(call, settle);
    case IDEM_EVENT_RELEASE:
        return apply_release(call, settle);
    case IDEM_EVENT_DOUBT:
        return apply_plain(call, settle, event, 1);
    default:
        result = apply_plain(call, settle, event, 0);
        return result == IDEM_STORE_NOT_FOUND ? apply_plain(call, settle, event, 1) : result;
    }
}

static void settle_one(idem_store_t *store, idem_settle_t *settle, apr_time_t deadline, apr_pool_t *p)
{
    idem_event_e event = idem_machine_settlement(settle->outcome);
    idem_pg_call_t call;
    int round;

    settle->state = IDEM_STATE_NONE;
    if (event == IDEM_EVENT_COUNT) {
        settle->result = IDEM_STORE_UNAVAILABLE;
        return;
    }
    idem_pg_call_begin(&call, store, deadline, p);
    for (round = 0;; round++) {
        settle->result = settle_once(&call, settle, event);
        if (settle->result != IDEM_STORE_NOT_FOUND) {
            break;
        }
        settle->result = settle_why(&call, settle, event);
        if (settle->result != IDEM_STORE_BUSY) {
            break;
        }
        settle->result = call.lost ? IDEM_STORE_AMBIGUOUS : IDEM_STORE_UNAVAILABLE;
        if (!idem_pg_call_pause(&call, round)) {
            break;
        }
    }
    idem_pg_call_end(&call);
}

void idem_pgsql_settle(idem_store_t *store, idem_settle_t *const *settles, int n, apr_time_t deadline, apr_pool_t *p)
{
    int i;

    for (i = 0; i < n; i++) {
        settle_one(store, settles[i], deadline, p);
    }
}

idem_store_result_e idem_pgsql_withdraw(idem_store_t *store, const char *tenant, const unsigned char *operation,
                                        const unsigned char *owner_token, int generation, apr_time_t deadline,
                                        apr_pool_t *p)
{
    /* This generation has done nothing. The first one leaves nothing behind. A later one of external effect came from
     * RESERVED or from a tombstone, and is as free as that; of the other modes, what earlier ones did stays as it was.
     * Either way the lease is over. */
    idem_event_e event = generation == 1 ? IDEM_EVENT_REJECT : IDEM_EVENT_RELEASE;
    idem_store_result_e result;
    idem_pg_params_t params;

    idem_pg_params_begin(&params, p);
    idem_pg_add_text(&params, tenant);
    idem_pg_add_uuid(&params, operation);
    idem_pg_add_int(&params, generation);
    idem_pg_add_uuid(&params, owner_token);
    idem_pg_add_texts(&params, removable_states(generation, p));
    idem_pg_add_text(&params, idem_state_name(IDEM_STATE_NONE));
    idem_pg_add_text(&params, "httpd");
    idem_pg_add_texts(&params, idem_machine_sources(event));
    idem_pg_add_text(&params, idem_state_name(idem_machine_next(IDEM_STATE_EXECUTING, IDEM_EVENT_REJECT)));
    idem_pg_add_text(&params, generation == 1 ? NULL : idem_effect_name(IDEM_EFFECT_EXTERNAL));
    result = idem_pg_call_transition(store, &idem_pg_withdraw, &params, 1, deadline, p);
    return result == IDEM_STORE_STALE ? IDEM_STORE_NOT_FOUND : result;
}

#include <string.h>

#include "store/pgsql_call.h"

#define MAX_STATES (IDEM_STATE_COUNT + 1)

/* How often another statement is tried; each time the record has moved in between. */
#define MAX_ROUNDS 64

/* Which statement a settlement takes. */
typedef enum {
    WAY_LIVE,    /* the owner is at work, or the backend has settled and left no response: the frequent one */
    WAY_LATE,    /* into doubt, or out of it */
    WAY_REJECT,
    WAY_RELEASE,
    WAY_NONE     /* the record is not there for this settlement */
} way_e;

static void add_address(idem_pg_params_t *params, const idem_settle_t *settle)
{
    idem_pg_add_text(params, settle->tenant);
    idem_pg_add_uuid(params, settle->operation);
    idem_pg_add_int(params, settle->generation);
}

static void add_response(idem_pg_params_t *params, const idem_settle_t *settle)
{
    idem_pg_add_int_or_null(params, settle->response_code);
    idem_pg_add_octets(params, &settle->response_headers);
    idem_pg_add_octets(params, &settle->response_body);
    idem_pg_add_octets(params, &settle->response_digest);
}

static void add_actor(idem_pg_params_t *params, const idem_settle_t *settle)
{
    idem_pg_add_text(params, settle->actor ? settle->actor : "httpd");
    idem_pg_add_text(params, settle->reason);
}

/* The state a row names in its first column; IDEM_STATE_COUNT where there is no row. */
static idem_state_e first_state(const PGresult *rows, apr_pool_t *p)
{
    return PQntuples(rows) ? idem_state_parse(idem_pg_get_text(rows, 0, 0, p)) : IDEM_STATE_COUNT;
}

void idem_pg_add_settle(idem_pg_params_t *params, const idem_settle_t *settle, idem_event_e event)
{
    add_address(params, settle);
    idem_pg_add_texts(params, idem_machine_sources(event));
    idem_pg_add_text(params, idem_state_name(idem_machine_next(IDEM_STATE_EXECUTING, event)));
    idem_pg_add_text(params, idem_outcome_name(settle->outcome));
    add_response(params, settle);
}

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
    idem_pg_add_settle(&params, settle, event);
    if (late) {
        idem_pg_add_bool(&params, idem_machine_is_final(to));
        add_actor(&params, settle);
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
    add_address(&params, settle);
    idem_pg_add_texts(&params, idem_machine_sources(IDEM_EVENT_REJECT));
    idem_pg_add_texts(&params, removable_states(settle->generation, call->p));
    idem_pg_add_text(&params, idem_state_name(stays));
    idem_pg_add_text(&params, idem_outcome_name(IDEM_OUTCOME_REJECTED));
    idem_pg_add_text(&params, idem_state_name(IDEM_STATE_NONE));
    add_actor(&params, settle);
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
    add_address(&params, settle);
    idem_pg_add_texts(&params, idem_machine_sources(IDEM_EVENT_RELEASE));
    idem_pg_add_text(&params, idem_state_name(idem_machine_next(IDEM_STATE_EXECUTING, IDEM_EVENT_DOUBT)));
    idem_pg_add_text(&params, idem_outcome_name(IDEM_OUTCOME_UNKNOWN));
    idem_pg_add_text(&params, idem_outcome_name(IDEM_OUTCOME_RELEASED));
    add_actor(&params, settle);
    result = idem_pg_call_run(call, &idem_pg_settle_release, &params, &rows);
    if (result == IDEM_STORE_OK) {
        result = PQntuples(rows) ? IDEM_STORE_OK : IDEM_STORE_NOT_FOUND;
        settle->state = first_state(rows, call->p);
        PQclear(rows);
    }
    return result;
}

static idem_store_result_e apply(idem_pg_call_t *call, idem_settle_t *settle, idem_event_e event, way_e way)
{
    switch (way) {
    case WAY_REJECT:
        return apply_reject(call, settle);
    case WAY_RELEASE:
        return apply_release(call, settle);
    default:
        return apply_plain(call, settle, event, way == WAY_LATE);
    }
}

/* The statement for a record whose owner is at work. */
static way_e plain_way(idem_event_e event)
{
    switch (event) {
    case IDEM_EVENT_REJECT:
        return WAY_REJECT;
    case IDEM_EVENT_RELEASE:
        return WAY_RELEASE;
    case IDEM_EVENT_DOUBT:
        return WAY_LATE;
    default:
        return WAY_LIVE;
    }
}

/* The statement that is right for a record in this state. */
static way_e right_way(idem_state_e state, idem_event_e event, int no_response)
{
    if (idem_machine_is_final(state)) {
        return no_response && state == idem_machine_next(IDEM_STATE_EXECUTING, event) ? WAY_LIVE : WAY_NONE;
    }
    if (idem_machine_next(state, event) == IDEM_STATE_COUNT) {
        return WAY_NONE;
    }
    return plain_way(event) == WAY_LIVE && !idem_machine_is_live(state) ? WAY_LATE : plain_way(event);
}

/*
 * No row fitted: why not? OK: an earlier sending of this settlement did it. BUSY: try *way; where it is the one that
 * was tried, somebody holds the row's lock. STALE and NOT_FOUND are what they say.
 */
static idem_store_result_e settle_why(idem_pg_call_t *call, idem_settle_t *settle, idem_event_e event, way_e *way)
{
    idem_pg_params_t params;
    PGresult *rows;
    idem_store_result_e result;
    int ours;
    int same;
    int given_up;

    idem_pg_params_begin(&params, call->p);
    idem_pg_add_text(&params, settle->tenant);
    idem_pg_add_uuid(&params, settle->operation);
    idem_pg_add_octets(&params, &settle->response_digest);
    idem_pg_add_int_or_null(&params, settle->response_code);
    result = idem_pg_call_run(call, &idem_pg_settle_why, &params, &rows);
    if (result != IDEM_STORE_OK) {
        return result;
    }
    if (!PQntuples(rows)) {
        PQclear(rows);
        settle->state = IDEM_STATE_NONE;
        return call->lost && event == IDEM_EVENT_REJECT ? IDEM_STORE_OK : IDEM_STORE_NOT_FOUND;
    }
    settle->state = first_state(rows, call->p);
    ours = idem_pg_get_int(rows, 0, 1) == settle->generation;
    same = idem_pg_get_bool(rows, 0, 2);
    given_up = idem_pg_get_bool(rows, 0, 3);
    *way = right_way(settle->state, event, idem_pg_get_bool(rows, 0, 4));
    PQclear(rows);
    if (!ours) {
        return IDEM_STORE_STALE;
    }
    if (given_up) {
        /* by a reject or release, which then is this one; anything else has come too late */
        return *way == WAY_REJECT || *way == WAY_RELEASE ? IDEM_STORE_OK : IDEM_STORE_STALE;
    }
    if (*way == WAY_NONE) {
        return same && settle->state == idem_machine_next(IDEM_STATE_EXECUTING, event) ? IDEM_STORE_OK : IDEM_STORE_STALE;
    }
    return IDEM_STORE_BUSY;
}

/* One statement, and nothing after it. */
static void settle_once(idem_pg_call_t *call, idem_settle_t *settle, idem_event_e event, way_e way)
{
    settle->result = way == WAY_LIVE ? apply(call, settle, event, way) : IDEM_STORE_BUSY;
    if (settle->result == IDEM_STORE_NOT_FOUND || (settle->result == IDEM_STORE_UNAVAILABLE && call->refused)) {
        settle->result = IDEM_STORE_BUSY;
    }
}

static void settle_one(idem_store_t *store, idem_settle_t *settle, apr_time_t deadline, apr_pool_t *p)
{
    idem_event_e event = idem_machine_settlement(settle->outcome);
    way_e way = plain_way(event);
    idem_pg_call_t call;
    int round;

    settle->state = IDEM_STATE_NONE;
    settle->result = IDEM_STORE_UNAVAILABLE;
    if (event == IDEM_EVENT_COUNT) {
        return;
    }
    idem_pg_call_begin(&call, store, deadline, p);
    if (store->once) {
        settle_once(&call, settle, event, way);
    }
    for (round = 0; !store->once && round < MAX_ROUNDS; round++) {
        way_e tried = way;

        settle->result = apply(&call, settle, event, way);
        if (settle->result != IDEM_STORE_NOT_FOUND) {
            break;
        }
        settle->result = settle_why(&call, settle, event, &way);
        if (settle->result != IDEM_STORE_BUSY) {
            break;
        }
        settle->result = call.lost ? IDEM_STORE_AMBIGUOUS : IDEM_STORE_UNAVAILABLE;
        if (way == tried && !idem_pg_call_pause(&call, round)) {
            break;
        }
    }
    idem_pg_call_end(&call);
}

void idem_pgsql_settle(idem_store_t *store, idem_settle_t *const *settles, int n, apr_time_t deadline, apr_pool_t *p)
{
    if (n == 1) {
        settle_one(store, *settles, deadline, p);
    }
    else {
        idem_pg_write_batch(store, NULL, 0, settles, n, deadline, p);
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

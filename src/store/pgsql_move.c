#include "store/pgsql_call.h"

#define ACTOR "httpd"

/* Columns of the answer of every transition; see pgsql_sql.c. */
enum { DONE, DONE_BEFORE, FITS, UNFENCED, PRESENT };

/*
 * One sending of a transition. OK, STALE, BUSY, FENCED, or as idem_pg_call_run. NOT_FOUND: this process was not
 * present, and is now.
 */
static idem_store_result_e move_once(idem_pg_call_t *call, const idem_pg_statement_t *statement,
                                     const idem_pg_params_t *params)
{
    PGresult *rows;
    idem_store_result_e result = idem_pg_call_run(call, statement, params, &rows);

    if (result != IDEM_STORE_OK) {
        return result;
    }
    if (!idem_pg_get_bool(rows, 0, DONE) && !(call->lost && idem_pg_get_bool(rows, 0, DONE_BEFORE))) {
        result = IDEM_STORE_BUSY;
        if (!idem_pg_get_bool(rows, 0, FITS)) {
            result = IDEM_STORE_STALE;
        }
        else if (PQnfields(rows) > UNFENCED && !idem_pg_get_bool(rows, 0, UNFENCED)) {
            result = IDEM_STORE_FENCED;
        }
        else if (PQnfields(rows) > PRESENT && !idem_pg_get_bool(rows, 0, PRESENT)) {
            result = idem_pg_call_heartbeat(call);
            result = result == IDEM_STORE_OK ? IDEM_STORE_NOT_FOUND : result;
        }
    }
    PQclear(rows);
    return result;
}

idem_store_result_e idem_pg_call_transition(idem_store_t *store, const idem_pg_statement_t *statement,
                                            const idem_pg_params_t *params, int wait_for_lock, apr_time_t deadline,
                                            apr_pool_t *p)
{
    idem_pg_call_t call;
    idem_store_result_e result;
    int round = 0;

    idem_pg_call_begin(&call, store, deadline, p);
    idem_pg_call_not_late(&call);
    do {
        result = move_once(&call, statement, params);
    } while ((result == IDEM_STORE_NOT_FOUND || (result == IDEM_STORE_BUSY && wait_for_lock))
             && idem_pg_call_pause(&call, round++));
    idem_pg_call_end(&call);
    if (result == IDEM_STORE_NOT_FOUND || (result == IDEM_STORE_BUSY && wait_for_lock)) {
        result = call.lost ? IDEM_STORE_AMBIGUOUS : IDEM_STORE_UNAVAILABLE;
    }
    return result;
}

static void add_owner(idem_pg_params_t *params, const idem_store_t *store, const idem_reserve_t *wanted)
{
    idem_pg_add_text(params, idem_state_name(wanted->state));
    idem_pg_add_uuid(params, store->owner);
    idem_pg_add_uuid(params, wanted->owner_token);
    idem_pg_add_interval(params, wanted->lease);
    idem_pg_add_interval(params, wanted->max_run);
}

static idem_store_result_e reuse(idem_store_t *store, const idem_record_t *seen, const idem_reserve_t *wanted,
                                 apr_time_t deadline, apr_pool_t *p)
{
    idem_pg_params_t params;

    idem_pg_params_begin(&params, p);
    idem_pg_add_text(&params, seen->scope.tenant);
    idem_pg_add_uuid(&params, seen->operation);
    idem_pg_add_int(&params, seen->generation);
    idem_pg_add_texts(&params, idem_machine_sources(IDEM_EVENT_REUSE));
    add_owner(&params, store, wanted);
    idem_pg_add_text(&params, idem_effect_name(wanted->effect));
    idem_pg_add_int(&params, store->writer_epoch);
    idem_pg_add_int(&params, wanted->alias_version);
    idem_pg_add_text(&params, ACTOR);
    idem_pg_add_uuid(&params, wanted->operation);
    idem_pg_add_text(&params, wanted->contract);
    idem_pg_add_digest(&params, wanted->fingerprint, IDEM_FINGERPRINT_LEN);
    idem_pg_add_present(&params, &wanted->recipe);
    idem_pg_add_present(&params, &wanted->fingerprint_parts);
    idem_pg_add_interval(&params, wanted->retention);
    idem_pg_add_interval(&params, wanted->tombstone);
    idem_pg_add_bool(&params, wanted->reuse_allowed);
    idem_pg_add_long(&params, wanted->body_limit);
    idem_pg_add_interval(&params, wanted->quiet);
    return idem_pg_call_transition(store, &idem_pg_reuse, &params, 0, deadline, p);
}

idem_store_result_e idem_pgsql_take_over(idem_store_t *store, idem_take_over_t *over, apr_time_t deadline,
                                         apr_pool_t *p)
{
    const idem_record_t *seen = over->seen;
    const idem_reserve_t *wanted = over->wanted;
    idem_effect_e stricter = seen->effect > wanted->effect ? seen->effect : wanted->effect;
    idem_pg_params_t params;

    over->generation = seen->generation + 1;
    if (over->reuse) {
        return reuse(store, seen, wanted, deadline, p);
    }
    idem_pg_params_begin(&params, p);
    idem_pg_add_text(&params, seen->scope.tenant);
    idem_pg_add_uuid(&params, seen->operation);
    idem_pg_add_int(&params, seen->generation);
    idem_pg_add_uuid(&params, seen->owner);
    idem_pg_add_texts(&params, idem_machine_sources(IDEM_EVENT_TAKE_OVER));
    add_owner(&params, store, wanted);
    idem_pg_add_text(&params, idem_effect_name(stricter));
    idem_pg_add_int(&params, store->writer_epoch);
    idem_pg_add_int(&params, wanted->alias_version);
    idem_pg_add_text(&params, ACTOR);
    idem_pg_add_interval(&params, wanted->quiet);
    return idem_pg_call_transition(store, &idem_pg_take_over, &params, 0, deadline, p);
}

idem_store_result_e idem_pgsql_dispatch(idem_store_t *store, const char *tenant, const unsigned char *operation,
                                        int generation, idem_state_e to, apr_time_t deadline, apr_pool_t *p)
{
    int proof_only = to != idem_machine_next(IDEM_STATE_RESERVED, IDEM_EVENT_DISPATCH);
    idem_pg_params_t params;

    idem_pg_params_begin(&params, p);
    idem_pg_add_text(&params, tenant);
    idem_pg_add_uuid(&params, operation);
    idem_pg_add_int(&params, generation);
    idem_pg_add_uuid(&params, store->owner);
    idem_pg_add_texts(&params, idem_machine_sources(IDEM_EVENT_DISPATCH));
    idem_pg_add_text(&params, idem_state_name(to));
    idem_pg_add_bool(&params, proof_only);
    idem_pg_add_text(&params, ACTOR);
    return idem_pg_call_transition(store, &idem_pg_dispatch, &params, 1, deadline, p);
}

idem_store_result_e idem_pgsql_mark_unknown(idem_store_t *store, const idem_record_t *seen, const char *actor,
                                            const char *reason, apr_time_t deadline, apr_pool_t *p)
{
    idem_pg_params_t params;

    idem_pg_params_begin(&params, p);
    idem_pg_add_text(&params, seen->scope.tenant);
    idem_pg_add_uuid(&params, seen->operation);
    idem_pg_add_int(&params, seen->generation);
    idem_pg_add_uuid(&params, seen->owner);
    idem_pg_add_texts(&params, idem_machine_sources(IDEM_EVENT_LAPSE));
    idem_pg_add_text(&params, idem_state_name(idem_machine_next(IDEM_STATE_EXECUTING, IDEM_EVENT_LAPSE)));
    idem_pg_add_text(&params, idem_outcome_name(IDEM_OUTCOME_UNKNOWN));
    idem_pg_add_text(&params, actor ? actor : ACTOR);
    idem_pg_add_text(&params, reason);
    return idem_pg_call_transition(store, &idem_pg_mark_unknown, &params, 0, deadline, p);
}

idem_store_result_e idem_pgsql_cancel(idem_store_t *store, const char *tenant, const unsigned char *operation,
                                      int generation, const char *actor, apr_time_t deadline, apr_pool_t *p)
{
    idem_pg_params_t params;

    /* as with a rejection: what an earlier generation may have done must not be forgotten */
    if (!idem_machine_reject_removes(IDEM_STATE_RESERVED, generation, 0)) {
        return IDEM_STORE_STALE;
    }
    idem_pg_params_begin(&params, p);
    idem_pg_add_text(&params, tenant);
    idem_pg_add_uuid(&params, operation);
    idem_pg_add_int(&params, generation);
    idem_pg_add_texts(&params, idem_machine_sources(IDEM_EVENT_CANCEL));
    idem_pg_add_text(&params, idem_state_name(idem_machine_next(IDEM_STATE_RESERVED, IDEM_EVENT_CANCEL)));
    idem_pg_add_text(&params, actor ? actor : ACTOR);
    return idem_pg_call_transition(store, &idem_pg_cancel, &params, 0, deadline, p);
}

idem_store_result_e idem_pgsql_announce(idem_store_t *store, const char *server, const char *route, const char *revision,
                                        const char *sources, int most, const char **before, int *live, apr_time_t deadline, apr_pool_t *p)
{
    idem_pg_params_t params;
    PGresult *rows;
    idem_store_result_e result;

    idem_pg_params_begin(&params, p);
    idem_pg_add_text(&params, server);
    idem_pg_add_text(&params, route);
    idem_pg_add_text(&params, revision);
    idem_pg_add_text(&params, sources);
    idem_pg_add_int(&params, most);
    result = idem_pg_call_once(store, &idem_pg_announce, &params, &rows, deadline, p);
    *before = NULL;
    if (result == IDEM_STORE_OK) {
        if (PQntuples(rows)) {
            *before = idem_pg_get_text(rows, 0, 0, p);
            *live = idem_pg_get_int(rows, 0, 1);
        }
        PQclear(rows);
    }
    return result;
}

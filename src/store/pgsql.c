#include "store/pgsql.h"

#include <string.h>

#include "store/pgsql_call.h"

/* How often a lost race is looked at again; each round needs a record to vanish in between. */
#define MAX_RACES 16

void idem_pg_add_reserve(idem_pg_params_t *params, const idem_store_t *store, const idem_reserve_t *wanted)
{
    idem_pg_add_scope(params, &wanted->scope);
    idem_pg_add_text(params, wanted->contract);
    idem_pg_add_digest(params, wanted->fingerprint, IDEM_FINGERPRINT_LEN);
    idem_pg_add_present(params, &wanted->recipe);
    idem_pg_add_present(params, &wanted->fingerprint_parts);
    idem_pg_add_uuid(params, wanted->operation);
    idem_pg_add_uuid(params, wanted->owner_token);
    idem_pg_add_uuid(params, store->owner);
    idem_pg_add_int(params, store->writer_epoch);
    idem_pg_add_interval(params, wanted->lease);
    idem_pg_add_interval(params, wanted->max_run);
    idem_pg_add_interval(params, wanted->retention);
    idem_pg_add_interval(params, wanted->tombstone);
    idem_pg_add_bool(params, wanted->reuse_allowed);
    idem_pg_add_long(params, wanted->body_limit);
    idem_pg_add_text(params, idem_state_name(wanted->state));
    idem_pg_add_text(params, idem_effect_name(wanted->effect));
    idem_pg_add_int(params, wanted->alias_version);
    idem_pg_add_interval(params, wanted->quiet);
}

int idem_pg_is_own(const idem_reserve_t *wanted, const idem_record_t *record)
{
    return record->generation == 1 && record->state == wanted->state
           && !memcmp(record->owner_token, wanted->owner_token, IDEM_UUID_LEN)
           && !memcmp(record->operation, wanted->operation, IDEM_UUID_LEN);
}

idem_store_result_e idem_pg_found(idem_reserve_t *wanted, idem_record_t *record)
{
    if (idem_pg_is_own(wanted, record)) {
        return IDEM_STORE_OK;
    }
    wanted->found = record;
    return IDEM_STORE_FOUND;
}

/*
 * Neither reserved nor found. OK: the way is free (again), try once more; else the result.
 */
static idem_store_result_e reserve_why(idem_pg_call_t *call, idem_reserve_t *wanted)
{
    idem_pg_params_t params;
    idem_record_t *record;
    PGresult *rows;
    idem_store_result_e result;

    idem_pg_params_begin(&params, call->p);
    idem_pg_add_scope(&params, &wanted->scope);
    idem_pg_add_int(&params, call->store->writer_epoch);
    idem_pg_add_int(&params, wanted->alias_version);
    idem_pg_add_uuid(&params, call->store->owner);
    idem_pg_add_interval(&params, wanted->lease);
    result = idem_pg_call_run(call, &idem_pg_reserve_why, &params, &rows);
    if (result != IDEM_STORE_OK) {
        return result;
    }
    record = idem_pg_get_record(rows, 0, 2, call->p);
    if (record) {
        result = idem_pg_found(wanted, record);
        if (result == IDEM_STORE_OK) {
            wanted->result = IDEM_STORE_OK;
        }
    }
    else if (!idem_pg_get_bool(rows, 0, 0)) {
        result = IDEM_STORE_FENCED;
    }
    else if (!idem_pg_get_bool(rows, 0, 1)) {
        result = idem_pg_call_heartbeat(call);
    }
    PQclear(rows);
    return result;
}

/* Sends the statement once and says what it did; NOT_FOUND: neither reserved nor found. */
static idem_store_result_e reserve_once(idem_pg_call_t *call, idem_reserve_t *wanted)
{
    idem_pg_params_t params;
    idem_record_t *record;
    PGresult *rows;
    idem_store_result_e result;

    if (wanted->older_count) {
        return idem_pg_chain_reserve(call, wanted);
    }
    idem_pg_params_begin(&params, call->p);
    idem_pg_add_reserve(&params, call->store, wanted);
    result = idem_pg_call_run(call, &idem_pg_reserve, &params, &rows);
    if (result != IDEM_STORE_OK) {
        return result;
    }
    if (!idem_pg_get_bool(rows, 0, 0)) {
        record = idem_pg_get_record(rows, 0, 1, wanted->pool ? wanted->pool : call->p);
        result = record ? idem_pg_found(wanted, record) : IDEM_STORE_NOT_FOUND;
    }
    PQclear(rows);
    return result;
}

static void reserve_one(idem_store_t *store, idem_reserve_t *wanted, apr_time_t deadline, apr_pool_t *p)
{
    idem_pg_call_t call;
    int race;

    wanted->found = NULL;
    wanted->maybe_written = 0;
    wanted->found_count = 0;
    if (!wanted->may_write && wanted->older_count) {
        wanted->result = idem_pg_chain_find(store, wanted, deadline, p);
        return;
    }
    if (!wanted->may_write) {
        wanted->result = store->provider->find(store, &wanted->scope, &wanted->found, deadline, p);
        if (wanted->result == IDEM_STORE_OK) {
            wanted->result = IDEM_STORE_FOUND;
        }
        else if (wanted->result == IDEM_STORE_AMBIGUOUS) {
            wanted->result = IDEM_STORE_UNAVAILABLE; /* it only looked: certainly nothing was written */
        }
        return;
    }
    idem_pg_call_begin(&call, store, deadline, p);
    idem_pg_call_not_late(&call);
    for (race = 0; race < MAX_RACES; race++) {
        idem_store_result_e why;

        wanted->result = reserve_once(&call, wanted);
        if (wanted->result != IDEM_STORE_NOT_FOUND) {
            break;
        }
        if (store->once) {
            wanted->result = IDEM_STORE_BUSY;
            break;
        }
        why = reserve_why(&call, wanted);
        if (wanted->result == IDEM_STORE_OK) {
            break;
        }
        if (why != IDEM_STORE_OK) {
            wanted->result = why;
            break;
        }
    }
    idem_pg_call_end(&call);
    if (wanted->result == IDEM_STORE_NOT_FOUND) {
        wanted->result = IDEM_STORE_UNAVAILABLE;
    }
    if (store->once && call.refused && wanted->result == IDEM_STORE_UNAVAILABLE) {
        wanted->result = IDEM_STORE_BUSY;
    }
    if (call.lost && wanted->result == IDEM_STORE_UNAVAILABLE) {
        wanted->result = IDEM_STORE_AMBIGUOUS;
    }
    wanted->maybe_written = call.lost;
}

void idem_pgsql_reserve(idem_store_t *store, idem_reserve_t *const *wanted, int n, apr_time_t deadline, apr_pool_t *p)
{
    if (n == 1) {
        reserve_one(store, *wanted, deadline, p);
    }
    else {
        idem_pg_write_batch(store, wanted, n, NULL, 0, deadline, p);
    }
}

/* Runs a statement that gives one record or none. */
static idem_store_result_e find_one(idem_store_t *store, const idem_pg_statement_t *statement,
                                    const idem_pg_params_t *params, idem_record_t **record, apr_time_t deadline, apr_pool_t *p)
{
    PGresult *rows;
    idem_store_result_e result = idem_pg_call_once(store, statement, params, &rows, deadline, p);

    *record = NULL;
    if (result == IDEM_STORE_OK) {
        *record = PQntuples(rows) ? idem_pg_get_record(rows, 0, 0, p) : NULL;
        result = *record ? IDEM_STORE_OK : IDEM_STORE_NOT_FOUND;
        PQclear(rows);
    }
    return result;
}

static idem_store_result_e find(idem_store_t *store, const idem_scope_t *scope, idem_record_t **record,
                                apr_time_t deadline, apr_pool_t *p)
{
    idem_pg_params_t params;

    idem_pg_params_begin(&params, p);
    idem_pg_add_scope(&params, scope);
    return find_one(store, &idem_pg_find, &params, record, deadline, p);
}

static idem_store_result_e find_operation(idem_store_t *store, const char *tenant, const unsigned char *operation,
                                          idem_record_t **record, apr_time_t deadline, apr_pool_t *p)
{
    idem_pg_params_t params;

    idem_pg_params_begin(&params, p);
    idem_pg_add_uuid(&params, operation);
    idem_pg_add_text(&params, tenant);
    return find_one(store, &idem_pg_find_operation, &params, record, deadline, p);
}

static idem_store_result_e unknown(idem_store_t *store, int most, apr_array_header_t **records, apr_time_t deadline,
                                   apr_pool_t *p)
{
    idem_pg_params_t params;
    PGresult *rows;
    idem_store_result_e result;
    int i;

    idem_pg_params_begin(&params, p);
    idem_pg_add_int(&params, most);
    result = idem_pg_call_once(store, &idem_pg_unknown, &params, &rows, deadline, p);
    *records = apr_array_make(p, 8, sizeof(const idem_record_t *));
    if (result == IDEM_STORE_OK) {
        for (i = 0; i < PQntuples(rows); i++) {
            APR_ARRAY_PUSH(*records, const idem_record_t *) = idem_pg_get_record(rows, i, 0, p);
        }
        PQclear(rows);
    }
    return result;
}

static idem_store_result_e heartbeat(idem_store_t *store, apr_time_t deadline, apr_pool_t *p)
{
    idem_pg_call_t call;
    idem_store_result_e result;

    idem_pg_call_begin(&call, store, deadline, p);
    result = idem_pg_call_heartbeat(&call);
    idem_pg_call_end(&call);
    return result;
}

static idem_store_result_e farewell(idem_store_t *store, apr_time_t deadline, apr_pool_t *p)
{
    idem_pg_params_t params;

    idem_pg_params_begin(&params, p);
    idem_pg_add_uuid(&params, store->owner);
    return idem_pg_call_once(store, &idem_pg_farewell, &params, NULL, deadline, p);
}

const idem_store_provider_t idem_store_pgsql = {
    "pgsql",
    idem_pgsql_reserve,
    idem_pgsql_settle,
    idem_pg_write_batch,
    idem_pgsql_take_over,
    idem_pgsql_dispatch,
    idem_pgsql_mark_unknown,
    idem_pgsql_withdraw,
    idem_pgsql_cancel,
    find,
    find_operation,
    unknown,
    idem_pgsql_overview,
    idem_pgsql_announce,
    idem_pgsql_aliases,
    idem_pgsql_end_aliases,
    idem_pgsql_count,
    idem_pgsql_sweep,
    idem_pgsql_recover,
    idem_pgsql_shadow_count,
    heartbeat,
    farewell,
};

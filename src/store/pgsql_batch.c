#include "store/pgsql_call.h"

/*
 * Many rows in one statement. What that statement alone does not decide comes back as BUSY and is asked for alone:
 * here it would keep the others waiting.
 */

/* Sends the statement with the columns of these rows. */
static idem_store_result_e run_many(idem_pg_call_t *call, const idem_pg_statement_t *statement, const char *types,
                                    const idem_pg_params_t *columns, int n, PGresult **rows)
{
    idem_pg_params_t params;
    idem_store_result_e result;

    idem_pg_params_begin(&params, call->p);
    idem_pg_add_columns(&params, types, columns, n);
    result = idem_pg_call_run(call, statement, &params, rows);
    /* one row may have been at fault for all */
    return result == IDEM_STORE_UNAVAILABLE && call->refused ? IDEM_STORE_BUSY : result;
}

/* columns of idem_pg_reserve_many */
enum { ROW_NUMBER, ROW_FRESH, ROW_FOUND_NUMBER, ROW_RECORD };

void idem_pg_reserve_batch(idem_store_t *store, idem_reserve_t *const *wanted, int n, apr_time_t deadline, apr_pool_t *p)
{
    idem_pg_params_t *columns = apr_palloc(p, (apr_size_t)n * sizeof(*columns));
    idem_store_result_e result;
    idem_pg_call_t call;
    PGresult *rows = NULL;
    int i;

    for (i = 0; i < n; i++) {
        idem_pg_params_begin(&columns[i], p);
        idem_pg_add_reserve(&columns[i], store, wanted[i]);
    }
    idem_pg_call_begin(&call, store, deadline, p);
    idem_pg_call_not_late(&call);
    result = run_many(&call, &idem_pg_reserve_many, idem_pg_reserve.types, columns, n, &rows);
    idem_pg_call_end(&call);
    for (i = 0; i < n; i++) {
        wanted[i]->found = NULL;
        wanted[i]->found_count = 0;
        wanted[i]->maybe_written = call.lost;
        wanted[i]->result = result == IDEM_STORE_OK ? IDEM_STORE_BUSY : result;
    }
    for (i = 0; result == IDEM_STORE_OK && i < PQntuples(rows); i++) {
        int number = idem_pg_get_int(rows, i, ROW_NUMBER) - 1;
        idem_record_t *record;

        if (number < 0 || number >= n) {
            continue;
        }
        if (idem_pg_get_bool(rows, i, ROW_FRESH)) {
            wanted[number]->result = IDEM_STORE_OK;
            continue;
        }
        record = idem_pg_get_record(rows, i, ROW_RECORD, wanted[number]->pool ? wanted[number]->pool : p);
        if (record) {
            wanted[number]->result = idem_pg_found(wanted[number], record);
        }
    }
    PQclear(rows);
}

/* Those of the batch that this event settles. */
static void settle_event(idem_pg_call_t *call, idem_settle_t *const *settles, int n, idem_event_e event,
                         idem_pg_params_t *columns, idem_settle_t **chosen)
{
    idem_store_result_e result;
    PGresult *rows = NULL;
    int count = 0;
    int i;

    for (i = 0; i < n; i++) {
        if (idem_machine_settlement(settles[i]->outcome) == event) {
            idem_pg_params_begin(&columns[count], call->p);
            idem_pg_add_settle(&columns[count], settles[i], event);
            chosen[count++] = settles[i];
        }
    }
    if (!count) {
        return;
    }
    result = run_many(call, &idem_pg_settle_many, idem_pg_settle.types, columns, count, &rows);
    for (i = 0; i < count; i++) {
        chosen[i]->result = result == IDEM_STORE_OK ? IDEM_STORE_BUSY : result;
    }
    for (i = 0; result == IDEM_STORE_OK && i < PQntuples(rows); i++) {
        int number = idem_pg_get_int(rows, i, 0) - 1;

        if (number >= 0 && number < count) {
            chosen[number]->result = IDEM_STORE_OK;
            chosen[number]->state = idem_machine_next(IDEM_STATE_EXECUTING, event);
        }
    }
    PQclear(rows);
}

void idem_pg_settle_batch(idem_store_t *store, idem_settle_t *const *settles, int n, apr_time_t deadline, apr_pool_t *p)
{
    /* the frequent ones; the others are asked for alone */
    static const idem_event_e events[] = {IDEM_EVENT_SUCCEED, IDEM_EVENT_FAIL};
    idem_pg_params_t *columns = apr_palloc(p, (apr_size_t)n * sizeof(*columns));
    idem_settle_t **chosen = apr_palloc(p, (apr_size_t)n * sizeof(*chosen));
    idem_pg_call_t call;
    apr_size_t event;
    int i;

    for (i = 0; i < n; i++) {
        settles[i]->state = IDEM_STATE_NONE;
        settles[i]->result = IDEM_STORE_BUSY;
    }
    idem_pg_call_begin(&call, store, deadline, p);
    for (event = 0; event < sizeof(events) / sizeof(events[0]); event++) {
        settle_event(&call, settles, n, events[event], columns, chosen);
    }
    idem_pg_call_end(&call);
}

#include <string.h>

#include "store/pgsql_call.h"

/*
 * Many rows in one statement. What that statement alone does not decide comes back as BUSY and is asked for alone:
 * here it would keep the others waiting.
 */

/* columns of the answers: of what writes, where a token comes alone; of idem_pg_find_many */
enum { FRESH_TOKEN, SETTLED_NUMBER };
enum { FOUND_NUMBER, FOUND_RECORD };

static void add_reserves(idem_pg_params_t *params, const idem_store_t *store, idem_reserve_t *const *wanted, int n)
{
    idem_pg_params_t *rows = apr_palloc(params->p, (apr_size_t)n * sizeof(*rows));
    int i;

    for (i = 0; i < n; i++) {
        idem_pg_params_begin(&rows[i], params->p);
        idem_pg_add_reserve(&rows[i], store, wanted[i]);
    }
    idem_pg_add_columns(params, idem_pg_reserve.types, idem_pg_reserve_many.types, rows, n);
}

/* One list of states stands for all settlements of a statement. */
static int comes_from(idem_event_e event, const char *const *sources)
{
    const char *const *own = idem_machine_sources(event);

    while (*own && *sources && !strcmp(*own, *sources)) {
        own++;
        sources++;
    }
    return !*own && !*sources;
}

/* Those that go together: into a final state, from the same ones. The others are asked for alone. */
static int choose_settles(idem_settle_t *const *settles, int n, idem_settle_t **chosen)
{
    const char *const *sources = idem_machine_sources(IDEM_EVENT_SUCCEED);
    int count = 0;
    int i;

    for (i = 0; i < n; i++) {
        idem_event_e event = idem_machine_settlement(settles[i]->outcome);

        settles[i]->state = IDEM_STATE_NONE;
        settles[i]->result = IDEM_STORE_BUSY;
        if ((event == IDEM_EVENT_SUCCEED || event == IDEM_EVENT_FAIL) && comes_from(event, sources)) {
            chosen[count++] = settles[i];
        }
    }
    return count;
}

static void add_settles(idem_pg_params_t *params, idem_settle_t *const *settles, int n)
{
    idem_pg_params_t *rows = apr_palloc(params->p, (apr_size_t)n * sizeof(*rows));
    int i;

    for (i = 0; i < n; i++) {
        idem_pg_params_begin(&rows[i], params->p);
        idem_pg_add_settle(&rows[i], settles[i], idem_machine_settlement(settles[i]->outcome));
    }
    idem_pg_add_columns(params, idem_pg_settle.types, idem_pg_settle_many.types, rows, n);
}

/* One sending. The result is that of every row which the answer does not mention. */
static idem_store_result_e run_many(idem_pg_call_t *call, const idem_pg_statement_t *statement,
                                    const idem_pg_params_t *params, PGresult **rows)
{
    idem_store_result_e result = idem_pg_call_run(call, statement, params, rows);

    if (result == IDEM_STORE_OK || (result == IDEM_STORE_UNAVAILABLE && call->refused)) {
        /* refused: one row may have been at fault for all */
        return IDEM_STORE_BUSY;
    }
    return result;
}

static void set_settled(idem_settle_t *const *settles, int n, int number)
{
    if (number >= 1 && number <= n) {
        idem_settle_t *settle = settles[number - 1];

        settle->result = IDEM_STORE_OK;
        settle->state = idem_machine_next(IDEM_STATE_EXECUTING, idem_machine_settlement(settle->outcome));
    }
}

static void set_fresh(idem_reserve_t *const *wanted, int n, const unsigned char *token)
{
    int i;

    for (i = 0; i < n; i++) {
        if (!memcmp(wanted[i]->owner_token, token, IDEM_UUID_LEN)) {
            wanted[i]->result = IDEM_STORE_OK;
        }
    }
}

/* Tells everyone what the answer says of him. */
static void read_written(const PGresult *rows, idem_reserve_t *const *wanted, int n, idem_settle_t *const *settles,
                         int settle_count)
{
    unsigned char token[IDEM_UUID_LEN];
    int row;

    for (row = 0; row < PQntuples(rows); row++) {
        if (PQgetisnull(rows, row, FRESH_TOKEN)) {
            set_settled(settles, settle_count, idem_pg_get_int(rows, row, SETTLED_NUMBER));
        }
        else {
            idem_pg_get_fixed(rows, row, FRESH_TOKEN, token, IDEM_UUID_LEN);
            set_fresh(wanted, n, token);
        }
    }
}

/* Looks up those that were not written, in one statement; who is not found then either stays BUSY. */
static void find_rest(idem_pg_call_t *call, idem_reserve_t *const *wanted, int n)
{
    idem_pg_params_t *rows = apr_palloc(call->p, (apr_size_t)n * sizeof(*rows));
    idem_reserve_t **rest = apr_palloc(call->p, (apr_size_t)n * sizeof(*rest));
    idem_pg_params_t params;
    PGresult *found = NULL;
    int count = 0;
    int i;

    for (i = 0; i < n; i++) {
        if (wanted[i]->result == IDEM_STORE_BUSY) {
            idem_pg_params_begin(&rows[count], call->p);
            idem_pg_add_scope(&rows[count], &wanted[i]->scope);
            rest[count++] = wanted[i];
        }
    }
    if (!count) {
        return;
    }
    idem_pg_params_begin(&params, call->p);
    idem_pg_add_columns(&params, idem_pg_find.types, idem_pg_find_many.types, rows, count);
    if (idem_pg_call_run(call, &idem_pg_find_many, &params, &found) != IDEM_STORE_OK) {
        return;
    }
    for (i = 0; i < PQntuples(found); i++) {
        int number = idem_pg_get_int(found, i, FOUND_NUMBER);
        idem_reserve_t *one = number >= 1 && number <= count ? rest[number - 1] : NULL;
        idem_record_t *record = one ? idem_pg_get_record(found, i, FOUND_RECORD, one->pool ? one->pool : call->p) : NULL;

        if (record) {
            one->result = idem_pg_found(one, record);
        }
    }
    PQclear(found);
}

static void set_reserves(idem_reserve_t *const *wanted, int n, idem_store_result_e result, int maybe_written)
{
    int i;

    for (i = 0; i < n; i++) {
        wanted[i]->found = NULL;
        wanted[i]->found_count = 0;
        wanted[i]->maybe_written = maybe_written;
        wanted[i]->result = result;
    }
}

static const idem_pg_statement_t *statement_for(int reserves, int settles)
{
    if (!settles) {
        return &idem_pg_reserve_many;
    }
    return reserves ? &idem_pg_write_many : &idem_pg_settle_many;
}

void idem_pg_write_batch(idem_store_t *store, idem_reserve_t *const *wanted, int n, idem_settle_t *const *settles,
                         int settle_count, apr_time_t deadline, apr_pool_t *p)
{
    idem_settle_t **chosen = apr_palloc(p, (apr_size_t)(settle_count + 1) * sizeof(*chosen));
    int count = choose_settles(settles, settle_count, chosen);
    idem_store_result_e result;
    idem_pg_params_t params;
    idem_pg_call_t call;
    PGresult *rows = NULL;
    int i;

    idem_pg_call_begin(&call, store, deadline, p);
    if (n) {
        idem_pg_call_not_late(&call);
    }
    if (n && count && idem_pg_call_is_late(&call)) {
        /* a settlement waits for no lock, and an answer that is not kept is lost */
        set_reserves(wanted, n, IDEM_STORE_UNAVAILABLE, 0);
        n = 0;
        idem_pg_call_begin(&call, store, deadline, p);
    }
    if (!n && !count) {
        return;
    }
    idem_pg_params_begin(&params, p);
    if (n) {
        add_reserves(&params, store, wanted, n);
    }
    if (count) {
        add_settles(&params, chosen, count);
    }
    result = run_many(&call, statement_for(n, count), &params, &rows);
    set_reserves(wanted, n, result, call.lost);
    for (i = 0; i < count; i++) {
        chosen[i]->result = result;
    }
    if (rows) {
        read_written(rows, wanted, n, chosen, count);
        find_rest(&call, wanted, n);
    }
    idem_pg_call_end(&call);
    PQclear(rows);
}

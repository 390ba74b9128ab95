/* Reserves that look at more scopes than the one they write, and the aliases that make them do so. */
#include <string.h>

#include <apr_strings.h>

#include "store/pgsql_call.h"

#define MOST_ENDED 8 /* aliases in one statement: writers of records wait for its end */

static const idem_scope_t *scope_number(const idem_reserve_t *wanted, int number)
{
    return number ? &wanted->older[number - 1] : &wanted->scope;
}

/* The scopes, the written one first, each as its parts in which they differ: no part has the octet between them. */
static void add_scopes(idem_pg_params_t *params, const idem_reserve_t *wanted, apr_pool_t *p)
{
    int count = wanted->older_count + 1;
    const char **texts = apr_pcalloc(p, sizeof(*texts) * (apr_size_t)(count + 1));
    int i;

    for (i = 0; i < count; i++) {
        const idem_scope_t *scope = scope_number(wanted, i);

        texts[i] = apr_pstrcat(p, scope->version, "\x1f", scope->tenant, "\x1f", scope->principal, "\x1f", scope->revision, NULL);
    }
    idem_pg_add_texts(params, texts);
}

static int is_scope_of(const idem_record_t *record, const idem_scope_t *scope)
{
    return !strcmp(record->scope.version, scope->version) && !strcmp(record->scope.tenant, scope->tenant) &&
           !strcmp(record->scope.principal, scope->principal) && !strcmp(record->scope.revision, scope->revision);
}

/* Rows of which each has a record from a column on; into the order of the scopes. FOUND or NOT_FOUND. */
static idem_store_result_e take_records(idem_reserve_t *wanted, const PGresult *rows, int column, apr_pool_t *p)
{
    int count = PQntuples(rows);
    idem_record_t **found = apr_pcalloc(p, sizeof(*found) * (apr_size_t)(count + 1));
    int number;
    int i;

    for (i = 0; i < count; i++) {
        found[i] = idem_pg_get_record(rows, i, column, p);
    }
    wanted->all_found = apr_pcalloc(p, sizeof(*found) * (apr_size_t)(count + 1));
    wanted->found_count = 0;
    for (number = 0; number <= wanted->older_count && wanted->found_count < count; number++) {
        for (i = 0; i < count; i++) {
            if (found[i] && is_scope_of(found[i], scope_number(wanted, number))) {
                wanted->all_found[wanted->found_count++] = found[i];
                found[i] = NULL;
            }
        }
    }
    wanted->found = wanted->found_count ? wanted->all_found[0] : NULL;
    return wanted->found ? IDEM_STORE_FOUND : IDEM_STORE_NOT_FOUND;
}

idem_store_result_e idem_pg_chain_reserve(idem_pg_call_t *call, idem_reserve_t *wanted)
{
    idem_pg_params_t params;
    PGresult *rows;
    idem_store_result_e result;

    idem_pg_params_begin(&params, call->p);
    idem_pg_add_reserve(&params, call->store, wanted);
    add_scopes(&params, wanted, call->p);
    result = idem_pg_call_run(call, &idem_pg_reserve_chain, &params, &rows);
    if (result != IDEM_STORE_OK) {
        return result;
    }
    if (!idem_pg_get_bool(rows, 0, 0)) {
        result = idem_pg_get_bool(rows, 0, 1) ? take_records(wanted, rows, 2, call->p) : IDEM_STORE_FENCED;
        if (result == IDEM_STORE_FOUND && idem_pg_is_own(wanted, wanted->found)) {
            result = IDEM_STORE_OK;
        }
    }
    PQclear(rows);
    return result;
}

idem_store_result_e idem_pg_chain_find(idem_store_t *store, idem_reserve_t *wanted, apr_time_t deadline, apr_pool_t *p)
{
    idem_pg_params_t params;
    PGresult *rows;
    idem_store_result_e result;

    idem_pg_params_begin(&params, p);
    add_scopes(&params, wanted, p);
    idem_pg_add_text(&params, wanted->scope.route);
    idem_pg_add_text(&params, wanted->scope.ns);
    idem_pg_add_text(&params, wanted->scope.key);
    idem_pg_add_int(&params, wanted->alias_version);
    result = idem_pg_call_once(store, &idem_pg_find_chain, &params, &rows, deadline, p);
    if (result == IDEM_STORE_OK) {
        result = idem_pg_get_bool(rows, 0, 0) ? take_records(wanted, rows, 1, p) : IDEM_STORE_FENCED;
        PQclear(rows);
    }
    else {
        result = IDEM_STORE_UNAVAILABLE; /* it only looked: certainly nothing was written */
    }
    return result;
}

static idem_store_result_e fill_book(idem_store_t *store, idem_alias_book_t *book, const PGresult *rows, apr_pool_t *p)
{
    int i;

    for (i = 0; i < PQntuples(rows) && !PQgetisnull(rows, i, 3); i++) {
        idem_alias_t alias = {{idem_pg_get_text(rows, i, 3, p), idem_pg_get_text(rows, i, 4, p)},
                              {idem_pg_get_text(rows, i, 5, p), idem_pg_get_text(rows, i, 6, p)}};
        idem_alias_result_e fault = idem_alias_book_add(book, &alias);

        if (fault != IDEM_ALIAS_OK) {
            store->log(store->log_baton, 3, apr_psprintf(p, "the aliases cannot be used, nothing new begins: %s",
                                                         idem_alias_result_text(fault)));
            return IDEM_STORE_STALE;
        }
    }
    return IDEM_STORE_OK;
}

idem_store_result_e idem_pgsql_aliases(idem_store_t *store, idem_alias_book_t *book, int *version, const char **writes,
                                       int *due, apr_time_t deadline, apr_pool_t *p)
{
    idem_pg_params_t known;
    PGresult *rows;
    idem_store_result_e result;

    idem_pg_params_begin(&known, p);
    idem_pg_add_int(&known, *version);
    result = idem_pg_call_once(store, &idem_pg_aliases, &known, &rows, deadline, p);
    if (result == IDEM_STORE_OK) {
        *version = idem_pg_get_int(rows, 0, 0);
        *writes = idem_pg_get_text(rows, 0, 1, p);
        *due = idem_pg_get_bool(rows, 0, 2);
        result = fill_book(store, book, rows, p);
        PQclear(rows);
    }
    return result;
}

idem_store_result_e idem_pgsql_end_aliases(idem_store_t *store, int *ended, apr_time_t deadline, apr_pool_t *p)
{
    idem_pg_params_t params;
    PGresult *rows;
    idem_store_result_e result;

    *ended = 0;
    idem_pg_params_begin(&params, p);
    idem_pg_add_int(&params, MOST_ENDED);
    result = idem_pg_call_once(store, &idem_pg_end_aliases, &params, &rows, deadline, p);
    if (result == IDEM_STORE_OK) {
        *ended = idem_pg_get_int(rows, 0, 0);
        PQclear(rows);
    }
    return result;
}

idem_store_result_e idem_pgsql_count(idem_store_t *store, const char *version, const idem_identity_t *identities, int n,
                                     int most, idem_count_t *counts, apr_time_t deadline, apr_pool_t *p)
{
    const char **tenants = apr_pcalloc(p, sizeof(const char *) * (apr_size_t)(n + 1));
    const char **principals = apr_pcalloc(p, sizeof(const char *) * (apr_size_t)(n + 1));
    idem_pg_params_t params;
    PGresult *rows;
    idem_store_result_e result;
    int i;

    for (i = 0; i < n; i++) {
        tenants[i] = identities[i].tenant;
        principals[i] = identities[i].principal;
    }
    idem_pg_params_begin(&params, p);
    idem_pg_add_texts(&params, tenants);
    idem_pg_add_texts(&params, principals);
    idem_pg_add_text(&params, version);
    idem_pg_add_long(&params, most);
    result = idem_pg_call_once(store, &idem_pg_count, &params, &rows, deadline, p);
    if (result == IDEM_STORE_OK) {
        for (i = 0; i < n && i < PQntuples(rows); i++) {
            counts[i].live = idem_pg_get_int(rows, i, 0);
            counts[i].inflight = idem_pg_get_int(rows, i, 1);
        }
        PQclear(rows);
    }
    return result;
}

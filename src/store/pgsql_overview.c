/* What the status page shows of the registry, in time that does not grow with it. CONTRACT section 10. */
#include "store/pgsql_call.h"

#include <string.h>

/*
 * $1 most. Counts are ranges of the sweep's index, read to a bound; how many records there are is what the server
 * believes. The records of unknown outcome are found first, by the index alone: a plan that went for the order of
 * operation ids would read all of them to find a handful.
 */
static const idem_pg_statement_t overview_statement = {
    "idem_overview", "i",
    "SELECT c.writer_epoch,"
    " (SELECT count(*)::int FROM (SELECT 1 FROM idempotency_records r WHERE r.sweep_at = " IDEM_SQL_SWEEP_UNKNOWN
    " LIMIT $1) AS bounded),"
    " (SELECT count(*)::int FROM (SELECT 1 FROM idempotency_records r WHERE r.sweep_at > " IDEM_SQL_SWEEP_UNKNOWN
    " AND r.sweep_at <= now() ORDER BY r.sweep_at LIMIT $1) AS bounded),"
    " coalesce((SELECT now() - r.sweep_at FROM idempotency_records r WHERE r.sweep_at > " IDEM_SQL_SWEEP_UNKNOWN
    " AND r.sweep_at <= now() ORDER BY r.sweep_at LIMIT 1), '0'),"
    " (SELECT least(greatest(k.reltuples, 0), 2e9)::int FROM pg_catalog.pg_class k WHERE k.oid = 'idempotency_records'::regclass)"
    " FROM idempotency_control c WHERE c.the_only_row",
    1};

idem_store_result_e idem_pgsql_overview(idem_store_t *store, idem_overview_t *overview, apr_time_t deadline, apr_pool_t *p)
{
    idem_pg_params_t params;
    PGresult *rows;
    idem_store_result_e result;

    memset(overview, 0, sizeof(*overview));
    idem_pg_params_begin(&params, p);
    idem_pg_add_int(&params, IDEM_OVERVIEW_MOST);
    result = idem_pg_call_once(store, &overview_statement, &params, &rows, deadline, p);
    if (result == IDEM_STORE_OK) {
        if (PQntuples(rows)) {
            overview->writer_epoch = idem_pg_get_int(rows, 0, 0);
            overview->unknown = idem_pg_get_int(rows, 0, 1);
            overview->due = idem_pg_get_int(rows, 0, 2);
            overview->behind = idem_pg_get_interval(rows, 0, 3);
            overview->records = idem_pg_get_int(rows, 0, 4);
        }
        PQclear(rows);
    }
    return result;
}

/* The counts of IdempotencyMode Shadow. CONTRACT section 8. */
#include "store/pgsql_call.h"

static const idem_pg_statement_t count_statement = {
    "idem_shadow_count", "tttl",
    "INSERT INTO idempotency_shadow AS s (route, hour, kind, groups, count)"
    " SELECT $1, date_trunc('hour', now()), $2, $3, $4 WHERE " IDEM_SQL_DURABLE
    " ON CONFLICT (route, hour, kind, groups) DO UPDATE SET count = s.count + excluded.count",
    0};

idem_store_result_e idem_pgsql_shadow_count(idem_store_t *store, const char *route, const char *kind, const char *groups,
                                            apr_int64_t count, apr_time_t deadline, apr_pool_t *p)
{
    idem_pg_params_t params;

    idem_pg_params_begin(&params, p);
    idem_pg_add_text(&params, route);
    idem_pg_add_text(&params, kind);
    idem_pg_add_text(&params, groups);
    idem_pg_add_long(&params, count);
    return idem_pg_call_once(store, &count_statement, &params, NULL, deadline, p);
}

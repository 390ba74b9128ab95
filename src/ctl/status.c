/* idempotencyctl status: what the registry is and holds. CONTRACT section 10. */
#include <stdio.h>

#include <apr_strings.h>

#include "ctl/ctl.h"

/* Up to so many records are counted, more are estimated from a sample of about as many. */
#define COUNTED "200000"

/* No index knows the state (a settlement would have to keep it), so counting reads the table; but what nobody knows is
 * found by an index, and is never estimated. Columns: state, records, whether that is an estimate. */
static const char states_sql[] =
    "WITH size AS (SELECT greatest(reltuples, 0)::bigint AS rows FROM pg_class WHERE oid = 'idempotency_records'::regclass)"
    " SELECT status, count(*), false FROM idempotency_records WHERE (SELECT rows FROM size) <= " COUNTED
    " AND sweep_at > '-infinity' GROUP BY status"
    " UNION ALL SELECT status, count(*) * (SELECT rows FROM size) / " COUNTED ", true FROM idempotency_records"
    " TABLESAMPLE SYSTEM ((SELECT least(100, 100.0 * " COUNTED " / greatest(rows, 1)) FROM size))"
    " WHERE (SELECT rows FROM size) > " COUNTED " AND sweep_at > '-infinity' GROUP BY status"
    " UNION ALL SELECT status, count(*), false FROM idempotency_records WHERE sweep_at = '-infinity' GROUP BY status"
    " ORDER BY 1";

static const char control_sql[] =
    "SELECT schema_version, writer_epoch, alias_version, scope_version, (SELECT count(*) FROM idempotency_owners)"
    " FROM idempotency_control";

static void print_json(idem_ctl_t *ctl, const PGresult *control, const PGresult *states)
{
    int estimated = 0;
    int i;

    printf("{\"schema_version\": %s, \"writer_epoch\": %s, \"alias_version\": %s, \"scope_version\": %s, \"owners\": %s, "
           "\"records\": {",
           PQgetvalue(control, 0, 0), PQgetvalue(control, 0, 1), PQgetvalue(control, 0, 2),
           idem_ctl_json(ctl->p, PQgetvalue(control, 0, 3)), PQgetvalue(control, 0, 4));
    for (i = 0; i < PQntuples(states); i++) {
        printf("%s\"%s\": %s", i ? ", " : "", PQgetvalue(states, i, 0), PQgetvalue(states, i, 1));
        estimated |= *PQgetvalue(states, i, 2) == 't';
    }
    printf("}, \"estimated\": %s}\n", estimated ? "true" : "false");
}

static void print_text(const PGresult *control, const PGresult *states)
{
    int i;

    printf("schema version  %s\nwriter epoch    %s\nalias version   %s\nscope version   %s\nowners          %s\n",
           PQgetvalue(control, 0, 0), PQgetvalue(control, 0, 1), PQgetvalue(control, 0, 2), PQgetvalue(control, 0, 3),
           PQgetvalue(control, 0, 4));
    for (i = 0; i < PQntuples(states); i++) {
        printf("%-15s %s%s\n", PQgetvalue(states, i, 0), *PQgetvalue(states, i, 2) == 't' ? "about " : "",
               PQgetvalue(states, i, 1));
    }
}

static idem_ctl_exit_e run(idem_ctl_t *ctl, int argc, const char *const *argv)
{
    const idem_ctl_option_t options[] = {{NULL, NULL, NULL}};
    idem_ctl_exit_e status;
    PGresult *control;
    PGresult *states;

    if (idem_ctl_options(argc, argv, options, NULL, 0) < 0) {
        return IDEM_CTL_USAGE;
    }
    status = idem_ctl_connect(ctl);
    if (status != IDEM_CTL_DONE) {
        return status;
    }
    control = idem_ctl_query(ctl, control_sql, 0, NULL);
    states = control ? idem_ctl_query(ctl, states_sql, 0, NULL) : NULL;
    status = states && PQntuples(control) == 1 ? IDEM_CTL_DONE : IDEM_CTL_STORE;
    if (status == IDEM_CTL_DONE && ctl->json) {
        print_json(ctl, control, states);
    }
    else if (status == IDEM_CTL_DONE) {
        print_text(control, states);
    }
    PQclear(control);
    PQclear(states);
    return status;
}

const idem_ctl_command_t idem_ctl_status = {"status", "", "shows versions, owners, and how many records are in which state",
                                            run};

/* idempotencyctl status: what the registry is and holds. CONTRACT section 10. */
#include <stdio.h>

#include "ctl/ctl.h"

static idem_ctl_exit_e run(idem_ctl_t *ctl, int argc, const char *const *argv)
{
    const idem_ctl_option_t options[] = {{NULL, NULL, NULL}};
    idem_ctl_exit_e status;
    PGresult *control;
    PGresult *states;
    int i;

    if (idem_ctl_options(argc, argv, options, NULL, 0) < 0) {
        return IDEM_CTL_USAGE;
    }
    status = idem_ctl_connect(ctl);
    if (status != IDEM_CTL_DONE) {
        return status;
    }
    control = idem_ctl_query(ctl, "SELECT schema_version, writer_epoch, alias_version, scope_version,"
                                  " (SELECT count(*) FROM idempotency_owners) FROM idempotency_control", 0, NULL);
    states = control ? idem_ctl_query(ctl, "SELECT status, count(*) FROM idempotency_records GROUP BY status ORDER BY status",
                                      0, NULL)
                     : NULL;
    if (!states || PQntuples(control) != 1) {
        PQclear(control);
        PQclear(states);
        return IDEM_CTL_STORE;
    }
    printf(ctl->json ? "{\"schema_version\": %s, \"writer_epoch\": %s, \"alias_version\": %s, \"scope_version\": %s, "
                       "\"owners\": %s, \"records\": {"
                     : "schema version  %s\nwriter epoch    %s\nalias version   %s\nscope version   %s\nowners          %s\n",
           PQgetvalue(control, 0, 0), PQgetvalue(control, 0, 1), PQgetvalue(control, 0, 2),
           ctl->json ? idem_ctl_json(ctl->p, PQgetvalue(control, 0, 3)) : PQgetvalue(control, 0, 3),
           PQgetvalue(control, 0, 4));
    for (i = 0; i < PQntuples(states); i++) {
        printf(ctl->json ? "%s\"%s\": %s" : "%s%-15s %s\n", ctl->json && i ? ", " : "", PQgetvalue(states, i, 0),
               PQgetvalue(states, i, 1));
    }
    if (ctl->json) {
        printf("}}\n");
    }
    PQclear(control);
    PQclear(states);
    return IDEM_CTL_DONE;
}

const idem_ctl_command_t idem_ctl_status = {"status", "", "shows versions, owners, and how many records are in which state",
                                            run};

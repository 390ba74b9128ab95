/* idempotencyctl status: what the registry is and holds. CONTRACT section 10. */
#include <stdio.h>

#include <apr_strings.h>

#include "ctl/ctl.h"
#include "store/admin.h"

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
    control = idem_ctl_query(ctl, idem_admin_status, 0, NULL);
    states = control ? idem_ctl_query(ctl, idem_admin_states, 0, NULL) : NULL;
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

/* idempotencyctl scope-version: what tenants and principals are made of from now on. CONTRACT section 2. */
#include <stdio.h>
#include <string.h>

#include "core/scope.h"
#include "ctl/ctl.h"
#include "store/admin_alias.h"

static idem_ctl_exit_e show(idem_ctl_t *ctl)
{
    PGresult *rows = idem_ctl_query(ctl, idem_admin_scope_version, 0, NULL);

    if (!rows) {
        return IDEM_CTL_STORE;
    }
    printf(ctl->json ? "{\"scope_version\": %s}\n" : "%s\n",
           ctl->json ? idem_ctl_json(ctl->p, PQgetvalue(rows, 0, 0)) : PQgetvalue(rows, 0, 0));
    PQclear(rows);
    return IDEM_CTL_DONE;
}

/*
 * The alias version goes on as well: every server that has not seen the new scope version is refused its next reserve,
 * and looks.
 */
static idem_ctl_exit_e set(idem_ctl_t *ctl, const char *version)
{
    const char *values[] = {version};
    PGresult *result;

    if (!idem_ctl_execute(ctl, idem_admin_alias_begin)
        || !idem_ctl_lock_records(ctl)) {
        return IDEM_CTL_STORE;
    }
    result = idem_ctl_query(ctl, idem_admin_scope_version_set, 1, values);
    PQclear(result);
    if (!result || !idem_ctl_execute(ctl, "COMMIT")) {
        return IDEM_CTL_STORE;
    }
    return show(ctl);
}

static idem_ctl_exit_e run(idem_ctl_t *ctl, int argc, const char *const *argv)
{
    const idem_ctl_option_t options[] = {{NULL, NULL, NULL}};
    const char *version = NULL;
    idem_ctl_exit_e status;

    if (idem_ctl_options(argc, argv, options, &version, 1) < 0) {
        return IDEM_CTL_USAGE;
    }
    if (version && !idem_scope_version_number(version)) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "scope-version: v1, v2 and so on");
    }
    status = idem_ctl_connect(ctl);
    if (status != IDEM_CTL_DONE) {
        return status;
    }
    return version ? set(ctl, version) : show(ctl);
}

const idem_ctl_command_t idem_ctl_scope_version = {
    "scope-version", "[VERSION]",
    "shows, or changes at once for all servers, the scope version that new records are written in", run};

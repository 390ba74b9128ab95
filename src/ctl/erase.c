/* idempotencyctl erase: everything that the registry has of a tenant. CONTRACT section 10. */
#include <stdio.h>
#include <string.h>

#include <apr_strings.h>

#include "ctl/operations.h"
#include "ctl/store.h"
#include "store/admin_tenant.h"
#include "store/journal.h"

/* Names what is not final. Their number, -1 after a line on stderr. */
static int show_unfinished(idem_ctl_t *ctl, const char *tenant)
{
    const char *values[] = {tenant};
    PGresult *rows = idem_ctl_query(ctl, idem_admin_tenant_unfinished, 1, values);
    int count = rows ? PQntuples(rows) : -1;
    int i;

    for (i = 0; i < count; i++) {
        fprintf(stderr, "%s %s\n", PQgetvalue(rows, i, 0), PQgetvalue(rows, i, 1));
    }
    PQclear(rows);
    return count;
}

/* Records that stay, at most 100000 counted; -1 after a line on stderr. */
static long count_left(idem_ctl_t *ctl, const char *tenant)
{
    const char *values[] = {tenant};
    PGresult *row = idem_ctl_query(ctl, idem_admin_tenant_left, 1, values);
    long count = row ? (long)apr_atoi64(PQgetvalue(row, 0, 0)) : -1;

    PQclear(row);
    return count;
}

/* All batches of one scope version. The number of records, -1 after a line on stderr. */
static long erase_version(idem_ctl_t *ctl, const char *tenant, int now, const char *version)
{
    const char *values[] = {tenant, now ? "true" : "false", version};
    long total = 0;
    long some = 1;

    while (some > 0) {
        PGresult *row = idem_ctl_query(ctl, idem_admin_tenant_erase, 3, values);

        if (!row) {
            return -1;
        }
        some = (long)apr_atoi64(PQgetvalue(row, 0, 0));
        total += some;
        PQclear(row);
        idem_ctl_progress(ctl, total, 0);
    }
    return total;
}

/* Events of operations whose records the sweep or a rejection has removed before, and their kind. -1 as above. */
static long erase_rest(idem_ctl_t *ctl, const char *tenant)
{
    const char *values[] = {tenant};
    long total = 0;
    int i;

    for (i = 0; idem_admin_tenant_rest[i]; i++) {
        long some = 1;

        while (some > 0) {
            PGresult *row = idem_ctl_query(ctl, idem_admin_tenant_rest[i], 1, values);

            if (!row) {
                return -1;
            }
            some = (long)apr_atoi64(PQgetvalue(row, 0, 0));
            total += some;
            PQclear(row);
        }
    }
    return total;
}

/* The tenant's entries in a server's journal. DONE, or after a line on stderr REFUSED or STORE. */
static idem_ctl_exit_e erase_journal(idem_ctl_t *ctl, const char *tenant, const char *dir, idem_journal_erased_t *erased)
{
    idem_store_t *store = idem_ctl_store(ctl);
    const char *why;

    if (!store) {
        return IDEM_CTL_STORE;
    }
    return idem_journal_erase(dir, store, tenant, erased, ctl->p, &why)
               ? IDEM_CTL_DONE
               : idem_ctl_fail(IDEM_CTL_REFUSED, "--journal %s: %s", dir, why);
}

static idem_ctl_exit_e erase(idem_ctl_t *ctl, const char *tenant, int now, const char *journal)
{
    idem_journal_erased_t erased = {0, 0};
    idem_ctl_exit_e status;
    PGresult *rows = NULL;
    long records = 0;
    long rest;
    long left;
    int i;

    /* named before they go */
    if (show_unfinished(ctl, tenant) >= 0) {
        rows = idem_ctl_query(ctl, idem_admin_scope_versions, 0, NULL);
    }
    if (!rows) {
        return IDEM_CTL_STORE;
    }
    for (i = 0; i < PQntuples(rows) && records >= 0; i++) {
        long some = erase_version(ctl, tenant, now, PQgetvalue(rows, i, 0));

        records = some < 0 ? -1 : records + some;
    }
    PQclear(rows);
    rest = records < 0 ? -1 : erase_rest(ctl, tenant);
    left = rest < 0 ? -1 : count_left(ctl, tenant);
    if (left < 0) {
        return IDEM_CTL_STORE;
    }
    status = journal ? erase_journal(ctl, tenant, journal, &erased) : IDEM_CTL_DONE;
    printf(ctl->json ? "{\"records\": %ld, \"other_rows\": %ld, \"left\": %ld, \"journal\": %d, \"unreadable\": %d}\n"
                     : "%ld records and %ld rows without a record are gone, %ld records stay; %d entries of the journal are "
                       "gone, %d files of it cannot be read\n",
           records, rest, left, erased.removed, erased.unreadable);
    if (status != IDEM_CTL_DONE) {
        return status;
    }
    if (erased.unreadable) {
        idem_ctl_fail(IDEM_CTL_REFUSED, "what cannot be read in %s may be of this tenant: look at it", journal);
    }
    return !left ? (erased.unreadable ? IDEM_CTL_REFUSED : IDEM_CTL_DONE)
                 : idem_ctl_fail(IDEM_CTL_REFUSED, now ? "operations that are running stay: say it again when they have ended"
                                                       : "what is not final or still replayed stays; --now takes it, too");
}

static idem_ctl_exit_e run(idem_ctl_t *ctl, int argc, const char *const *argv)
{
    const char *tenant = NULL;
    const char *journal = NULL;
    int now = 0;
    const idem_ctl_option_t options[] = {{"tenant", &tenant, NULL}, {"now", NULL, &now}, {"journal", &journal, NULL}, {NULL, NULL, NULL}};
    idem_ctl_exit_e status;

    if (idem_ctl_options(argc, argv, options, NULL, 0) < 0) {
        return IDEM_CTL_USAGE;
    }
    if (!tenant) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "erase %s", idem_ctl_erase.usage);
    }
    status = idem_ctl_check_identity(ctl, "tenant", tenant);
    if (status == IDEM_CTL_DONE) {
        status = idem_ctl_connect(ctl);
    }
    return status == IDEM_CTL_DONE ? erase(ctl, tenant, now, journal) : status;
}

const idem_ctl_command_t idem_ctl_erase = {
    "erase", "--tenant T [--now] [--journal DIR]",
    "removes a tenant's records past their retention, and what else names them; --now: every record that is not at work,"
    " so that a retry would run again; --journal: also what this server's IdempotencyJournal has of them",
    run};

/* idempotencyctl verify: looks for records that cannot be. CONTRACT sections 4 and 7. */
#include <stdio.h>
#include <stdlib.h>

#include <apr_strings.h>

#include "ctl/operations.h"
#include "store/admin_verify.h"

#define BATCH "5000"

/* Every transition that an event may tell of, as an array of PostgreSQL. */
static const char *transitions(apr_pool_t *p)
{
    const char *array = "";
    int from;
    int to;

    for (from = 0; from < IDEM_STATE_COUNT; from++) {
        for (to = 0; to < IDEM_STATE_COUNT; to++) {
            if (idem_machine_may_be_told((idem_state_e)from, (idem_state_e)to)) {
                array = apr_pstrcat(p, array, *array ? "," : "", idem_state_name((idem_state_e)from), ">",
                                    idem_state_name((idem_state_e)to), NULL);
            }
        }
    }
    return apr_pstrcat(p, "{", array, "}", NULL);
}

static void say(idem_ctl_t *ctl, const char *operation, const char *fault, int *faults)
{
    if (ctl->json) {
        printf("%s{\"operation\": \"%s\", \"fault\": %s}", *faults ? ", " : "", operation, idem_ctl_json(ctl->p, fault));
    }
    else {
        printf("%s  %s\n", operation, idem_ctl_printable(ctl->p, fault));
    }
    ++*faults;
}

/* All records, batch by batch. 1, or 0 where the store failed. */
static int walk(idem_ctl_t *ctl, int *faults, apr_int64_t *seen)
{
    const char *values[7] = {"00000000-0000-0000-0000-000000000000", BATCH, idem_ctl_states(ctl->p, idem_machine_is_final),
                             idem_ctl_states(ctl->p, idem_machine_is_live), idem_ctl_states(ctl->p, idem_machine_is_doubtful),
                             idem_ctl_states(ctl->p, idem_machine_is_tombstone), transitions(ctl->p)};
    int read;

    do {
        PGresult *rows = idem_ctl_query(ctl, idem_admin_verify, 7, values);
        int i;

        if (!rows) {
            return 0;
        }
        read = atoi(PQgetvalue(rows, 0, 0));
        if (read) {
            values[0] = apr_pstrdup(ctl->p, PQgetvalue(rows, 0, 1));
        }
        for (i = 0; i < PQntuples(rows); i++) {
            if (!PQgetisnull(rows, i, 2)) {
                say(ctl, PQgetvalue(rows, i, 2), PQgetvalue(rows, i, 3), faults);
            }
        }
        PQclear(rows);
        *seen += read;
        idem_ctl_progress(ctl, *seen, 0);
    } while (read == atoi(BATCH));
    return 1;
}

static int list(idem_ctl_t *ctl, const char *sql, int count, const char *const *values, int *faults)
{
    PGresult *rows = idem_ctl_query(ctl, sql, count, values);
    int i;

    for (i = 0; rows && i < PQntuples(rows); i++) {
        say(ctl, PQgetvalue(rows, i, 0), PQgetvalue(rows, i, 1), faults);
    }
    PQclear(rows);
    return rows != NULL;
}

static idem_ctl_exit_e run(idem_ctl_t *ctl, int argc, const char *const *argv)
{
    const char *restored[2] = {NULL, NULL};
    const idem_ctl_option_t options[] = {{"after-restore", &restored[0], NULL}, {NULL, NULL, NULL}};
    idem_ctl_exit_e status;
    apr_int64_t seen = 0;
    int faults = 0;
    int whole;

    if (idem_ctl_options(argc, argv, options, NULL, 0) < 0) {
        return IDEM_CTL_USAGE;
    }
    status = idem_ctl_connect(ctl);
    if (status != IDEM_CTL_DONE) {
        return status;
    }
    restored[1] = idem_ctl_states(ctl->p, idem_machine_is_live);
    printf(ctl->json ? "[" : "");
    whole = (!restored[0] || list(ctl, idem_admin_verify_restored, 2, restored, &faults)) &&
            list(ctl, idem_admin_verify_aliases, 0, NULL, &faults) && walk(ctl, &faults, &seen);
    printf(ctl->json ? "]\n" : "");
    if (!whole) {
        return IDEM_CTL_STORE;
    }
    if (faults) {
        return idem_ctl_fail(IDEM_CTL_REFUSED, "%" APR_INT64_T_FMT " records, %d faults", seen, faults);
    }
    if (!ctl->json) {
        printf("%" APR_INT64_T_FMT " records, no fault\n", seen);
    }
    return IDEM_CTL_DONE;
}

const idem_ctl_command_t idem_ctl_verify = {
    "verify", "[--after-restore TIME]", "looks for records that cannot be; and for what a backup has cut off", run};

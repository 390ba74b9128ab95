/* idempotencyctl shadow-report: what Enforce would have answered on routes in IdempotencyMode Shadow. CONTRACT section 8. */
#include <stdio.h>
#include <stdlib.h>

#include "ctl/operations.h"
#include "store/admin.h"

static const char *const columns[] = {
    "route", "requests", "keyed", "would_execute", "would_replay", "would_409_in_progress", "would_409_outcome_unknown",
    "would_422", "would_410", "key_missing", "key_malformed", "identity_missing", "payload_rejected", "payload_too_large",
    "not_known", "would_422_differing"};

enum { ROUTE, REQUESTS, KEYED, DIFFERING = 15 };

static const char *const sentences[] = {
    NULL, NULL, NULL, "would run", "would be replayed", "would be 409 in-progress", "would be 409 outcome-unknown",
    "would be 422 key-reused", "would be 410 key-expired", "would be 400: no key", "would be 400: not a key",
    "would be 403: no identity", "would be 400: a body that cannot be read", "would be 413: a body over the limit",
    "cannot be told: body not read, queue full, registry away, or writer fenced"};

static void print_route(idem_ctl_t *ctl, PGresult *rows, int row)
{
    const char *requests = PQgetvalue(rows, row, REQUESTS);
    int i;

    printf("%s\n  %10s requests, %s with a key (%.1f %%)\n", idem_ctl_printable(ctl->p, PQgetvalue(rows, row, ROUTE)), requests,
           PQgetvalue(rows, row, KEYED), 100.0 * atof(PQgetvalue(rows, row, KEYED)) / (atof(requests) > 0 ? atof(requests) : 1));
    for (i = KEYED + 1; i < DIFFERING; i++) {
        if (atof(PQgetvalue(rows, row, i)) > 0) {
            printf("  %10s %s\n", PQgetvalue(rows, row, i), sentences[i]);
        }
    }
    if (*PQgetvalue(rows, row, DIFFERING)) {
        printf("             where they differ from the first: %s\n", idem_ctl_printable(ctl->p, PQgetvalue(rows, row, DIFFERING)));
    }
}

static idem_ctl_exit_e run(idem_ctl_t *ctl, int argc, const char *const *argv)
{
    const char *since = NULL;
    const idem_ctl_option_t options[] = {{"since", &since, NULL}, {NULL, NULL, NULL}};
    idem_ctl_exit_e status;
    PGresult *rows;
    int row;

    if (idem_ctl_options(argc, argv, options, NULL, 0) < 0) {
        return IDEM_CTL_USAGE;
    }
    status = idem_ctl_connect(ctl);
    if (status != IDEM_CTL_DONE) {
        return status;
    }
    rows = idem_ctl_query(ctl, idem_admin_shadow, 1, &since);
    if (!rows) {
        return IDEM_CTL_STORE;
    }
    if (ctl->json) {
        idem_ctl_print_rows(ctl, rows, columns);
    }
    for (row = 0; !ctl->json && row < PQntuples(rows); row++) {
        print_route(ctl, rows, row);
    }
    PQclear(rows);
    return IDEM_CTL_DONE;
}

const idem_ctl_command_t idem_ctl_shadow = {
    "shadow-report", "[--since TIME]", "what would have been answered on routes in IdempotencyMode Shadow, by route", run};

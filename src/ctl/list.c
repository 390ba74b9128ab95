/* idempotencyctl list and show: which operations there are, and the story of one. CONTRACT section 10. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <apr_cstr.h>
#include <apr_strings.h>

#include "ctl/operations.h"
#include "store/admin.h"

static const char *const list_columns[] = {"operation", "state", "generation", "tenant", "principal", "route",
                                           "revision",  "key",   "status",     "created", "settled",  "lapsed"};

static idem_ctl_exit_e list(idem_ctl_t *ctl, int argc, const char *const *argv)
{
    const char *values[7] = {NULL, NULL, NULL, NULL, NULL, NULL, NULL};
    const idem_ctl_option_t options[] = {{"state", &values[0], NULL}, {"tenant", &values[1], NULL},
                                         {"principal", &values[2], NULL}, {"key", &values[3], NULL},
                                         {"route", &values[4], NULL}, {"limit", &values[5], NULL}, {NULL, NULL, NULL}};
    idem_ctl_exit_e status;
    PGresult *rows;
    int most;

    if (idem_ctl_options(argc, argv, options, NULL, 0) < 0) {
        return IDEM_CTL_USAGE;
    }
    if (values[0] && !idem_machine_is_record(idem_state_parse(values[0]))) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "--state takes RESERVED, EXECUTING, SUCCEEDED, FAILED_FINAL, UNKNOWN or EXPIRED");
    }
    values[6] = values[0] && idem_machine_is_doubtful(idem_state_parse(values[0])) ? "t" : "f";
    values[0] = values[0] ? idem_state_name(idem_state_parse(values[0])) : NULL;
    values[5] = values[5] ? values[5] : "100";
    most = atoi(values[5]);
    if (most < 1) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "--limit takes a number from 1");
    }
    status = idem_ctl_connect(ctl);
    if (status != IDEM_CTL_DONE) {
        return status;
    }
    rows = idem_ctl_query(ctl, values[1] && values[2] ? idem_admin_list_principal : values[1] ? idem_admin_list_tenant : idem_admin_list,
                          7, values);
    if (!rows) {
        return IDEM_CTL_STORE;
    }
    idem_ctl_print_rows(ctl, rows, list_columns);
    if (PQntuples(rows) == most) {
        fprintf(stderr, "idempotencyctl: the newest %d; --limit for more\n", most);
    }
    PQclear(rows);
    return IDEM_CTL_DONE;
}

static const char *const show_columns[] = {
    "operation", "state", "outcome", "generation", "effect_mode", "scope_version", "tenant", "principal", "route",
    "revision", "namespace", "key", "created", "owned", "settled", "expires", "status", "body_octets", "owner", "owner_host",
    "owner_pid", "owner_seen", "lapsed", "attempts", "attempts_open", "writer_epoch"};
static const char *const attempt_columns[] = {"effect", "provider", "generation", "downstream_key", "replayable",
                                              "handle", "outcome", "begun", "ended"};
static const char *const event_columns[] = {"at", "generation", "from", "to", "actor", "reason"};

static void print_record(idem_ctl_t *ctl, PGresult *rows)
{
    int i;

    for (i = 0; i < PQnfields(rows); i++) {
        const char *value = PQgetvalue(rows, 0, i);

        if (ctl->json) {
            printf("%s\"%s\": %s", i ? ", " : "", show_columns[i], idem_ctl_json_value(ctl, rows, 0, i));
        }
        else if (*value) {
            printf("%-14s %s\n", show_columns[i], idem_ctl_printable(ctl->p, value));
        }
    }
    printf(ctl->json ? ", \"downstream_key\": \"%s\"" : "downstream_key %s\n",
           idem_ctl_downstream(ctl->p, PQgetvalue(rows, 0, 0)));
}

static void print_part(idem_ctl_t *ctl, const char *name, PGresult *rows, const char *const *columns)
{
    if (ctl->json) {
        printf(", \"%s\": ", name);
    }
    else if (PQntuples(rows)) {
        printf("\n%s\n", name);
    }
    idem_ctl_print_rows(ctl, rows, columns);
}

static idem_ctl_exit_e show(idem_ctl_t *ctl, int argc, const char *const *argv)
{
    const idem_ctl_option_t options[] = {{NULL, NULL, NULL}};
    const char *operation = NULL;
    idem_ctl_exit_e status;
    PGresult *record;
    PGresult *attempts = NULL;
    PGresult *events = NULL;

    if (idem_ctl_options(argc, argv, options, &operation, 1) < 0 || !idem_ctl_is_operation(operation)) {
        return IDEM_CTL_USAGE;
    }
    status = idem_ctl_connect(ctl);
    if (status != IDEM_CTL_DONE) {
        return status;
    }
    record = idem_ctl_query(ctl, idem_admin_show, 1, &operation);
    attempts = record ? idem_ctl_query(ctl, idem_admin_attempts, 1, &operation) : NULL;
    events = attempts ? idem_ctl_query(ctl, idem_admin_events, 1, &operation) : NULL;
    status = events ? IDEM_CTL_DONE : IDEM_CTL_STORE;
    if (events && !PQntuples(record) && !PQntuples(events)) {
        status = idem_ctl_fail(IDEM_CTL_REFUSED, "%s: no such operation", operation);
    }
    if (status == IDEM_CTL_DONE) {
        printf(ctl->json ? "{" : "");
        if (PQntuples(record)) {
            print_record(ctl, record);
        }
        else {
            printf(ctl->json ? "\"operation\": \"%s\"" : "operation      %s (its record is gone)\n", operation);
        }
        print_part(ctl, "effects", attempts, attempt_columns);
        print_part(ctl, "events", events, event_columns);
        printf(ctl->json ? "}\n" : "");
    }
    PQclear(record);
    PQclear(attempts);
    PQclear(events);
    return status;
}

const idem_ctl_command_t idem_ctl_list = {
    "list", "[--state S] [--tenant T] [--principal P] [--key K] [--route R] [--limit N]",
    "lists operations, newest first; a principal of several sources is given by repeating the option", list};
const idem_ctl_command_t idem_ctl_show = {"show", "OPERATION", "tells the story of one operation", show};

/* idempotencyctl resolve and cancel: an operator's word about operations. CONTRACT sections 4 and 10. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <apr_strings.h>

#include "core/snapshot.h"
#include "ctl/operations.h"
#include "ctl/request.h"
#include "store/admin.h"

#define MOST_AT_ONCE "100000"

/* What resolve was told. */
typedef struct told_t {
    int succeeded, failed, not_executed, as_answered, all, yes;
    const char *code, *header, *body_file, *route, *before;
    idem_ctl_verdict_t verdict;
} told_t;

/* Response fields, one a line; NULL where one is none, or never kept. */
static const apr_table_t *read_headers(idem_ctl_t *ctl, const char *text)
{
    apr_table_t *headers = apr_table_make(ctl->p, 4);
    char *last;
    char *line;

    for (line = apr_strtok(apr_pstrdup(ctl->p, text), "\n", &last); line; line = apr_strtok(NULL, "\n", &last)) {
        char *colon = strchr(line, ':');

        if (!colon) {
            return NULL;
        }
        *colon++ = '\0';
        if (!idem_snapshot_is_name(line) || idem_snapshot_forbidden(line)) {
            return NULL;
        }
        apr_table_add(headers, line, colon + strspn(colon, " "));
    }
    return headers;
}

/* 1, or 0 with the reason said. */
static int read_verdict(idem_ctl_t *ctl, told_t *told)
{
    idem_ctl_verdict_t *verdict = &told->verdict;

    if (told->succeeded + told->failed + told->not_executed + told->as_answered != 1) {
        idem_ctl_fail(IDEM_CTL_USAGE, "say one of --succeeded, --failed, --not-executed, --as-answered");
        return 0;
    }
    if (!verdict->reason || !*verdict->reason) {
        idem_ctl_fail(IDEM_CTL_USAGE, "--reason is missing: it is kept with the operation");
        return 0;
    }
    verdict->event = told->succeeded      ? IDEM_EVENT_RESOLVE_SUCCEEDED
                     : told->failed       ? IDEM_EVENT_RESOLVE_FAILED
                     : told->not_executed ? IDEM_EVENT_RESOLVE_NOT_EXECUTED
                                          : IDEM_EVENT_COUNT;
    if ((told->header || told->body_file) && (told->all || !told->code)) {
        idem_ctl_fail(IDEM_CTL_USAGE, "--header and --body-file go with --code N, for one operation");
        return 0;
    }
    if (told->header) {
        verdict->headers = read_headers(ctl, told->header);
        if (!verdict->headers) {
            idem_ctl_fail(IDEM_CTL_USAGE, "--header takes 'Name: value', of a field that is kept");
            return 0;
        }
    }
    return 1;
}

/* The response that a retry is to get; --code without a body is an empty one. */
static int read_response(idem_ctl_t *ctl, told_t *told)
{
    idem_ctl_verdict_t *verdict = &told->verdict;

    if (told->all || !told->code) {
        return 1;
    }
    verdict->code = atoi(told->code);
    if (strlen(told->code) != 3 || verdict->code < 200 || verdict->code > 599) {
        idem_ctl_fail(IDEM_CTL_USAGE, "--code takes a status from 200 to 599");
        return 0;
    }
    verdict->body = told->body_file ? idem_ctl_read_file(ctl, told->body_file, &verdict->body_len) : "";
    return verdict->body != NULL;
}

static idem_ctl_exit_e resolve_one(idem_ctl_t *ctl, const char *operation, const told_t *told)
{
    idem_ctl_exit_e status = idem_ctl_apply(ctl, operation, &told->verdict);

    if (status == IDEM_CTL_DONE) {
        printf(ctl->json ? "{\"operation\": \"%s\", \"resolved\": true}\n" : "%s resolved\n", operation);
    }
    return status;
}

/* All that are UNKNOWN of a route, before a time, with a code: counted first. */
static idem_ctl_exit_e resolve_all(idem_ctl_t *ctl, const told_t *told)
{
    const char *values[5] = {idem_state_name(IDEM_STATE_UNKNOWN), told->route, told->before, told->code, MOST_AT_ONCE};
    PGresult *rows = idem_ctl_query(ctl, idem_admin_select, 5, values);
    idem_ctl_exit_e status = IDEM_CTL_DONE;
    int count;
    int i;

    if (!rows) {
        return IDEM_CTL_STORE;
    }
    count = PQntuples(rows);
    fprintf(stderr, "idempotencyctl: %d operations of unknown outcome\n", count);
    if (count && !told->yes) {
        PQclear(rows);
        return idem_ctl_fail(IDEM_CTL_REFUSED, "nothing was changed: say --yes to resolve them all");
    }
    for (i = 0; i < count; i++) {
        idem_ctl_exit_e one = resolve_one(ctl, PQgetvalue(rows, i, 0), told);

        idem_ctl_progress(ctl, i + 1, count);
        status = one > status ? one : status;
        if (one == IDEM_CTL_STORE) {
            break;
        }
    }
    PQclear(rows);
    return status;
}

static idem_ctl_exit_e resolve(idem_ctl_t *ctl, int argc, const char *const *argv)
{
    told_t told = {0};
    const idem_ctl_option_t options[] = {{"succeeded", NULL, &told.succeeded},
                                         {"failed", NULL, &told.failed},
                                         {"not-executed", NULL, &told.not_executed},
                                         {"as-answered", NULL, &told.as_answered},
                                         {"owner-is-dead", NULL, &told.verdict.owner_is_dead},
                                         {"quiet", &told.verdict.quiet, NULL},
                                         {"reason", &told.verdict.reason, NULL},
                                         {"code", &told.code, NULL},
                                         {"header", &told.header, NULL},
                                         {"body-file", &told.body_file, NULL},
                                         {"all", NULL, &told.all},
                                         {"route", &told.route, NULL},
                                         {"before", &told.before, NULL},
                                         {"yes", NULL, &told.yes},
                                         {NULL, NULL, NULL}};
    const char *operation = NULL;
    idem_ctl_exit_e status;

    if (idem_ctl_options(argc, argv, options, &operation, 1) < 0 || !read_verdict(ctl, &told)) {
        return IDEM_CTL_USAGE;
    }
    if (told.all ? operation != NULL : !idem_ctl_is_operation(operation)) {
        return told.all ? idem_ctl_fail(IDEM_CTL_USAGE, "--all takes no operation") : IDEM_CTL_USAGE;
    }
    if (told.all && !told.route && !told.before && !told.code) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "--all wants at least one of --route, --before, --code");
    }
    if (!read_response(ctl, &told)) {
        return IDEM_CTL_USAGE;
    }
    status = idem_ctl_connect(ctl);
    if (status != IDEM_CTL_DONE) {
        return status;
    }
    return told.all ? resolve_all(ctl, &told) : resolve_one(ctl, operation, &told);
}

static idem_ctl_exit_e cancel(idem_ctl_t *ctl, int argc, const char *const *argv)
{
    const idem_ctl_option_t options[] = {{NULL, NULL, NULL}};
    const char *values[4] = {NULL, idem_ctl_sources(ctl->p, IDEM_EVENT_CANCEL),
                             idem_state_name(idem_machine_next(IDEM_STATE_RESERVED, IDEM_EVENT_CANCEL)), NULL};
    idem_ctl_exit_e status;
    PGresult *rows;
    int done;

    if (idem_ctl_options(argc, argv, options, &values[0], 1) < 0 || !idem_ctl_is_operation(values[0])) {
        return IDEM_CTL_USAGE;
    }
    status = idem_ctl_connect(ctl);
    if (status != IDEM_CTL_DONE) {
        return status;
    }
    values[3] = idem_ctl_actor(ctl);
    rows = idem_ctl_query(ctl, idem_admin_cancel, 4, values);
    if (!rows) {
        return IDEM_CTL_STORE;
    }
    done = PQntuples(rows) == 1;
    PQclear(rows);
    if (!done) {
        return idem_ctl_refuse_state(ctl, values[0], "RESERVED in its first generation without effects");
    }
    printf(ctl->json ? "{\"operation\": \"%s\", \"cancelled\": true}\n" : "%s cancelled\n", values[0]);
    return IDEM_CTL_DONE;
}

const idem_ctl_command_t idem_ctl_resolve = {
    "resolve",
    "OPERATION --succeeded|--failed|--not-executed [--owner-is-dead]|--as-answered --reason TEXT\n"
    "      [--code N [--header 'Name: value' ...] [--body-file FILE]] [--quiet INTERVAL]\n"
    "  resolve --all [--route R] [--before TIME] [--code C] VERDICT --reason TEXT [--yes]",
    "says what happened to an operation of unknown outcome; the next retry gets that answer", resolve};
const idem_ctl_command_t idem_ctl_cancel = {"cancel", "OPERATION", "gives up an operation that has not begun (RESERVED)",
                                            cancel};

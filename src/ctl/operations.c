#include "ctl/operations.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <apr_escape.h>
#include <apr_strings.h>

#include "core/digest.h"
#include "core/snapshot.h"
#include "core/uuid.h"
#include "store/admin.h"

/* Types of PostgreSQL that JSON has too. */
enum { TYPE_BOOL = 16, TYPE_INT8 = 20, TYPE_INT4 = 23 };

const char *idem_ctl_json_value(idem_ctl_t *ctl, PGresult *rows, int row, int column)
{
    const char *value = PQgetvalue(rows, row, column);

    switch (PQftype(rows, column)) {
    case TYPE_BOOL:
        return *value == 't' ? "true" : "false";
    case TYPE_INT8:
    case TYPE_INT4:
        return *value ? value : "null";
    default:
        return *value ? idem_ctl_json(ctl->p, value) : "null";
    }
}

void idem_ctl_progress(const idem_ctl_t *ctl, apr_int64_t done, apr_int64_t all)
{
    (void)ctl;
    if (!isatty(2)) {
        return;
    }
    if (all) {
        fprintf(stderr, "\r%" APR_INT64_T_FMT " of %" APR_INT64_T_FMT " \r", done, all);
    }
    else {
        fprintf(stderr, "\r%" APR_INT64_T_FMT " \r", done); /* what is said next goes over it */
    }
}

void idem_ctl_print_rows(idem_ctl_t *ctl, PGresult *rows, const char *const *names)
{
    int columns = PQnfields(rows);
    int row;
    int i;

    if (ctl->json) {
        printf("[");
    }
    for (row = 0; row < PQntuples(rows); row++) {
        if (ctl->json) {
            printf("%s{", row ? ", " : "");
        }
        for (i = 0; i < columns; i++) {
            const char *value = PQgetvalue(rows, row, i);

            if (ctl->json) {
                printf("%s\"%s\": %s", i ? ", " : "", names[i], idem_ctl_json_value(ctl, rows, row, i));
            }
            else {
                printf("%s%s", i ? "  " : "", *value ? idem_ctl_printable(ctl->p, value) : "-");
            }
        }
        printf(ctl->json ? "}" : "\n");
    }
    if (ctl->json) {
        printf("]\n");
    }
}

const char *idem_ctl_actor(idem_ctl_t *ctl)
{
    return apr_pstrcat(ctl->p, "ctl:", PQuser(ctl->native), NULL);
}

const char *idem_ctl_states(apr_pool_t *p, int (*is_one)(idem_state_e))
{
    const char *array = "";
    int state;

    for (state = 0; state < IDEM_STATE_COUNT; state++) {
        if (is_one((idem_state_e)state)) {
            array = apr_pstrcat(p, array, *array ? "," : "", idem_state_name((idem_state_e)state), NULL);
        }
    }
    return apr_pstrcat(p, "{", array, "}", NULL);
}

const char *idem_ctl_sources(apr_pool_t *p, idem_event_e event)
{
    const char *const *source;
    const char *array = "";

    for (source = idem_machine_sources(event); *source; source++) {
        array = apr_pstrcat(p, array, *array ? "," : "", *source, NULL);
    }
    return apr_pstrcat(p, "{", array, "}", NULL);
}

int idem_ctl_is_operation(const char *text)
{
    unsigned char uuid[IDEM_UUID_LEN];

    if (idem_uuid_parse(text, uuid) == APR_SUCCESS) {
        return 1;
    }
    idem_ctl_fail(IDEM_CTL_USAGE, "an operation id is wanted (a lower-case UUID)");
    return 0;
}

const char *idem_ctl_downstream(apr_pool_t *p, const char *operation)
{
    unsigned char id[IDEM_UUID_LEN];
    unsigned char key[IDEM_UUID_LEN];
    char *text = apr_palloc(p, IDEM_UUID_TEXT_LEN + 1);

    *text = '\0';
    if (idem_uuid_parse(operation, id) == APR_SUCCESS) {
        idem_uuid_downstream(id, key);
        idem_uuid_format(key, text);
    }
    return text;
}

idem_ctl_exit_e idem_ctl_refuse_state(idem_ctl_t *ctl, const char *operation, const char *wanted)
{
    PGresult *rows = idem_ctl_query(ctl, idem_admin_show, 1, &operation);
    idem_ctl_exit_e status = IDEM_CTL_STORE;

    if (rows && !PQntuples(rows)) {
        status = idem_ctl_fail(IDEM_CTL_REFUSED, "%s: no such operation", operation);
    }
    else if (rows) {
        status = idem_ctl_fail(IDEM_CTL_REFUSED, "%s: it is %s, generation %s, and not %s", operation, PQgetvalue(rows, 0, 1),
                               PQgetvalue(rows, 0, 3), wanted);
    }
    PQclear(rows);
    return status;
}

static const char *bytea(apr_pool_t *p, const void *octets, apr_size_t len)
{
    return apr_pstrcat(p, "\\x", len ? apr_pescape_hex(p, octets, len, 0) : "", NULL);
}

static PGresult *apply_final(idem_ctl_t *ctl, const char *operation, const idem_ctl_verdict_t *verdict, idem_event_e event,
                             int as_answered)
{
    static const idem_outcome_e outcomes[2] = {IDEM_OUTCOME_SUCCEEDED, IDEM_OUTCOME_FAILED};
    unsigned char digest[IDEM_SHA256_LEN];
    unsigned char *head;
    apr_size_t head_len;
    const char *values[11] = {operation, idem_ctl_sources(ctl->p, event),
                              idem_state_name(idem_machine_next(IDEM_STATE_UNKNOWN, event)),
                              idem_outcome_name(outcomes[event == IDEM_EVENT_RESOLVE_FAILED]), NULL, NULL, NULL, NULL,
                              idem_ctl_actor(ctl), verdict->reason, as_answered ? "t" : "f"};

    if (verdict->code) {
        values[4] = apr_itoa(ctl->p, verdict->code);
    }
    /* an empty head, where no response is given: none would mean that it is still on its way */
    if (idem_snapshot_encode_headers(ctl->p, verdict->headers ? verdict->headers : apr_table_make(ctl->p, 1), NULL, &head,
                                     &head_len) != IDEM_SNAPSHOT_OK) {
        idem_ctl_fail(IDEM_CTL_USAGE, "a response field that cannot be kept");
        return NULL;
    }
    values[5] = bytea(ctl->p, head, head_len);
    if (verdict->body) {
        idem_sha256(verdict->body, verdict->body_len, digest);
        values[6] = bytea(ctl->p, verdict->body, verdict->body_len);
        values[7] = bytea(ctl->p, digest, sizeof(digest));
    }
    return idem_ctl_query(ctl, idem_admin_resolve, 11, values);
}

/* The event that a kept response stands for: what it says about itself. */
static idem_event_e event_of_answer(idem_ctl_t *ctl, const char *operation)
{
    PGresult *rows = idem_ctl_query(ctl, idem_admin_show, 1, &operation);
    idem_event_e event = IDEM_EVENT_RESOLVE_SUCCEEDED;

    if (rows && PQntuples(rows) && PQgetvalue(rows, 0, 16)[0] >= '4') {
        event = IDEM_EVENT_RESOLVE_FAILED;
    }
    PQclear(rows);
    return event;
}

idem_ctl_exit_e idem_ctl_apply(idem_ctl_t *ctl, const char *operation, const idem_ctl_verdict_t *verdict)
{
    int as_answered = verdict->event == IDEM_EVENT_COUNT;
    idem_event_e event = as_answered ? event_of_answer(ctl, operation) : verdict->event;
    PGresult *rows;
    int done;

    if (event == IDEM_EVENT_RESOLVE_NOT_EXECUTED) {
        const char *values[7] = {operation, idem_ctl_sources(ctl->p, event),
                                 idem_state_name(idem_machine_next(IDEM_STATE_UNKNOWN, event)), idem_ctl_actor(ctl),
                                 verdict->reason, verdict->quiet, verdict->owner_is_dead ? "t" : "f"};

        rows = idem_ctl_query(ctl, idem_admin_not_executed, 7, values);
    }
    else {
        rows = apply_final(ctl, operation, verdict, event, as_answered);
    }
    if (!rows) {
        return IDEM_CTL_STORE;
    }
    done = PQntuples(rows) == 1;
    PQclear(rows);
    if (done) {
        return IDEM_CTL_DONE;
    }
    return idem_ctl_refuse_state(ctl, operation,
                                 as_answered ? "UNKNOWN with a whole response kept"
                                 : event == IDEM_EVENT_RESOLVE_NOT_EXECUTED && !verdict->owner_is_dead
                                     ? "UNKNOWN with an owner that was silent long enough (--owner-is-dead says that it is)"
                                     : "UNKNOWN");
}

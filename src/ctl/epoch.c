/* idempotencyctl epoch: who may write. CONTRACT section 8. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <apr_strings.h>
#include <apr_time.h>

#include "ctl/operations.h"
#include "store/admin.h"

/* One value of one row, or NULL with the reason said. */
static const char *ask(idem_ctl_t *ctl, const char *sql, int count, const char *const *values)
{
    PGresult *rows = idem_ctl_query(ctl, sql, count, values);
    const char *value = rows && PQntuples(rows) ? apr_pstrdup(ctl->p, PQgetvalue(rows, 0, 0)) : NULL;

    PQclear(rows);
    return value;
}

static idem_ctl_exit_e show_epoch(idem_ctl_t *ctl)
{
    const char *epoch = ask(ctl, idem_admin_epoch, 0, NULL);

    if (!epoch) {
        return IDEM_CTL_STORE;
    }
    printf(ctl->json ? "{\"writer_epoch\": %s}\n" : "writer epoch %s\n", epoch);
    return IDEM_CTL_DONE;
}

/* Asks for a number again and again until it is 0 or the time is over. The last one, or NULL with the reason said. */
static const char *wait_for_none(idem_ctl_t *ctl, const char *sql, int count, const char *const *values, int seconds)
{
    apr_time_t deadline = apr_time_now() + apr_time_from_sec(seconds);
    apr_interval_time_t pause = apr_time_from_msec(10);
    const char *left;

    while ((left = ask(ctl, sql, count, values)) != NULL && strcmp(left, "0") && apr_time_now() < deadline) {
        idem_ctl_progress(ctl, atoi(left), 0);
        apr_sleep(pause);
        pause = pause < apr_time_from_msec(500) ? pause * 2 : pause;
    }
    return left;
}

/*
 * Writers look at the control row within their own statement. A statement that began before may not have seen the new
 * epoch: its end is waited for, so a reserve that is on its way when this returns does not exist. Waited for without a
 * lock: one that waits for a backend's long transaction would hold up every other request.
 */
static idem_ctl_exit_e raise_epoch(idem_ctl_t *ctl, const char *to, int seconds)
{
    const char *now = ask(ctl, idem_admin_epoch, 0, NULL);
    const char *raised;
    const char *writing;
    const char *left;
    PGresult *rows;

    if (!now) {
        return IDEM_CTL_STORE;
    }
    to = to ? to : apr_itoa(ctl->p, atoi(now) + 1);
    rows = atoi(to) > atoi(now) ? idem_ctl_query(ctl, idem_admin_epoch_raise, 1, &to) : NULL;
    if (atoi(to) <= atoi(now) || (rows && !PQntuples(rows))) {
        PQclear(rows);
        return idem_ctl_fail(IDEM_CTL_REFUSED, "the writer epoch is %s: it can only be raised", ask(ctl, idem_admin_epoch, 0, NULL));
    }
    raised = rows ? apr_pstrdup(ctl->p, PQgetvalue(rows, 0, 0)) : NULL;
    PQclear(rows);
    writing = raised ? ask(ctl, idem_admin_writing, 0, NULL) : NULL;
    left = writing ? wait_for_none(ctl, idem_admin_still_writing, 1, &writing, seconds) : NULL;
    if (!left) {
        return IDEM_CTL_STORE;
    }
    if (strcmp(left, "0")) {
        return idem_ctl_fail(IDEM_CTL_REFUSED, "the writer epoch is %s now, but %s statements that began before are still "
                                               "running and may reserve; epoch raise --wait SECONDS waits longer", raised, left);
    }
    printf(ctl->json ? "{\"writer_epoch\": %s}\n" : "writer epoch %s: servers below it may only replay\n", raised);
    return IDEM_CTL_DONE;
}

static idem_ctl_exit_e quarantine(idem_ctl_t *ctl)
{
    const char *values[4] = {idem_ctl_states(ctl->p, idem_machine_is_live), idem_state_name(idem_machine_next(IDEM_STATE_EXECUTING, IDEM_EVENT_LAPSE)),
                             idem_outcome_name(IDEM_OUTCOME_UNKNOWN), idem_ctl_actor(ctl)};
    PGresult *rows = idem_ctl_query(ctl, idem_admin_quarantine, 4, values);
    static const char *const columns[] = {"operation"};

    if (!rows) {
        return IDEM_CTL_STORE;
    }
    fprintf(stderr, "idempotencyctl: %d operations are UNKNOWN now\n", PQntuples(rows));
    idem_ctl_print_rows(ctl, rows, columns);
    PQclear(rows);
    return IDEM_CTL_DONE;
}

/* Waits until no record of an older writer is live. Those that are live now are all there will be. */
static idem_ctl_exit_e drain(idem_ctl_t *ctl, int seconds, int quarantine_left)
{
    const char *values[2] = {idem_ctl_states(ctl->p, idem_machine_is_live), NULL};
    const char *left;

    values[1] = ask(ctl, idem_admin_epoch_old, 1, values);
    left = values[1] ? wait_for_none(ctl, idem_admin_epoch_left, 2, values, seconds) : NULL;
    if (!left) {
        return IDEM_CTL_STORE;
    }
    if (strcmp(left, "0") && quarantine_left) {
        return quarantine(ctl);
    }
    if (strcmp(left, "0")) {
        return idem_ctl_fail(IDEM_CTL_REFUSED, "%s operations of older writers are still running", left);
    }
    printf(ctl->json ? "{\"left\": 0}\n" : "drained: no operation of an older writer is running\n");
    return IDEM_CTL_DONE;
}

/* "60", "60s" or "5m" in seconds; -1 where it is none. NULL: fallback. */
static int read_seconds(const char *text, int fallback)
{
    char *end;
    long value;

    if (!text) {
        return fallback;
    }
    value = strtol(text, &end, 10);
    if (end == text || value < 0 || value > 86400 || (*end && strcmp(end, "s") && strcmp(end, "m"))) {
        return -1;
    }
    return (int)(*end == 'm' ? value * 60 : value);
}

static idem_ctl_exit_e run(idem_ctl_t *ctl, int argc, const char *const *argv)
{
    const char *wait = NULL;
    const char *to = NULL;
    int quarantine_left = 0;
    const idem_ctl_option_t options[] = {{"wait", &wait, NULL}, {"to", &to, NULL},
                                         {"quarantine", NULL, &quarantine_left}, {NULL, NULL, NULL}};
    const char *word = NULL;
    idem_ctl_exit_e status;

    if (idem_ctl_options(argc, argv, options, &word, 1) < 0) {
        return IDEM_CTL_USAGE;
    }
    if (read_seconds(wait, 0) < 0) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "--wait takes seconds, as 60, 60s or 2m");
    }
    if (to && (atoi(to) < 1 || strlen(to) > 9 || strspn(to, "0123456789") != strlen(to))) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "--to takes a number from 1");
    }
    if (!word || (strcmp(word, "show") && strcmp(word, "raise") && strcmp(word, "drain"))) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "epoch takes show, raise or drain");
    }
    status = idem_ctl_connect(ctl);
    if (status != IDEM_CTL_DONE) {
        return status;
    }
    if (!strcmp(word, "show")) {
        return show_epoch(ctl);
    }
    return !strcmp(word, "raise") ? raise_epoch(ctl, to, read_seconds(wait, 60))
                                  : drain(ctl, read_seconds(wait, 0), quarantine_left);
}

const idem_ctl_command_t idem_ctl_epoch = {
    "epoch", "show | raise [--to N] [--wait SECONDS] | drain [--wait SECONDS] [--quarantine]",
    "shows or raises the writer epoch, or waits for what older writers still run", run};

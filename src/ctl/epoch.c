/* idempotencyctl epoch: who may write. CONTRACT section 8. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <apr_strings.h>
#include <apr_time.h>

#include "ctl/operations.h"
#include "store/admin.h"

static const char *live_states(apr_pool_t *p)
{
    const char *array = "";
    int state;

    for (state = 0; state < IDEM_STATE_COUNT; state++) {
        if (idem_machine_is_live((idem_state_e)state)) {
            array = apr_pstrcat(p, array, *array ? "," : "", idem_state_name((idem_state_e)state), NULL);
        }
    }
    return apr_pstrcat(p, "{", array, "}", NULL);
}

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

/*
 * Writers look at the control row within their own statement. The lock on the records waits for every statement that
 * began before, so a reserve that is on its way when this returns does not exist.
 */
static idem_ctl_exit_e raise_epoch(idem_ctl_t *ctl, const char *to)
{
    const char *now = ask(ctl, idem_admin_epoch, 0, NULL);
    const char *raised;

    if (!now) {
        return IDEM_CTL_STORE;
    }
    to = to ? to : apr_itoa(ctl->p, atoi(now) + 1);
    if (atoi(to) <= atoi(now)) {
        return idem_ctl_fail(IDEM_CTL_REFUSED, "the writer epoch is %s: it can only be raised", now);
    }
    if (!idem_ctl_execute(ctl, "BEGIN") ||
        !idem_ctl_execute(ctl, "LOCK TABLE idempotency_records IN SHARE MODE")) {
        return IDEM_CTL_STORE;
    }
    raised = ask(ctl, idem_admin_epoch_raise, 1, &to);
    if (!raised || !idem_ctl_execute(ctl, "COMMIT")) {
        return IDEM_CTL_STORE;
    }
    printf(ctl->json ? "{\"writer_epoch\": %s}\n" : "writer epoch %s: servers below it may only replay\n", raised);
    return IDEM_CTL_DONE;
}

static idem_ctl_exit_e quarantine(idem_ctl_t *ctl)
{
    const char *values[4] = {live_states(ctl->p), idem_state_name(idem_machine_next(IDEM_STATE_EXECUTING, IDEM_EVENT_LAPSE)),
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

/* Waits until no record of an older writer is live. */
static idem_ctl_exit_e drain(idem_ctl_t *ctl, int wait_seconds, int quarantine_left)
{
    apr_time_t deadline = apr_time_now() + apr_time_from_sec(wait_seconds);
    const char *states = live_states(ctl->p);
    const char *left;

    for (;;) {
        left = ask(ctl, idem_admin_epoch_left, 1, &states);
        if (!left || !strcmp(left, "0") || apr_time_now() >= deadline) {
            break;
        }
        if (isatty(2)) {
            fprintf(stderr, "\r%s left ", left);
        }
        apr_sleep(apr_time_from_msec(200));
    }
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
    return !strcmp(word, "raise") ? raise_epoch(ctl, to) : drain(ctl, wait ? atoi(wait) : 0, quarantine_left);
}

const idem_ctl_command_t idem_ctl_epoch = {
    "epoch", "show | raise [--to N] | drain [--wait SECONDS] [--quarantine]",
    "shows or raises the writer epoch, or waits for what older writers still run", run};

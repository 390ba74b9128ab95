/*
 * idempotencyctl reconcile: a program decides. One JSON object an operation on its standard input, a verdict on its
 * standard output. CONTRACT section 10.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <apr_signal.h>
#include <apr_strings.h>
#include <apr_thread_proc.h>
#include <yajl/yajl_tree.h>

#include "core/snapshot.h"
#include "ctl/operations.h"
#include "store/admin.h"

#define MOST_VERDICT 1048576 /* octets that a program may answer */
#define PATIENCE     60      /* seconds that it may take for one operation, if nothing else is said */

/* Whom to ask, and how. */
typedef struct asking_t {
    const char *program;
    apr_interval_time_t patience;
    int with_key;
    idem_ctl_verdict_t defaults;
} asking_t;

/* {"operation":…, "route":…, …, "effects":[…]}: what show knows, the key only where it was asked for. */
static const char *describe(idem_ctl_t *ctl, const char *operation, int with_key)
{
    PGresult *record = idem_ctl_query(ctl, idem_admin_show, 1, &operation);
    PGresult *attempts = record ? idem_ctl_query(ctl, idem_admin_attempts, 1, &operation) : NULL;
    const char *text = NULL;
    int i;

#define FIELD(name, column) ", \"" name "\": ", idem_ctl_json(ctl->p, PQgetvalue(record, 0, column))
    if (attempts && PQntuples(record)) {
        text = apr_pstrcat(ctl->p, "{\"operation\": \"", operation, "\", \"downstream_key\": \"",
                           idem_ctl_downstream(ctl->p, operation), "\"", FIELD("generation", 3), FIELD("effect_mode", 4),
                           FIELD("tenant", 6), FIELD("principal", 7), FIELD("route", 8), FIELD("created", 12),
                           FIELD("settled", 14), FIELD("status", 16), FIELD("owner_host", 19), FIELD("owner_pid", 20),
                           FIELD("owner_seen", 21), ", \"effects\": [", NULL);
        for (i = 0; i < PQntuples(attempts); i++) {
#define PART(name, column) "\"" name "\": ", idem_ctl_json(ctl->p, PQgetvalue(attempts, i, column))
            text = apr_pstrcat(ctl->p, text, i ? ", {" : "{", PART("effect", 0), ", ", PART("provider", 1), ", ",
                               PART("downstream_key", 3), ", ", PART("handle", 5), ", ", PART("outcome", 6), ", ",
                               PART("begun", 7), ", ", PART("ended", 8), "}", NULL);
        }
        text = apr_pstrcat(ctl->p, text, "]", NULL);
        text = with_key ? apr_pstrcat(ctl->p, text, FIELD("key", 11), "}\n", NULL) : apr_pstrcat(ctl->p, text, "}\n", NULL);
    }
    PQclear(record);
    PQclear(attempts);
    return text;
}

/* Starts the program. 1, or 0 with the reason said. */
static int start_program(apr_pool_t *p, const char *program, apr_proc_t *proc)
{
    const char *argv[2] = {program, NULL};
    apr_procattr_t *attributes;
    apr_status_t rv = apr_procattr_create(&attributes, p);

    rv = rv ? rv : apr_procattr_io_set(attributes, APR_CHILD_BLOCK, APR_CHILD_BLOCK, APR_NO_PIPE);
    rv = rv ? rv : apr_procattr_cmdtype_set(attributes, APR_PROGRAM_PATH);
    rv = rv ? rv : apr_procattr_error_check_set(attributes, 1);
    rv = rv ? rv : apr_proc_create(proc, program, argv, NULL, attributes, p);
    if (rv != APR_SUCCESS) {
        char words[120];

        idem_ctl_fail(IDEM_CTL_USAGE, "--exec %s: %s", idem_ctl_printable(p, program), apr_strerror(rv, words, sizeof(words)));
        return 0;
    }
    return 1;
}

/* Reads and writes end when the time allowed is over, however slowly the program goes on. */
static int set_patience(apr_file_t *pipe, apr_time_t until)
{
    apr_interval_time_t left = until - apr_time_now();

    return left > 0 && apr_file_pipe_timeout_set(pipe, left) == APR_SUCCESS;
}

/* Hands the text over and reads the answer (MOST_VERDICT + 1 octets). NULL, or what went wrong. */
static const char *converse(apr_proc_t *proc, const char *text, char *answer, apr_time_t until)
{
    apr_size_t len = 0;
    apr_status_t rv = APR_SUCCESS;

    /* a program that does not read its input may answer all the same: what it says counts */
    if (set_patience(proc->in, until)) {
        apr_file_write_full(proc->in, text, strlen(text), NULL);
    }
    apr_file_close(proc->in);
    while (rv == APR_SUCCESS && len < MOST_VERDICT && set_patience(proc->out, until)) {
        apr_size_t got = MOST_VERDICT - len;

        rv = apr_file_read(proc->out, answer + len, &got);
        len += rv == APR_SUCCESS ? got : 0;
    }
    apr_file_close(proc->out);
    answer[len] = '\0';
    return rv == APR_EOF ? NULL : len == MOST_VERDICT ? "said too much" : "did not answer in time";
}

/* Waits for the end of the program, and ends it where it does not end by itself. NULL, or what went wrong. */
static const char *await_end(apr_proc_t *proc, apr_time_t until, const char *trouble)
{
    apr_exit_why_e why = APR_PROC_EXIT;
    int code = 0;

    while (!trouble && apr_proc_wait(proc, &code, &why, APR_NOWAIT) == APR_CHILD_NOTDONE) {
        if (apr_time_now() >= until) {
            trouble = "did not end in time";
        }
        apr_sleep(apr_time_from_msec(5));
    }
    if (trouble) {
        apr_proc_kill(proc, SIGKILL);
        apr_proc_wait(proc, &code, &why, APR_WAIT);
        return trouble;
    }
    return APR_PROC_CHECK_EXIT(why) && !code ? NULL : "failed";
}

/* Runs the program with the text on its standard input. Its answer, or NULL with the reason said and *status set. */
static const char *consult(apr_pool_t *p, const asking_t *asking, const char *operation, const char *text,
                           idem_ctl_exit_e *status)
{
    apr_time_t until = apr_time_now() + asking->patience;
    char *answer = apr_palloc(p, MOST_VERDICT + 1);
    const char *trouble;
    apr_proc_t proc;

    if (!start_program(p, asking->program, &proc)) {
        *status = IDEM_CTL_USAGE;
        return NULL;
    }
    trouble = converse(&proc, text, answer, until);
    trouble = await_end(&proc, until, trouble);
    if (trouble) {
        *status = idem_ctl_fail(IDEM_CTL_REFUSED, "%s: the program %s: still unknown", operation, trouble);
        return NULL;
    }
    return answer;
}

static const char *member(yajl_val tree, const char *name)
{
    const char *path[2] = {name, NULL};
    yajl_val value = yajl_tree_get(tree, path, yajl_t_string);

    return value ? YAJL_GET_STRING(value) : NULL;
}

/* A member of any type but null, or NULL. */
static yajl_val any_member(yajl_val tree, const char *name)
{
    const char *path[2] = {name, NULL};
    yajl_val value = yajl_tree_get(tree, path, yajl_t_any);

    return YAJL_IS_NULL(value) ? NULL : value;
}

static const apr_table_t *read_headers(apr_pool_t *p, yajl_val headers)
{
    apr_table_t *table = apr_table_make(p, 4);
    size_t i;

    for (i = 0; i < YAJL_GET_OBJECT(headers)->len; i++) {
        const char *name = YAJL_GET_OBJECT(headers)->keys[i];
        const char *value = YAJL_GET_STRING(YAJL_GET_OBJECT(headers)->values[i]);

        if (!value || !idem_snapshot_is_name(name) || idem_snapshot_forbidden(name)) {
            return NULL;
        }
        apr_table_add(table, name, value);
    }
    return table;
}

/* The response in a verdict: code, headers, body. 1, or 0 where it cannot be read. */
static int read_response(idem_ctl_t *ctl, yajl_val tree, idem_ctl_verdict_t *verdict)
{
    yajl_val code = any_member(tree, "code");
    yajl_val headers = any_member(tree, "headers");
    yajl_val body = any_member(tree, "body");

    if (!code) {
        return !headers && !body;
    }
    if (!YAJL_IS_INTEGER(code) || (headers && !YAJL_IS_OBJECT(headers)) || (body && !YAJL_IS_STRING(body))) {
        return 0;
    }
    verdict->code = (int)YAJL_GET_INTEGER(code);
    verdict->body = apr_pstrdup(ctl->p, body ? YAJL_GET_STRING(body) : "");
    verdict->body_len = strlen(verdict->body);
    verdict->headers = headers ? read_headers(ctl->p, headers) : NULL;
    return verdict->code >= 200 && verdict->code <= 599 && (verdict->headers || !headers);
}

/* Reads a verdict. 1 to apply it, 0 still unknown, -1 not understood. */
static int read_verdict(idem_ctl_t *ctl, const char *answer, idem_ctl_verdict_t *verdict)
{
    yajl_val tree = yajl_tree_parse(answer, NULL, 0);
    const char *word = tree ? member(tree, "verdict") : NULL;
    const char *reason = tree ? member(tree, "reason") : NULL;
    int result = -1;

    if (word && !strcmp(word, "still-unknown")) {
        result = 0;
    }
    else if (word && (!strcmp(word, "succeeded") || !strcmp(word, "failed") || !strcmp(word, "not-executed"))) {
        verdict->event = word[0] == 's'   ? IDEM_EVENT_RESOLVE_SUCCEEDED
                         : word[0] == 'f' ? IDEM_EVENT_RESOLVE_FAILED
                                          : IDEM_EVENT_RESOLVE_NOT_EXECUTED;
        verdict->reason = apr_pstrdup(ctl->p, reason ? reason : "reconciled");
        result = read_response(ctl, tree, verdict) ? 1 : -1;
    }
    yajl_tree_free(tree);
    return result;
}

static void say(const idem_ctl_t *ctl, const char *operation, const char *what)
{
    printf(ctl->json ? "{\"operation\": \"%s\", \"result\": \"%s\"}\n" : "%s %s\n", operation, what);
    fflush(stdout);
}

static idem_ctl_exit_e reconcile_one(idem_ctl_t *ctl, const asking_t *asking, const char *operation)
{
    idem_ctl_exit_e status = IDEM_CTL_STORE;
    const char *text = describe(ctl, operation, asking->with_key);
    const char *answer = text ? consult(ctl->p, asking, operation, text, &status) : NULL;
    idem_ctl_verdict_t verdict = asking->defaults;

    if (!answer) {
        return status;
    }
    switch (read_verdict(ctl, answer, &verdict)) {
    case 0:
        say(ctl, operation, "still unknown");
        return IDEM_CTL_DONE;
    case -1:
        return idem_ctl_fail(IDEM_CTL_REFUSED, "%s: the program's verdict is not understood: still unknown", operation);
    default:
        status = idem_ctl_apply(ctl, operation, &verdict);
        if (status == IDEM_CTL_DONE) {
            say(ctl, operation, "resolved");
        }
        return status;
    }
}

/* One operation after the other, each with memory of its own. What the store or the command line has wrong ends it. */
static idem_ctl_exit_e reconcile_all(idem_ctl_t *ctl, const asking_t *asking, PGresult *rows)
{
    idem_ctl_exit_e status = IDEM_CTL_DONE;
    apr_pool_t *all = ctl->p;
    int i;

    for (i = 0; i < PQntuples(rows) && status < IDEM_CTL_USAGE; i++) {
        idem_ctl_exit_e one;

        if (apr_pool_create(&ctl->p, all) != APR_SUCCESS) {
            ctl->p = all;
            return idem_ctl_fail(IDEM_CTL_STORE, "out of memory");
        }
        idem_ctl_progress(ctl, i, PQntuples(rows));
        one = reconcile_one(ctl, asking, PQgetvalue(rows, i, 0));
        apr_pool_destroy(ctl->p);
        ctl->p = all;
        status = one > status ? one : status;
    }
    return status;
}

static idem_ctl_exit_e run(idem_ctl_t *ctl, int argc, const char *const *argv)
{
    const char *values[5] = {idem_state_name(IDEM_STATE_UNKNOWN), NULL, NULL, NULL, NULL};
    const char *patience = NULL;
    asking_t asking = {0};
    const idem_ctl_option_t options[] = {{"exec", &asking.program, NULL},
                                         {"patience", &patience, NULL},
                                         {"route", &values[1], NULL},
                                         {"before", &values[2], NULL},
                                         {"limit", &values[4], NULL},
                                         {"with-key", NULL, &asking.with_key},
                                         {"owner-is-dead", NULL, &asking.defaults.owner_is_dead},
                                         {"quiet", &asking.defaults.quiet, NULL},
                                         {NULL, NULL, NULL}};
    idem_ctl_exit_e status;
    PGresult *rows;

    if (idem_ctl_options(argc, argv, options, NULL, 0) < 0) {
        return IDEM_CTL_USAGE;
    }
    if (!asking.program) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "--exec PROGRAM is missing");
    }
    asking.patience = apr_time_from_sec(patience ? atoi(patience) : PATIENCE);
    if (asking.patience <= 0 || (values[4] && atoi(values[4]) <= 0)) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "--%s takes a number from 1", asking.patience <= 0 ? "patience" : "limit");
    }
    values[4] = values[4] ? values[4] : "1000";
    /* a program that ends without reading must not end us */
    apr_signal(SIGPIPE, SIG_IGN);
    status = idem_ctl_connect(ctl);
    if (status != IDEM_CTL_DONE) {
        return status;
    }
    rows = idem_ctl_query(ctl, idem_admin_select, 5, values);
    if (!rows) {
        return IDEM_CTL_STORE;
    }
    status = reconcile_all(ctl, &asking, rows);
    PQclear(rows);
    return status;
}

const idem_ctl_command_t idem_ctl_reconcile = {
    "reconcile", "--exec PROGRAM [--patience SECONDS] [--route R] [--before TIME] [--limit N] [--with-key]\n"
                 "      [--owner-is-dead] [--quiet INTERVAL]",
    "asks a program about every operation of unknown outcome, and does what it says", run};

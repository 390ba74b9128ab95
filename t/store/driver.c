#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <apr_general.h>
#include <apr_hash.h>
#include <apr_strings.h>

#include "core/uuid.h"
#include "store/sweep.h"
#include "store/combine.h"

static idem_record_t *copy_record(apr_pool_t *p, const idem_record_t *record)
{
    /* scope and flags are all that a later call looks at; octets stay in the line's pool */
    idem_record_t *copy = apr_pmemdup(p, record, sizeof(*record));

    copy->scope.tenant = apr_pstrdup(p, record->scope.tenant);
    return copy;
}

static void keep(driver_t *driver, const line_t *line, const idem_record_t *record)
{
    const char *name = line_text(line, "as", NULL);

    if (record && name) {
        apr_hash_set(driver->seen, apr_pstrdup(driver->p, name), APR_HASH_KEY_STRING, copy_record(driver->p, record));
    }
}

static const idem_record_t *kept(driver_t *driver, const line_t *line)
{
    const idem_record_t *record = apr_hash_get(driver->seen, line_text(line, "seen", ""), APR_HASH_KEY_STRING);

    if (!record) {
        fprintf(stderr, "driver: no record is kept as %s\n", line_text(line, "seen", "(nothing)"));
        exit(2);
    }
    return record;
}

static void do_set(driver_t *driver, const line_t *line)
{
    driver->store.use_prepared = (int)line_number(line, "prepared", driver->store.use_prepared);
    driver->store.writer_epoch = (int)line_number(line, "epoch", driver->store.writer_epoch);
    driver->store.timeout = apr_time_from_msec(line_number(line, "timeout", driver->store.timeout / 1000));
    if (line_number(line, "writers", 0)) {
        idem_combine_install(&driver->store, (int)line_number(line, "writers", 0), driver->p);
    }
    driver->store.once = (int)line_number(line, "once", driver->store.once);
    if (line_text(line, "owner", NULL)) {
        line_uuid(line, "owner", driver->store.owner);
    }
    if (line_number(line, "reconnect", 0)) {
        source_close(&driver->source);
    }
    printf("SET");
}

static void do_connections(driver_t *driver, const line_t *line)
{
    idem_combine_counts_t counts;
    int i;

    (void)line;
    printf("CONNECTIONS opened=%d idle=%d broken=%d digest_key=%d", driver->source.opened, driver->source.idle_count,
           driver->source.broken, driver->store.digest_key_known);
    print_text("message", driver->source.message);
    idem_combine_count(&driver->store, &counts);
    printf(" statements=%u rows=%u alone=%u waiting=%u writing=%u", counts.statements, counts.rows, counts.alone,
           counts.waiting, counts.writing);
    printf(" pids=");
    for (i = 0; i < driver->source.idle_count; i++) {
        printf("%s%d", i ? "," : "", PQbackendPID(driver->source.idle[i]->native));
    }
}

/*
 * Behind the provider's back: a statement on every idle connection, or a reset of it, as mod_dbd does; or, again=1, it
 * is made ready as if it had come out of mod_dbd's pool, where it lay with what was prepared on it.
 */
static void do_meddle(driver_t *driver, const line_t *line)
{
    const char *sql = line_text(line, "sql", NULL);
    const char *message = "";
    int i;

    for (i = 0; i < driver->source.idle_count; i++) {
        PGconn *native = driver->source.idle[i]->native;

        if (line_text(line, "again", NULL)) {
            driver->source.idle[i]->state = NULL;
            if (idem_pgsql_make_ready(&driver->store, driver->source.idle[i], line_deadline(line, driver), line->p, &message) !=
                IDEM_PGSQL_READY) {
                break;
            }
        }
        else if (sql) {
            PQsetnonblocking(native, 0);
            PQclear(PQexec(native, sql));
        }
        else {
            PQreset(native);
        }
    }
    printf("MEDDLED count=%d", i);
}

static void do_heartbeat(driver_t *driver, const line_t *line)
{
    printf("%s", result_name(driver->store.provider->heartbeat(&driver->store, line_deadline(line, driver), line->p)));
}

static void do_farewell(driver_t *driver, const line_t *line)
{
    printf("%s", result_name(driver->store.provider->farewell(&driver->store, line_deadline(line, driver), line->p)));
}

static void do_reserve(driver_t *driver, const line_t *line)
{
    idem_reserve_t wanted;
    idem_reserve_t *list[] = {&wanted};

    line_reserve(line, &wanted);
    driver->store.provider->reserve(&driver->store, list, 1, line_deadline(line, driver), line->p);
    keep(driver, line, wanted.found);
    print_reserved(&wanted);
}

static void do_settle(driver_t *driver, const line_t *line)
{
    idem_settle_t settle;
    idem_settle_t *list[] = {&settle};

    line_settle(line, &settle);
    driver->store.provider->settle(&driver->store, list, 1, line_deadline(line, driver), line->p);
    print_settled(&settle);
}

static void do_take_over(driver_t *driver, const line_t *line)
{
    idem_take_over_t over = {0};
    idem_reserve_t wanted;

    line_reserve(line, &wanted);
    over.seen = kept(driver, line);
    over.wanted = &wanted;
    over.reuse = (int)line_number(line, "use_again", 0);
    printf("%s", result_name(driver->store.provider->take_over(&driver->store, &over, line_deadline(line, driver), line->p)));
    printf(" generation=%d", over.generation);
    print_uuid("operation", over.reuse ? wanted.operation : over.seen->operation);
    print_uuid("token", wanted.owner_token);
}

static void do_dispatch(driver_t *driver, const line_t *line)
{
    unsigned char operation[IDEM_UUID_LEN];

    line_uuid(line, "operation", operation);
    printf("%s", result_name(driver->store.provider->dispatch(
                     &driver->store, line_text(line, "tenant", "t"), operation, (int)line_number(line, "generation", 1),
                     idem_state_parse(line_text(line, "to", "EXECUTING")), line_deadline(line, driver), line->p)));
}

static void do_mark_unknown(driver_t *driver, const line_t *line)
{
    printf("%s", result_name(driver->store.provider->mark_unknown(&driver->store, kept(driver, line), "httpd",
                                                                 line_text(line, "reason", "lease over"),
                                                                 line_deadline(line, driver), line->p)));
}

static void do_withdraw(driver_t *driver, const line_t *line)
{
    unsigned char operation[IDEM_UUID_LEN];
    unsigned char token[IDEM_UUID_LEN];

    line_uuid(line, "operation", operation);
    line_uuid(line, "token", token);
    printf("%s", result_name(driver->store.provider->withdraw(&driver->store, line_text(line, "tenant", "t"), operation,
                                                             token, (int)line_number(line, "generation", 1),
                                                             line_deadline(line, driver), line->p)));
}

static void do_find(driver_t *driver, const line_t *line)
{
    idem_record_t *record;
    idem_scope_t scope;

    line_scope(line, &scope);
    printf("%s", result_name(driver->store.provider->find(&driver->store, &scope, &record, line_deadline(line, driver),
                                                         line->p)));
    keep(driver, line, record);
    print_record(record);
}

static void do_find_operation(driver_t *driver, const line_t *line)
{
    unsigned char operation[IDEM_UUID_LEN];
    idem_record_t *record;

    line_uuid(line, "operation", operation);
    printf("%s", result_name(driver->store.provider->find_operation(&driver->store, line_text(line, "tenant", NULL),
                                                                   operation, &record, line_deadline(line, driver),
                                                                   line->p)));
    keep(driver, line, record);
    print_record(record);
}

static void do_sweep(driver_t *driver, const line_t *line)
{
    idem_sweep_t sweep = {.most = (int)line_number(line, "most", 100), .actor = "sweep"};

    printf("%s", result_name(driver->store.provider->sweep(&driver->store, &sweep, line_deadline(line, driver), line->p)));
    printf(" busy=%d looked=%d expired=%d removed=%d doubtful=%d", sweep.busy, sweep.looked, sweep.expired, sweep.removed,
           sweep.doubtful);
}

static const struct {
    const char *name;
    void (*run)(driver_t *driver, const line_t *line);
} commands[] = {
    {"set", do_set},           {"connections", do_connections},   {"heartbeat", do_heartbeat},
    {"meddle", do_meddle},
    {"farewell", do_farewell}, {"reserve", do_reserve},           {"settle", do_settle},
    {"take_over", do_take_over}, {"dispatch", do_dispatch},       {"mark_unknown", do_mark_unknown},
    {"withdraw", do_withdraw}, {"find", do_find},                 {"find_operation", do_find_operation},
    {"sweep", do_sweep},       {"race", run_race},                {"bench", run_bench},
    {"begin", run_begin},      {"join", run_join},
};

static void run_line(driver_t *driver, char *text)
{
    apr_time_t begun = apr_time_now();
    const char *command;
    apr_pool_t *p;
    line_t *line;
    apr_size_t i;

    apr_pool_create(&p, driver->p);
    line = line_parse(p, text, &command);
    for (i = 0; command && i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (!strcmp(commands[i].name, command)) {
            commands[i].run(driver, line);
            printf(" ms=%" APR_TIME_T_FMT "\n", apr_time_as_msec(apr_time_now() - begun));
            fflush(stdout);
            apr_pool_destroy(p);
            return;
        }
    }
    fprintf(stderr, "driver: no command %s\n", command ? command : "");
    exit(2);
}

static void log_line(void *baton, int level, const char *message)
{
    (void)baton;
    fprintf(stderr, "store[%d]: %s\n", level, message);
}

int main(int argc, const char *const *argv, const char *const *env)
{
    driver_t driver = {0};
    char *text = NULL;
    size_t size = 0;

    apr_app_initialize(&argc, &argv, &env);
    atexit(apr_terminate);
    if (argc != 2) {
        fputs("usage: driver CONNINFO <script\n", stderr);
        return 2;
    }
    apr_pool_create(&driver.p, NULL);
    driver.seen = apr_hash_make(driver.p);
    driver.store.provider = &idem_store_pgsql;
    driver.store.source = &driver.source.face;
    driver.store.host = "localhost";
    driver.store.writer_epoch = 1;
    driver.store.use_prepared = 1;
    driver.store.timeout = apr_time_from_sec(2);
    driver.store.log = log_line;
    idem_uuid_v7(driver.store.owner, apr_time_now());
    source_init(&driver.source, &driver.store, argv[1], driver.p);
    while (getline(&text, &size, stdin) > 0) {
        run_line(&driver, text);
    }
    free(text);
    source_close(&driver.source);
    return 0;
}

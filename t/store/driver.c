#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <apr_general.h>
#include <apr_hash.h>
#include <apr_lib.h>
#include <apr_strings.h>

#include "core/uuid.h"
#include "store/sweep.h"
#include "store/combine.h"

const char *result_name(idem_store_result_e result)
{
    static const char *const names[] = {"OK",   "FOUND",  "NOT_FOUND",   "STALE",
                                        "BUSY", "FENCED", "UNAVAILABLE", "AMBIGUOUS"};

    return names[result];
}

/* ---------------------------------------------------------------- a line's values */

static char *decode(apr_pool_t *p, const char *text, apr_size_t *len)
{
    char *decoded = apr_palloc(p, strlen(text) + 1);
    char *to = decoded;

    for (; *text; text++) {
        if (*text == '%' && apr_isxdigit(text[1]) && apr_isxdigit(text[2])) {
            const char octet[3] = {text[1], text[2], '\0'};

            *to++ = (char)strtol(octet, NULL, 16);
            text += 2;
        }
        else {
            *to++ = *text;
        }
    }
    *to = '\0';
    *len = (apr_size_t)(to - decoded);
    return decoded;
}

static line_t *parse(apr_pool_t *p, char *text, const char **command)
{
    line_t *line = apr_pcalloc(p, sizeof(*line));
    char *state;
    char *word;

    line->p = p;
    line->values = apr_hash_make(p);
    *command = apr_strtok(text, " \n", &state);
    while ((word = apr_strtok(NULL, " \n", &state))) {
        char *equals = strchr(word, '=');

        if (equals) {
            *equals = '\0';
            apr_hash_set(line->values, word, APR_HASH_KEY_STRING, equals + 1);
        }
    }
    return line;
}

const char *line_text(const line_t *line, const char *name, const char *otherwise)
{
    const char *value = apr_hash_get(line->values, name, APR_HASH_KEY_STRING);
    apr_size_t len;

    return value ? decode(line->p, value, &len) : otherwise;
}

apr_int64_t line_number(const line_t *line, const char *name, apr_int64_t otherwise)
{
    const char *value = apr_hash_get(line->values, name, APR_HASH_KEY_STRING);

    return value ? apr_atoi64(value) : otherwise;
}

void line_octets(const line_t *line, const char *name, idem_octets_t *octets)
{
    const char *value = apr_hash_get(line->values, name, APR_HASH_KEY_STRING);

    octets->octets = NULL;
    octets->len = 0;
    if (value && strcmp(value, "-")) {
        octets->octets = (const unsigned char *)decode(line->p, value, &octets->len);
    }
}

void line_uuid(const line_t *line, const char *name, unsigned char uuid[IDEM_UUID_LEN])
{
    const char *value = apr_hash_get(line->values, name, APR_HASH_KEY_STRING);

    if (!value) {
        idem_uuid_v7(uuid, apr_time_now());
    }
    else if (idem_uuid_parse(value, uuid) != APR_SUCCESS) {
        fprintf(stderr, "driver: %s=%s is not a uuid\n", name, value);
        exit(2);
    }
}

apr_time_t line_deadline(const line_t *line, const driver_t *driver)
{
    return apr_time_now() + apr_time_from_msec(line_number(line, "deadline", driver->store.timeout / 1000));
}

static void line_scope(const line_t *line, idem_scope_t *scope)
{
    scope->version = line_text(line, "version", "v1");
    scope->tenant = line_text(line, "tenant", "t");
    scope->principal = line_text(line, "principal", "p");
    scope->route = line_text(line, "route", "r");
    scope->revision = line_text(line, "revision", "1");
    scope->ns = line_text(line, "ns", "u:");
    scope->key = line_text(line, "key", "k");
}

void line_reserve(const line_t *line, idem_reserve_t *wanted)
{
    memset(wanted, 0, sizeof(*wanted));
    line_scope(line, &wanted->scope);
    wanted->contract = "http.idempotency.v1";
    memset(wanted->fingerprint, (int)line_number(line, "fingerprint", 7), IDEM_FINGERPRINT_LEN);
    line_octets(line, "recipe", &wanted->recipe);
    line_octets(line, "parts", &wanted->fingerprint_parts);
    line_uuid(line, "operation", wanted->operation);
    line_uuid(line, "token", wanted->owner_token);
    wanted->effect = idem_effect_parse(line_text(line, "effect", "external"));
    wanted->state = idem_state_parse(line_text(line, "state", "EXECUTING"));
    wanted->lease = apr_time_from_msec(line_number(line, "lease", 60000));
    wanted->max_run = apr_time_from_msec(line_number(line, "max_run", 3600000));
    wanted->retention = apr_time_from_msec(line_number(line, "retention", 86400000));
    wanted->tombstone = apr_time_from_msec(line_number(line, "tombstone", 86400000));
    wanted->reuse_allowed = (int)line_number(line, "reuse", 0);
    wanted->body_limit = line_number(line, "body_limit", 1048576);
    wanted->alias_version = (int)line_number(line, "alias", 0);
    wanted->may_write = (int)line_number(line, "may_write", 1);
}

void line_settle(const line_t *line, idem_settle_t *settle)
{
    memset(settle, 0, sizeof(*settle));
    settle->tenant = line_text(line, "tenant", "t");
    line_uuid(line, "operation", settle->operation);
    settle->generation = (int)line_number(line, "generation", 1);
    settle->outcome = idem_outcome_parse(line_text(line, "outcome", "succeeded"));
    settle->response_code = (int)line_number(line, "code", 0);
    line_octets(line, "headers", &settle->response_headers);
    line_octets(line, "body", &settle->response_body);
    line_octets(line, "digest", &settle->response_digest);
    settle->actor = "httpd";
    settle->reason = line_text(line, "reason", NULL);
}

/* ---------------------------------------------------------------- answers */

static void print_octets(const char *name, const idem_octets_t *octets)
{
    apr_size_t i;

    printf(" %s=", name);
    if (!octets->octets) {
        printf("-");
    }
    for (i = 0; i < octets->len; i++) {
        printf("%%%02x", octets->octets[i]);
    }
}

static void print_text(const char *name, const char *text)
{
    idem_octets_t octets = {(const unsigned char *)text, text ? strlen(text) : 0};

    print_octets(name, &octets);
}

static void print_uuid(const char *name, const unsigned char *uuid)
{
    char text[IDEM_UUID_TEXT_LEN + 1];

    idem_uuid_format(uuid, text);
    printf(" %s=%s", name, text);
}

static void print_record(const idem_record_t *record)
{
    if (!record) {
        return;
    }
    printf(" state=%s outcome=%s effect=%s generation=%d", idem_state_name(record->state),
           idem_outcome_name(record->outcome), idem_effect_name(record->effect), record->generation);
    print_uuid("operation", record->operation);
    print_uuid("owner", record->owner);
    print_uuid("token", record->owner_token);
    print_text("tenant", record->scope.tenant);
    print_text("principal", record->scope.principal);
    print_text("route", record->scope.route);
    print_text("revision", record->scope.revision);
    print_text("key", record->scope.key);
    printf(" ns=%s version=%s fingerprint=%d", record->scope.ns, record->scope.version, record->fingerprint[0]);
    print_octets("recipe", &record->recipe);
    print_octets("parts", &record->fingerprint_parts);
    printf(" lapsed=%d owner_alive=%d expired=%d tombstone_over=%d reuse=%d attempts=%d attempt_open=%d", record->lapsed,
           record->owner_alive, record->expired, record->tombstone_over, record->reuse_allowed, record->attempts,
           record->attempt_open);
    printf(" age=%" APR_TIME_T_FMT " lease_left=%" APR_TIME_T_FMT " code=%d", record->age / 1000,
           record->lease_left / 1000, record->response_code);
    print_octets("headers", &record->response_headers);
    print_octets("body", &record->response_body);
    print_octets("digest", &record->response_digest);
    printf(" created=%" APR_TIME_T_FMT " settled=%" APR_TIME_T_FMT " expires=%" APR_TIME_T_FMT,
           apr_time_sec(record->created_at), apr_time_sec(record->settled_at), apr_time_sec(record->expires_at));
}

/* ---------------------------------------------------------------- commands */

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

/* Behind the provider's back: a statement on every idle connection, or a reset of it, as mod_dbd does. */
static void do_meddle(driver_t *driver, const line_t *line)
{
    const char *sql = line_text(line, "sql", NULL);
    int i;

    for (i = 0; i < driver->source.idle_count; i++) {
        PGconn *native = driver->source.idle[i]->native;

        if (sql) {
            PQsetnonblocking(native, 0);
            PQclear(PQexec(native, sql));
        }
        else {
            PQreset(native);
        }
    }
    printf("MEDDLED count=%d", driver->source.idle_count);
}

static void do_heartbeat(driver_t *driver, const line_t *line)
{
    printf("%s", result_name(driver->store.provider->heartbeat(&driver->store, line_deadline(line, driver), line->p)));
}

static void do_farewell(driver_t *driver, const line_t *line)
{
    printf("%s", result_name(driver->store.provider->farewell(&driver->store, line_deadline(line, driver), line->p)));
}

void print_reserved(const idem_reserve_t *wanted)
{
    printf("%s maybe=%d", result_name(wanted->result), wanted->maybe_written);
    if (!wanted->found) {
        print_uuid("operation", wanted->operation);
        print_uuid("token", wanted->owner_token);
    }
    print_record(wanted->found);
}

void print_settled(const idem_settle_t *settle)
{
    printf("%s state=%s", result_name(settle->result), idem_state_name(settle->state));
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
    line = parse(p, text, &command);
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

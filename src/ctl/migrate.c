/* idempotencyctl migrate: brings the registry's schema to what this build works with. CONTRACT section 7. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <apr_strings.h>

#include "ctl/ctl.h"
#include "store/admin_schema.h"
#include "store/schema.h"

/* A value of one row, one column, in the pool; NULL: SQL NULL or failure, *failed tells. */
static const char *query_value(idem_ctl_t *ctl, const char *sql, int *failed)
{
    PGresult *result = idem_ctl_query(ctl, sql, 0, NULL);
    const char *value = NULL;

    *failed = !result;
    if (result && PQntuples(result) == 1 && !PQgetisnull(result, 0, 0)) {
        value = apr_pstrdup(ctl->p, PQgetvalue(result, 0, 0));
    }
    PQclear(result);
    return value;
}

static idem_ctl_exit_e check_server(idem_ctl_t *ctl)
{
    int failed;
    const char *encoding;

    if (PQserverVersion(ctl->native) < 130000) {
        return idem_ctl_fail(IDEM_CTL_REFUSED, "the server is PostgreSQL %d, 13 is needed",
                             PQserverVersion(ctl->native) / 10000);
    }
    encoding = query_value(ctl, idem_admin_encoding, &failed);
    if (failed) {
        return IDEM_CTL_STORE;
    }
    if (!encoding || strcmp(encoding, "UTF8")) {
        return idem_ctl_fail(IDEM_CTL_REFUSED, "the database's encoding is %s; keys and identities need UTF8", encoding);
    }
    return IDEM_CTL_DONE;
}

/*
 * Begins a transaction that no other migration of this database is in. Its search_path is the one schema, by its name:
 * the functions keep that path, and must not follow a later change of it, nor a "$user" in it.
 */
static int begin(idem_ctl_t *ctl, const char *schema)
{
    char *quoted;
    const char *sql;
    int failed;

    if (!idem_ctl_execute(ctl, idem_admin_schema_begin)) {
        return 0;
    }
    if (!schema) {
        schema = query_value(ctl, idem_admin_schema_name, &failed);
        if (!schema && !failed) {
            idem_ctl_fail(IDEM_CTL_STORE, "no schema of search_path exists; name one with --schema");
        }
        if (!schema) {
            return 0;
        }
    }
    quoted = PQescapeIdentifier(ctl->native, schema, strlen(schema));
    if (!quoted) {
        idem_ctl_fail(IDEM_CTL_USAGE, "--schema: not a name");
        return 0;
    }
    sql = idem_admin_schema_path(ctl->p, quoted);
    PQfreemem(quoted);
    return idem_ctl_execute(ctl, sql);
}

static int create_schema(idem_ctl_t *ctl, const char *schema)
{
    char *quoted = PQescapeIdentifier(ctl->native, schema, strlen(schema));
    int done = quoted && idem_ctl_execute(ctl, idem_admin_schema_create(ctl->p, quoted));

    PQfreemem(quoted);
    return done;
}

/* The version in the open transaction's schema; 0: nothing there, -1: failure. */
static int current_version(idem_ctl_t *ctl)
{
    int failed;
    const char *value;

    value = query_value(ctl, idem_admin_schema_is_there, &failed);
    if (failed || !value) {
        return failed ? -1 : 0;
    }
    value = query_value(ctl, idem_admin_schema_version, &failed);
    if (failed || !value) {
        if (!failed) {
            idem_ctl_fail(IDEM_CTL_STORE, "idempotency_control has lost its row");
        }
        return -1;
    }
    return atoi(value);
}

static void report(const idem_ctl_t *ctl, const idem_schema_step_t *step)
{
    if (ctl->json) {
        printf("{\"step\": %d, \"name\": %s}\n", step->number, idem_ctl_json(ctl->p, step->name));
    }
    else {
        printf("applied step %d, %s\n", step->number, step->name);
    }
}

/* One step in a transaction of its own. *version is where the registry is; the step after it is applied, if any. */
static idem_ctl_exit_e apply_next(idem_ctl_t *ctl, const char *schema, int *version)
{
    const idem_schema_step_t *step;

    if (!begin(ctl, schema)) {
        return IDEM_CTL_STORE;
    }
    *version = current_version(ctl);
    if (*version < 0) {
        return IDEM_CTL_STORE;
    }
    if (*version > IDEM_SCHEMA_VERSION) {
        idem_ctl_execute(ctl, "ROLLBACK");
        return idem_ctl_fail(IDEM_CTL_REFUSED, "the registry has schema version %d, this tool knows %d: it does not go back",
                             *version, IDEM_SCHEMA_VERSION);
    }
    if (*version == IDEM_SCHEMA_VERSION) {
        return idem_ctl_execute(ctl, "ROLLBACK") ? IDEM_CTL_DONE : IDEM_CTL_STORE;
    }
    step = &idem_schema_steps[*version];
    if (!idem_ctl_execute(ctl, step->sql)
        || !idem_ctl_execute(ctl, idem_admin_schema_reached(ctl->p, step->number))
        || !idem_ctl_execute(ctl, "COMMIT")) {
        return idem_ctl_fail(IDEM_CTL_STORE, "step %d, %s, was not applied", step->number, step->name);
    }
    report(ctl, step);
    return IDEM_CTL_DONE;
}

static idem_ctl_exit_e grant(idem_ctl_t *ctl, const char *schema)
{
    if (!begin(ctl, schema) || !idem_ctl_grant(ctl) || !idem_ctl_execute(ctl, "COMMIT")) {
        return idem_ctl_fail(IDEM_CTL_STORE, "roles and grants were not set; where roles are made by somebody else, "
                                             "say --no-roles");
    }
    if (!ctl->json) {
        printf("roles idempotency_writer, idempotency_backend and idempotency_admin have what they need\n");
    }
    return IDEM_CTL_DONE;
}

static idem_ctl_exit_e run(idem_ctl_t *ctl, int argc, const char *const *argv)
{
    const char *schema = NULL;
    int no_roles = 0;
    const idem_ctl_option_t options[] = {{"schema", &schema, NULL}, {"no-roles", NULL, &no_roles}, {NULL, NULL, NULL}};
    idem_ctl_exit_e status;
    int version = 0;

    if (idem_ctl_options(argc, argv, options, NULL, 0) < 0) {
        return IDEM_CTL_USAGE;
    }
    status = idem_ctl_connect(ctl);
    if (status == IDEM_CTL_DONE) {
        status = check_server(ctl);
    }
    if (status == IDEM_CTL_DONE && schema && !create_schema(ctl, schema)) {
        status = IDEM_CTL_STORE;
    }
    do {
        if (status == IDEM_CTL_DONE) {
            status = apply_next(ctl, schema, &version);
        }
    } while (status == IDEM_CTL_DONE && version < IDEM_SCHEMA_VERSION);
    if (status == IDEM_CTL_DONE && !no_roles) {
        status = grant(ctl, schema);
    }
    if (status == IDEM_CTL_DONE) {
        if (ctl->json) {
            printf("{\"schema_version\": %d}\n", version);
        }
        else {
            printf("the registry has schema version %d\n", version);
        }
    }
    return status;
}

const idem_ctl_command_t idem_ctl_migrate = {
    "migrate", "[--schema NAME] [--no-roles]",
    "makes or updates the registry's tables, functions, roles and grants; safe to run again", run};

/* A line of the script: its values, and what a call is asked by them. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <apr_lib.h>
#include <apr_strings.h>

#include "core/uuid.h"

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

line_t *line_parse(apr_pool_t *p, char *text, const char **command)
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

void line_scope(const line_t *line, idem_scope_t *scope)
{
    scope->version = line_text(line, "version", "v1");
    scope->tenant = line_text(line, "tenant", "t");
    scope->principal = line_text(line, "principal", "p");
    scope->route = line_text(line, "route", "r");
    scope->revision = line_text(line, "revision", "1");
    scope->ns = line_text(line, "ns", "u:");
    scope->key = line_text(line, "key", "k");
}

/* The same scope of other tenants, which the reserve is to look at as well: older=a,b,c. */
static void line_older(const line_t *line, idem_reserve_t *wanted)
{
    char *names = apr_pstrdup(line->p, line_text(line, "older", ""));
    idem_scope_t *older = apr_pcalloc(line->p, sizeof(*older) * IDEM_MAX_OLDER);
    char *state;
    char *name;

    for (name = apr_strtok(names, ",", &state); name && wanted->older_count < IDEM_MAX_OLDER; name = apr_strtok(NULL, ",", &state)) {
        older[wanted->older_count] = wanted->scope;
        older[wanted->older_count++].tenant = name;
    }
    wanted->older = wanted->older_count ? older : NULL;
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
    wanted->quiet = apr_time_from_msec(line_number(line, "quiet", 900000));
    wanted->max_run = apr_time_from_msec(line_number(line, "max_run", 3600000));
    wanted->retention = apr_time_from_msec(line_number(line, "retention", 86400000));
    wanted->tombstone = apr_time_from_msec(line_number(line, "tombstone", 86400000));
    wanted->reuse_allowed = (int)line_number(line, "reuse", 0);
    wanted->body_limit = line_number(line, "body_limit", 1048576);
    wanted->alias_version = (int)line_number(line, "alias", 0);
    wanted->may_write = (int)line_number(line, "may_write", 1);
    line_older(line, wanted);
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

#include "httpd/setup/values.h"

#include <stdlib.h>

#include <apr_cstr.h>
#include <apr_strings.h>

#include "core/scope.h"

#define LONGEST_SECONDS (APR_INT64_C(100) * 366 * 24 * 3600)
#define LARGEST_SIZE    (APR_INT64_C(1024) * 1024 * 1024)

/* Digits and then a unit; -1 where there are no digits or too many. */
static apr_int64_t leading_number(const char *text, const char **unit)
{
    apr_int64_t value = 0;
    const char *c;

    for (c = text; *c >= '0' && *c <= '9'; c++) {
        if (c - text > 17) {
            return -1;
        }
        value = value * 10 + (*c - '0');
    }
    *unit = c;
    return c == text ? -1 : value;
}

int idem_values_duration(const char *text, apr_interval_time_t *value)
{
    static const struct {
        const char *unit;
        apr_int64_t milliseconds;
    } units[] = {{"ms", 1}, {"", 1000}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    const char *unit = "";
    apr_int64_t number = leading_number(text, &unit);
    size_t i;

    for (i = 0; number >= 0 && i < sizeof(units) / sizeof(units[0]); i++) {
        if (!strcmp(unit, units[i].unit) && number <= LONGEST_SECONDS * 1000 / units[i].milliseconds) {
            *value = number * units[i].milliseconds * 1000;
            return 1;
        }
    }
    return 0;
}

int idem_values_size(const char *text, apr_off_t *value)
{
    static const struct {
        const char *unit;
        apr_int64_t octets;
    } units[] = {{"", 1}, {"K", 1024}, {"M", 1024 * 1024}, {"G", 1024 * 1024 * 1024}};
    const char *unit = "";
    apr_int64_t number = leading_number(text, &unit);
    size_t i;

    for (i = 0; number >= 0 && i < sizeof(units) / sizeof(units[0]); i++) {
        if (!apr_cstr_casecmp(unit, units[i].unit) && number <= LARGEST_SIZE / units[i].octets) {
            *value = number * units[i].octets;
            return 1;
        }
    }
    return 0;
}

int idem_values_number(const char *text, int low, int high, int *value)
{
    const char *unit = "";
    apr_int64_t number = leading_number(text, &unit);

    if (number < low || number > high || *unit) {
        return 0;
    }
    *value = (int)number;
    return 1;
}

int idem_values_status(const char *text, int *first, int *last)
{
    if (strlen(text) == 3 && text[0] >= '2' && text[0] <= '5' && !apr_cstr_casecmp(text + 1, "xx")) {
        *first = (text[0] - '0') * 100;
        *last = *first + 99;
        return 1;
    }
    if (!idem_values_number(text, 200, 599, first)) {
        return 0;
    }
    *last = *first;
    return 1;
}

int idem_values_is_token(const char *text)
{
    const char *c;

    for (c = text; *c; c++) {
        if (*c <= ' ' || *c >= 127 || strchr("\"(),/:;<=>?@[\\]{}", *c)) {
            return 0;
        }
    }
    return c > text;
}

int idem_values_is_backend_header(const char *name)
{
    return !apr_cstr_casecmpn(name, "Idempotency-Operation", 21) || !apr_cstr_casecmp(name, "Idempotency-Generation") ||
           !apr_cstr_casecmp(name, "Idempotency-Downstream-Key") || !apr_cstr_casecmp(name, "Idempotency-Replayed") ||
           !apr_cstr_casecmp(name, "Idempotency-Outcome") || !apr_cstr_casecmp(name, "Idempotency-Contract");
}

int idem_values_is_credential(const char *name)
{
    static const char *const names[] = {"Authorization", "Proxy-Authorization", "Cookie", "Host", "Content-Type",
                                        "Content-Length", "Transfer-Encoding", "Content-Encoding", NULL};
    int i;

    for (i = 0; names[i]; i++) {
        if (!apr_cstr_casecmp(name, names[i])) {
            return 1;
        }
    }
    return 0;
}

const apr_array_header_t *idem_values_methods(apr_pool_t *p, const char *text)
{
    static const char *const safe[] = {"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT", NULL};
    static const char *const usual[] = {"POST", "PUT", "PATCH", "DELETE", NULL};
    apr_array_header_t *methods = apr_array_make(p, 2, sizeof(const char *));
    char *state = NULL;
    char *word;
    int i;

    for (word = apr_strtok(apr_pstrdup(p, text), ",", &state); word; word = apr_strtok(NULL, ",", &state)) {
        if (!idem_values_is_token(word)) {
            return NULL;
        }
        for (i = 0; safe[i]; i++) {
            if (!apr_cstr_casecmp(word, safe[i])) {
                return NULL;
            }
        }
        for (i = 0; usual[i]; i++) {
            /* names of methods have a case: post would protect nothing */
            if (!apr_cstr_casecmp(word, usual[i]) && strcmp(word, usual[i])) {
                return NULL;
            }
        }
        APR_ARRAY_PUSH(methods, const char *) = word;
    }
    return methods->nelts ? methods : NULL;
}

/* Names that a client can set, or that say nothing about who it is. CONTRACT section 11. */
static int is_client_variable(const char *name)
{
    static const char *const prefixes[] = {"HTTP_", "MATCH_", "REDIRECT_", "REQUEST_", "PATH_", "SCRIPT_", "CONTENT_", NULL};
    static const char *const names[] = {"REMOTE_ADDR", "REMOTE_HOST", "REMOTE_PORT", "QUERY_STRING", "SERVER_NAME",
                                        "SSL_TLS_SNI", NULL};
    int i;

    for (i = 0; prefixes[i]; i++) {
        if (!apr_cstr_casecmpn(name, prefixes[i], strlen(prefixes[i]))) {
            return 1;
        }
    }
    for (i = 0; names[i]; i++) {
        if (!apr_cstr_casecmp(name, names[i])) {
            return 1;
        }
    }
    return 0;
}

/* Variables that come from a verified client certificate. */
static int is_certificate_variable(const char *name)
{
    return !strncmp(name, "SSL_CLIENT_S_DN", 15) || !strncmp(name, "SSL_CLIENT_I_DN", 15) ||
           !strncmp(name, "SSL_CLIENT_SAN_", 15) || !strcmp(name, "SSL_CLIENT_M_SERIAL") ||
           !strcmp(name, "SSL_CLIENT_CERT_RFC4523_CEA");
}

const char *idem_values_source(apr_pool_t *p, const char *text, idem_source_t *source)
{
    const char *colon = strchr(text, ':');

    source->text = apr_pstrdup(p, text);
    source->argument = colon ? apr_pstrdup(p, colon + 1) : NULL;
    if (!apr_cstr_casecmp(text, "user")) {
        source->kind = IDEM_SOURCE_USER;
        return NULL;
    }
    if (!apr_cstr_casecmp(text, "server")) {
        source->kind = IDEM_SOURCE_SERVER;
        return NULL;
    }
    if (colon && !colon[1]) {
        return apr_psprintf(p, "'%s' has nothing behind its colon", text);
    }
    if (!apr_cstr_casecmpn(text, "env:", 4)) {
        source->kind = IDEM_SOURCE_ENV;
        return is_client_variable(colon + 1) ? apr_psprintf(p, "'%s' is a variable that the client decides", text) : NULL;
    }
    if (!apr_cstr_casecmpn(text, "note:", 5)) {
        source->kind = IDEM_SOURCE_NOTE;
        return NULL;
    }
    if (!apr_cstr_casecmpn(text, "ssl:", 4)) {
        source->kind = IDEM_SOURCE_SSL;
        return is_certificate_variable(colon + 1)
                   ? NULL
                   : apr_psprintf(p,
                                  "'%s' does not come from a verified client certificate: ssl: takes SSL_CLIENT_S_DN*, "
                                  "SSL_CLIENT_I_DN*, SSL_CLIENT_SAN_*, SSL_CLIENT_M_SERIAL and "
                                  "SSL_CLIENT_CERT_RFC4523_CEA",
                                  text);
    }
    if (!apr_cstr_casecmpn(text, "const:", 6)) {
        source->kind = IDEM_SOURCE_CONST;
        return idem_scope_check_source(source->argument) == IDEM_SCOPE_OK
                   ? NULL
                   : apr_psprintf(p, "const: takes at most %d octets of UTF-8 without control characters",
                                  IDEM_SCOPE_MAX_SOURCE);
    }
    return apr_psprintf(p, "'%s' is not a source: user, env:NAME, note:NAME, ssl:VAR, server, const:TEXT", text);
}

/* Every %{...} of a route's name must be a capture of LocationMatch. */
static int captures_are_sound(const char *name)
{
    const char *at;

    for (at = strstr(name, "%{"); at; at = strstr(at + 2, "%{")) {
        const char *end = strchr(at, '}');

        if (!end || strncmp(at + 2, "MATCH_", 6) || end == at + 8) {
            return 0;
        }
    }
    return 1;
}

const char *idem_values_route_fault(apr_pool_t *p, const char *name, const char *revision)
{
    if (idem_scope_check_source(name) != IDEM_SCOPE_OK) {
        return apr_psprintf(p, "the name takes 1 to %d octets of UTF-8 without control characters", IDEM_SCOPE_MAX_SOURCE);
    }
    if (!captures_are_sound(name)) {
        return "the name may hold %{MATCH_x} captures of LocationMatch, and no other %{...}";
    }
    if (idem_scope_check_source(revision) != IDEM_SCOPE_OK) {
        return apr_psprintf(p, "revision= takes 1 to %d octets of UTF-8 without control characters", IDEM_SCOPE_MAX_SOURCE);
    }
    return NULL;
}

#define MOST_ACCEPTED 5

const char *idem_values_accepts(apr_pool_t *p, const char *text, const char *revision, const apr_array_header_t **list)
{
    apr_array_header_t *revisions = apr_array_make(p, 1, sizeof(const char *));
    char *state = NULL;
    const char *word;
    int i;

    for (word = apr_strtok(apr_pstrdup(p, text), ",", &state); word; word = apr_strtok(NULL, ",", &state)) {
        if (idem_scope_check_source(word) != IDEM_SCOPE_OK || !strcmp(word, revision)) {
            return "accepts= takes other revisions than the route's own, joined by commas (revision=3 accepts=2,1)";
        }
        for (i = 0; i < revisions->nelts; i++) {
            if (!strcmp(word, APR_ARRAY_IDX(revisions, i, const char *))) {
                return "accepts= names a revision twice";
            }
        }
        APR_ARRAY_PUSH(revisions, const char *) = word;
    }
    *list = revisions;
    return revisions->nelts && revisions->nelts <= MOST_ACCEPTED ? NULL : "accepts= takes one to five revisions";
}

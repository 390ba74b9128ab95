#include "ctl/ctl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <apr_strings.h>

#include "core/scope.h"
#include "core/utf8.h"

idem_ctl_exit_e idem_ctl_fail(idem_ctl_exit_e status, const char *format, ...)
{
    va_list arguments;

    fputs("idempotencyctl: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return status;
}

static const idem_ctl_option_t *find_option(const idem_ctl_option_t *options, const char *word, const char **value)
{
    const char *equals = strchr(word, '=');
    apr_size_t len = equals ? (apr_size_t)(equals - word) : strlen(word);

    *value = equals ? equals + 1 : NULL;
    for (; options->name; options++) {
        if (strlen(options->name) == len && !strncmp(options->name, word, len)) {
            return options;
        }
    }
    return NULL;
}

/* A tenant or principal that is made of several sources may be given part by part, and several response fields, one a
 * line. 1, or 0 with the reason said. */
static int keep_value(const idem_ctl_option_t *option, const char *value)
{
    apr_size_t size;
    char *joined;

    if (!*option->value) {
        *option->value = value;
        return 1;
    }
    if (!strstr(option->name, "tenant") && !strstr(option->name, "principal") && strcmp(option->name, "header")) {
        idem_ctl_fail(IDEM_CTL_USAGE, "--%s: given twice", option->name);
        return 0;
    }
    size = strlen(*option->value) + strlen(value) + 2;
    joined = malloc(size); /* lives as long as the tool */
    if (!joined) {
        return 0;
    }
    apr_snprintf(joined, size, "%s%c%s", *option->value, strcmp(option->name, "header") ? IDEM_SCOPE_SEPARATOR : '\n', value);
    *option->value = joined;
    return 1;
}

int idem_ctl_options(int argc, const char *const *argv, const idem_ctl_option_t *options, const char **args, int max)
{
    int count = 0;
    int i;

    for (i = 0; i < argc; i++) {
        const idem_ctl_option_t *option;
        const char *value;

        if (strncmp(argv[i], "--", 2)) {
            if (count == max) {
                idem_ctl_fail(IDEM_CTL_USAGE, "one argument too many");
                return -1;
            }
            args[count++] = argv[i];
            continue;
        }
        option = find_option(options, argv[i] + 2, &value);
        if (!option || (option->flag && value)) {
            idem_ctl_fail(IDEM_CTL_USAGE, "an option that this command does not have (number %d of its words)", i + 1);
            return -1;
        }
        if (option->flag) {
            *option->flag = 1;
            continue;
        }
        if (!value && ++i < argc) {
            value = argv[i];
        }
        if (!value) {
            idem_ctl_fail(IDEM_CTL_USAGE, "--%s: its value is missing", option->name);
            return -1;
        }
        if (!keep_value(option, value)) {
            return -1;
        }
    }
    return count;
}

/* A password in a URL is in the process list for everybody to read. */
static int has_password(const char *store)
{
    PQconninfoOption *parsed = PQconninfoParse(store, NULL);
    PQconninfoOption *option;
    int found = 0;

    for (option = parsed; option && option->keyword; option++) {
        found |= option->val && (!strcmp(option->keyword, "password") || !strcmp(option->keyword, "sslpassword"));
    }
    PQconninfoFree(parsed);
    return found;
}

static void ignore_notice(void *baton, const PGresult *notice)
{
    (void)baton;
    (void)notice;
}

idem_ctl_exit_e idem_ctl_connect(idem_ctl_t *ctl)
{
    /* what stands before dbname may be overridden by the URL in it */
    const char *keywords[] = {"fallback_application_name", "connect_timeout", "dbname", "client_encoding", NULL};
    const char *values[] = {"idempotencyctl", getenv("PGCONNECT_TIMEOUT") ? NULL : "10", ctl->store, "UTF8", NULL};

    if (ctl->store && has_password(ctl->store)) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "--store: a password does not belong on a command line; use a password file "
                                             "(PGPASSFILE) or a service (PGSERVICE)");
    }
    ctl->native = PQconnectdbParams(keywords, values, 1);
    if (PQstatus(ctl->native) != CONNECTION_OK) {
        const char *message = PQerrorMessage(ctl->native);

        return idem_ctl_fail(IDEM_CTL_STORE, "no connection: %.*s", (int)strcspn(message, "\n"), message);
    }
    PQsetNoticeReceiver(ctl->native, ignore_notice, NULL);
    return idem_ctl_execute(ctl, "SET lock_timeout = '60s'; SET synchronous_commit = on") ? IDEM_CTL_DONE : IDEM_CTL_STORE;
}

/* The store could not read a value: it is the command line's, in its words. */
static int is_bad_value(const PGresult *result)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

    return state && !strncmp(state, "22", 2);
}

static int succeeded(const PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);

    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) {
        return 1;
    }
    idem_ctl_fail(IDEM_CTL_STORE, "the store refused: SQLSTATE %s: %s",
                  PQresultErrorField(result, PG_DIAG_SQLSTATE) ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : "none",
                  PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY)
                                                                      : "the connection broke");
    return 0;
}

PGresult *idem_ctl_query(idem_ctl_t *ctl, const char *sql, int count, const char *const *values)
{
    PGresult *result = PQexecParams(ctl->native, sql, count, NULL, values, NULL, NULL, 0);

    if (!succeeded(result)) {
        ctl->bad_value |= is_bad_value(result);
        PQclear(result);
        return NULL;
    }
    return result;
}

int idem_ctl_execute(idem_ctl_t *ctl, const char *sql)
{
    PGresult *result = PQexec(ctl->native, sql);
    int done = succeeded(result);

    PQclear(result);
    return done;
}

static const char *escape(apr_pool_t *p, const char *text, const char *also)
{
    apr_size_t len = strlen(text);
    char *escaped = apr_palloc(p, 6 * len + 1);
    char *to = escaped;

    for (; *text; text++) {
        unsigned char octet = (unsigned char)*text;

        if (octet < 0x20 || octet == 0x7f) {
            to += apr_snprintf(to, 7, "\\u%04x", octet);
        }
        else {
            if (strchr(also, octet)) {
                *to++ = '\\';
            }
            *to++ = *text;
        }
    }
    *to = '\0';
    return escaped;
}

const char *idem_ctl_printable(apr_pool_t *p, const char *text)
{
    return idem_utf8_valid(text, strlen(text)) ? escape(p, text, "\\") : "(not UTF-8)";
}

const char *idem_ctl_json(apr_pool_t *p, const char *text)
{
    return text ? apr_pstrcat(p, "\"", escape(p, text, "\"\\"), "\"", NULL) : "null";
}

#include "httpd/setup/directives.h"

#include <httpd.h>
#include <http_log.h>
#include <apr_cstr.h>
#include <apr_strings.h>

#include "core/problem.h"
#include "core/scope.h"
#include "core/snapshot.h"
#include "httpd/setup/config.h"
#include "httpd/setup/values.h"

APLOG_USE_MODULE(idempotency);

#define LONGEST_WAIT apr_time_from_sec(300)
#define FIELD(conf, offset, type) (*(type *)((char *)(conf) + (offset)))

static const char *const no_identity_words[] = {"Reject", "Bypass", NULL};
static const char *const mode_words[] = {"Off", "Enforce", "ReadOnly", "Shadow", NULL};
static const char *const key_words[] = {"Optional", "Required", NULL};
static const char *const key_syntax_words[] = {"strict", "lenient", NULL};
static const char *const reuse_words[] = {"Refuse", "Allow", NULL};
static const char *const fingerprint_words[] = {"raw", "json", "jcs", "form", "multipart", NULL};
/* in the order of idem_effect_e */
static const char *const effect_words[] = {"repeatable", "transactional", "external", NULL};

const idem_choice_t idem_choice_no_identity = {APR_OFFSETOF(idem_dir_t, no_identity), no_identity_words};
const idem_choice_t idem_choice_mode = {APR_OFFSETOF(idem_dir_t, mode), mode_words};
const idem_choice_t idem_choice_key = {APR_OFFSETOF(idem_dir_t, key_required), key_words};
const idem_choice_t idem_choice_key_syntax = {APR_OFFSETOF(idem_dir_t, key_syntax), key_syntax_words};
const idem_choice_t idem_choice_reuse = {APR_OFFSETOF(idem_dir_t, reuse), reuse_words};
const idem_choice_t idem_choice_fingerprint = {APR_OFFSETOF(idem_dir_t, payload_mode), fingerprint_words};
const idem_choice_t idem_choice_effect = {APR_OFFSETOF(idem_dir_t, effect), effect_words};

static int offset_of(const cmd_parms *cmd)
{
    return (int)(long)cmd->info;
}

/* "NAME: what is wrong", in the pool of the configuration. */
const char *idem_set_fault(const cmd_parms *cmd, const char *words)
{
    return apr_pstrcat(cmd->pool, cmd->cmd->name, ": ", words, NULL);
}

static apr_array_header_t *copy_names(apr_pool_t *p, int argc, char *const argv[])
{
    apr_array_header_t *list = apr_array_make(p, argc > 0 ? argc : 1, sizeof(const char *));
    int i;

    for (i = 0; i < argc; i++) {
        APR_ARRAY_PUSH(list, const char *) = apr_pstrdup(p, argv[i]);
    }
    return list;
}

const char *idem_set_route(cmd_parms *cmd, void *conf, int argc, char *const argv[])
{
    idem_route_t *route = apr_pcalloc(cmd->pool, sizeof(*route));
    char *default_methods[] = {(char *)"POST", (char *)"PATCH"};
    const char *accepts = NULL;
    int i;

    if (argc < 1 || !*argv[0]) {
        return idem_set_fault(cmd, "takes NAME, auto or None, then revision=R, accepts=R and methods=POST,PATCH");
    }
    route->name = apr_pstrdup(cmd->pool, argv[0]);
    route->kind = !apr_cstr_casecmp(argv[0], "None")   ? IDEM_ROUTE_NONE
                  : !apr_cstr_casecmp(argv[0], "auto") ? IDEM_ROUTE_AUTO
                                                 : IDEM_ROUTE_NAMED;
    route->captures = strstr(route->name, "%{") != NULL;
    route->revision = "1";
    route->methods = copy_names(cmd->pool, 2, default_methods);
    route->directive = cmd->directive;
    for (i = 1; i < argc; i++) {
        if (route->kind == IDEM_ROUTE_NONE) {
            return idem_set_fault(cmd, "None takes no option");
        }
        if (!apr_cstr_casecmpn(argv[i], "revision=", 9)) {
            route->revision = apr_pstrdup(cmd->pool, argv[i] + 9);
        }
        else if (!apr_cstr_casecmpn(argv[i], "accepts=", 8)) {
            accepts = argv[i] + 8;
        }
        else if (!apr_cstr_casecmpn(argv[i], "methods=", 8)) {
            route->methods = idem_values_methods(cmd->pool, argv[i] + 8);
            if (!route->methods) {
                return idem_set_fault(cmd, "methods= takes method names that carry a body, in capitals, joined by commas (POST,PATCH)");
            }
        }
        else {
            return idem_set_fault(cmd, apr_psprintf(cmd->pool, "unknown option '%s': there are revision=, accepts= and methods=", argv[i]));
        }
    }
    if (route->kind != IDEM_ROUTE_NONE) {
        const char *words = idem_values_route_fault(cmd->pool, route->name, route->revision);

        if (!words && accepts) {
            words = idem_values_accepts(cmd->pool, accepts, route->revision, &route->accepts);
        }

        if (words) {
            return idem_set_fault(cmd, words);
        }
    }
    ((idem_dir_t *)conf)->route = route;
    return NULL;
}

const char *idem_set_sources(cmd_parms *cmd, void *conf, int argc, char *const argv[])
{
    apr_array_header_t *sources = apr_array_make(cmd->pool, 2, sizeof(idem_source_t));
    int i;

    if (argc < 1) {
        return idem_set_fault(cmd, "takes one or more of user, env:NAME, note:NAME, ssl:VAR, server, const:TEXT");
    }
    for (i = 0; i < argc; i++) {
        const char *words = idem_values_source(cmd->pool, argv[i], &APR_ARRAY_PUSH(sources, idem_source_t));

        if (words) {
            return idem_set_fault(cmd, words);
        }
    }
    FIELD(conf, offset_of(cmd), const apr_array_header_t *) = sources;
    if (offset_of(cmd) == (int)APR_OFFSETOF(idem_dir_t, principal)) {
        ((idem_dir_t *)conf)->principal_directive = cmd->directive;
    }
    idem_config_weigh(conf);
    return NULL;
}

const char *idem_set_names(cmd_parms *cmd, void *conf, int argc, char *const argv[])
{
    int is_snapshot = offset_of(cmd) == (int)APR_OFFSETOF(idem_dir_t, snapshot_headers);
    apr_array_header_t *names;
    int i;

    if (argc < 1) {
        return idem_set_fault(cmd, "takes one or more names, or None");
    }
    if (argc == 1 && !apr_cstr_casecmp(argv[0], "None")) {
        argc = 0;
    }
    for (i = 0; i < argc; i++) {
        if (!idem_values_is_token(argv[i])) {
            return idem_set_fault(cmd, apr_psprintf(cmd->pool, "'%s' is not a name", argv[i]));
        }
        if (is_snapshot && idem_snapshot_forbidden(argv[i])) {
            return idem_set_fault(cmd, apr_psprintf(cmd->pool, "%s is never kept for a replay", argv[i]));
        }
    }
    names = copy_names(cmd->pool, argc, argv);
    FIELD(conf, offset_of(cmd), const apr_array_header_t *) = names;
    idem_config_weigh(conf);
    return NULL;
}

const char *idem_set_fingerprint_query(cmd_parms *cmd, void *conf, int argc, char *const argv[])
{
    idem_dir_t *dir = conf;

    if (argc < 1) {
        return idem_set_fault(cmd, "takes All, None, or the names of the parameters to bind");
    }
    dir->query_names = copy_names(cmd->pool, 0, NULL);
    if (argc == 1 && !apr_cstr_casecmp(argv[0], "All")) {
        dir->query = IDEM_QUERY_ALL;
    }
    else if (argc == 1 && !apr_cstr_casecmp(argv[0], "None")) {
        dir->query = IDEM_QUERY_NONE;
    }
    else {
        dir->query = IDEM_QUERY_NAMES;
        dir->query_names = copy_names(cmd->pool, argc, argv);
    }
    return NULL;
}

const char *idem_set_outcome(cmd_parms *cmd, void *conf, int argc, char *const argv[])
{
    idem_dir_t *dir = conf;
    const ap_expr_info_t *expr = NULL;
    idem_outcome_e outcome;
    apr_array_header_t *rules;
    int i;

    if (argc > 0 && !strncmp(argv[argc - 1], "expr=", 5)) {
        const char *error = NULL;

        expr = ap_expr_parse_cmd(cmd, argv[argc - 1] + 5, AP_EXPR_FLAG_DONT_VARY, &error, NULL);
        if (error) {
            return idem_set_fault(cmd, apr_pstrcat(cmd->pool, "expr= cannot be parsed: ", error, NULL));
        }
        argc--;
    }
    outcome = argc >= 2 ? idem_outcome_parse(argv[argc - 1]) : IDEM_OUTCOME_COUNT;
    if (outcome == IDEM_OUTCOME_NONE || outcome >= IDEM_OUTCOME_RELEASED) {
        return idem_set_fault(cmd, "takes STATUS... OUTCOME [\"expr=EXPR\"], OUTCOME one of succeeded, failed, rejected, unknown");
    }
    /* several lines of one section stand in their order */
    rules = dir->outcomes ? apr_array_copy(cmd->pool, dir->outcomes)
                          : apr_array_make(cmd->pool, 4, sizeof(idem_outcome_rule_t));
    for (i = 0; i < argc - 1; i++) {
        idem_outcome_rule_t *rule = &APR_ARRAY_PUSH(rules, idem_outcome_rule_t);

        rule->outcome = outcome;
        rule->expr = expr;
        if (!idem_values_status(argv[i], &rule->first_status, &rule->last_status)) {
            return idem_set_fault(cmd, apr_psprintf(cmd->pool, "'%s' is not a status: 200 to 599, or a class such as 5xx", argv[i]));
        }
    }
    dir->outcomes = rules;
    return NULL;
}

const char *idem_set_choice(cmd_parms *cmd, void *conf, const char *word)
{
    const idem_choice_t *choice = cmd->info;
    const char *list = "";
    int i;

    for (i = 0; choice->words[i]; i++) {
        if (!apr_cstr_casecmp(choice->words[i], word)) {
            FIELD(conf, choice->offset, int) = i;
            return NULL;
        }
        list = apr_pstrcat(cmd->pool, list, i ? ", " : "", choice->words[i], NULL);
    }
    return idem_set_fault(cmd, apr_psprintf(cmd->pool, "'%s' is not one of: %s", word, list));
}

const char *idem_set_flag(cmd_parms *cmd, void *conf, int on)
{
    FIELD(conf, offset_of(cmd), int) = on != 0;
    return NULL;
}

const char *idem_set_duration(cmd_parms *cmd, void *conf, const char *text)
{
    apr_interval_time_t value;
    int offset = offset_of(cmd);
    int is_lease = offset == (int)APR_OFFSETOF(idem_dir_t, lease);
    int is_wait = offset == (int)APR_OFFSETOF(idem_dir_t, wait);
    int needs_time = is_lease || offset == (int)APR_OFFSETOF(idem_dir_t, max_run) ||
                     offset == (int)APR_OFFSETOF(idem_dir_t, quiet) ||
                     offset == (int)APR_OFFSETOF(idem_dir_t, recovery_objective);
    int is_budget = offset == (int)APR_OFFSETOF(idem_dir_t, latency_budget);

    if (!idem_values_duration(text, &value) || (needs_time && value < apr_time_from_sec(1)) ||
        (is_wait && value > LONGEST_WAIT) || (is_budget && value < apr_time_from_msec(1))) {
        return idem_set_fault(cmd, apr_psprintf(cmd->pool, "'%s' is not a duration such as 500ms, 60s, 15m, 24h or 30d%s", text,
                                       needs_time ? ", at least 1s" : is_wait ? ", at most 5m" : is_budget ? ", at least 1ms" : ""));
    }
    FIELD(conf, offset, apr_interval_time_t) = value;
    if (is_lease) {
        idem_server_t *server = idem_config_server(cmd->server);

        if (!server->shortest_lease || value < server->shortest_lease) {
            server->shortest_lease = value;
        }
    }
    return NULL;
}

const char *idem_set_size(cmd_parms *cmd, void *conf, const char *text)
{
    apr_off_t value;

    if (!idem_values_size(text, &value)) {
        return idem_set_fault(cmd, apr_psprintf(cmd->pool, "'%s' is not a size such as 65536, 256K, 8M or 1G (at most 1G)", text));
    }
    FIELD(conf, offset_of(cmd), apr_off_t) = value;
    return NULL;
}

const char *idem_set_key_header(cmd_parms *cmd, void *conf, const char *name)
{
    if (!idem_values_is_token(name)) {
        return idem_set_fault(cmd, apr_psprintf(cmd->pool, "'%s' is not a header name", name));
    }
    if (idem_values_is_backend_header(name)) {
        return idem_set_fault(cmd, apr_psprintf(cmd->pool, "%s is a name that the module itself writes", name));
    }
    if (idem_values_is_credential(name)) {
        return idem_set_fault(cmd, apr_psprintf(cmd->pool, "%s is no field for a key: keys are stored", name));
    }
    ((idem_dir_t *)conf)->key_header = apr_pstrdup(cmd->pool, name);
    return NULL;
}

const char *idem_set_key_length(cmd_parms *cmd, void *conf, const char *min, const char *max)
{
    idem_dir_t *dir = conf;
    int low;
    int high;

    if (!idem_values_number(min, 1, 255, &low) || !idem_values_number(max, 1, 255, &high) || low > high) {
        return idem_set_fault(cmd, "takes MIN MAX in octets, 1 to 255, MIN not above MAX");
    }
    dir->key_min = low;
    dir->key_max = high;
    return NULL;
}

const char *idem_set_key_pattern(cmd_parms *cmd, void *conf, const char *text)
{
    idem_dir_t *dir = conf;
    const char *error = NULL;

    dir->key_pattern = idem_pattern_compile(cmd->pool, text, &error);
    dir->key_pattern_text = apr_pstrdup(cmd->pool, text);
    return dir->key_pattern ? NULL : idem_set_fault(cmd, apr_pstrcat(cmd->pool, "the pattern is broken: ", error, NULL));
}

const char *idem_set_scope_version(cmd_parms *cmd, void *conf, const char *text)
{
    if (!idem_scope_version_number(text)) {
        return idem_set_fault(cmd, "takes v1, v2 and so on, up to v9999");
    }
    ((idem_dir_t *)conf)->scope_version = apr_pstrdup(cmd->pool, text);
    return NULL;
}

const char *idem_set_server_key(cmd_parms *cmd, void *conf, const char *text)
{
    const char *error = NULL;

    ((idem_dir_t *)conf)->server_key =
        ap_expr_parse_cmd(cmd, text, AP_EXPR_FLAG_STRING_RESULT | AP_EXPR_FLAG_DONT_VARY, &error, NULL);
    return error ? idem_set_fault(cmd, apr_pstrcat(cmd->pool, "the expression cannot be parsed: ", error, NULL)) : NULL;
}

/* Not the name of a field that comes from the stored answer, that every answer has, or that belongs to one exchange. */
static int may_mark_replays(const char *name)
{
    if (!apr_cstr_casecmpn(name, "Idempotency-", 12)) {
        return !idem_values_is_backend_header(name) || !apr_cstr_casecmp(name, "Idempotency-Replayed");
    }
    return !idem_snapshot_wants(name, NULL) && !idem_snapshot_forbidden(name);
}

const char *idem_set_replayed_header(cmd_parms *cmd, void *conf, const char *name)
{
    if (!idem_values_is_token(name)) {
        return idem_set_fault(cmd, apr_psprintf(cmd->pool, "'%s' is not a header name", name));
    }
    if (!may_mark_replays(name)) {
        return idem_set_fault(cmd, apr_psprintf(cmd->pool, "%s has another meaning in a response", name));
    }
    ((idem_dir_t *)conf)->replayed_header = apr_cstr_casecmp(name, "None") ? apr_pstrdup(cmd->pool, name) : "";
    return NULL;
}

const char *idem_set_status_path(cmd_parms *cmd, void *conf, const char *path)
{
    size_t len = strlen(path);

    if (path[0] != '/' || path[1] == '/' || path[len - 1] != '/' || strpbrk(path, " <>\"?#\\")) {
        return idem_set_fault(cmd, apr_psprintf(cmd->pool, "'%s' is not a path that begins and ends with /", path));
    }
    ((idem_dir_t *)conf)->status_path = apr_pstrdup(cmd->pool, path);
    return NULL;
}

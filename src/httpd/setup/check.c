#include "httpd/setup/check.h"

#include <apr_cstr.h>
#include <apr_hash.h>
#include <apr_strings.h>
#include <httpd.h>
#include <http_config.h>
#include <http_core.h>
#include <http_log.h>

#include "httpd/setup/announce.h"
#include "httpd/setup/config.h"
#include "httpd/setup/dbd.h"
#include "httpd/child/journaling.h"
#include "httpd/logging.h"
#include "httpd/setup/sections.h"
#include "httpd/setup/sizing.h"

APLOG_USE_MODULE(idempotency);

/* One check of the whole configuration. */
typedef struct check_t {
    apr_pool_t *pconf;
    apr_pool_t *ptemp;
    server_rec *main_server;
    apr_hash_t *said; /* lines: virtual hosts inherit a section, and with it what is wrong */
} check_t;

static void complain(check_t *check, const ap_directive_t *directive, server_rec *s, const char *words)
{
    const char *line = apr_psprintf(check->ptemp, "%s:%d: %s %s: %s", directive->filename, directive->line_num,
                                    directive->directive, directive->args, words);

    if (!apr_hash_get(check->said, line, APR_HASH_KEY_STRING)) {
        apr_hash_set(check->said, line, APR_HASH_KEY_STRING, line);
        ap_log_error(APLOG_MARK, APLOG_STARTUP | APLOG_CRIT, 0, s, IDEM_LOG("1101") "%s", line);
    }
}

static int only_constants(const apr_array_header_t *sources)
{
    int i;

    for (i = 0; i < sources->nelts; i++) {
        idem_source_e kind = APR_ARRAY_IDX(sources, i, idem_source_t).kind;

        /* the name of a server is as constant as a word */
        if (kind != IDEM_SOURCE_CONST && kind != IDEM_SOURCE_SERVER) {
            return 0;
        }
    }
    return 1;
}

/* Is there a tenant, and a principal that says who it is, for the requests of this route? */
static int check_identity(check_t *check, server_rec *s, const apr_array_header_t *sections, const idem_section_t *own)
{
    int tenant = 0;
    int principal = 0;
    const ap_directive_t *constant = NULL;
    int i;

    for (i = 0; i < sections->nelts; i++) {
        const idem_section_t *section = &APR_ARRAY_IDX(sections, i, idem_section_t);

        if (!idem_section_may_merge(section, own)) {
            continue;
        }
        tenant |= section->conf->tenant != NULL;
        if (section->conf->principal) {
            int says_who = !only_constants(section->conf->principal);

            constant = says_who ? constant : section->conf->principal_directive;
            principal |= says_who;
        }
    }
    if (!tenant) {
        complain(check, own->conf->route->directive, s, "no IdempotencyTenant applies to it");
    }
    if (!principal) {
        complain(check, constant ? constant : own->conf->route->directive, s,
                 constant ? "const: and server alone make all callers one" : "no IdempotencyPrincipal applies to it");
    }
    return tenant && principal;
}

static int is_route(const idem_dir_t *conf)
{
    return conf->route && conf->route->kind != IDEM_ROUTE_NONE;
}

static server_rec *find_server(server_rec *main_server, const char *name)
{
    server_rec *s;

    for (s = main_server; s; s = s->next) {
        if (s->server_hostname && !apr_cstr_casecmp(s->server_hostname, name)) {
            return s;
        }
    }
    return NULL;
}

static int check_registry(check_t *check, server_rec *s, const idem_route_t *route)
{
    idem_server_t *conf = idem_config_server(s);
    const char *fault;

    conf->registry = conf->store_server ? find_server(check->main_server, conf->store_server) : s;
    if (!conf->registry) {
        ap_log_error(APLOG_MARK, APLOG_STARTUP | APLOG_CRIT, 0, s,
                     IDEM_LOG("1102") "%s:%d: IdempotencyStore %s: no server has this ServerName",
                     conf->store_directive->filename, conf->store_directive->line_num, conf->store_server);
        return 0;
    }
    fault = idem_dbd_check(check->pconf, check->main_server, conf->registry, &conf->dbd);
    if (fault) {
        complain(check, route->directive, s, fault);
        return 0;
    }
    if (conf->store_writers > conf->dbd.max) {
        complain(check, conf->writers_directive, s, "each writer needs a connection, and that is more than DBDMax");
        return 0;
    }
    fault = conf->journal ? idem_journaling_fault(conf->journal, check->pconf) : NULL;
    if (fault) {
        complain(check, conf->journal_directive, s, fault);
    }
    return !fault;
}

/* The request fields that a key may stand in, wherever a request may go in this server. */
static const apr_array_header_t *key_fields(apr_pool_t *pconf, const apr_array_header_t *sections)
{
    apr_array_header_t *fields = apr_array_make(pconf, 1, sizeof(const char *));
    int i;

    APR_ARRAY_PUSH(fields, const char *) = IDEM_KEY_FIELD;
    for (i = 0; i < sections->nelts; i++) {
        const char *field = APR_ARRAY_IDX(sections, i, idem_section_t).conf->key_header;

        if (field && apr_cstr_casecmp(field, IDEM_KEY_FIELD)) {
            APR_ARRAY_PUSH(fields, const char *) = field;
        }
    }
    return fields;
}

static int check_server(check_t *check, server_rec *s)
{
    apr_array_header_t *sections = idem_sections_of(check->ptemp, s);
    idem_server_t *conf = idem_config_server(s);
    const idem_route_t *route = NULL;
    int sound = 1;
    int i;

    for (i = 0; i < sections->nelts; i++) {
        const idem_section_t *section = &APR_ARRAY_IDX(sections, i, idem_section_t);

        conf->makes_keys |= section->conf->server_key != NULL;
        if (is_route(section->conf)) {
            route = section->conf->route;
            sound &= check_identity(check, s, sections, section);
        }
    }
    conf->has_routes = route != NULL;
    conf->key_fields = key_fields(check->pconf, sections);
    if (route) {
        conf->announced = idem_announce_collect(check->pconf, sections);
        sound &= check_registry(check, s, route);
    }
    return sound;
}

/* Does this directive, or one inside it or after it, let in clients whose certificate nobody has verified? */
static int lets_in_any_certificate(const ap_directive_t *directive)
{
    for (; directive; directive = directive->next) {
        if ((!apr_cstr_casecmp(directive->directive, "SSLVerifyClient") &&
             !apr_cstr_casecmpn(directive->args, "optional_no_ca", 14)) ||
            lets_in_any_certificate(directive->first_child)) {
            return 1;
        }
    }
    return 0;
}

int idem_check_config(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp, server_rec *main_server)
{
    check_t check = {pconf, ptemp, main_server, apr_hash_make(ptemp)};
    int loose = lets_in_any_certificate(ap_conftree);
    server_rec *s;
    int sound = 1;

    (void)plog;
    for (s = main_server; s; s = s->next) {
        idem_config_server(s)->loose_certificates = loose;
        sound &= check_server(&check, s);
    }
    if (sound && ap_state_query(AP_SQ_RUN_MODE) == AP_SQ_RM_CONFIG_TEST) {
        idem_sizing_warn(main_server);
    }
    return sound ? OK : HTTP_INTERNAL_SERVER_ERROR;
}

#define CORE_PRIVATE
#include "httpd/check.h"

#include <apr_cstr.h>
#include <apr_strings.h>
#include <httpd.h>
#include <http_config.h>
#include <http_core.h>
#include <http_log.h>

#include "httpd/config.h"
#include "httpd/dbd.h"
#include "httpd/logging.h"
#include "httpd/sizing.h"

APLOG_USE_MODULE(idempotency);

/* A section of a server that may apply to a request: its path where that decides, and what it says. */
typedef struct section_t {
    const char *path;       /* NULL: cannot be told before a request comes (LocationMatch, Directory, If, Files) */
    const idem_dir_t *conf;
} section_t;

static void complain(const ap_directive_t *directive, server_rec *s, const char *words)
{
    ap_log_error(APLOG_MARK, APLOG_STARTUP | APLOG_CRIT, 0, s, IDEM_LOG("1101") "%s:%d: %s %s: %s", directive->filename,
                 directive->line_num, directive->directive, directive->args, words);
}

static void add_section(apr_array_header_t *sections, const char *path, ap_conf_vector_t *vector)
{
    const idem_dir_t *conf = ap_get_module_config(vector, &idempotency_module);

    if (conf) {
        section_t *section = &APR_ARRAY_PUSH(sections, section_t);

        section->path = path;
        section->conf = conf;
    }
}

static void add_inner(apr_array_header_t *sections, const core_dir_config *core)
{
    int i;

    for (i = 0; core->sec_if && i < core->sec_if->nelts; i++) {
        add_section(sections, NULL, APR_ARRAY_IDX(core->sec_if, i, ap_conf_vector_t *));
    }
    for (i = 0; core->sec_file && i < core->sec_file->nelts; i++) {
        add_section(sections, NULL, APR_ARRAY_IDX(core->sec_file, i, ap_conf_vector_t *));
    }
}

static void add_list(apr_array_header_t *sections, const apr_array_header_t *list, int paths_decide)
{
    int i;

    for (i = 0; list && i < list->nelts; i++) {
        ap_conf_vector_t *vector = APR_ARRAY_IDX(list, i, ap_conf_vector_t *);
        const core_dir_config *core = ap_get_core_module_config(vector);
        int decides = paths_decide && !core->r && !core->d_is_fnmatch;

        add_section(sections, decides ? core->d : NULL, vector);
        add_inner(sections, core);
    }
}

static apr_array_header_t *sections_of(apr_pool_t *p, server_rec *s)
{
    apr_array_header_t *sections = apr_array_make(p, 16, sizeof(section_t));
    core_server_config *core = ap_get_core_module_config(s->module_config);

    add_section(sections, "", s->lookup_defaults);
    add_inner(sections, ap_get_core_module_config(s->lookup_defaults));
    add_list(sections, core->sec_url, 1);
    add_list(sections, core->sec_dir, 0);
    return sections;
}

/* May what `section` says apply to a request that `own` applies to? */
static int may_merge(const section_t *section, const section_t *own)
{
    apr_size_t len;

    if (!section->path || !own->path || section == own) {
        return 1;
    }
    len = strlen(section->path);
    return !strncmp(section->path, own->path, len) &&
           (len == 0 || section->path[len - 1] == '/' || !own->path[len] || own->path[len] == '/');
}

static int only_constants(const apr_array_header_t *sources)
{
    int i;

    for (i = 0; i < sources->nelts; i++) {
        if (APR_ARRAY_IDX(sources, i, idem_source_t).kind != IDEM_SOURCE_CONST) {
            return 0;
        }
    }
    return 1;
}

/* Is there a tenant, and a principal that says who it is, for the requests of this route? */
static int check_identity(server_rec *s, const apr_array_header_t *sections, const section_t *own)
{
    int tenant = 0;
    int principal = 0;
    const ap_directive_t *constant = NULL;
    int i;

    for (i = 0; i < sections->nelts; i++) {
        const section_t *section = &APR_ARRAY_IDX(sections, i, section_t);

        if (!may_merge(section, own)) {
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
        complain(own->conf->route->directive, s, "no IdempotencyTenant applies to it");
    }
    if (!principal) {
        complain(constant ? constant : own->conf->route->directive, s,
                 constant ? "const: alone makes all callers one" : "no IdempotencyPrincipal applies to it");
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

static int check_registry(apr_pool_t *pconf, server_rec *main_server, server_rec *s, const idem_route_t *route)
{
    idem_server_t *conf = idem_config_server(s);
    const char *fault;

    conf->registry = conf->store_server ? find_server(main_server, conf->store_server) : s;
    if (!conf->registry) {
        ap_log_error(APLOG_MARK, APLOG_STARTUP | APLOG_CRIT, 0, s,
                     IDEM_LOG("1102") "%s:%d: IdempotencyStore %s: no server has this ServerName",
                     conf->store_directive->filename, conf->store_directive->line_num, conf->store_server);
        return 0;
    }
    fault = idem_dbd_check(pconf, main_server, conf->registry, &conf->dbd);
    if (fault) {
        complain(route->directive, s, fault);
    }
    return !fault;
}

static int check_server(apr_pool_t *pconf, apr_pool_t *ptemp, server_rec *main_server, server_rec *s)
{
    apr_array_header_t *sections = sections_of(ptemp, s);
    idem_server_t *conf = idem_config_server(s);
    const idem_route_t *route = NULL;
    int sound = 1;
    int i;

    for (i = 0; i < sections->nelts; i++) {
        const section_t *section = &APR_ARRAY_IDX(sections, i, section_t);

        if (is_route(section->conf)) {
            route = section->conf->route;
            sound &= check_identity(s, sections, section);
        }
    }
    conf->has_routes = route != NULL;
    if (route) {
        sound &= check_registry(pconf, main_server, s, route);
    }
    return sound;
}

int idem_check_config(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp, server_rec *main_server)
{
    server_rec *s;
    int sound = 1;

    (void)plog;
    for (s = main_server; s; s = s->next) {
        sound &= check_server(pconf, ptemp, main_server, s);
    }
    if (sound && ap_state_query(AP_SQ_RUN_MODE) == AP_SQ_RM_CONFIG_TEST) {
        idem_sizing_warn(main_server);
    }
    return sound ? OK : HTTP_INTERNAL_SERVER_ERROR;
}

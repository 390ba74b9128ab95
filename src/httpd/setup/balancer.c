#include "httpd/setup/balancer.h"

#include <stdlib.h>
#include <string.h>

#include <apr_cstr.h>
#include <apr_strings.h>
#include <http_config.h>
#include <http_log.h>

#include "httpd/setup/conftree.h"
#include "httpd/logging.h"
#include "httpd/setup/sections.h"

APLOG_USE_MODULE(idempotency);

#define SCHEME "balancer://"

typedef struct balancer_t {
    const char *name;
    int members;
    int fastcgi;
    int attempts; /* maxattempts, IDEM_UNSET: one for each other member */
} balancer_t;

typedef struct search_t {
    apr_pool_t *pool;
    const server_rec *server;
    int is_main;
    const apr_array_header_t *sections;
    apr_array_header_t *balancers; /* of balancer_t * */
} search_t;

static int is(const ap_directive_t *node, const char *name)
{
    return !apr_cstr_casecmp(node->directive, name);
}

/* The name of the first balancer in a text, lower-cased, or NULL. */
static const char *name_in(apr_pool_t *p, const char *text)
{
    char *lower = apr_pstrdup(p, text ? text : "");
    char *name;

    ap_str_tolower(lower);
    name = strstr(lower, SCHEME);
    if (!name) {
        return NULL;
    }
    name += strlen(SCHEME);
    name[strcspn(name, "/ \t\"'>?$%{")] = '\0';
    return name;
}

static balancer_t *named(search_t *search, const char *name)
{
    balancer_t *balancer;
    int i;

    for (i = 0; i < search->balancers->nelts; i++) {
        balancer = APR_ARRAY_IDX(search->balancers, i, balancer_t *);
        if (!strcmp(balancer->name, name)) {
            return balancer;
        }
    }
    balancer = apr_pcalloc(search->pool, sizeof(*balancer));
    balancer->name = name;
    balancer->attempts = IDEM_UNSET;
    APR_ARRAY_PUSH(search->balancers, balancer_t *) = balancer;
    return balancer;
}

static void note_words(search_t *search, balancer_t *balancer, const char *args)
{
    const char *rest = args;

    while (*rest) {
        const char *word = ap_getword_conf(search->pool, &rest);

        if (!apr_cstr_casecmpn(word, "maxattempts=", 12)) {
            balancer->attempts = atoi(word + 12);
        }
    }
}

static void note_member(search_t *search, balancer_t *balancer, const char *args)
{
    char *lower = apr_pstrdup(search->pool, args);

    ap_str_tolower(lower);
    balancer->members++;
    balancer->fastcgi |= strstr(lower, "fcgi://") != NULL;
}

/* What is said of balancers, by <Proxy balancer://...> and by directives that name one. */
static void collect(search_t *search, const ap_directive_t *node, balancer_t *around)
{
    for (; node; node = node->next) {
        const char *name = name_in(search->pool, node->args);
        balancer_t *balancer = name ? named(search, name) : around;

        if (balancer && is(node, "BalancerMember")) {
            note_member(search, balancer, node->args);
        }
        else if (balancer && (is(node, "ProxySet") || is(node, "ProxyPass") || is(node, "<Proxy"))) {
            note_words(search, balancer, node->args);
        }
        if (node->first_child) {
            collect(search, node->first_child, is(node, "<Proxy") ? balancer : NULL);
        }
    }
}

static int runs_twice(const balancer_t *balancer)
{
    return balancer->fastcgi && (balancer->attempts == IDEM_UNSET ? balancer->members > 1 : balancer->attempts > 0);
}

/* Is one of the two paths a part of the other? NULL: may be anything. */
static int overlap(const char *a, const char *b)
{
    return !a || !b || !strncmp(a, b, strlen(a)) || !strncmp(a, b, strlen(b));
}

/* The path for which a ProxyPass sends requests on; NULL where that cannot be told. */
static const char *path_of(apr_pool_t *p, const ap_directive_t *node)
{
    const char *args = node->args;
    const ap_directive_t *parent;
    const char *word;

    if (!is(node, "ProxyPass")) {
        return NULL;
    }
    word = ap_getword_conf(p, &args);
    if (*word == '/') {
        return word;
    }
    for (parent = node->parent; parent; parent = parent->parent) {
        if (is(parent, "<Location")) {
            args = parent->args;
            word = ap_getword_conf(p, &args);
            return *word == '/' ? word : NULL;
        }
    }
    return NULL;
}

static int route_may_apply(const search_t *search, const char *path)
{
    int i;

    for (i = 0; i < search->sections->nelts; i++) {
        const idem_section_t *section = &APR_ARRAY_IDX(search->sections, i, idem_section_t);

        if (section->conf->route && section->conf->route->kind != IDEM_ROUTE_NONE && overlap(section->path, path)) {
            return 1;
        }
    }
    return 0;
}

static int sends_requests(const ap_directive_t *node)
{
    return is(node, "ProxyPass") || is(node, "ProxyPassMatch") || is(node, "RewriteRule") || is(node, "SetHandler") ||
           is(node, "AddHandler");
}

static const ap_directive_t *find(search_t *search, const ap_directive_t *node)
{
    for (; node; node = node->next) {
        const char *name = sends_requests(node) ? name_in(search->pool, node->args) : NULL;
        const ap_directive_t *inner;

        /* what stands outside of all virtual hosts holds in each of them */
        if (name && runs_twice(named(search, name)) && route_may_apply(search, path_of(search->pool, node)) &&
            (idem_conftree_stands_in(node, search->server, search->is_main) ||
             idem_conftree_stands_in(node, search->server, 1))) {
            return node;
        }
        inner = node->first_child ? find(search, node->first_child) : NULL;
        if (inner) {
            return inner;
        }
    }
    return NULL;
}

static int check_server(apr_pool_t *p, server_rec *s, int is_main)
{
    search_t search = {p, s, is_main, idem_sections_of(p, s), apr_array_make(p, 4, sizeof(balancer_t *))};
    const ap_directive_t *fault;

    collect(&search, ap_conftree, NULL);
    fault = find(&search, ap_conftree);
    if (fault) {
        ap_log_error(APLOG_MARK, APLOG_STARTUP | APLOG_CRIT, 0, s, IDEM_LOG("1104") "%s:%d: %s %s: a request of a route "
                     "could run twice: mod_proxy sends it to another FastCGI member although the first one got it. Say "
                     "maxattempts=0 for this balancer", fault->filename, fault->line_num, fault->directive, fault->args);
    }
    return !fault;
}

int idem_balancer_check_config(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp, server_rec *main_server)
{
    server_rec *s;
    int sound = 1;

    (void)pconf;
    (void)plog;
    for (s = main_server; s; s = s->next) {
        sound &= check_server(ptemp, s, s == main_server);
    }
    return sound ? OK : HTTP_INTERNAL_SERVER_ERROR;
}

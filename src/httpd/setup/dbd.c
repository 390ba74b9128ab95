#include "httpd/setup/dbd.h"

#include <stdlib.h>

#include <apr_cstr.h>
#include <apr_strings.h>
#include <httpd.h>
#include <http_config.h>

#include "httpd/setup/conftree.h"

/* mod_dbd's */
#define DBDMAX_DEFAULT 10
#define DBDMIN_DEFAULT 1

/* The last value of a directive directly in a server, searched through the tree in its order. */
static const char *find(const ap_directive_t *node, const char *name, const server_rec *s, int is_main)
{
    const char *value = NULL;

    for (; node; node = node->next) {
        if (!apr_cstr_casecmp(node->directive, name) && idem_conftree_stands_in(node, s, is_main)) {
            value = node->args;
        }
        if (node->first_child) {
            const char *inner = find(node->first_child, name, s, is_main);

            value = inner ? inner : value;
        }
    }
    return value;
}

static const char *setting(apr_pool_t *p, const server_rec *main_server, const server_rec *s, const char *name)
{
    const char *value = s == main_server ? NULL : find(ap_conftree, name, s, 0);

    value = value ? value : find(ap_conftree, name, main_server, 1);
    return value ? ap_getword_conf(p, &value) : NULL;
}

static int number(const char *value, int otherwise)
{
    return value ? atoi(value) : otherwise;
}

const char *idem_dbd_check(apr_pool_t *p, const server_rec *main_server, const server_rec *s, idem_dbd_t *dbd)
{
    const char *driver = setting(p, main_server, s, "DBDriver");
    const char *persist = setting(p, main_server, s, "DBDPersist");

    if (!ap_find_linked_module("mod_dbd.c")) {
        return "mod_dbd is not loaded, which has the connections to the registry";
    }
    if (!driver) {
        return "no DBDriver applies to its server: the registry needs DBDriver pgsql and DBDParams";
    }
    if (apr_cstr_casecmp(driver, "pgsql")) {
        return apr_psprintf(p, "DBDriver %s cannot hold the registry: it needs pgsql", driver);
    }
    if (persist && (!apr_cstr_casecmp(persist, "Off") || !strcmp(persist, "0"))) {
        return "DBDPersist Off would connect anew for every request: the registry needs DBDPersist On";
    }
    dbd->params = setting(p, main_server, s, "DBDParams");
    dbd->max = number(setting(p, main_server, s, "DBDMax"), DBDMAX_DEFAULT);
    dbd->min = number(setting(p, main_server, s, "DBDMin"), DBDMIN_DEFAULT);
    dbd->most = dbd->max > 1 ? dbd->max - 1 : 1;
    return NULL;
}

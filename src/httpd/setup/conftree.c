#include "httpd/setup/conftree.h"

#include <string.h>

#include <apr_cstr.h>

/* The virtual host in which a directive stands, NULL for the main server. */
static const ap_directive_t *host_of(const ap_directive_t *directive)
{
    const ap_directive_t *parent;

    for (parent = directive->parent; parent; parent = parent->parent) {
        if (!apr_cstr_casecmp(parent->directive, "<VirtualHost")) {
            return parent;
        }
    }
    return NULL;
}

int idem_conftree_stands_in(const ap_directive_t *directive, const server_rec *s, int is_main)
{
    const ap_directive_t *host = host_of(directive);

    if (is_main || !host) {
        return is_main && !host;
    }
    return s->defn_name && host->line_num == (int)s->defn_line_number && !strcmp(host->filename, s->defn_name);
}

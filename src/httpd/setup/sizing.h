/*
 * sizing.h - do the connections that the children may open fit into what the database server gives?
 */
#ifndef IDEM_HTTPD_SIZING_H
#define IDEM_HTTPD_SIZING_H

#include <httpd.h>

#include "httpd/setup/config.h"

/* Hook post_config: the warnings below, and the mark by which the children together warn once. */
int idem_sizing_start(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp, server_rec *main_server);

/* Warnings about settings that make an outage of the registry worse than it need be; after check_config. */
void idem_sizing_warn(server_rec *main_server);

/*
 * By a child, when it knows the server's max_connections (less those for superusers): a warning with the arithmetic
 * where children x DBDMax is more. conf: of a server that uses the registry. Once for every start of httpd.
 */
void idem_sizing_check(const idem_server_t *conf, int max_connections);

#endif

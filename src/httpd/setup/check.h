/*
 * check.h - what only the whole configuration can show. CONTRACT section 11.
 */
#ifndef IDEM_HTTPD_CHECK_H
#define IDEM_HTTPD_CHECK_H

#include <httpd.h>

/*
 * Hook check_config, which `apachectl configtest` runs as well: a route without tenant or principal, a principal of
 * const: and server alone, a registry that mod_dbd cannot reach. OK, or HTTP_INTERNAL_SERVER_ERROR after error lines with file
 * and line. Leaves behind which servers have routes, and where their registry is.
 */
int idem_check_config(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp, server_rec *main_server);

#endif

/*
 * balancer.h - balancers that may run a request twice.
 *
 * mod_proxy goes on to another member when a member's handler says 503. mod_proxy_http says that only where nothing was
 * sent; mod_proxy_fcgi also where the request was sent and the answer did not come. CONTRACT section 4, rule 2.
 */
#ifndef IDEM_HTTPD_BALANCER_H
#define IDEM_HTTPD_BALANCER_H

#include <httpd.h>

/*
 * Hook check_config, after idem_check_config: refuses a server in which a route may apply to requests that go to a
 * balancer with a FastCGI member and failover, as far as the configuration files show it.
 */
int idem_balancer_check_config(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp, server_rec *main_server);

#endif

/*
 * identity.h - who the caller is, by httpd's own authentication. CONTRACT sections 2 and 11.
 */
#ifndef IDEM_HTTPD_IDENTITY_H
#define IDEM_HTTPD_IDENTITY_H

#include "httpd/request/context.h"

/*
 * Hook access_checker, REALLY_LAST: remembers the environment as it is before authentication begins. Whatever stands
 * in it then may have been put there by the client (SetEnvIf, RewriteRule [E=]) and is no identity.
 */
void idem_identity_before_authentication(request_rec *r, idem_ctx_t *ctx);

/*
 * Fills in tenant and principal of the scope. 1, or 0 after an error line that names the directive and the source;
 * no value is logged.
 */
int idem_identity_resolve(request_rec *r, idem_ctx_t *ctx);

#endif

/*
 * operation.h - `SetHandler idempotency-operation`: a caller's own operation. CONTRACT section 5 "Discovery".
 *
 * GET .../<operation_id> tells its state, DELETE cancels it while it is RESERVED. Whose operation it is, is decided as
 * for a keyed request: by the tenant and principal of the configuration; anybody else's is 404, as one that never was.
 */
#ifndef IDEM_HTTPD_OPERATION_H
#define IDEM_HTTPD_OPERATION_H

#include <httpd.h>

int idem_operation_handler(request_rec *r);

#endif

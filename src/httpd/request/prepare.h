/*
 * prepare.h - everything that must be known before a record is asked for: key, identity, route, body, fingerprint.
 */
#ifndef IDEM_HTTPD_PREPARE_H
#define IDEM_HTTPD_PREPARE_H

#include "httpd/request/context.h"

/*
 * Hook fixups, REALLY_FIRST: after authorization, before a per-directory rewrite can set variables, before
 * mod_security2 drains the body. Leaves the context READY, PASSED, or with an ANSWER that the handler will give.
 * OK, or the status with which httpd itself must end the request.
 */
int idem_prepare(request_rec *r);

/* Hook post_read_request: removes the fields that only the module may write, and watches who reads the body. */
int idem_prepare_scrub(request_rec *r);

/* Tenant, principal and scope of a request. 1, or 0: refused, or PASSED where there is no identity and none is needed. */
int idem_prepare_scope(request_rec *r, idem_ctx_t *ctx);

/* The request as the fingerprint sees it, all but its payload. */
idem_request_t *idem_prepare_describe(request_rec *r, idem_ctx_t *ctx);

#endif

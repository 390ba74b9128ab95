/*
 * prepare.h - everything that must be known before a record is asked for: key, identity, route, body, fingerprint.
 */
#ifndef IDEM_HTTPD_PREPARE_H
#define IDEM_HTTPD_PREPARE_H

#include "httpd/context.h"

/*
 * Hook fixups, REALLY_FIRST: after authorization, before a per-directory rewrite can set variables, before
 * mod_security2 drains the body. Leaves the context READY, PASSED, or with an ANSWER that the handler will give.
 * OK, or the status with which httpd itself must end the request.
 */
int idem_prepare(request_rec *r);

/* Hook post_read_request: removes the fields that only the module may write. */
int idem_prepare_scrub(request_rec *r);

#endif

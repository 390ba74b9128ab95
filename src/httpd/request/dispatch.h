/*
 * dispatch.h - the last step before a backend runs. CONTRACT section 4.
 */
#ifndef IDEM_HTTPD_DISPATCH_H
#define IDEM_HTTPD_DISPATCH_H

#include "httpd/request/context.h"

/* Microseconds by a clock that nobody sets; for intervals within one process. */
apr_interval_time_t idem_dispatch_moment(void);

/*
 * Before the first real handler of a RUNNING context: writes EXECUTING where IdempotencyDispatchMark has left that for
 * now, and, later than half a lease after the reserve, proves by compare-and-set that the record is still ours.
 * 1: the backend may run. 0: it must not, and the context has an ANSWER: what the record is by now, or
 * store-unavailable, with the record withdrawn by the child's thread.
 */
int idem_dispatch(request_rec *r, idem_ctx_t *ctx);

#endif

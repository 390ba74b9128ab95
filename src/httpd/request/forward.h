/*
 * forward.h - what a backend is told about the operation it runs for. CONTRACT section 6.
 */
#ifndef IDEM_HTTPD_FORWARD_H
#define IDEM_HTTPD_FORWARD_H

#include "httpd/request/context.h"

/* Sets environment and request headers of a request that is about to run under a RUNNING context. Called for every
 * request of a chain of redirects, as httpd renames the environment on the way. */
void idem_forward(request_rec *r, const idem_ctx_t *ctx);

#endif

/*
 * shadow.h - IdempotencyMode Shadow: what would Enforce have answered? CONTRACT section 8.
 *
 * Nothing is held, changed or refused, and the registry is never asked on a request's thread. The request body is
 * fingerprinted as the backend reads it; when the request is logged, the child's thread is told, by a bounded queue. It
 * keeps records under shadow-v1, decides, counts by the hour and logs.
 */
#ifndef IDEM_HTTPD_SHADOW_H
#define IDEM_HTTPD_SHADOW_H

#include "httpd/request/context.h"

/* In fixups, for a BOUND context whose mode is Shadow: afterwards it has PASSED. */
void idem_shadow_begin(request_rec *r, idem_ctx_t *ctx);

/* In fixups, for a request that an internal redirect made: goes on looking. */
void idem_shadow_follow(request_rec *r, idem_ctx_t *ctx);

/* Hook log_transaction. Never blocks. */
int idem_shadow_finish(request_rec *r);

/* Registers the filters. */
void idem_shadow_register(void);

#endif

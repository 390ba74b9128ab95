/*
 * accept.h - one look at the store, one verdict. CONTRACT section 4.
 */
#ifndef IDEM_HTTPD_ACCEPT_H
#define IDEM_HTTPD_ACCEPT_H

#include "httpd/request/context.h"

/*
 * Asks the store for the record of a READY context. Leaves it RUNNING (this request has the record and is to execute)
 * or with an ANSWER. Takes at most a few calls, each within IdempotencyStoreTimeout; nothing is held afterwards.
 */
void idem_accept(request_rec *r, idem_ctx_t *ctx);

/*
 * What is to be said of the record now, by a request that has lost it or may not have it: an ANSWER, never an
 * execution, and nothing is written. in-progress where the record has gone or waits for a new owner.
 */
void idem_accept_look(request_rec *r, idem_ctx_t *ctx);

/* An ANSWER: the store is away. */
void idem_accept_refuse_store(idem_ctx_t *ctx);

#endif

/*
 * settle.h - from a response to a settlement. CONTRACT section 4 "Settlement".
 */
#ifndef IDEM_HTTPD_SETTLE_H
#define IDEM_HTTPD_SETTLE_H

#include "httpd/request/context.h"
#include "httpd/request/pile.h"

/*
 * Settles a RUNNING context with the response of r, before its first octet leaves. body: the whole response, or NULL
 * where it is not stored. The context is SETTLED afterwards, whatever the store said: the effect has happened, and
 * hiding the true response would help nobody.
 *
 * 1: that response may leave. 0: the record has gone on without this owner, whose work was undone or is done again by
 * another: ctx->answer is to be given in its place (CONTRACT section 4, a passed generation).
 */
int idem_settle(request_rec *r, idem_ctx_t *ctx, const idem_pile_t *body);

/* The outcome by the first fitting IdempotencyOutcome; NONE where none fits. */
idem_outcome_e idem_settle_rule(request_rec *r, const idem_ctx_t *ctx);

#endif

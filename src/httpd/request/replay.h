/*
 * replay.h - answers that the module gives by itself: snapshots and problems. CONTRACT section 5.
 *
 * They enter the filter chain where the capture filter stands, behind everything that has worked on the first
 * response already (SUBSTITUTE, INCLUDES), before what each answer gets anew (headers, session, compression).
 */
#ifndef IDEM_HTTPD_REPLAY_H
#define IDEM_HTTPD_REPLAY_H

#include "httpd/request/context.h"

/* Gives ctx->answer. Returns what a handler returns; never an error status, so no ErrorDocument comes in between. */
int idem_replay_answer(request_rec *r, idem_ctx_t *ctx);

/* Takes out what a backend may have written under names that are the module's. */
void idem_replay_unmark(request_rec *r, const idem_ctx_t *ctx);

/* The fields that every response carries that the module had a part in: contract, and operation where there is one. */
void idem_replay_mark(request_rec *r, const idem_ctx_t *ctx);

/* The same for a page that httpd shows after the settlement: where it keeps the fields of errors. */
void idem_replay_mark_error(request_rec *r, const idem_ctx_t *ctx);

#endif

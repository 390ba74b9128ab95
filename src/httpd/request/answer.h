/*
 * answer.h - from a verdict to what the client is told. CONTRACT section 5.
 */
#ifndef IDEM_HTTPD_ANSWER_H
#define IDEM_HTTPD_ANSWER_H

#include "httpd/request/context.h"

#define IDEM_RETRY_STORE 2 /* seconds, Retry-After while the store is away */

/*
 * Gives the context the ANSWER of a verdict that needs no further look. found: the record, NULL where none was seen;
 * it lives as long as the context.
 */
void idem_answer_verdict(idem_ctx_t *ctx, idem_verdict_e verdict, const idem_reserve_t *wanted, const idem_record_t *found);

#endif

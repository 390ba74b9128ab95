/*
 * key.h - which key a request has: its own, or one that the server made for it. CONTRACT sections 2 and 5.
 */
#ifndef IDEM_HTTPD_KEY_H
#define IDEM_HTTPD_KEY_H

#include "httpd/request/context.h"

/*
 * Fills in key and namespace of the scope. 1 where there is a key to go on with; else the context knows what to do
 * instead: a refusal, or to let the request pass.
 */
int idem_key_read(request_rec *r, idem_ctx_t *ctx);

/* 1 where a request whose route is found has no key, and needs none: known without what authentication or a body add. */
int idem_key_none(const request_rec *r, const idem_ctx_t *ctx);

/* Offers idempotency_server_key() of mod_idempotency.h to other modules. */
void idem_key_register(void);

#endif

/*
 * edge.h - what happens between the running handler and httpd's filters, where the handler itself may not say it.
 *
 * mod_cgi, mod_proxy_http and others return OK whatever became of their response on its way through the filters, and
 * 400 where a filter could not give them the request body, although the script runs already. So a filter of ours stands
 * at the very top of either chain for as long as a handler runs (AP_FTYPE_RESOURCE - 5: nothing is nearer to it), and
 * notes what the handler was told.
 */
#ifndef IDEM_HTTPD_EDGE_H
#define IDEM_HTTPD_EDGE_H

#include "httpd/request/context.h"

/* Registers the filters. */
void idem_edge_register(void);

/*
 * Called right before the handler of r runs. The input filter is only put in where other filters work on the body: on
 * top of our own nothing can fail, and mod_proxy trusts a length only while it sees no filter but the protocol's.
 */
void idem_edge_insert(request_rec *r, idem_ctx_t *ctx);

/* 1 where the handler went past httpd's filters (nph- scripts, a switched protocol): nobody saw its response. */
int idem_edge_was_bypassed(const request_rec *r, const idem_ctx_t *ctx);

#endif

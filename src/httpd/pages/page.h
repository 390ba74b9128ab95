/*
 * page.h - what the module's own pages share: sending, and JSON by yajl.
 */
#ifndef IDEM_HTTPD_PAGE_H
#define IDEM_HTTPD_PAGE_H

#include <httpd.h>

#include <yajl/yajl_gen.h>

/* How a page's handler begins: OK where the request is for it, DECLINED, or 405. methods: AP_METHOD_BIT << M_GET ... */
int idem_page_begin(request_rec *r, const char *handler, apr_int64_t methods);

/* Sends one body with no-store; type NULL: no body. r->status is the caller's to set. What a handler returns. */
int idem_page_send(request_rec *r, const char *type, const char *body, apr_size_t len);

/* Sends what gen holds, and frees it. */
int idem_page_send_json(request_rec *r, yajl_gen gen, int status);

/* 1 where the client prefers JSON: ?format=json, or an Accept that names it and not HTML. */
int idem_page_wants_json(request_rec *r);

void idem_page_string(yajl_gen gen, const char *text); /* NULL: null */
const char *idem_page_time(apr_pool_t *p, apr_time_t when); /* RFC 3339, UTC, seconds */

#endif

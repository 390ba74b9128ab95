/*
 * route.h - which route a request is bound to. CONTRACT section 11.
 *
 * The merge of sections that a front controller, FallbackResource or [PT] leaves behind has lost the Location of the
 * public URL. Only at translate_name is it whole, and only at fixups are Directory and If merged in. So the route is
 * looked for at both; the first one found stays.
 */
#ifndef IDEM_HTTPD_ROUTE_H
#define IDEM_HTTPD_ROUTE_H

#include "httpd/request/context.h"

/* Hooks translate_name and (first part of) fixups: binds a request that has no route yet, or refines the merge of one
 * whose fixups still name the same route. */
void idem_route_bind(request_rec *r, idem_ctx_t *ctx, int at_fixups);

/* 1 where the route takes requests of this method. */
int idem_route_takes(const idem_route_t *route, const char *method);

/*
 * The name that goes into the scope: captures filled in from the environment, or, for `auto`, method and path.
 * NULL with *why where a capture is empty, too long or has control octets.
 */
const char *idem_route_name(request_rec *r, const idem_ctx_t *ctx, const char **why);

#endif

/*
 * capture.h - the output filter that holds a response until it is whole and settled. CONTRACT sections 4 and 5.
 *
 * AP_FTYPE_CONTENT_SET - 3: it sees the entity after every filter that makes it (INCLUDES, SUBSTITUTE), and before
 * those whose work each answer gets anew (expires, headers, session, DEFLATE). At that level a filter does not
 * survive a redirect or an ErrorDocument, so it is put in again for every request of a chain.
 */
#ifndef IDEM_HTTPD_CAPTURE_H
#define IDEM_HTTPD_CAPTURE_H

#include <httpd.h>
#include <util_filter.h>

#include "httpd/request/context.h"

/* Registers the filter. */
void idem_capture_register(void);

/* Hooks insert_filter and insert_error_filter. The latter also drops what was held: httpd has begun another answer. */
void idem_capture_insert(request_rec *r);
void idem_capture_insert_error(request_rec *r);

/* The filter that an answer of the module itself is passed to: the next behind ours. */
ap_filter_t *idem_capture_position(request_rec *r, const idem_ctx_t *ctx);

#endif

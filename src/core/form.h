/*
 * Payload `form`: application/x-www-form-urlencoded, read as the pairs it decodes to, in order.
 *
 * Clause: CONTRACT.md section 3. A pair is what stands between two `&`; an empty one is none. The first `=` ends the
 * name; `a` and `a=` differ. `+` is a space, %XX an octet; a `%` without two hexadecimal digits is refused
 * [bad-escape]. Decoded octets are taken as they are: the charset is the application's affair, and so is `;`, which
 * is data. An empty body is a form without pairs.
 *
 * Canonical octets: NAME, `=` where there was one, VALUE, `&`, for each pair. Names and values have letters, digits
 * and - . _ ~ as they are and every other octet as %XX in upper case. So the pairs can be read back from them.
 *
 * Memory: the reader alone, whatever the body's size.
 */
#ifndef IDEM_CORE_FORM_H
#define IDEM_CORE_FORM_H

#include "core/payload.h"

#define IDEM_FORM_MAX_PAIRS 100000 /* pairs of one body [too-many-pairs] */

typedef struct idem_form_t idem_form_t;

idem_form_t *idem_form_create(apr_pool_t *p, idem_octets_fn sink, void *baton, idem_payload_fault_t *fault);

/* APR_SUCCESS, or APR_EINVAL with the fault given at creation. */
apr_status_t idem_form_feed(idem_form_t *form, const char *data, apr_size_t len);
apr_status_t idem_form_finish(idem_form_t *form);

#endif

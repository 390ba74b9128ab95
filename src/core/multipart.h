/*
 * Payload `multipart`: the parts of a multipart body in order, each as its header fields and its content; the
 * boundary is left out, so a client that draws a new one for each try repeats the same payload.
 *
 * Clause: CONTRACT.md section 3; RFC 2046 5.1, RFC 7578. Read strictly, since two readers that find different parts
 * in one body are how a check is led past what the application sees. Refused, with the reason in brackets:
 *   a boundary that is not one [boundary], octets before the first delimiter other than one CRLF [preamble], a line
 *   that begins like a delimiter and goes on [boundary-in-content], a header line without CRLF, with another
 *   control character than a tab or without a name [part-header], anything but blanks and line ends after the last
 *   delimiter [epilogue], no last delimiter [truncated]; and the limits [too-many-parts, part-header-too-long].
 * Header fields: names in lower case, values without the blanks around them, folded lines joined by one space, in the
 * order sent. Content is taken octet by octet, whatever Content-Transfer-Encoding says; a multipart inside a part is
 * content, its inner boundary included.
 *
 * Canonical octets, with LENGTH in eight octets, big-endian:
 *   for each part      `P`
 *     for each field   `H` LENGTH name LENGTH value
 *     its content      `C` LENGTH octets, one after the other; all but the last hold IDEM_MULTIPART_BLOCK octets, the
 *                      last holds fewer (none, if need be)
 * So the parts can be read back from them, and a file need never be whole in memory.
 *
 * Memory: the reader alone (about 13 KiB), whatever the body's size.
 */
#ifndef IDEM_CORE_MULTIPART_H
#define IDEM_CORE_MULTIPART_H

#include "core/payload.h"

#define IDEM_MULTIPART_MAX_BOUNDARY 70   /* octets, RFC 2046 */
#define IDEM_MULTIPART_MAX_PARTS    1000
#define IDEM_MULTIPART_MAX_HEADERS  8192 /* octets of all header lines of one part */
#define IDEM_MULTIPART_BLOCK        4096 /* octets of content in one piece of the canonical form */

typedef struct idem_multipart_t idem_multipart_t;

/* `boundary` is copied; NULL or an invalid one is a fault of the first feed or finish. */
idem_multipart_t *idem_multipart_create(apr_pool_t *p, const char *boundary, idem_octets_fn sink, void *baton,
                                        idem_payload_fault_t *fault);

/* APR_SUCCESS, or APR_EINVAL with the fault given at creation. */
apr_status_t idem_multipart_feed(idem_multipart_t *multipart, const char *data, apr_size_t len);
apr_status_t idem_multipart_finish(idem_multipart_t *multipart);

#endif

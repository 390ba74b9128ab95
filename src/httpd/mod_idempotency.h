/*
 * mod_idempotency.h - what other httpd modules may call. CONTRACT section 2 (namespace s:).
 *
 * In another module:
 *
 *     #include <mod_idempotency.h>
 *
 *     APR_OPTIONAL_FN_TYPE(idempotency_server_key) *mint = APR_RETRIEVE_OPTIONAL_FN(idempotency_server_key);
 *
 *     if (mint && mint(r, "evt_42") != APR_SUCCESS) {
 *         return HTTP_INTERNAL_SERVER_ERROR;
 *     }
 */
#ifndef MOD_IDEMPOTENCY_H
#define MOD_IDEMPOTENCY_H

#include <apr_optional.h>
#include <httpd.h>

/*
 * Gives request r a key that the server made: its record lies in a namespace of its own, which no key that a client
 * sends can reach. To be called before the fixups of r, from any hook; it counts for the internal redirects of r too.
 * The key is copied. It is 1 to 255 octets of UTF-8 without control characters.
 *
 * APR_SUCCESS; APR_EINVAL: such a key cannot be, or r is a subrequest; APR_EBUSY: too late, the request's key was
 * read already (or it needs none). A request that also brings a client's key is answered 400 key-malformed.
 */
APR_DECLARE_OPTIONAL_FN(apr_status_t, idempotency_server_key, (request_rec *r, const char *key));

#endif

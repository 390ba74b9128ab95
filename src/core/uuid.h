/*
 * uuid.h - operation ids (UUIDv7), downstream keys (UUIDv8) and their text form. RFC 9562.
 */
#ifndef IDEM_UUID_H
#define IDEM_UUID_H

#include <apr.h>
#include <apr_errno.h>
#include <apr_pools.h>
#include <apr_time.h>

#define IDEM_UUID_LEN 16      /* octets */
#define IDEM_UUID_TEXT_LEN 36 /* characters, without the NUL */

/*
 * A new UUIDv7: 48 bits of milliseconds taken from now (microseconds since 1970), then 74 random bits of OpenSSL's
 * generator. Ids of one millisecond have no order among each other.
 * APR_SUCCESS; APR_EINVAL where now is before 1970 or past the 48 bits; APR_EGENERAL where OpenSSL has no randomness
 * to give. After an error out is all zero, and no operation may run under it.
 */
apr_status_t idem_uuid_v7(unsigned char out[IDEM_UUID_LEN], apr_time_t now);

/* Two of them, with one call of the generator. After an error both are all zero. */
apr_status_t idem_uuid_v7_pair(unsigned char out[IDEM_UUID_LEN], unsigned char other[IDEM_UUID_LEN], apr_time_t now);

/*
 * The downstream key of operation op: a UUIDv8 derived from the operation id alone, so that every generation of an
 * operation hands the same key on (CONTRACT section 6, IDEMPOTENCY_DOWNSTREAM_KEY). Never change how it is derived:
 * the first 16 octets of the SHA-256 of "mod_idempotency downstream key" and op, then version and variant set.
 */
void idem_uuid_downstream(const unsigned char op[IDEM_UUID_LEN], unsigned char out[IDEM_UUID_LEN]);

/* The lower-case text of uuid, NUL-terminated, into out. */
void idem_uuid_format(const unsigned char uuid[IDEM_UUID_LEN], char out[IDEM_UUID_TEXT_LEN + 1]);

/* The same, in pool p. */
const char *idem_uuid_text(apr_pool_t *p, const unsigned char uuid[IDEM_UUID_LEN]);

/*
 * Read the text form that idem_uuid_format() writes and no other: 36 characters, lower case, hyphens in their places,
 * no braces, no white space. Any version and variant. APR_SUCCESS, or APR_EINVAL with out untouched (text may be
 * NULL).
 */
apr_status_t idem_uuid_parse(const char *text, unsigned char out[IDEM_UUID_LEN]);

#endif

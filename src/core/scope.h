/*
 * scope.h - the identity of a record: the tuple of CONTRACT section 2, its checks and its digests.
 *
 * A part that does not fit is refused, never stripped, escaped, cut or replaced: every repair would let two callers
 * meet in one record.
 *
 * Tenant and principal are made of sources, and idem_scope_join() is the only way to make them, from one source too:
 * it refuses a source that holds a control octet, U+001E among them, and puts U+001E between the sources, so that
 * different lists of sources never give the same text. idem_scope_check(), which runs again before the store, takes a
 * tenant or principal apart at U+001E and holds every piece to the rule of a source; in any other part U+001E is a
 * control octet like the rest.
 */
#ifndef IDEM_SCOPE_H
#define IDEM_SCOPE_H

#include <apr.h>
#include <apr_pools.h>

#include "core/digest.h"

#define IDEM_SCOPE_MAX_SOURCE 255 /* octets: each source, and each part that is not joined (route, revision, key ...) */
#define IDEM_SCOPE_MAX_JOINED 800 /* octets: a tenant or principal, separators included */
#define IDEM_SCOPE_SEPARATOR '\x1e'

#define IDEM_SCOPE_VERSION "v1"
#define IDEM_SCOPE_VERSION_SHADOW "shadow-v1"
#define IDEM_SCOPE_NS_CLIENT "u:" /* keys that clients sent */
#define IDEM_SCOPE_NS_SERVER "s:" /* keys that the server minted */

#define IDEM_SCOPE_PARTS 7

/* NUL-terminated UTF-8, all seven mandatory. ns is one of the two above. */
typedef struct idem_scope_t {
    const char *version, *tenant, *principal, *route, *revision, *ns, *key;
} idem_scope_t;

/* The parts in the order of the tuple, which is that of the primary key and of the digest; and back. Nothing is copied. */
void idem_scope_list(const idem_scope_t *scope, const char *parts[IDEM_SCOPE_PARTS]);
idem_scope_t idem_scope_of_list(const char *const parts[IDEM_SCOPE_PARTS]);

/* The scope with parts of its own in pool p. */
idem_scope_t idem_scope_copy(apr_pool_t *p, const idem_scope_t *scope);

/* Below, at or above 0, as strcmp: the order of the primary key, by octets. */
int idem_scope_compare(const idem_scope_t *a, const idem_scope_t *b);

/*
 * What is wrong and where: a fault, the part where one is known, and of a joined value the number of the source. Take
 * it apart with the macros below. IDEM_SCOPE_OK is 0.
 */
typedef enum {
    IDEM_SCOPE_OK = 0,

    IDEM_SCOPE_EMPTY = 0x01,         /* absent or without an octet; also a piece between two separators */
    IDEM_SCOPE_TOO_LONG = 0x02,      /* over its limit */
    IDEM_SCOPE_CONTROL = 0x03,       /* holds an octet 00-1F or 7F */
    IDEM_SCOPE_NOT_UTF8 = 0x04,      /* not well-formed UTF-8 */
    IDEM_SCOPE_BAD_NAMESPACE = 0x05, /* ns is neither "u:" nor "s:" */
    IDEM_SCOPE_FAULT_MASK = 0x0f,

    IDEM_SCOPE_IN_VERSION = 0x10,
    IDEM_SCOPE_IN_TENANT = 0x20,
    IDEM_SCOPE_IN_PRINCIPAL = 0x30,
    IDEM_SCOPE_IN_ROUTE = 0x40,
    IDEM_SCOPE_IN_REVISION = 0x50,
    IDEM_SCOPE_IN_NS = 0x60,
    IDEM_SCOPE_IN_KEY = 0x70,
    IDEM_SCOPE_PART_MASK = 0xf0,

    IDEM_SCOPE_SOURCE_MASK = 0xffff00
} idem_scope_result_e;

#define IDEM_SCOPE_FAULT(r) ((idem_scope_result_e)((r) & IDEM_SCOPE_FAULT_MASK))
#define IDEM_SCOPE_PART(r) ((idem_scope_result_e)((r) & IDEM_SCOPE_PART_MASK)) /* 0 where unknown */
#define IDEM_SCOPE_SOURCE(r) ((int)((r) & IDEM_SCOPE_SOURCE_MASK) >> 8)        /* from 1; 0 where none is to blame */

/*
 * A few words about r for logs, in pool p: "the route is too long", "source 2 of the principal is missing or empty".
 * It never holds the value itself. To name the part of a result of idem_scope_join(), or it in first.
 */
const char *idem_scope_result_text(apr_pool_t *p, idem_scope_result_e r);

/*
 * Check one part by the rule of part (IDEM_SCOPE_IN_...): the joined rule for tenant and principal, the two words
 * for ns, the rule of a source for the others. value may be NULL. The result names the part.
 */
idem_scope_result_e idem_scope_check_part(idem_scope_result_e part, const char *value);

/* Check one source, before it is joined. value may be NULL. The result names no part. */
idem_scope_result_e idem_scope_check_source(const char *value);

/* Check all seven parts, in the order of the tuple; the first fault is the result. */
idem_scope_result_e idem_scope_check(const idem_scope_t *scope);

/*
 * Check n sources and join them into a tenant or principal, in pool p. NULL where a source does not fit, the whole
 * is too long or n is below 1, with the fault in *result, and the source where one is to blame; else *result is
 * IDEM_SCOPE_OK.
 */
const char *idem_scope_join(apr_pool_t *p, const char *const *sources, int n, idem_scope_result_e *result);

/*
 * A digest that stands for the scope in caches and journals: SHA-256 over the seven parts in their order, each framed
 * by its length, so it is as injective as the tuple. Of a checked scope.
 */
void idem_scope_digest(const idem_scope_t *scope, unsigned char out[IDEM_SHA256_LEN]);

/*
 * What logs show of a scope: the first 8 octets of the HMAC-SHA256 of that digest, 16 hex digits in pool p. Keyed,
 * because keys and principals can be guessed (CONTRACT section 10). secret: secret_len octets.
 */
const char *idem_scope_log_digest(apr_pool_t *p, const idem_scope_t *scope, const unsigned char *secret,
                                  apr_size_t secret_len);

/* The number of a scope version, "v7" is 7; 0 where the text is none (v1 to v9999). */
int idem_scope_version_number(const char *version);

#endif

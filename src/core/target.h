/*
 * target.h - a request target in the one form that the fingerprint and `auto` routes bind. CONTRACT section 3.
 */
#ifndef IDEM_TARGET_H
#define IDEM_TARGET_H

#include <apr_pools.h>
#include <apr_tables.h>

/*
 * Splits a target (origin form, or absolute form, whose scheme and authority are dropped) into its path and query.
 * path: percent-encoding normalised (unreserved octets decoded, hex digits in upper case), then dot segments resolved
 * (RFC 3986 section 5.2.4); "*" stays. query: percent-encoding normalised, without "?"; NULL where there is none.
 * A "%" that is not followed by two hex digits is kept as it is. Both in p.
 */
void idem_target_split(apr_pool_t *p, const char *target, const char **path, const char **query);

/* The pairs of a query whose decoded name is one of names (const char *), in order, as received, joined by "&".
 * NULL where there is none. */
const char *idem_target_select(apr_pool_t *p, const char *query, const apr_array_header_t *names);

#endif

/*
 * The payload contract (IdempotencyPayloadContract): which JSON bodies a route takes, and what counts as the same
 * number in them. A subset of JSON Schema; compiled once at start-up, then read only, so threads may share it.
 *
 * Clause: CONTRACT.md 3.1. A schema is an object of these keywords; any other stops start-up:
 *   type                  one of null, boolean, number, integer, string, array, object, or a list of them
 *   properties            member name -> schema
 *   required              list of member names; each must be in properties unless additionalProperties allows more
 *   additionalProperties  false (also where it is not said: a member outside the contract is refused), true (such
 *                         members may be anything), or a schema for them
 *   items                 schema of every element
 *   enum, const           JSON values; numbers are equal when they are the same number (1 and 1.0), strings octet
 *                         by octet
 *   maxLength             code points of a string
 *   pattern               PCRE2 search in a string (UTF-8, $ is the very end), under a match limit
 *   minimum, maximum      of a number, bounds included, compared exactly; with format: decimal of a string too
 *   format                "decimal" only
 *   x-revision            in the outermost schema only: a string of 1 to 255 octets without control characters, or an
 *                         integer; the schema revision in the fingerprint
 * Differences from JSON Schema: additionalProperties is false by default, at every object, also under a schema that
 * names no member at all; an array without `items` has elements under the empty schema. What may be anything says
 * "additionalProperties": true. An object fixed by enum or const needs no properties. A keyword that can never apply
 * to the schema's type (maxLength of a number) is an error, since it would promise a check that never happens.
 *
 * Normalised, so that one value has one canonical form:
 *   integer          a number that satisfies "integer" in `type` (no fraction: 10, 10.0, 1e1) is written plain: 10
 *   format: decimal  a number, or a string that holds one ([+-]digits[.digits][e[+-]digits]), is written plain: no
 *                    exponent, plus sign or needless zero, 0 without sign ("+01.50" is "1.5", 1e2 is 100). It stays
 *                    what it was, number or string. A string that holds no number is refused.
 * All other numbers keep their lexeme.
 */
#ifndef IDEM_CORE_CONTRACT_H
#define IDEM_CORE_CONTRACT_H

#include <apr_errno.h>
#include <apr_pools.h>

#include "core/payload.h"

#define IDEM_CONTRACT_MAX_TEXT     (1u << 20) /* octets of a contract's file */
#define IDEM_CONTRACT_MAX_REVISION 255        /* octets of x-revision */
#define IDEM_CONTRACT_MATCH_LIMIT  50000      /* PCRE2's match limit for one string */
#define IDEM_CONTRACT_MATCH_HEAP   1024       /* KiB that one match may take */

/*
 * Compiles `text` into `p` (which must live as long as the contract; `text` need not).
 * APR_SUCCESS, or APR_EINVAL with *error: a sentence that names the place by JSON Pointer, in `p`. APR_ENOMEM.
 */
apr_status_t idem_contract_compile(apr_pool_t *p, const char *text, apr_size_t len, idem_contract_t **out,
                                   const char **error);

/* x-revision, "" where the contract has none. Lives as long as the contract. */
const char *idem_contract_revision(const idem_contract_t *contract);

#endif

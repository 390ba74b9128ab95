/*
 * The payload readers: a request body in, canonical octets out, piece by piece.
 *
 * Clause: CONTRACT.md section 3 (payload raw, json, jcs, form, multipart) and 3.1. The caller hashes what the
 * sink receives. Two bodies of one mode give the same canonical octets exactly when the contract calls them the
 * same payload; how a body was cut into pieces never matters.
 *
 * Until idem_payload_finish() has returned APR_SUCCESS, what the sink received is worth nothing and must be
 * thrown away: a body that cannot be read whole is refused, never fingerprinted as shorter.
 *
 * What each mode keeps in memory (B octets of body) is said in the header of its reader.
 */
#ifndef IDEM_CORE_PAYLOAD_H
#define IDEM_CORE_PAYLOAD_H

#include <apr_errno.h>
#include <apr_pools.h>

#include "core/fault.h"

typedef enum {
    IDEM_PAYLOAD_RAW,      /* the octets as received */
    IDEM_PAYLOAD_JSON,     /* canon.h */
    IDEM_PAYLOAD_JCS,      /* jcs.h, RFC 8785 */
    IDEM_PAYLOAD_FORM,     /* form.h, application/x-www-form-urlencoded */
    IDEM_PAYLOAD_MULTIPART /* multipart.h, multipart/form-data and its kin */
} idem_payload_mode_e;

typedef struct idem_payload_t idem_payload_t;
typedef struct idem_contract_t idem_contract_t; /* contract.h */

/* Receives canonical octets in order. They are valid during the call only. */
typedef void (*idem_octets_fn)(void *baton, const void *octets, apr_size_t len);

/*
 * A reader that lives in `p`. `contract` may be NULL; with another mode than json or jcs it must be. `boundary` is
 * the parameter of the multipart media type, unquoted; it is read for that mode only. Both must outlive the reader.
 * Never NULL: an argument that does not fit the mode is a fault, which the first feed or finish reports.
 */
idem_payload_t *idem_payload_create(apr_pool_t *p, idem_payload_mode_e mode, const idem_contract_t *contract,
                                    const char *boundary, idem_octets_fn sink, void *baton);

/*
 * The next octets of the body; any cut will do, none is kept by reference.
 * APR_SUCCESS; APR_EINVAL: refused, see idem_payload_fault() (and so is every later call); APR_ENOMEM: no memory.
 */
apr_status_t idem_payload_feed(idem_payload_t *payload, const char *data, apr_size_t len);

/* The body is over. To be called once; the reader's memory beside the pool is given back. Errors as above. */
apr_status_t idem_payload_finish(idem_payload_t *payload);

/* The fault behind APR_EINVAL, in the reader's pool; NULL where there is none. */
const idem_payload_fault_t *idem_payload_fault(const idem_payload_t *payload);

/* "raw", "json", "jcs", "form", "multipart": the words of IdempotencyFingerprint. */
const char *idem_payload_mode_name(idem_payload_mode_e mode);

/* The mode of that name (as written, lower case); APR_NOTFOUND for any other word. */
apr_status_t idem_payload_mode_parse(const char *name, idem_payload_mode_e *mode);

#endif

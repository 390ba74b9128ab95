/*
 * Why a request's payload (or a payload contract's own text) was refused.
 *
 * Clause: CONTRACT.md 3.1 (400 payload-rejected). A fault names places, never values: what stands in a
 * payload belongs to the caller and stays out of problem bodies and logs.
 */
#ifndef IDEM_CORE_FAULT_H
#define IDEM_CORE_FAULT_H

#include <apr_errno.h>
#include <apr_pools.h>

/* Longest JSON Pointer shown, in octets; a longer one ends in "...". */
#define IDEM_FAULT_MAX_POINTER 512

typedef struct idem_payload_fault_t {
    const char *reason;  /* a short fixed name, e.g. "duplicate-member"; NULL while there is no fault */
    const char *detail;  /* one sentence for people; names and places only, never values */
    const char *pointer; /* JSON Pointer of the place ("" is the whole document), or NULL where none applies */
} idem_payload_fault_t;

/*
 * Fills *fault unless it already holds one: the first fault is the one that is told.
 * `reason` must be a string constant; `pointer` may be NULL and is not copied; detail is formatted into `p`.
 * Returns APR_EINVAL always, so that callers can write `return idem_fault(...)`.
 */
apr_status_t idem_fault(idem_payload_fault_t *fault, apr_pool_t *p, const char *reason, const char *pointer,
                        const char *fmt, ...) __attribute__((format(printf, 5, 6)));

#endif

/*
 * problem.h - the answers that are not the application's: RFC 9457 bodies, one type for each slug of the table in
 * CONTRACT section 5.
 *
 * No text advises to take a new key in order to repeat something: that is how a payment happens twice. None says
 * anything about the first request beyond what the asking caller is told of their own operation.
 */
#ifndef IDEM_PROBLEM_H
#define IDEM_PROBLEM_H

#include <apr.h>
#include <apr_pools.h>

#define IDEM_PROBLEM_MEDIA_TYPE "application/problem+json"

/* What a type's name is made of where no documentation is published. */
#define IDEM_PROBLEM_TAG "tag:mod-idempotency,2026:"

typedef enum {
    IDEM_PROBLEM_KEY_MISSING,
    IDEM_PROBLEM_KEY_MALFORMED,
    IDEM_PROBLEM_PAYLOAD_REJECTED,
    IDEM_PROBLEM_ROUTE_UNRESOLVED,
    IDEM_PROBLEM_IDENTITY_MISSING,
    IDEM_PROBLEM_IN_PROGRESS,
    IDEM_PROBLEM_OUTCOME_UNKNOWN,
    IDEM_PROBLEM_RESPONSE_NOT_STORED,
    IDEM_PROBLEM_KEY_EXPIRED,
    IDEM_PROBLEM_PAYLOAD_TOO_LARGE,
    IDEM_PROBLEM_KEY_REUSED,
    IDEM_PROBLEM_QUOTA_EXCEEDED,
    IDEM_PROBLEM_BODY_CONSUMED,
    IDEM_PROBLEM_STORE_UNAVAILABLE,
    IDEM_PROBLEM_WRITER_FENCED
} idem_problem_e;

#define IDEM_PROBLEM_COUNT (IDEM_PROBLEM_WRITER_FENCED + 1)

/* What is fixed for a type. All strings are static. */
typedef struct idem_problem_type_t {
    const char *slug;
    int status;         /* HTTP status, and the member of that name */
    const char *retry;  /* "same-key", "after-fix" or "ask-operator" */
    int retry_after;    /* 1: the answer carries Retry-After, as waiting helps */
    const char *title;  /* the same for every occurrence (RFC 9457 3.1.4) */
    const char *detail; /* where the caller of idem_problem_build() has nothing better to say */
} idem_problem_type_t;

/* The row of problem, for status, Retry-After and the pages that list all types. Never NULL. */
const idem_problem_type_t *idem_problem_type(idem_problem_e problem);

/* One occurrence. All strings NUL-terminated UTF-8; what is NULL or 0 is left out. */
typedef struct idem_problem_args_t {
    idem_problem_e problem;
    const char *detail;    /* NULL: the type's own */
    const char *operation; /* text form of the operation id */
    const char *docs;      /* IdempotencyDocs; NULL: types are named by IDEM_PROBLEM_TAG */
    int error_member;      /* 1: also error {code, message} (IdempotencyErrorMember) */
    const char *outcome;   /* of RESPONSE_NOT_STORED and KEY_EXPIRED only, "succeeded" or "failed" */
    int original_status;   /* of RESPONSE_NOT_STORED only: the HTTP status the first answer had */
    const char *settled;   /* of KEY_EXPIRED only: when it was settled, RFC 3339 */
} idem_problem_args_t;

/*
 * Write the body, JSON, *len octets in pool p with a NUL after them. The members come in a fixed order: type, title,
 * status, detail, retry, operation, outcome, original_status, settled, error. A string that is not valid UTF-8, which
 * JSON cannot hold, counts as NULL; a member that is not of this problem is ignored.
 */
void idem_problem_build(apr_pool_t *p, const idem_problem_args_t *args, const char **body, apr_size_t *len);

/* The URI of a type, in pool p: docs and "#slug", or the tag where docs is NULL. */
const char *idem_problem_type_uri(apr_pool_t *p, idem_problem_e problem, const char *docs);

/* The value of Link beside a problem, in pool p: docs as describedby (RFC 8631); NULL where docs is NULL. */
const char *idem_problem_link(apr_pool_t *p, const char *docs);

/*
 * Can docs, as configured, be what type URIs and Link are made of? NULL if so, else a few words on what is wrong with
 * it, for the start-up error: it must be an http or https URL with a host, of visible ASCII, without a fragment and
 * without characters that would end it early in a Link field or in JSON.
 */
const char *idem_problem_docs_fault(apr_pool_t *p, const char *docs);

#endif

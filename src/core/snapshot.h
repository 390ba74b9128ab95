/*
 * snapshot.h - which response fields are kept for replay, and how they lie in a record (CONTRACT section 5,
 * "Snapshot").
 *
 * The layout (record column response_headers, before it is sealed). Every number is 4 octets, big endian, as
 * PostgreSQL's int4send() writes it:
 *
 *     1 octet   version, 1
 *     number    length of the reason phrase, 0 where the status line has none of its own; its octets (a single space:
 *               the phrase is empty, and that is its own)
 *     number    count of the fields
 *     each      number: length of the name; the name; number: length of the value; the value
 *
 * Fields keep their order, their repetition and the case of their names. The status code is not in it: it is a column.
 */
#ifndef IDEM_SNAPSHOT_H
#define IDEM_SNAPSHOT_H

#include <apr.h>
#include <apr_pools.h>
#include <apr_tables.h>

#define IDEM_SNAPSHOT_LAYOUT 1
#define IDEM_SNAPSHOT_NO_REASON " " /* the reason phrase of a status line that the backend has made without one */
#define IDEM_SNAPSHOT_MAX_FIELDS 256
#define IDEM_SNAPSHOT_MAX_OCTETS (256 * 1024) /* of the layout as a whole */

typedef enum {
    IDEM_SNAPSHOT_OK,
    IDEM_SNAPSHOT_UNKNOWN_VERSION, /* written by a later release, or not a snapshot at all */
    IDEM_SNAPSHOT_TRUNCATED,       /* ends before what it announces */
    IDEM_SNAPSHOT_TRAILING,        /* goes on after what it announces */
    IDEM_SNAPSHOT_TOO_MANY,        /* over IDEM_SNAPSHOT_MAX_FIELDS */
    IDEM_SNAPSHOT_TOO_LARGE,       /* over IDEM_SNAPSHOT_MAX_OCTETS */
    IDEM_SNAPSHOT_BAD_NAME,        /* a name that is not a token (RFC 9110 5.1) */
    IDEM_SNAPSHOT_BAD_VALUE,       /* a value with a control octet other than HT */
    IDEM_SNAPSHOT_BAD_REASON,      /* a reason phrase with a control octet other than tab */
    IDEM_SNAPSHOT_FORBIDDEN        /* to be written: a field that is never kept */
} idem_snapshot_result_e;

/* A few words about result for logs. */
const char *idem_snapshot_result_text(idem_snapshot_result_e result);

/* Is name a field name at all, a token of RFC 9110? 1 or 0. For directives that list names. */
int idem_snapshot_is_name(const char *name);

/*
 * Is name, in any case, a field that is never kept, even if listed? Cookies; Date, Server, Via; hop-by-hop fields;
 * Content-Length, which every answer gets anew; authentication and its tokens; trace and request ids, which belong
 * to one exchange; and the module's own Idempotency-*. 1 or 0. Such a name in IdempotencySnapshotHeaders is to stop
 * start-up.
 */
int idem_snapshot_forbidden(const char *name);

/*
 * Is the response field name, in any case, to be kept: is it one of the contract's list or in extra (an array of
 * const char *, the names of IdempotencySnapshotHeaders; NULL for none), and not forbidden? 1 or 0.
 */
int idem_snapshot_wants(const char *name, const apr_array_header_t *extra);

/*
 * Lay out headers, which idem_snapshot_wants() has chosen, and the reason phrase of the status line (NULL or "" for
 * none). A value may hold any octet but CR and LF.
 * IDEM_SNAPSHOT_OK: *out is *len octets in pool p. TOO_MANY, TOO_LARGE, BAD_NAME, BAD_VALUE, BAD_REASON, FORBIDDEN:
 * *out is NULL, *len 0; no snapshot can be made of this response.
 */
idem_snapshot_result_e idem_snapshot_encode_headers(apr_pool_t *p, const apr_table_t *headers, const char *reason,
                                                    unsigned char **out, apr_size_t *len);

/*
 * The way back, from len octets that may be wrong in any way. *headers is a new table and *reason a string in pool p
 * (NULL where there was none); neither points into octets. Fields that are forbidden are left out: a backend that
 * settled by itself, or an earlier release with a shorter list, may have put them in.
 * Any result but IDEM_SNAPSHOT_OK and FORBIDDEN, which it never is: *headers and *reason are NULL.
 */
idem_snapshot_result_e idem_snapshot_decode_headers(apr_pool_t *p, const unsigned char *octets, apr_size_t len,
                                                    apr_table_t **headers, const char **reason);

#endif

/*
 * Strict JSON (RFC 8259, and I-JSON where RFC 8259 leaves a choice) -> a flat list of values.
 *
 * Clause: CONTRACT.md 3.1. Refused, with the reason in brackets:
 *   nothing at all [empty], a byte order mark [byte-order-mark], bad UTF-8 anywhere [not-utf8], what is not JSON,
 *   NaN and Infinity among it [syntax], a text that ends too early [truncated], anything but blanks after the value
 *   [trailing-text], an escaped surrogate without its other half [unpaired-surrogate], deeper nesting [depth],
 *   and what is over a limit below [too-large, too-many-values, too-many-members, name-too-long, number-too-long].
 * Duplicate names are found by the writer (canon.h), which has to sort them anyway.
 *
 * The grammar is yajl's. yajl takes some texts that are not JSON (vertical tab and form feed as blanks, overlong
 * UTF-8, surrogates, lone surrogate escapes, an unfinished string behind the value); those are checked here.
 *
 * Where RFC 8259 leaves it to the reader (the i_ files of JSONTestSuite):
 *   numbers of any size, precision and exponent       taken: the lexeme is kept (jcs refuses what no double holds)
 *   unpaired or inverted surrogate escapes            refused [unpaired-surrogate]
 *   invalid UTF-8, overlong forms, encoded surrogates refused [not-utf8]
 *   UTF-16, with or without byte order mark           refused [not-utf8 or syntax]
 *   UTF-8 byte order mark                             refused [byte-order-mark]
 *   500 nested arrays                                 refused [depth]
 *   duplicate names (y_ in that suite, or i_)         refused [duplicate-member], by the contract
 *
 * Memory, for B octets of body: the body itself in a buffer that doubles (at most 2 B + 4 KiB), plus 8 octets for
 * each value and name (at most 8 * IDEM_JSON_MAX_VALUES, in a list that doubles). JSON needs at least two octets a
 * value, so all of it stays below 10 B + 8 KiB, and below 2 B + 16 MiB; what clients send comes to 2 to 4 B. While one
 * of the two doubles, it may be there twice.
 */
#ifndef IDEM_CORE_JSON_H
#define IDEM_CORE_JSON_H

#include <apr_errno.h>
#include <apr_pools.h>

#include "core/fault.h"

#define IDEM_JSON_MAX_DEPTH   64        /* nested arrays and objects in a payload */
#define IDEM_JSON_DEPTH_LIMIT 192       /* the most that idem_json_create() grants anyone */
#define IDEM_JSON_MAX_TEXT    (1u << 28) /* octets; IdempotencyMaxBody is what bounds a body in practice */
#define IDEM_JSON_MAX_VALUES  1000000   /* values and member names of a text */
#define IDEM_JSON_MAX_MEMBERS 100000    /* members of one object */
#define IDEM_JSON_MAX_NAME    1024      /* octets of one unescaped member name */
#define IDEM_JSON_MAX_NUMBER  256       /* octets of one number */
#define IDEM_JSON_SLACK       8         /* octets behind the text that may be read, whatever is in them */

typedef enum {
    IDEM_JSON_NULL,
    IDEM_JSON_FALSE,
    IDEM_JSON_TRUE,
    IDEM_JSON_NUMBER,
    IDEM_JSON_STRING,
    IDEM_JSON_ARRAY,
    IDEM_JSON_OBJECT
} idem_json_kind_e;

/*
 * One value, or a member's name (a string). They follow each other as in the text: an array is followed by its
 * elements, an object by name, value, name, value ...
 */
typedef struct {
    apr_uint32_t at;       /* string, number: offset of its octets in text (a string's are unescaped).
                              Array, object: index of the first node behind it and all that it contains */
    apr_uint32_t len : 28; /* string, number: octets. Array: elements. Object: members */
    apr_uint32_t kind : 3; /* idem_json_kind_e */
    apr_uint32_t plain : 1; /* string: it was written without escapes, so it needs none */
} idem_json_node_t;

typedef struct idem_json_t {
    apr_pool_t *pool;
    char *text; /* after finish, unescaped strings stand in the place of the escaped ones */
    apr_size_t len;
    apr_size_t text_room;
    idem_json_node_t *nodes; /* nodes[0] is the document's value */
    apr_uint32_t count;
    apr_uint32_t node_room;
    apr_uint32_t max_depth;
} idem_json_t;

/* A reader. Its buffers are outside the pool; idem_json_free() or the pool's end gives them back. */
idem_json_t *idem_json_create(apr_pool_t *p, apr_uint32_t max_depth);

/* Keeps a copy of the next octets. APR_SUCCESS, APR_EINVAL with *fault, APR_ENOMEM. */
apr_status_t idem_json_feed(idem_json_t *json, const char *data, apr_size_t len, idem_payload_fault_t *fault);

/* The text is whole: reads it. Only after APR_SUCCESS are nodes to be looked at. Errors as above. */
apr_status_t idem_json_finish(idem_json_t *json, idem_payload_fault_t *fault);

void idem_json_free(idem_json_t *json);

/* The node behind a value and all that it contains: its next sibling, where it has one. */
static inline apr_uint32_t idem_json_next(const idem_json_t *json, apr_uint32_t node)
{
    return json->nodes[node].kind >= IDEM_JSON_ARRAY ? json->nodes[node].at : node + 1;
}

/*
 * JSON Pointer (RFC 6901) to a node, in json->pool: a value's own, a name's that of its value. Control characters in
 * names are shown as in JSON (\u001f), since the pointer goes to logs. At most IDEM_FAULT_MAX_POINTER octets.
 */
const char *idem_json_pointer(const idem_json_t *json, apr_uint32_t node);

#endif

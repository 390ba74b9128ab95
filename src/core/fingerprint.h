/*
 * fingerprint.h - "same key, same request?": SHA-256 over length-framed fields. CONTRACT section 3.
 *
 * Every field is framed as one tag octet, an 8-octet big-endian length, and that many octets, so no two different
 * lists of fields give the same octets. The payload enters as the SHA-256 of its canonical octets: a body whose
 * length is not known beforehand can so be digested while it arrives.
 */
#ifndef IDEM_FINGERPRINT_H
#define IDEM_FINGERPRINT_H

#include <apr_pools.h>
#include <apr_tables.h>

#include "core/payload.h"

#define IDEM_CONTRACT_NAME   "http.idempotency.v1"
#define IDEM_FINGERPRINT_LEN 32
#define IDEM_PARTS_LEN       49 /* a version octet and 8 octets a group */

/* Field tags, in the order in which fields are framed. A header is a pair of NAME and VALUE (left out when absent). */
enum {
    IDEM_FIELD_CONTRACT = 'C',
    IDEM_FIELD_SCHEMA = 'S',
    IDEM_FIELD_METHOD = 'M',
    IDEM_FIELD_AUTHORITY = 'A',
    IDEM_FIELD_PATH = 'T',
    IDEM_FIELD_QUERY = 'Q',          /* left out where the target has none or none is selected */
    IDEM_FIELD_MEDIA_TYPE = 'Y',     /* parsed and normalised */
    IDEM_FIELD_MEDIA_OCTETS = 'y',   /* a Content-Type that cannot be parsed, as octets */
    IDEM_FIELD_CODING = 'E',
    IDEM_FIELD_HEADER_NAME = 'H',
    IDEM_FIELD_HEADER_VALUE = 'V',
    IDEM_FIELD_PAYLOAD_MODE = 'F',
    IDEM_FIELD_PAYLOAD = 'P'
};

typedef enum { IDEM_QUERY_ALL, IDEM_QUERY_NONE, IDEM_QUERY_NAMES } idem_query_e;

/* How a fingerprint is made. A record keeps the recipe it was made with (column recipe). */
typedef struct idem_recipe_t {
    idem_payload_mode_e mode;
    int host;                                /* bind the authority: IdempotencyFingerprintHost */
    idem_query_e query;
    const apr_array_header_t *query_names;   /* of const char *, decoded; with IDEM_QUERY_NAMES */
    const apr_array_header_t *headers;       /* of const char *, in the order in which they are bound */
    const char *schema;                      /* the payload contract's revision, "" for none */
} idem_recipe_t;

/* A request as received. Strings live as long as the call. */
typedef struct idem_request_t {
    const char *method;
    const char *host;            /* without port; NULL where the request named none */
    unsigned port;               /* 0: the scheme's default */
    const char *target;          /* request target as received, origin form or absolute form */
    const char *content_type;    /* NULL: missing, which equals empty */
    const char *content_coding;  /* likewise */
    const char *(*header)(void *baton, const char *name); /* lines joined in order; NULL: absent */
    void *header_baton;
    unsigned char payload[IDEM_FINGERPRINT_LEN]; /* SHA-256 of the canonical payload in the recipe's mode */
} idem_request_t;

/* The framed fields of a request, in pool p, and their digest. The tool shows the first, the record keeps the second. */
void idem_fingerprint_frame(apr_pool_t *p, const idem_recipe_t *recipe, const idem_request_t *request,
                            const unsigned char **framed, apr_size_t *len);
void idem_fingerprint(apr_pool_t *p, const idem_recipe_t *recipe, const idem_request_t *request,
                      unsigned char out[IDEM_FINGERPRINT_LEN]);

/*
 * A short keyed digest per group of fields (method, target, query, media type, headers, payload), from which nobody
 * without the key learns a value, but by which two requests tell where they differ.
 */
void idem_fingerprint_parts(apr_pool_t *p, const unsigned char *framed, apr_size_t len, const unsigned char key[32],
                            unsigned char out[IDEM_PARTS_LEN]);

/* The names of the groups in which two lists of parts differ, "query, payload"; "" where they are of unlike layout. */
const char *idem_fingerprint_differing(apr_pool_t *p, const unsigned char *a, apr_size_t a_len, const unsigned char *b,
                                       apr_size_t b_len);

/* The next field of framed octets, or 0 at their end and where they are broken: shows that framing is injective. */
int idem_fingerprint_next(const unsigned char **at, apr_size_t *left, int *tag, const unsigned char **octets,
                          apr_size_t *len);

/* A recipe as text for the record, and back. parse returns NULL for a recipe that this build does not know. */
const char *idem_recipe_format(apr_pool_t *p, const idem_recipe_t *recipe);
const idem_recipe_t *idem_recipe_parse(apr_pool_t *p, const char *text, apr_size_t len);

#endif

/*
 * reading.h - one body through a payload reader, cut as a test wants it.
 */
#ifndef IDEM_TEST_READING_H
#define IDEM_TEST_READING_H

#include <apr_pools.h>

#include "core/payload.h"
#include "vectors.h"

typedef struct {
    apr_pool_t *pool;
    idem_payload_mode_e mode;
    const idem_contract_t *contract;
    const char *boundary;
    apr_size_t piece;  /* octets of each feed; 0: all at once */
    unsigned random;   /* not 0: pieces of random size, from this seed */
    /* what came of it */
    const idem_payload_fault_t *fault; /* NULL: taken */
    char *octets;
    apr_size_t len;
} reading_t;

/* 1 when the body was taken, 0 when it was refused with a fault; anything else ends the test. */
int reading_of(reading_t *r, const char *body, apr_size_t len);

/* The canonical octets of a body that must be taken, NUL-terminated. Checks that 1-octet pieces change nothing. */
const char *reading_text(reading_t *r, const char *body);

/* The reason why a body is refused; "taken" if it is not. Checks that 1-octet pieces change nothing. */
const char *reading_refusal(reading_t *r, const char *body);

/* A value of the test data as JSON text, its members in their order or backwards. */
const char *reading_json(apr_pool_t *p, const vec_t *value, int backwards);

/* The next number of a reproducible series, and one below limit. */
unsigned reading_random(unsigned *seed);
unsigned reading_below(unsigned *seed, unsigned limit);

#endif

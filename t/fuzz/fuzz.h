/*
 * fuzz.h - what the fuzz targets share. Each target is one file with LLVMFuzzerTestOneInput(); it is linked with
 * libFuzzer's engine (make fuzz) or with replay.c, which only runs stored inputs (make fuzz-replay).
 */
#ifndef IDEM_FUZZ_H
#define IDEM_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <apr_general.h>
#include <apr_pools.h>

#include "core/payload.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold for every input. */
#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);                             \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* A pool for one input, to be destroyed by it. APR is set up at the first. */
static inline apr_pool_t *fuzz_pool(void)
{
    apr_pool_t *p;

    MUST(apr_initialize() == APR_SUCCESS);
    MUST(apr_pool_create(&p, NULL) == APR_SUCCESS);
    return p;
}

static inline void fuzz_done(apr_pool_t *p)
{
    apr_pool_destroy(p);
    apr_terminate();
}

/* Canonical octets of one body. */
typedef struct {
    apr_pool_t *pool;
    char *octets;
    apr_size_t len, room;
    int taken;
    const idem_payload_fault_t *fault;
} fuzz_reading_t;

static void fuzz_collect(void *baton, const void *octets, apr_size_t len)
{
    fuzz_reading_t *r = baton;

    if (r->room - r->len < len) {
        char *old = r->octets;

        r->room = (r->len + len) * 2;
        r->octets = apr_palloc(r->pool, r->room);
        memcpy(r->octets, old, r->len);
    }
    memcpy(r->octets + r->len, octets, len);
    r->len += len;
}

/* Reads a body in pieces of 1, 2, 3 ... `longest` octets, over and over; all at once where that is 0. */
static inline fuzz_reading_t fuzz_read(apr_pool_t *p, idem_payload_mode_e mode, const idem_contract_t *contract,
                                       const char *boundary, const void *body, apr_size_t len, apr_size_t longest)
{
    fuzz_reading_t r = { .pool = p, .octets = apr_palloc(p, 64), .room = 64 };
    idem_payload_t *payload = idem_payload_create(p, mode, contract, boundary, fuzz_collect, &r);
    apr_status_t rv = APR_SUCCESS;
    apr_size_t piece = 0;
    apr_size_t at;

    for (at = 0; rv == APR_SUCCESS && at < len; at += piece) {
        piece = longest == 0 ? len : piece % longest + 1;
        piece = piece < len - at ? piece : len - at;
        rv = idem_payload_feed(payload, (const char *)body + at, piece);
    }
    if (rv == APR_SUCCESS) {
        rv = idem_payload_finish(payload);
    }
    MUST(rv == APR_SUCCESS || rv == APR_EINVAL);
    r.taken = rv == APR_SUCCESS;
    r.fault = idem_payload_fault(payload);
    MUST((r.fault == NULL) == r.taken);
    return r;
}

/* The cut of a body makes no difference. Returns what came of it. */
static inline fuzz_reading_t fuzz_read_all_ways(apr_pool_t *p, idem_payload_mode_e mode,
                                                const idem_contract_t *contract, const char *boundary,
                                                const void *body, apr_size_t len)
{
    static const apr_size_t cuts[] = { 1, 7, 300 };
    fuzz_reading_t whole = fuzz_read(p, mode, contract, boundary, body, len, 0);
    unsigned i;

    for (i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        fuzz_reading_t cut = fuzz_read(p, mode, contract, boundary, body, len, cuts[i]);

        MUST(cut.taken == whole.taken);
        if (whole.taken) {
            MUST(cut.len == whole.len && memcmp(cut.octets, whole.octets, whole.len) == 0);
        }
        else {
            MUST(strcmp(cut.fault->reason, whole.fault->reason) == 0);
        }
    }
    return whole;
}

#endif

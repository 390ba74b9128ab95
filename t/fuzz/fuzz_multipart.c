/*
 * Payload multipart: any octets, with the boundary "XX". What was read is written again with another boundary from
 * the canonical octets alone, and must then be read as the same.
 */
#include "fuzz.h"

#include "core/multipart.h"

#define OTHER "other-boundary-that-no-input-has-by-chance"

typedef struct {
    const char *at, *end; /* canonical octets */
    char *out;
    apr_size_t used;
} copy_t;

static void put(copy_t *c, const char *octets, apr_size_t len)
{
    memcpy(c->out + c->used, octets, len);
    c->used += len;
}

static apr_size_t copy_framed(copy_t *c)
{
    apr_size_t len = 0;
    int i;

    MUST(c->end - c->at >= 8);
    for (i = 0; i < 8; i++) {
        len = len << 8 | (unsigned char)*c->at++;
    }
    MUST(len <= (apr_size_t)(c->end - c->at));
    put(c, c->at, len);
    c->at += len;
    return len;
}

static void rewrite(copy_t *c)
{
    while (c->at < c->end) {
        MUST(*c->at++ == 'P');
        put(c, "--" OTHER "\r\n", sizeof("--" OTHER "\r\n") - 1);
        while (c->at < c->end && *c->at == 'H') {
            c->at++;
            MUST(copy_framed(c) != 0);
            put(c, ": ", 2);
            copy_framed(c);
            put(c, "\r\n", 2);
        }
        put(c, "\r\n", 2);
        do {
            MUST(c->at < c->end && *c->at++ == 'C');
        } while (copy_framed(c) == IDEM_MULTIPART_BLOCK);
        put(c, "\r\n", 2);
    }
    put(c, "--" OTHER "--", sizeof("--" OTHER "--") - 1);
}

static int contains(const char *octets, apr_size_t len, const char *word)
{
    return memmem(octets, len, word, strlen(word)) != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    apr_pool_t *p = fuzz_pool();
    fuzz_reading_t r = fuzz_read_all_ways(p, IDEM_PAYLOAD_MULTIPART, NULL, "XX", data, size);

    if (r.taken && !contains(r.octets, r.len, OTHER)) {
        copy_t copy = { r.octets, r.octets + r.len, NULL, 0 };
        fuzz_reading_t again;

        /* a part adds less than 64 octets to what is framed, and frames take no less than ten */
        copy.out = apr_palloc(p, r.len * 8 + 128);
        rewrite(&copy);
        again = fuzz_read(p, IDEM_PAYLOAD_MULTIPART, NULL, OTHER, copy.out, copy.used, 0);
        /* a value of blanks and 8192 octets of headers may just not fit with ": " for ":" */
        MUST(again.taken || strcmp(again.fault->reason, "part-header-too-long") == 0);
        MUST(!again.taken || (again.len == r.len && memcmp(again.octets, r.octets, r.len) == 0));
    }
    fuzz_done(p);
    return 0;
}

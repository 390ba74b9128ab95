/* Payloads json and jcs: any octets. */
#include "fuzz.h"

#include <yajl/yajl_parse.h>

static int yajl_takes(const uint8_t *data, size_t size)
{
    yajl_handle yajl = yajl_alloc(NULL, NULL, NULL);
    int takes = yajl_parse(yajl, data, size) == yajl_status_ok && yajl_complete_parse(yajl) == yajl_status_ok;

    yajl_free(yajl);
    return takes;
}

/* Behind a text that is taken, a blank changes nothing and anything else is one too much, even if it is cut off. */
static void try_more(apr_pool_t *p, idem_payload_mode_e mode, const uint8_t *data, size_t size, const fuzz_reading_t *r)
{
    static const char more[] = { '\n', '"', 't', '-', '[', '/' };
    char *longer = apr_palloc(p, size + 1);
    unsigned i;

    memcpy(longer, data, size);
    for (i = 0; i < sizeof(more); i++) {
        fuzz_reading_t got;

        longer[size] = more[i];
        got = fuzz_read(p, mode, NULL, NULL, longer, size + 1, 0);
        MUST(got.taken == (i == 0));
        MUST(!got.taken || (got.len == r->len && memcmp(got.octets, r->octets, r->len) == 0));
    }
}

static void try_mode(apr_pool_t *p, idem_payload_mode_e mode, const uint8_t *data, size_t size)
{
    fuzz_reading_t r = fuzz_read_all_ways(p, mode, NULL, NULL, data, size);
    fuzz_reading_t again;

    if (r.taken) {
        MUST(yajl_takes(data, size));
        again = fuzz_read(p, mode, NULL, NULL, r.octets, r.len, 0);
        MUST(again.taken);
        MUST(again.len == r.len && memcmp(again.octets, r.octets, r.len) == 0);
        try_more(p, mode, data, size, &r);
    }
    else {
        MUST(r.fault->detail != NULL);
        MUST(r.fault->pointer == NULL || strlen(r.fault->pointer) <= IDEM_FAULT_MAX_POINTER);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    apr_pool_t *p = fuzz_pool();

    try_mode(p, IDEM_PAYLOAD_JSON, data, size);
    try_mode(p, IDEM_PAYLOAD_JCS, data, size);
    fuzz_done(p);
    return 0;
}

/* Payload form: any octets. Its canonical octets are a form themselves, of the same pairs. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    apr_pool_t *p = fuzz_pool();
    fuzz_reading_t r = fuzz_read_all_ways(p, IDEM_PAYLOAD_FORM, NULL, NULL, data, size);

    if (r.taken) {
        fuzz_reading_t again = fuzz_read(p, IDEM_PAYLOAD_FORM, NULL, NULL, r.octets, r.len, 0);

        MUST(again.taken);
        MUST(again.len == r.len && memcmp(again.octets, r.octets, r.len) == 0);
    }
    fuzz_done(p);
    return 0;
}

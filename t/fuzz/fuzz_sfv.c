/* The value of the Idempotency-Key field: any octets, in both syntaxes. */
#include "fuzz.h"

#include "core/sfv.h"

static idem_key_result_e parse(apr_pool_t *p, const uint8_t *data, size_t size, idem_key_syntax_e syntax,
                               const char **key, apr_size_t *len)
{
    idem_key_result_e result = idem_key_parse(p, (const char *)data, size, syntax, key, len);
    apr_size_t i;

    MUST(idem_key_result_text(result) != NULL);
    if (result != IDEM_KEY_OK) {
        MUST(*key == NULL && *len == 0);
        return result;
    }
    MUST(*len != 0 && *len <= size && (*key)[*len] == '\0');
    for (i = 0; i < *len; i++) {
        MUST((*key)[i] >= 0x20 && (*key)[i] <= 0x7E);
    }
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    apr_pool_t *p = fuzz_pool();
    const char *strict;
    const char *lenient;
    apr_size_t strict_len;
    apr_size_t lenient_len;

    if (parse(p, data, size, IDEM_KEY_STRICT, &strict, &strict_len) == IDEM_KEY_OK) {
        /* What is a key in the strict syntax is the same key in the lenient one. */
        MUST(parse(p, data, size, IDEM_KEY_LENIENT, &lenient, &lenient_len) == IDEM_KEY_OK);
        MUST(lenient_len == strict_len && memcmp(lenient, strict, strict_len) == 0);
    }
    else {
        parse(p, data, size, IDEM_KEY_LENIENT, &lenient, &lenient_len);
    }
    fuzz_done(p);
    return 0;
}

/* The payload contract: its text, an octet FF (which neither text can have), and a body to check by it. */
#include "fuzz.h"

#include "core/contract.h"

static void check_body(apr_pool_t *p, idem_payload_mode_e mode, const idem_contract_t *contract, const uint8_t *body,
                       size_t len)
{
    fuzz_reading_t r = fuzz_read(p, mode, contract, NULL, body, len, 0);
    fuzz_reading_t again;

    if (!r.taken) {
        return;
    }
    MUST(fuzz_read(p, mode, NULL, NULL, body, len, 0).taken);
    /* What was normalised may be too short for a pattern now; where it passes, it is what it was. */
    again = fuzz_read(p, mode, contract, NULL, r.octets, r.len, 0);
    MUST(!again.taken || (again.len == r.len && memcmp(again.octets, r.octets, r.len) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    apr_pool_t *p = fuzz_pool();
    const uint8_t *mark = size != 0 ? memchr(data, 0xFF, size) : NULL;
    size_t len = mark != NULL ? (size_t)(mark - data) : size;
    idem_contract_t *contract = NULL;
    const char *error = NULL;
    apr_status_t rv = idem_contract_compile(p, (const char *)data, len, &contract, &error);

    MUST(rv == APR_SUCCESS || rv == APR_EINVAL);
    MUST((rv == APR_SUCCESS) == (contract != NULL) && (rv == APR_SUCCESS) == (error == NULL));
    if (contract != NULL) {
        MUST(strlen(idem_contract_revision(contract)) <= IDEM_CONTRACT_MAX_REVISION);
        if (mark != NULL) {
            check_body(p, IDEM_PAYLOAD_JSON, contract, mark + 1, size - len - 1);
            check_body(p, IDEM_PAYLOAD_JCS, contract, mark + 1, size - len - 1);
        }
    }
    fuzz_done(p);
    return 0;
}

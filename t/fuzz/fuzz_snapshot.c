/* The header fields of a snapshot as a record has them: any octets. */
#include "fuzz.h"

#include <apr_tables.h>

#include "core/snapshot.h"

static int same(const apr_table_t *a, const apr_table_t *b)
{
    const apr_array_header_t *ha = apr_table_elts(a);
    const apr_array_header_t *hb = apr_table_elts(b);
    const apr_table_entry_t *ea = (const apr_table_entry_t *)ha->elts;
    const apr_table_entry_t *eb = (const apr_table_entry_t *)hb->elts;
    int i;

    for (i = 0; i < ha->nelts && i < hb->nelts; i++) {
        if (strcmp(ea[i].key, eb[i].key) != 0 || strcmp(ea[i].val, eb[i].val) != 0) {
            return 0;
        }
    }
    return ha->nelts == hb->nelts;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    apr_pool_t *p = fuzz_pool();
    apr_table_t *headers;
    apr_table_t *again;
    const char *reason;
    const char *reason_again;
    unsigned char *octets;
    apr_size_t len;

    if (idem_snapshot_decode_headers(p, data, size, &headers, &reason) == IDEM_SNAPSHOT_OK) {
        MUST(headers != NULL);
        /* Nothing forbidden is in it, so it can be laid out, and comes back as it was. */
        MUST(idem_snapshot_encode_headers(p, headers, reason, &octets, &len) == IDEM_SNAPSHOT_OK);
        MUST(len <= size);
        MUST(idem_snapshot_decode_headers(p, octets, len, &again, &reason_again) == IDEM_SNAPSHOT_OK);
        MUST(same(headers, again));
        MUST((reason == NULL) == (reason_again == NULL) && (reason == NULL || strcmp(reason, reason_again) == 0));
    }
    else {
        MUST(headers == NULL && reason == NULL);
    }
    fuzz_done(p);
    return 0;
}

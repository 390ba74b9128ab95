#include "store/journal_entry.h"

#include <string.h>

#include <apr_strings.h>

#include "core/digest.h"
#include "core/octets.h"

#define MAGIC        "IDEMJRN\x01"
#define MAGIC_LEN    8
#define FIXED_LEN    (MAGIC_LEN + IDEM_NUMBER_LEN + IDEM_JOURNAL_REGISTRY_LEN + IDEM_TIME_LEN + IDEM_UUID_LEN + 4 * IDEM_NUMBER_LEN)
#define FIELDS       7
#define MAX_REASON   1024

static idem_octets_t text(const char *value)
{
    idem_octets_t octets = {(const unsigned char *)value, value ? strlen(value) : 0};

    return octets;
}

idem_octets_t idem_journal_encode(const idem_settlement_t *settlement, const unsigned char *registry,
                                  apr_time_t written_at, apr_pool_t *p)
{
    const idem_settle_t *settle = &settlement->settle;
    const idem_octets_t fields[FIELDS] = {text(idem_outcome_name(settle->outcome)), text(settle->tenant),
                                          settle->response_headers, settle->response_body, settle->response_digest,
                                          settlement->empty_head, text(settle->reason)};
    apr_size_t len = FIXED_LEN + IDEM_SHA256_LEN;
    unsigned char *octets;
    unsigned char *at;
    idem_octets_t entry;
    int i;

    for (i = 0; i < FIELDS; i++) {
        len += IDEM_NUMBER_LEN + (fields[i].octets ? IDEM_NUMBER_LEN + fields[i].len : 0);
    }
    octets = apr_palloc(p, len);
    at = idem_put(octets, MAGIC, MAGIC_LEN);
    at = idem_put_number(at, 0);
    at = idem_put(at, registry, IDEM_JOURNAL_REGISTRY_LEN);
    at = idem_put_time(at, written_at);
    at = idem_put(at, settle->operation, IDEM_UUID_LEN);
    at = idem_put_number(at, (apr_uint32_t)settle->generation);
    at = idem_put_number(at, settlement->backend_first != 0);
    at = idem_put_number(at, settlement->response_whole != 0);
    at = idem_put_number(at, (apr_uint32_t)settle->response_code);
    for (i = 0; i < FIELDS; i++) {
        at = idem_put_number(at, fields[i].octets != NULL);
        if (fields[i].octets) {
            at = idem_put_number(at, (apr_uint32_t)fields[i].len);
            at = idem_put(at, fields[i].octets, fields[i].len);
        }
    }
    idem_sha256(octets, (apr_size_t)(at - octets), at);
    entry.octets = octets;
    entry.len = len;
    return entry;
}

static idem_octets_t get_field(idem_rest_t *rest)
{
    idem_octets_t field = {NULL, 0};

    if (idem_get_number(rest)) {
        apr_size_t len = idem_get_number(rest);

        field.octets = idem_get(rest, len);
        field.len = field.octets ? len : 0;
    }
    return field;
}

/* A field as a string without NUL octets; NULL where it is none, or longer than that. */
static const char *get_text(idem_rest_t *rest, apr_size_t most, apr_pool_t *p)
{
    idem_octets_t field = get_field(rest);

    if (!field.octets || field.len > most || memchr(field.octets, 0, field.len)) {
        return NULL;
    }
    return apr_pstrmemdup(p, (const char *)field.octets, field.len);
}

static const char *fault_of_frame(idem_octets_t octets)
{
    unsigned char digest[IDEM_SHA256_LEN];

    if (octets.len < FIXED_LEN + IDEM_SHA256_LEN || memcmp(octets.octets, MAGIC, MAGIC_LEN - 1)) {
        return "it is no entry of a journal, or its end is missing";
    }
    if (octets.octets[MAGIC_LEN - 1] != MAGIC[MAGIC_LEN - 1]) {
        return "it was written by another release, with another layout";
    }
    idem_sha256(octets.octets, octets.len - IDEM_SHA256_LEN, digest);
    if (memcmp(digest, octets.octets + octets.len - IDEM_SHA256_LEN, IDEM_SHA256_LEN)) {
        return "its digest does not fit: it was cut or changed";
    }
    return NULL;
}

void idem_journal_decode(idem_octets_t octets, idem_journal_entry_t *entry, apr_pool_t *p)
{
    idem_settlement_t *settlement = &entry->settlement;
    idem_settle_t *settle = &settlement->settle;
    idem_rest_t rest = {octets.octets, octets.len - IDEM_SHA256_LEN, 0};
    const char *outcome;

    memset(settlement, 0, sizeof(*settlement));
    entry->fault = fault_of_frame(octets);
    if (entry->fault) {
        return;
    }
    idem_get(&rest, MAGIC_LEN);
    if (idem_get_number(&rest)) {
        entry->fault = "it has a flag that this release does not know";
        return;
    }
    idem_get_fixed(&rest, entry->registry, IDEM_JOURNAL_REGISTRY_LEN);
    entry->written_at = idem_get_time(&rest);
    idem_get_fixed(&rest, settle->operation, IDEM_UUID_LEN);
    settle->generation = (int)idem_get_number(&rest);
    settlement->backend_first = (int)idem_get_number(&rest);
    settlement->response_whole = (int)idem_get_number(&rest);
    settle->response_code = (int)idem_get_number(&rest);
    outcome = get_text(&rest, MAX_REASON, p);
    settle->outcome = outcome ? idem_outcome_parse(outcome) : IDEM_OUTCOME_COUNT;
    settle->tenant = get_text(&rest, IDEM_SCOPE_MAX_JOINED, p);
    settle->response_headers = get_field(&rest);
    settle->response_body = get_field(&rest);
    settle->response_digest = get_field(&rest);
    settlement->empty_head = get_field(&rest);
    settle->reason = get_text(&rest, MAX_REASON, p);
    if (rest.short_of || rest.left || !settle->tenant || !settle->reason || settle->generation < 1 ||
        settle->outcome == IDEM_OUTCOME_NONE || settle->outcome >= IDEM_OUTCOME_COUNT || settle->response_code < 0) {
        entry->fault = "its fields do not fit together";
    }
}

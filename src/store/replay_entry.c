#include "store/replay_entry.h"

#include <string.h>

#include <apr_strings.h>

#include "core/octets.h"

#define LAYOUT    1
#define FIXED_LEN (1 + IDEM_TIME_LEN + 2 * IDEM_SHA256_LEN + IDEM_UUID_LEN + 4 * IDEM_NUMBER_LEN + IDEM_FINGERPRINT_LEN + IDEM_SHA256_LEN)

apr_size_t idem_replay_size(const idem_record_t *record)
{
    const char *parts[IDEM_SCOPE_PARTS];
    apr_size_t len = FIXED_LEN;
    int i;

    if (!idem_machine_is_final(record->state) || record->expired || record->generation != 1 ||
        !record->response_headers.octets || !record->response_body.octets || !record->response_digest.octets) {
        return 0;
    }
    idem_scope_list(&record->scope, parts);
    for (i = 0; i < IDEM_SCOPE_PARTS; i++) {
        len += IDEM_NUMBER_LEN + strlen(parts[i]);
    }
    return len + IDEM_NUMBER_LEN + record->recipe.len + IDEM_NUMBER_LEN + record->response_headers.len + IDEM_NUMBER_LEN +
           record->response_body.len + IDEM_NUMBER_LEN + record->response_digest.len;
}

static unsigned char *put_field(unsigned char *at, const void *octets, apr_size_t len)
{
    return idem_put(idem_put_number(at, len), octets, len);
}

void idem_replay_encode(const idem_replay_entry_t *entry, unsigned char *to)
{
    const idem_record_t *record = &entry->record;
    const char *parts[IDEM_SCOPE_PARTS];
    unsigned char *at = to;
    int i;

    idem_scope_list(&record->scope, parts);
    *at++ = LAYOUT;
    at = idem_put_time(at, entry->until);
    at = idem_put(at, entry->registry, IDEM_SHA256_LEN);
    at = idem_put(at, entry->list, IDEM_SHA256_LEN);
    for (i = 0; i < IDEM_SCOPE_PARTS; i++) {
        at = put_field(at, parts[i], strlen(parts[i]));
    }
    at = idem_put(at, record->operation, IDEM_UUID_LEN);
    at = idem_put_number(at, (apr_uint64_t)record->generation);
    at = idem_put_number(at, record->state);
    at = idem_put_number(at, record->outcome);
    at = idem_put_number(at, (apr_uint64_t)record->response_code);
    at = idem_put(at, record->fingerprint, IDEM_FINGERPRINT_LEN);
    at = put_field(at, record->recipe.octets, record->recipe.len);
    at = put_field(at, record->response_headers.octets, record->response_headers.len);
    at = put_field(at, record->response_body.octets, record->response_body.len);
    at = put_field(at, record->response_digest.octets, record->response_digest.len);
    idem_sha256(to, (apr_size_t)(at - to), at);
}

static idem_octets_t get_field(idem_rest_t *rest)
{
    apr_size_t len = idem_get_number(rest);
    idem_octets_t octets = {idem_get(rest, len), len};

    return octets;
}

static const char *get_text(idem_rest_t *rest, apr_pool_t *p)
{
    idem_octets_t octets = get_field(rest);

    return octets.octets ? apr_pstrmemdup(p, (const char *)octets.octets, octets.len) : NULL;
}

static int is_whole(idem_octets_t octets)
{
    unsigned char digest[IDEM_SHA256_LEN];

    if (octets.len < FIXED_LEN || octets.octets[0] != LAYOUT) {
        return 0;
    }
    idem_sha256(octets.octets, octets.len - IDEM_SHA256_LEN, digest);
    return !memcmp(digest, octets.octets + octets.len - IDEM_SHA256_LEN, IDEM_SHA256_LEN);
}

int idem_replay_decode(idem_octets_t octets, idem_replay_entry_t *entry, apr_pool_t *p)
{
    idem_rest_t rest = {octets.octets + 1, octets.len - 1 - IDEM_SHA256_LEN, 0};
    idem_record_t *record = &entry->record;
    const char *parts[IDEM_SCOPE_PARTS];
    int i;

    memset(entry, 0, sizeof(*entry));
    if (!is_whole(octets)) {
        return 0;
    }
    entry->until = idem_get_time(&rest);
    idem_get_fixed(&rest, entry->registry, IDEM_SHA256_LEN);
    idem_get_fixed(&rest, entry->list, IDEM_SHA256_LEN);
    for (i = 0; i < IDEM_SCOPE_PARTS; i++) {
        parts[i] = get_text(&rest, p);
    }
    record->scope = idem_scope_of_list(parts);
    idem_get_fixed(&rest, record->operation, IDEM_UUID_LEN);
    record->generation = (int)idem_get_number(&rest);
    record->state = (idem_state_e)idem_get_number(&rest);
    record->outcome = (idem_outcome_e)idem_get_number(&rest);
    record->response_code = (int)idem_get_number(&rest);
    idem_get_fixed(&rest, record->fingerprint, IDEM_FINGERPRINT_LEN);
    record->recipe = get_field(&rest);
    record->response_headers = get_field(&rest);
    record->response_body = get_field(&rest);
    record->response_digest = get_field(&rest);
    record->known_contract = 1; /* who has laid it out could read it */
    return !rest.short_of && !rest.left && idem_machine_is_final(record->state);
}

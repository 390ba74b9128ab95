#include "store/replay_entry.h"

#include <string.h>

#include <apr_strings.h>

#define LAYOUT     1
#define NUMBER_LEN 4
#define PARTS      7
#define FIXED_LEN  (1 + 2 * NUMBER_LEN + 2 * IDEM_SHA256_LEN + IDEM_UUID_LEN + 4 * NUMBER_LEN + IDEM_FINGERPRINT_LEN + IDEM_SHA256_LEN)

static void parts_of(const idem_scope_t *scope, const char *parts[PARTS])
{
    parts[0] = scope->version;
    parts[1] = scope->tenant;
    parts[2] = scope->principal;
    parts[3] = scope->route;
    parts[4] = scope->revision;
    parts[5] = scope->ns;
    parts[6] = scope->key;
}

apr_size_t idem_replay_size(const idem_record_t *record)
{
    const char *parts[PARTS];
    apr_size_t len = FIXED_LEN;
    int i;

    if (!idem_machine_is_final(record->state) || record->expired || record->generation != 1 ||
        !record->response_headers.octets || !record->response_body.octets || !record->response_digest.octets) {
        return 0;
    }
    parts_of(&record->scope, parts);
    for (i = 0; i < PARTS; i++) {
        len += NUMBER_LEN + strlen(parts[i]);
    }
    return len + NUMBER_LEN + record->recipe.len + NUMBER_LEN + record->response_headers.len + NUMBER_LEN +
           record->response_body.len + NUMBER_LEN + record->response_digest.len;
}

static unsigned char *put(unsigned char *at, const void *octets, apr_size_t len)
{
    if (len) {
        memcpy(at, octets, len);
    }
    return at + len;
}

static unsigned char *put_number(unsigned char *at, apr_uint64_t value)
{
    int shift;

    for (shift = 24; shift >= 0; shift -= 8) {
        *at++ = (unsigned char)(value >> shift);
    }
    return at;
}

static unsigned char *put_field(unsigned char *at, const void *octets, apr_size_t len)
{
    return put(put_number(at, len), octets, len);
}

void idem_replay_encode(const idem_replay_entry_t *entry, unsigned char *to)
{
    const idem_record_t *record = &entry->record;
    const char *parts[PARTS];
    unsigned char *at = to;
    int i;

    parts_of(&record->scope, parts);
    *at++ = LAYOUT;
    at = put_number(at, (apr_uint64_t)entry->until >> 32);
    at = put_number(at, (apr_uint64_t)entry->until);
    at = put(at, entry->registry, IDEM_SHA256_LEN);
    at = put(at, entry->list, IDEM_SHA256_LEN);
    for (i = 0; i < PARTS; i++) {
        at = put_field(at, parts[i], strlen(parts[i]));
    }
    at = put(at, record->operation, IDEM_UUID_LEN);
    at = put_number(at, (apr_uint64_t)record->generation);
    at = put_number(at, record->state);
    at = put_number(at, record->outcome);
    at = put_number(at, (apr_uint64_t)record->response_code);
    at = put(at, record->fingerprint, IDEM_FINGERPRINT_LEN);
    at = put_field(at, record->recipe.octets, record->recipe.len);
    at = put_field(at, record->response_headers.octets, record->response_headers.len);
    at = put_field(at, record->response_body.octets, record->response_body.len);
    at = put_field(at, record->response_digest.octets, record->response_digest.len);
    idem_sha256(to, (apr_size_t)(at - to), at);
}

/* What is left to read. A read beyond its end sets short_of and gives nothing. */
typedef struct rest_t {
    const unsigned char *at;
    apr_size_t left;
    int short_of;
} rest_t;

static const unsigned char *get(rest_t *rest, apr_size_t len)
{
    const unsigned char *at = rest->at;

    if (rest->short_of || len > rest->left) {
        rest->short_of = 1;
        return NULL;
    }
    rest->at += len;
    rest->left -= len;
    return at;
}

static void get_fixed(rest_t *rest, unsigned char *to, apr_size_t len)
{
    const unsigned char *at = get(rest, len);

    if (at) {
        memcpy(to, at, len);
    }
}

static apr_uint32_t get_number(rest_t *rest)
{
    const unsigned char *at = get(rest, NUMBER_LEN);

    return at ? (apr_uint32_t)at[0] << 24 | (apr_uint32_t)at[1] << 16 | (apr_uint32_t)at[2] << 8 | at[3] : 0;
}

static idem_octets_t get_field(rest_t *rest)
{
    apr_size_t len = get_number(rest);
    idem_octets_t octets = {get(rest, len), len};

    return octets;
}

static const char *get_text(rest_t *rest, apr_pool_t *p)
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
    rest_t rest = {octets.octets + 1, octets.len - 1 - IDEM_SHA256_LEN, 0};
    idem_record_t *record = &entry->record;
    apr_uint64_t high;

    memset(entry, 0, sizeof(*entry));
    if (!is_whole(octets)) {
        return 0;
    }
    high = get_number(&rest);
    entry->until = (apr_interval_time_t)(high << 32 | get_number(&rest));
    get_fixed(&rest, entry->registry, IDEM_SHA256_LEN);
    get_fixed(&rest, entry->list, IDEM_SHA256_LEN);
    record->scope.version = get_text(&rest, p);
    record->scope.tenant = get_text(&rest, p);
    record->scope.principal = get_text(&rest, p);
    record->scope.route = get_text(&rest, p);
    record->scope.revision = get_text(&rest, p);
    record->scope.ns = get_text(&rest, p);
    record->scope.key = get_text(&rest, p);
    get_fixed(&rest, record->operation, IDEM_UUID_LEN);
    record->generation = (int)get_number(&rest);
    record->state = (idem_state_e)get_number(&rest);
    record->outcome = (idem_outcome_e)get_number(&rest);
    record->response_code = (int)get_number(&rest);
    get_fixed(&rest, record->fingerprint, IDEM_FINGERPRINT_LEN);
    record->recipe = get_field(&rest);
    record->response_headers = get_field(&rest);
    record->response_body = get_field(&rest);
    record->response_digest = get_field(&rest);
    record->known_contract = 1; /* who has laid it out could read it */
    return !rest.short_of && !rest.left && idem_machine_is_final(record->state);
}

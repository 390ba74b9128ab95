/* store/replay_entry: what is kept comes back as it was, and what was cut or changed in any octet does not come back. */
#include "unit.h"

#include "store/replay_entry.h"

static idem_replay_entry_t sample(void)
{
    idem_replay_entry_t entry = {0};
    idem_record_t *record = &entry.record;

    entry.until = APR_INT64_C(0x0123456789abcdef);
    memset(entry.registry, 0x11, sizeof(entry.registry));
    memset(entry.list, 0x22, sizeof(entry.list));
    record->scope = (idem_scope_t){"v1", "tenant\x1e" "of two", "caf\xc3\xa9", "charges.create", "1", "u:", "key"};
    memset(record->operation, 0xa5, sizeof(record->operation));
    record->generation = 1;
    record->state = IDEM_STATE_FAILED_FINAL;
    record->outcome = IDEM_OUTCOME_FAILED;
    record->response_code = 404;
    memset(record->fingerprint, 0x33, sizeof(record->fingerprint));
    record->recipe = (idem_octets_t){(const unsigned char *)"recipe", 6};
    record->response_headers = (idem_octets_t){(const unsigned char *)"head\0with NUL", 13};
    record->response_body = (idem_octets_t){(const unsigned char *)"", 0};
    record->response_digest = (idem_octets_t){(const unsigned char *)"digest", 6};
    return entry;
}

static idem_octets_t encoded(apr_pool_t *p, const idem_replay_entry_t *entry)
{
    apr_size_t len = idem_replay_size(&entry->record);
    unsigned char *octets = apr_palloc(p, len);

    idem_replay_encode(entry, octets);
    return (idem_octets_t){octets, len};
}

static void assert_octets(idem_octets_t got, idem_octets_t want)
{
    assert_non_null(got.octets);
    assert_int_equal(got.len, want.len);
    if (want.len) {
        assert_memory_equal(got.octets, want.octets, want.len);
    }
}

static void comes_back_as_it_was(void **state)
{
    idem_replay_entry_t was = sample();
    idem_replay_entry_t is;

    assert_true(idem_replay_decode(encoded(*state, &was), &is, *state));
    assert_true(is.until == was.until);
    assert_memory_equal(is.registry, was.registry, sizeof(is.registry));
    assert_memory_equal(is.list, was.list, sizeof(is.list));
    assert_string_equal(is.record.scope.version, was.record.scope.version);
    assert_string_equal(is.record.scope.tenant, was.record.scope.tenant);
    assert_string_equal(is.record.scope.principal, was.record.scope.principal);
    assert_string_equal(is.record.scope.route, was.record.scope.route);
    assert_string_equal(is.record.scope.revision, was.record.scope.revision);
    assert_string_equal(is.record.scope.ns, was.record.scope.ns);
    assert_string_equal(is.record.scope.key, was.record.scope.key);
    assert_memory_equal(is.record.operation, was.record.operation, IDEM_UUID_LEN);
    assert_int_equal(is.record.generation, 1);
    assert_int_equal(is.record.state, IDEM_STATE_FAILED_FINAL);
    assert_int_equal(is.record.outcome, IDEM_OUTCOME_FAILED);
    assert_int_equal(is.record.response_code, 404);
    assert_memory_equal(is.record.fingerprint, was.record.fingerprint, IDEM_FINGERPRINT_LEN);
    assert_octets(is.record.recipe, was.record.recipe);
    assert_octets(is.record.response_headers, was.record.response_headers);
    assert_octets(is.record.response_body, was.record.response_body);
    assert_octets(is.record.response_digest, was.record.response_digest);
    assert_false(is.record.expired || is.record.lapsed || is.record.attempt_open);
}

static void what_was_cut_is_none(void **state)
{
    idem_replay_entry_t was = sample();
    idem_octets_t whole = encoded(*state, &was);
    idem_replay_entry_t is;
    apr_size_t len;

    for (len = 0; len < whole.len; len++) {
        idem_octets_t cut = {whole.octets, len};

        assert_false(idem_replay_decode(cut, &is, *state));
    }
}

static void what_was_changed_is_none(void **state)
{
    idem_replay_entry_t was = sample();
    idem_octets_t whole = encoded(*state, &was);
    unsigned char *octets = apr_pmemdup(*state, whole.octets, whole.len);
    idem_replay_entry_t is;
    apr_size_t i;

    for (i = 0; i < whole.len; i++) {
        octets[i] ^= 0x40;
        assert_false(idem_replay_decode((idem_octets_t){octets, whole.len}, &is, *state));
        octets[i] ^= 0x40;
    }
    assert_true(idem_replay_decode((idem_octets_t){octets, whole.len}, &is, *state));
}

/* Octets that say more than there is, under a digest that fits: nothing is read beyond their end. */
static void lengths_that_lie_are_none(void **state)
{
    idem_replay_entry_t was = sample();
    idem_octets_t whole = encoded(*state, &was);
    unsigned char *octets = malloc(whole.len); /* of its own, so that a read beyond it is seen */
    idem_replay_entry_t is;
    int refused = 0;
    apr_size_t i;

    for (i = 1; i < whole.len - IDEM_SHA256_LEN; i++) {
        memcpy(octets, whole.octets, whole.len);
        octets[i] ^= 0x81;
        idem_sha256(octets, whole.len - IDEM_SHA256_LEN, octets + whole.len - IDEM_SHA256_LEN);
        refused += !idem_replay_decode((idem_octets_t){octets, whole.len}, &is, *state);
    }
    free(octets);
    /* at least the eleven lengths of four octets, and the state */
    assert_true(refused >= 11 * 4 + 4);
}

static void only_certain_finals_are_kept(void **state)
{
    static const idem_state_e others[] = {IDEM_STATE_NONE, IDEM_STATE_RESERVED, IDEM_STATE_EXECUTING, IDEM_STATE_UNKNOWN,
                                          IDEM_STATE_EXPIRED};
    idem_replay_entry_t entry = sample();
    apr_size_t i;

    (void)state;
    entry.record.state = IDEM_STATE_SUCCEEDED;
    assert_true(idem_replay_size(&entry.record) > 0);
    for (i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        entry.record.state = others[i];
        assert_int_equal(idem_replay_size(&entry.record), 0);
    }
    entry = sample();
    entry.record.expired = 1;
    assert_int_equal(idem_replay_size(&entry.record), 0);
    entry = sample();
    entry.record.generation = 2;
    assert_int_equal(idem_replay_size(&entry.record), 0);
    entry = sample();
    entry.record.response_body.octets = NULL;
    assert_int_equal(idem_replay_size(&entry.record), 0);
    entry = sample();
    entry.record.response_headers.octets = NULL;
    assert_int_equal(idem_replay_size(&entry.record), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT_TEST(comes_back_as_it_was),
        UNIT_TEST(what_was_cut_is_none),
        UNIT_TEST(what_was_changed_is_none),
        UNIT_TEST(lengths_that_lie_are_none),
        UNIT_TEST(only_certain_finals_are_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

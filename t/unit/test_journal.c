/* store/journal: what is written comes back octet for octet, whatever is cut or changed is put aside, and what the
 * store says decides what becomes of a file. The store is one of our own. */
#include "unit.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/digest.h"
#include "store/journal.h"
#include "store/journal_entry.h"

static const unsigned char digest_key[32] = "0123456789abcdef0123456789abcde";

static idem_settlement_t sample(unsigned char last, idem_outcome_e outcome)
{
    idem_settlement_t settlement = {0};
    idem_settle_t *settle = &settlement.settle;

    settle->tenant = "tenant\x1eof two";
    memset(settle->operation, 0xa5, IDEM_UUID_LEN);
    settle->operation[15] = last;
    settle->generation = 7;
    settle->outcome = outcome;
    settle->response_code = 201;
    settle->response_headers = (idem_octets_t){(const unsigned char *)"head\0with NUL", 13};
    settle->response_body = (idem_octets_t){(const unsigned char *)"", 0};
    settle->response_digest = (idem_octets_t){NULL, 0};
    settle->reason = "settled by the response";
    settlement.backend_first = 1;
    settlement.empty_head = (idem_octets_t){(const unsigned char *)"\1\0\0", 3};
    return settlement;
}

static idem_octets_t encoded(apr_pool_t *p, const idem_settlement_t *settlement)
{
    unsigned char registry[IDEM_JOURNAL_REGISTRY_LEN];

    idem_journal_registry(digest_key, registry);
    return idem_journal_encode(settlement, registry, 1234567890123456, p);
}

static void assert_octets(idem_octets_t got, idem_octets_t want)
{
    assert_int_equal(got.octets == NULL, want.octets == NULL);
    assert_int_equal(got.len, want.len);
    if (want.len) {
        assert_memory_equal(got.octets, want.octets, want.len);
    }
}

static void comes_back_as_it_was(void **state)
{
    idem_settlement_t was = sample(1, IDEM_OUTCOME_SUCCEEDED);
    idem_journal_entry_t entry;

    idem_journal_decode(encoded(*state, &was), &entry, *state);
    assert_null(entry.fault);
    assert_true(entry.written_at == 1234567890123456);
    assert_string_equal(entry.settlement.settle.tenant, was.settle.tenant);
    assert_memory_equal(entry.settlement.settle.operation, was.settle.operation, IDEM_UUID_LEN);
    assert_int_equal(entry.settlement.settle.generation, 7);
    assert_int_equal(entry.settlement.settle.outcome, IDEM_OUTCOME_SUCCEEDED);
    assert_int_equal(entry.settlement.settle.response_code, 201);
    assert_string_equal(entry.settlement.settle.reason, was.settle.reason);
    assert_int_equal(entry.settlement.backend_first, 1);
    assert_int_equal(entry.settlement.response_whole, 0);
    assert_octets(entry.settlement.settle.response_headers, was.settle.response_headers);
    assert_octets(entry.settlement.settle.response_body, was.settle.response_body);
    assert_octets(entry.settlement.settle.response_digest, was.settle.response_digest);
    assert_octets(entry.settlement.empty_head, was.empty_head);
}

static void every_cut_and_every_changed_octet_shows(void **state)
{
    idem_settlement_t was = sample(1, IDEM_OUTCOME_FAILED);
    idem_octets_t whole = encoded(*state, &was);
    unsigned char *copy = apr_pmemdup(*state, whole.octets, whole.len);
    idem_journal_entry_t entry;
    apr_size_t i;

    for (i = 0; i < whole.len; i++) {
        idem_octets_t cut = {copy, i};
        idem_octets_t changed = {copy, whole.len};

        idem_journal_decode(cut, &entry, *state);
        assert_non_null(entry.fault);
        copy[i] ^= 1;
        idem_journal_decode(changed, &entry, *state);
        assert_non_null(entry.fault);
        copy[i] ^= 1;
    }
}

/* Lengths that lie, under a digest that fits. */
static void lengths_are_not_believed(void **state)
{
    idem_settlement_t was = sample(1, IDEM_OUTCOME_FAILED);
    idem_octets_t whole = encoded(*state, &was);
    unsigned char *copy = apr_pmemdup(*state, whole.octets, whole.len);
    idem_octets_t forged = {copy, whole.len};
    idem_journal_entry_t entry;
    apr_size_t i;

    for (i = 8; i + 4 <= whole.len - IDEM_SHA256_LEN; i++) {
        memcpy(copy, whole.octets, whole.len);
        memset(copy + i, 0xff, 4);
        idem_sha256(copy, whole.len - IDEM_SHA256_LEN, copy + whole.len - IDEM_SHA256_LEN);
        idem_journal_decode(forged, &entry, *state); /* whatever it says: nothing beyond the octets is read */
        if (!entry.fault) {
            assert_true(entry.settlement.settle.response_body.len <= whole.len);
        }
    }
}

/* ---------------------------------------------------------------- files */

/* What the store says of an operation, by its last octet. */
static idem_store_result_e results[256];
static int asked;

static void settle(idem_store_t *store, idem_settle_t *const *settles, int n, apr_time_t deadline, apr_pool_t *p)
{
    (void)store;
    (void)n;
    (void)deadline;
    (void)p;
    asked++;
    settles[0]->result = results[settles[0]->operation[15]];
    settles[0]->state = IDEM_STATE_SUCCEEDED;
}

static const idem_store_provider_t provider = {.name = "ours", .settle = settle};

typedef struct fates_t {
    int count[5];
} fates_t;

static void note(void *baton, const idem_journal_entry_t *entry, idem_journal_fate_e fate, const char *reason)
{
    fates_t *fates = baton;

    assert_true((reason != NULL) == (fate != IDEM_JOURNAL_APPLIED));
    assert_non_null(entry->name);
    fates->count[fate]++;
}

static const char *folder(apr_pool_t *p)
{
    const char *dir = apr_psprintf(p, "/tmp/idem-journal-%ld", (long)getpid());
    int ignored = system(apr_psprintf(p, "rm -rf %s", dir));

    (void)ignored;
    assert_int_equal(mkdir(dir, 0700), 0);
    return dir;
}

static void put(apr_pool_t *p, const char *dir, unsigned char last, idem_outcome_e outcome)
{
    idem_settlement_t settlement = sample(last, outcome);
    unsigned char registry[IDEM_JOURNAL_REGISTRY_LEN];
    const char *why;

    settlement.backend_first = 0;
    idem_journal_registry(digest_key, registry);
    assert_true(idem_journal_write(dir, registry, &settlement, p, &why));
}

static void init_store(idem_store_t *store)
{
    memset(store, 0, sizeof(*store));
    store->provider = &provider;
    store->timeout = apr_time_from_sec(1);
    memcpy(store->digest_key, digest_key, sizeof(digest_key));
    asked = 0;
}

static int apply(idem_journal_t *journal, idem_store_t *store, int most, fates_t *fates, apr_pool_t *p)
{
    const char *why;

    memset(fates, 0, sizeof(*fates));
    return idem_journal_apply(journal, store, most, apr_time_now() + apr_time_from_sec(60), note, fates, p, &why);
}

static int count_files(apr_pool_t *p, const char *dir)
{
    const char *why;
    apr_array_header_t *all = idem_journal_list(dir, 1000, p, &why);

    return all ? all->nelts : -1;
}

static void what_the_store_says_decides(void **state)
{
    apr_pool_t *p = *state;
    const char *dir = folder(p);
    idem_journal_t journal = {dir, ""};
    idem_store_t store;
    fates_t fates;

    init_store(&store);
    results[1] = IDEM_STORE_OK;
    results[2] = IDEM_STORE_STALE;
    results[3] = IDEM_STORE_NOT_FOUND;
    results[4] = IDEM_STORE_NOT_FOUND;
    results[5] = IDEM_STORE_UNAVAILABLE;
    results[6] = IDEM_STORE_AMBIGUOUS;
    put(p, dir, 1, IDEM_OUTCOME_SUCCEEDED);
    put(p, dir, 2, IDEM_OUTCOME_SUCCEEDED);
    put(p, dir, 3, IDEM_OUTCOME_SUCCEEDED);
    put(p, dir, 4, IDEM_OUTCOME_REJECTED); /* what was to be removed is not there: done */
    put(p, dir, 5, IDEM_OUTCOME_SUCCEEDED);
    put(p, dir, 6, IDEM_OUTCOME_FAILED);
    assert_true(apply(&journal, &store, 100, &fates, p) > 0);
    assert_int_equal(fates.count[IDEM_JOURNAL_APPLIED], 2);
    assert_int_equal(fates.count[IDEM_JOURNAL_ASIDE_PASSED], 1);
    assert_int_equal(fates.count[IDEM_JOURNAL_DROPPED], 1); /* nobody can ask for it any more */
    assert_int_equal(fates.count[IDEM_JOURNAL_WAITS], 2);
    assert_int_equal(count_files(p, dir), 2);
    assert_int_equal(count_files(p, apr_pstrcat(p, dir, "/" IDEM_JOURNAL_ASIDE, NULL)), 1);
    results[5] = results[6] = IDEM_STORE_OK;
    journal.after[0] = '\0';
    assert_int_equal(apply(&journal, &store, 100, &fates, p), 0);
    assert_int_equal(fates.count[IDEM_JOURNAL_APPLIED], 2);
    assert_int_equal(count_files(p, dir), 0);
}

static void a_store_that_is_away_ends_the_round(void **state)
{
    apr_pool_t *p = *state;
    const char *dir = folder(p);
    idem_journal_t journal = {dir, ""};
    idem_store_t store;
    fates_t fates;
    int i;

    init_store(&store);
    for (i = 0; i < 20; i++) {
        results[i] = IDEM_STORE_UNAVAILABLE;
        put(p, dir, (unsigned char)i, IDEM_OUTCOME_SUCCEEDED);
    }
    assert_true(apply(&journal, &store, 100, &fates, p) >= 17);
    assert_int_equal(asked, 3);
    assert_int_equal(count_files(p, dir), 20);
    /* the next round goes on behind them, so that no entry stops the others for ever */
    for (i = 0; i < 20; i++) {
        results[i] = i < 3 ? IDEM_STORE_UNAVAILABLE : IDEM_STORE_OK;
    }
    apply(&journal, &store, 100, &fates, p);
    assert_int_equal(fates.count[IDEM_JOURNAL_APPLIED], 17);
    assert_int_equal(count_files(p, dir), 3);
}

static void a_round_is_bounded(void **state)
{
    apr_pool_t *p = *state;
    const char *dir = folder(p);
    idem_journal_t journal = {dir, ""};
    idem_store_t store;
    fates_t fates;
    const char *why;
    int i;

    init_store(&store);
    for (i = 0; i < 10; i++) {
        results[i] = IDEM_STORE_OK;
        put(p, dir, (unsigned char)i, IDEM_OUTCOME_SUCCEEDED);
    }
    assert_int_equal(apply(&journal, &store, 4, &fates, p), 6);
    assert_int_equal(fates.count[IDEM_JOURNAL_APPLIED], 4);
    memset(&fates, 0, sizeof(fates));
    assert_int_equal(idem_journal_apply(&journal, &store, 100, apr_time_now() - 1, note, &fates, p, &why), 6);
    assert_int_equal(asked, 4);
}

static void folders_are_looked_at(void **state)
{
    apr_pool_t *p = *state;
    const char *dir = folder(p);

    assert_null(idem_journal_fault(dir, geteuid(), getegid(), p));
    assert_non_null(idem_journal_fault(dir, geteuid() + 1, getegid() + 1, p));
    chmod(dir, 0770);
    assert_null(idem_journal_fault(dir, geteuid() + 1, getegid(), p));
    chmod(dir, 0701);
    assert_non_null(idem_journal_fault(dir, geteuid(), getegid(), p));
    chmod(dir, 0500);
    assert_non_null(idem_journal_fault(dir, geteuid(), getegid(), p));
    assert_non_null(idem_journal_fault("/nowhere/at/all", geteuid(), getegid(), p));
    assert_non_null(idem_journal_fault("/etc/passwd", geteuid(), getegid(), p));
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT_TEST(comes_back_as_it_was),
        UNIT_TEST(every_cut_and_every_changed_octet_shows),
        UNIT_TEST(lengths_are_not_believed),
        UNIT_TEST(what_the_store_says_decides),
        UNIT_TEST(a_store_that_is_away_ends_the_round),
        UNIT_TEST(a_round_is_bounded),
        UNIT_TEST(folders_are_looked_at),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

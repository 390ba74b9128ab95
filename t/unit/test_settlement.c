/* A settlement where the backend may have settled first, over a store that is played. CONTRACT section 4, rule 3. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <apr_general.h>

#include "store/settlement.h"

/* What the played store has, and what it was asked. */
static struct {
    idem_record_t record;
    idem_store_result_e found[3];    /* results of find_operation, one after the other */
    idem_store_result_e settled[3];  /* results of settle */
    int finds;
    int settles;
    idem_settle_t last;
    idem_record_t after_first_settle; /* what find gives from the second time on */
} played;

static idem_store_result_e find_operation(idem_store_t *store, const char *tenant, const unsigned char *operation,
                                          idem_record_t **record, apr_time_t deadline, apr_pool_t *p)
{
    (void)store, (void)tenant, (void)operation, (void)deadline, (void)p;
    *record = played.found[played.finds] == IDEM_STORE_OK
                  ? (played.settles ? &played.after_first_settle : &played.record)
                  : NULL;
    return played.found[played.finds++];
}

static void settle(idem_store_t *store, idem_settle_t *const *settles, int n, apr_time_t deadline, apr_pool_t *p)
{
    (void)store, (void)n, (void)deadline, (void)p;
    played.last = *settles[0];
    settles[0]->result = played.settled[played.settles++];
}

static idem_settlement_t apply(int backend_first)
{
    static const idem_store_provider_t provider = {.settle = settle, .find_operation = find_operation};
    idem_store_t store = {.provider = &provider};
    idem_settlement_t settlement = {.backend_first = backend_first, .response_whole = 1};

    settlement.settle.generation = 1;
    settlement.settle.outcome = IDEM_OUTCOME_UNKNOWN;
    settlement.settle.response_code = 201;
    settlement.settle.response_body = (idem_octets_t){(const unsigned char *)"body", 4};
    settlement.settle.response_headers = (idem_octets_t){(const unsigned char *)"head", 4};
    settlement.empty_head = (idem_octets_t){(const unsigned char *)"none", 4};
    idem_settlement_apply(&store, &settlement, 0, NULL);
    return settlement;
}

static int reset(void **state)
{
    (void)state;
    memset(&played, 0, sizeof(played));
    played.record.generation = 1;
    memset(played.record.owner, 7, sizeof(played.record.owner));
    return 0;
}

static void test_plain(void **state)
{
    idem_settlement_t done = apply(0);

    (void)state;
    assert_int_equal(done.settle.result, IDEM_STORE_OK);
    assert_int_equal(played.finds, 0);
    assert_int_equal(played.settles, 1);
    assert_int_equal(done.by_backend, 0);
}

static void test_backend_has_settled(void **state)
{
    idem_settlement_t done;

    (void)state;
    played.record.state = IDEM_STATE_SUCCEEDED;
    played.record.outcome = IDEM_OUTCOME_SUCCEEDED;
    done = apply(1);
    assert_int_equal(done.by_backend, 1);
    assert_int_equal(done.settle.outcome, IDEM_OUTCOME_SUCCEEDED);
    assert_int_equal(played.last.outcome, IDEM_OUTCOME_SUCCEEDED);
    assert_string_equal((const char *)played.last.response_body.octets, "body");
}

static void test_response_does_not_fit(void **state)
{
    (void)state;
    played.record.state = IDEM_STATE_FAILED_FINAL;
    played.record.outcome = IDEM_OUTCOME_FAILED;
    apply(1);
    assert_null(played.last.response_body.octets);
    assert_string_equal((const char *)played.last.response_headers.octets, "none");
}

static void test_backend_has_not_settled(void **state)
{
    idem_settlement_t done;

    (void)state;
    played.record.state = IDEM_STATE_RESERVED;
    done = apply(1);
    assert_int_equal(done.by_backend, 0);
    assert_int_equal(played.last.outcome, IDEM_OUTCOME_UNKNOWN);
    assert_int_equal(done.settle.result, IDEM_STORE_OK);
}

static void test_backend_rejected_and_the_record_is_gone(void **state)
{
    idem_settlement_t done;

    (void)state;
    played.found[0] = IDEM_STORE_NOT_FOUND;
    done = apply(1);
    assert_int_equal(done.settle.result, IDEM_STORE_OK);
    assert_int_equal(done.settle.outcome, IDEM_OUTCOME_REJECTED);
    assert_int_equal(done.settle.state, IDEM_STATE_NONE);
    assert_int_equal(done.by_backend, 1);
    assert_int_equal(played.settles, 0);
}

static void test_backend_rejected_and_the_record_stays(void **state)
{
    idem_settlement_t done;

    (void)state;
    played.record.state = IDEM_STATE_RESERVED;
    played.record.outcome = IDEM_OUTCOME_REJECTED;
    memset(played.record.owner, 0, sizeof(played.record.owner));
    done = apply(1);
    assert_int_equal(done.settle.outcome, IDEM_OUTCOME_REJECTED);
    assert_int_equal(done.settle.state, IDEM_STATE_RESERVED);
    assert_int_equal(played.settles, 0);
}

static void test_rejected_of_another_generation_is_not_ours(void **state)
{
    idem_settlement_t done;

    (void)state;
    played.record.state = IDEM_STATE_RESERVED;
    played.record.outcome = IDEM_OUTCOME_REJECTED;
    played.record.generation = 2;
    memset(played.record.owner, 0, sizeof(played.record.owner));
    played.settled[0] = IDEM_STORE_STALE;
    played.after_first_settle = played.record;
    played.settled[1] = IDEM_STORE_STALE;
    done = apply(1);
    assert_int_equal(done.settle.result, IDEM_STORE_STALE);
    assert_int_equal(done.by_backend, 0);
}

static void test_backend_commits_between_look_and_write(void **state)
{
    idem_settlement_t done;

    (void)state;
    played.record.state = IDEM_STATE_RESERVED;
    played.settled[0] = IDEM_STORE_STALE;
    played.after_first_settle = played.record;
    played.after_first_settle.state = IDEM_STATE_SUCCEEDED;
    played.after_first_settle.outcome = IDEM_OUTCOME_SUCCEEDED;
    done = apply(1);
    assert_int_equal(done.by_backend, 1);
    assert_int_equal(done.settle.outcome, IDEM_OUTCOME_SUCCEEDED);
    assert_int_equal(played.settles, 2);
}

static void test_backend_rejects_between_look_and_write(void **state)
{
    idem_settlement_t done;

    (void)state;
    played.record.state = IDEM_STATE_RESERVED;
    played.settled[0] = IDEM_STORE_NOT_FOUND;
    played.found[1] = IDEM_STORE_NOT_FOUND;
    done = apply(1);
    assert_int_equal(done.settle.outcome, IDEM_OUTCOME_REJECTED);
    assert_int_equal(done.settle.result, IDEM_STORE_OK);
}

static void test_no_answer(void **state)
{
    (void)state;
    played.found[0] = IDEM_STORE_AMBIGUOUS;
    assert_int_equal(apply(1).settle.result, IDEM_STORE_UNAVAILABLE);
    assert_int_equal(played.settles, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_plain, reset),
        cmocka_unit_test_setup(test_backend_has_settled, reset),
        cmocka_unit_test_setup(test_response_does_not_fit, reset),
        cmocka_unit_test_setup(test_backend_has_not_settled, reset),
        cmocka_unit_test_setup(test_backend_rejected_and_the_record_is_gone, reset),
        cmocka_unit_test_setup(test_backend_rejected_and_the_record_stays, reset),
        cmocka_unit_test_setup(test_rejected_of_another_generation_is_not_ours, reset),
        cmocka_unit_test_setup(test_backend_commits_between_look_and_write, reset),
        cmocka_unit_test_setup(test_backend_rejects_between_look_and_write, reset),
        cmocka_unit_test_setup(test_no_answer, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* CONTRACT section 4, written down once more as tables, and every combination of facts held against its rules. */
#include "unit.h"

#include <stdio.h>

#include "core/machine.h"

#define NONE IDEM_STATE_NONE
#define RES  IDEM_STATE_RESERVED
#define EXE  IDEM_STATE_EXECUTING
#define SUC  IDEM_STATE_SUCCEEDED
#define FAI  IDEM_STATE_FAILED_FINAL
#define UNK  IDEM_STATE_UNKNOWN
#define EXP  IDEM_STATE_EXPIRED
#define NO   IDEM_STATE_COUNT

static void every_state_and_event(void **state)
{
    /* from:                                                        NONE RES  EXE  SUC  FAI  UNK  EXP */
    static const idem_state_e expected[IDEM_EVENT_COUNT][IDEM_STATE_COUNT] = {
        [IDEM_EVENT_DISPATCH] =             {NO, EXE, EXE, NO, NO, NO, NO},
        [IDEM_EVENT_SUCCEED] =              {NO, SUC, SUC, NO, NO, SUC, NO},
        [IDEM_EVENT_FAIL] =                 {NO, FAI, FAI, NO, NO, FAI, NO},
        [IDEM_EVENT_DOUBT] =                {NO, UNK, UNK, NO, NO, UNK, NO},
        [IDEM_EVENT_REJECT] =               {NO, RES, RES, NO, NO, RES, NO},
        [IDEM_EVENT_RELEASE] =              {NO, RES, EXE, NO, NO, NO, NO},
        [IDEM_EVENT_LAPSE] =                {NO, UNK, UNK, NO, NO, NO, NO},
        [IDEM_EVENT_TAKE_OVER] =            {NO, RES, RES, NO, NO, NO, NO},
        [IDEM_EVENT_RESOLVE_SUCCEEDED] =    {NO, NO, NO, NO, NO, SUC, NO},
        [IDEM_EVENT_RESOLVE_FAILED] =       {NO, NO, NO, NO, NO, FAI, NO},
        [IDEM_EVENT_RESOLVE_NOT_EXECUTED] = {NO, NO, NO, NO, NO, RES, NO},
        [IDEM_EVENT_CANCEL] =               {NO, NONE, NO, NO, NO, NO, NO},
        [IDEM_EVENT_EXPIRE] =               {NO, EXP, NO, EXP, EXP, NO, NO},
        [IDEM_EVENT_REUSE] =                {NO, NO, NO, RES, RES, NO, RES},
    };
    int event;
    int from;

    (void)state;
    for (event = 0; event < IDEM_EVENT_COUNT; event++) {
        for (from = 0; from < IDEM_STATE_COUNT; from++) {
            const char *const *source;
            int listed = 0;

            assert_int_equal(idem_machine_next((idem_state_e)from, (idem_event_e)event), expected[event][from]);
            for (source = idem_machine_sources((idem_event_e)event); *source; source++) {
                listed |= idem_state_parse(*source) == (idem_state_e)from;
            }
            assert_int_equal(listed, expected[event][from] != NO);
        }
    }
    assert_int_equal(idem_machine_next(IDEM_STATE_COUNT, IDEM_EVENT_SUCCEED), NO);
    assert_int_equal(idem_machine_next(RES, IDEM_EVENT_COUNT), NO);
}

static int runs(idem_verdict_e verdict)
{
    return verdict == IDEM_VERDICT_RESERVE || verdict == IDEM_VERDICT_REUSE || verdict == IDEM_VERDICT_TAKE_OVER;
}

/* The order of section 4 "Verdict", as a reader of the contract would write it. */
static idem_verdict_e contract_verdict(const idem_facts_t *f)
{
    idem_effect_e stricter = f->record_effect > f->route_effect ? f->record_effect : f->route_effect;
    int reuse = f->expired && f->tombstone_over && f->reuse_allowed;

    if (f->state == NONE) {
        return f->writer_allowed ? IDEM_VERDICT_RESERVE : IDEM_VERDICT_WRITER_FENCED;
    }
    if (reuse) {
        return f->writer_allowed ? IDEM_VERDICT_REUSE : IDEM_VERDICT_WRITER_FENCED;
    }
    if (f->fingerprint_equal < 0) {
        return IDEM_VERDICT_OUTCOME_UNKNOWN;
    }
    if (!f->fingerprint_equal) {
        return IDEM_VERDICT_KEY_REUSED;
    }
    if (f->expired || f->state == EXP) {
        return IDEM_VERDICT_KEY_EXPIRED;
    }
    if (f->state == SUC || f->state == FAI) {
        return f->response_stored       ? IDEM_VERDICT_REPLAY
               : f->response_on_its_way ? IDEM_VERDICT_IN_PROGRESS
                                        : IDEM_VERDICT_RESPONSE_NOT_STORED;
    }
    if (f->state == UNK) {
        return IDEM_VERDICT_OUTCOME_UNKNOWN;
    }
    if (!f->lapsed) {
        return IDEM_VERDICT_IN_PROGRESS;
    }
    if (f->attempt_open || (f->state == EXE && stricter == IDEM_EFFECT_EXTERNAL)) {
        return IDEM_VERDICT_MARK_UNKNOWN;
    }
    return f->writer_allowed ? IDEM_VERDICT_TAKE_OVER : IDEM_VERDICT_WRITER_FENCED;
}

/* A read-only server speaks of finals, and writes nothing. */
static void check_read_only(idem_facts_t f, idem_verdict_e otherwise)
{
    idem_verdict_e verdict;

    f.read_only = 1;
    verdict = idem_machine_verdict(&f);
    if (runs(otherwise) || otherwise == IDEM_VERDICT_WRITER_FENCED || otherwise == IDEM_VERDICT_IN_PROGRESS ||
        otherwise == IDEM_VERDICT_MARK_UNKNOWN || otherwise == IDEM_VERDICT_OUTCOME_UNKNOWN) {
        assert_int_equal(verdict, IDEM_VERDICT_WRITER_FENCED);
    }
    else {
        assert_int_equal(verdict, otherwise);
    }
}

/* What must never be, however the order is written. */
static void check_safety(const idem_facts_t *f, idem_verdict_e verdict)
{
    if (runs(verdict)) {
        assert_true(f->writer_allowed);
        assert_true(f->state != UNK);
        assert_false((f->state == RES || f->state == EXE) && !f->lapsed && verdict != IDEM_VERDICT_REUSE);
        assert_false(verdict == IDEM_VERDICT_TAKE_OVER && f->attempt_open);
        assert_false(verdict == IDEM_VERDICT_TAKE_OVER && f->fingerprint_equal <= 0);
        assert_false(verdict == IDEM_VERDICT_TAKE_OVER && f->state == EXE &&
                     (f->record_effect == IDEM_EFFECT_EXTERNAL || f->route_effect == IDEM_EFFECT_EXTERNAL));
        assert_false(verdict == IDEM_VERDICT_RESERVE && f->state != NONE);
    }
    if (verdict == IDEM_VERDICT_REPLAY) {
        assert_true(f->fingerprint_equal > 0 && f->response_stored && !f->expired);
        assert_true(f->state == SUC || f->state == FAI);
    }
}

static void every_combination_of_facts(void **state)
{
    unsigned bits;
    int s;
    int record;
    int route;

    (void)state;
    for (s = 0; s < IDEM_STATE_COUNT; s++) {
        for (record = 0; record < IDEM_EFFECT_COUNT; record++) {
            for (route = 0; route < IDEM_EFFECT_COUNT; route++) {
                for (bits = 0; bits < 768; bits++) {
                    idem_facts_t f = {(idem_state_e)s, (idem_effect_e)record, (idem_effect_e)route,
                                      (int)(bits / 256) - 1, bits & 1, bits >> 1 & 1, bits >> 2 & 1, bits >> 3 & 1,
                                      bits >> 4 & 1, bits >> 5 & 1, bits >> 6 & 1, bits >> 7 & 1, 0};
                    idem_verdict_e verdict;

                    /* only finals and lapsed reservations expire */
                    if (f.expired && (s == EXE || s == UNK || s == RES)) {
                        continue;
                    }
                    verdict = idem_machine_verdict(&f);
                    assert_int_equal(verdict, contract_verdict(&f));
                    check_safety(&f, verdict);
                    check_read_only(f, verdict);
                }
            }
        }
    }
}

static void what_is_written_before_dispatch(void **state)
{
    (void)state;
    assert_int_equal(idem_machine_first(IDEM_EFFECT_EXTERNAL, 0), EXE);
    assert_int_equal(idem_machine_first(IDEM_EFFECT_REPEATABLE, 0), EXE);
    assert_int_equal(idem_machine_first(IDEM_EFFECT_TRANSACTIONAL, 0), RES);
    assert_int_equal(idem_machine_first(IDEM_EFFECT_EXTERNAL, 1), RES);
    assert_int_equal(idem_machine_first(IDEM_EFFECT_REPEATABLE, 1), RES);
}

static void a_rejection_removes_only_what_never_ran(void **state)
{
    int s;

    (void)state;
    for (s = 0; s < IDEM_STATE_COUNT; s++) {
        int live = s == RES || s == EXE;

        assert_int_equal(idem_machine_reject_removes((idem_state_e)s, 1, 0), live);
        assert_int_equal(idem_machine_reject_removes((idem_state_e)s, 2, 0), 0);
        assert_int_equal(idem_machine_reject_removes((idem_state_e)s, 1, 1), 0);
        assert_int_equal(idem_machine_is_live((idem_state_e)s), live);
        assert_int_equal(idem_machine_is_final((idem_state_e)s), s == SUC || s == FAI);
        assert_int_equal(idem_machine_is_doubtful((idem_state_e)s), s == IDEM_STATE_UNKNOWN);
        assert_int_equal(idem_machine_is_tombstone((idem_state_e)s), s == IDEM_STATE_EXPIRED);
        assert_int_equal(idem_machine_is_record((idem_state_e)s), s != IDEM_STATE_NONE);
    }
}

/* An answer of the backend itself, with nothing said about it. */
static idem_response_facts_t answered(int status, idem_effect_e effect)
{
    idem_response_facts_t f = {.handler_ran = 1, .backend_answered = 1, .status = status, .effect = effect};

    return f;
}

static void the_default_outcomes(void **state)
{
    static const struct {
        int status;
        idem_outcome_e external, transactional, repeatable;
    } rows[] = {
        {200, IDEM_OUTCOME_SUCCEEDED, IDEM_OUTCOME_UNKNOWN, IDEM_OUTCOME_SUCCEEDED},
        {204, IDEM_OUTCOME_SUCCEEDED, IDEM_OUTCOME_UNKNOWN, IDEM_OUTCOME_SUCCEEDED},
        {303, IDEM_OUTCOME_SUCCEEDED, IDEM_OUTCOME_UNKNOWN, IDEM_OUTCOME_SUCCEEDED},
        {400, IDEM_OUTCOME_FAILED, IDEM_OUTCOME_FAILED, IDEM_OUTCOME_FAILED},
        {401, IDEM_OUTCOME_REJECTED, IDEM_OUTCOME_REJECTED, IDEM_OUTCOME_REJECTED},
        {404, IDEM_OUTCOME_FAILED, IDEM_OUTCOME_FAILED, IDEM_OUTCOME_FAILED},
        {407, IDEM_OUTCOME_REJECTED, IDEM_OUTCOME_REJECTED, IDEM_OUTCOME_REJECTED},
        {408, IDEM_OUTCOME_UNKNOWN, IDEM_OUTCOME_UNKNOWN, IDEM_OUTCOME_UNKNOWN},
        {425, IDEM_OUTCOME_REJECTED, IDEM_OUTCOME_REJECTED, IDEM_OUTCOME_REJECTED},
        {429, IDEM_OUTCOME_REJECTED, IDEM_OUTCOME_REJECTED, IDEM_OUTCOME_REJECTED},
        {499, IDEM_OUTCOME_FAILED, IDEM_OUTCOME_FAILED, IDEM_OUTCOME_FAILED},
        {500, IDEM_OUTCOME_UNKNOWN, IDEM_OUTCOME_RELEASED, IDEM_OUTCOME_RELEASED},
        {503, IDEM_OUTCOME_UNKNOWN, IDEM_OUTCOME_RELEASED, IDEM_OUTCOME_RELEASED},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        idem_response_facts_t f = answered(rows[i].status, IDEM_EFFECT_EXTERNAL);

        assert_int_equal(idem_machine_outcome(&f), rows[i].external);
        f.effect = IDEM_EFFECT_TRANSACTIONAL;
        assert_int_equal(idem_machine_outcome(&f), rows[i].transactional);
        f.effect = IDEM_EFFECT_REPEATABLE;
        assert_int_equal(idem_machine_outcome(&f), rows[i].repeatable);
        f.broken = 1;
        assert_int_equal(idem_machine_outcome(&f), IDEM_OUTCOME_UNKNOWN);
    }
}

static void a_proxys_own_error_releases_nothing(void **state)
{
    idem_response_facts_t f = answered(502, IDEM_EFFECT_REPEATABLE);

    (void)state;
    f.backend_answered = 0;
    f.handler_status = 502;
    f.passed_nothing = 1;
    assert_int_equal(idem_machine_outcome(&f), IDEM_OUTCOME_UNKNOWN);
    f.backend_answered = 1;
    f.attempt_open = 1;
    assert_int_equal(idem_machine_outcome(&f), IDEM_OUTCOME_UNKNOWN);
}

static void the_first_rule_that_fits(void **state)
{
    idem_response_facts_t f = answered(500, IDEM_EFFECT_EXTERNAL);

    (void)state;
    f.rule = IDEM_OUTCOME_FAILED;
    assert_int_equal(idem_machine_outcome(&f), IDEM_OUTCOME_FAILED);
    f.said = IDEM_OUTCOME_SUCCEEDED;
    assert_int_equal(idem_machine_outcome(&f), IDEM_OUTCOME_SUCCEEDED);

    /* rule 2: never connected, and nothing that means otherwise */
    f.handler_status = 503;
    f.never_connected = 1;
    assert_int_equal(idem_machine_outcome(&f), IDEM_OUTCOME_REJECTED);
    f.request_sent = 1;
    assert_int_equal(idem_machine_outcome(&f), IDEM_OUTCOME_SUCCEEDED);
    f.request_sent = 0;
    f.error_override = 1;
    assert_int_equal(idem_machine_outcome(&f), IDEM_OUTCOME_SUCCEEDED);
    f.error_override = 0;
    f.handler_status = 502;
    assert_int_equal(idem_machine_outcome(&f), IDEM_OUTCOME_SUCCEEDED);

    /* rule 1: httpd refused by itself */
    f.handler_status = 404;
    assert_int_equal(idem_machine_outcome(&f), IDEM_OUTCOME_SUCCEEDED);
    f.passed_nothing = 1;
    assert_int_equal(idem_machine_outcome(&f), IDEM_OUTCOME_REJECTED);
    f.error_override = 1;
    assert_int_equal(idem_machine_outcome(&f), IDEM_OUTCOME_SUCCEEDED);
    f.handler_ran = 0;
    assert_int_equal(idem_machine_outcome(&f), IDEM_OUTCOME_REJECTED);
}

static void retry_after_follows_the_run_and_the_lease(void **state)
{
    (void)state;
    assert_int_equal(idem_machine_retry_after(0, apr_time_from_sec(60)), 1);
    assert_int_equal(idem_machine_retry_after(apr_time_from_sec(4), apr_time_from_sec(60)), 4);
    assert_int_equal(idem_machine_retry_after(apr_time_from_sec(400), apr_time_from_sec(60)), 10);
    assert_int_equal(idem_machine_retry_after(apr_time_from_sec(9), apr_time_from_sec(3)), 3);
    assert_int_equal(idem_machine_retry_after(apr_time_from_sec(9), 0), 1);
}

/* What an event of the registry may tell, row by row; all else is a fault that verify names. */
static void which_transitions_are_told(void **state)
{
    static const char *const told[] = {
        "RESERVED>NONE", "RESERVED>RESERVED", "RESERVED>EXECUTING", "RESERVED>SUCCEEDED", "RESERVED>FAILED_FINAL",
        "RESERVED>UNKNOWN", "RESERVED>EXPIRED", "EXECUTING>NONE", "EXECUTING>RESERVED", "EXECUTING>EXECUTING",
        "EXECUTING>SUCCEEDED", "EXECUTING>FAILED_FINAL", "EXECUTING>UNKNOWN", "SUCCEEDED>RESERVED", "SUCCEEDED>EXECUTING",
        "SUCCEEDED>EXPIRED", "FAILED_FINAL>RESERVED", "FAILED_FINAL>EXECUTING", "FAILED_FINAL>EXPIRED", "UNKNOWN>NONE",
        "UNKNOWN>RESERVED", "UNKNOWN>SUCCEEDED", "UNKNOWN>FAILED_FINAL", "UNKNOWN>UNKNOWN", "EXPIRED>RESERVED",
        "EXPIRED>EXECUTING"};
    int from;
    int to;

    (void)state;
    for (from = 0; from < IDEM_STATE_COUNT; from++) {
        for (to = 0; to < IDEM_STATE_COUNT; to++) {
            char text[64];
            int wanted = 0;
            size_t i;

            snprintf(text, sizeof(text), "%s>%s", idem_state_name((idem_state_e)from), idem_state_name((idem_state_e)to));
            for (i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
                wanted |= !strcmp(told[i], text);
            }
            if (idem_machine_may_be_told((idem_state_e)from, (idem_state_e)to) != wanted) {
                fail_msg("%s", text);
            }
        }
    }
}

static void names_go_both_ways(void **state)
{
    int i;

    (void)state;
    for (i = 0; i < IDEM_STATE_COUNT; i++) {
        assert_int_equal(idem_state_parse(idem_state_name((idem_state_e)i)), i);
    }
    for (i = 0; i < IDEM_EFFECT_COUNT; i++) {
        assert_int_equal(idem_effect_parse(idem_effect_name((idem_effect_e)i)), i);
    }
    for (i = 0; i < IDEM_OUTCOME_COUNT; i++) {
        assert_int_equal(idem_outcome_parse(idem_outcome_name((idem_outcome_e)i)), i);
    }
    assert_int_equal(idem_outcome_parse("SUCCEEDED"), IDEM_OUTCOME_SUCCEEDED);
    assert_int_equal(idem_outcome_parse("done"), IDEM_OUTCOME_COUNT);
    assert_int_equal(idem_outcome_parse(NULL), IDEM_OUTCOME_COUNT);
    assert_int_equal(idem_machine_settlement(IDEM_OUTCOME_NONE), IDEM_EVENT_COUNT);
    assert_int_equal(idem_machine_settlement(IDEM_OUTCOME_REJECTED), IDEM_EVENT_REJECT);
}

static void which_response_fits_which_end(void **state)
{
    (void)state;
    assert_true(idem_machine_fits(IDEM_STATE_SUCCEEDED, 201));
    assert_true(idem_machine_fits(IDEM_STATE_SUCCEEDED, 303));
    assert_false(idem_machine_fits(IDEM_STATE_SUCCEEDED, 409));
    assert_false(idem_machine_fits(IDEM_STATE_SUCCEEDED, 502));
    assert_true(idem_machine_fits(IDEM_STATE_FAILED_FINAL, 402));
    assert_true(idem_machine_fits(IDEM_STATE_FAILED_FINAL, 500));
    assert_false(idem_machine_fits(IDEM_STATE_FAILED_FINAL, 200));
    assert_false(idem_machine_fits(IDEM_STATE_UNKNOWN, 200));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_and_event),
        cmocka_unit_test(every_combination_of_facts),
        cmocka_unit_test(what_is_written_before_dispatch),
        cmocka_unit_test(a_rejection_removes_only_what_never_ran),
        cmocka_unit_test(the_default_outcomes),
        cmocka_unit_test(a_proxys_own_error_releases_nothing),
        cmocka_unit_test(the_first_rule_that_fits),
        cmocka_unit_test(retry_after_follows_the_run_and_the_lease),
        cmocka_unit_test(which_transitions_are_told),
        cmocka_unit_test(names_go_both_ways),
        cmocka_unit_test(which_response_fits_which_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

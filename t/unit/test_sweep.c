/* How fast the sweep goes: batches that fit into a time, and rests between them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/sweep.h"

static void test_batches_fit_into_a_time(void **state)
{
    int most = IDEM_SWEEP_MOST;
    int rounds;

    (void)state;
    /* a tenth of a millisecond a row: whatever it begins with, it comes to a batch of 8 to 20 ms, and stays there */
    for (rounds = 0; rounds < 10; rounds++) {
        most = idem_sweep_next(most, most * 100);
    }
    assert_in_range(most * 100, 8000, 20000);
    assert_int_equal(idem_sweep_next(most, most * 100), most);
    assert_int_equal(idem_sweep_next(IDEM_SWEEP_MOST, 1), IDEM_SWEEP_MOST);
    assert_int_equal(idem_sweep_next(10, apr_time_from_sec(5)), 10);
}

static void test_a_quarter_of_the_time(void **state)
{
    (void)state;
    assert_int_equal(idem_sweep_rest(apr_time_from_msec(20)), apr_time_from_msec(60));
    assert_true(idem_sweep_rest(0) > 0);
    assert_int_equal(idem_sweep_rest(apr_time_from_sec(30)), apr_time_from_sec(1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches_fit_into_a_time),
        cmocka_unit_test(test_a_quarter_of_the_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

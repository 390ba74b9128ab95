/* Decimal numbers of any size (decimal.h). */
#include "unit.h"

#include "core/decimal.h"

static const char *plain(apr_pool_t *p, const char *text)
{
    char out[IDEM_DECIMAL_ROOM];
    idem_decimal_t decimal;
    apr_size_t len;

    if (idem_decimal_read(text, strlen(text), &decimal) != APR_SUCCESS) {
        return "refused";
    }
    len = idem_decimal_write(&decimal, out);
    return len != 0 ? apr_pstrmemdup(p, out, len) : "too long";
}

static void one_number_has_one_plain_form(void **state)
{
    static const char *const forms[][2] = {
        { "0", "0" }, { "-0", "0" }, { "+0", "0" }, { "0.000", "0" }, { "-0e10", "0" }, { "000", "0" },
        { "10", "10" }, { "10.0", "10" }, { "1e1", "10" }, { "1E+1", "10" }, { "100e-1", "10" }, { "+010.00", "10" },
        { "-1.50", "-1.5" }, { "0.5", "0.5" }, { "5e-1", "0.5" }, { "0.0005", "0.0005" }, { "5e-4", "0.0005" },
        { "00.50", "0.5" }, { "123.456e1", "1234.56" }, { "123.456e2", "12345.6" }, { "123.456e3", "123456" },
        { "123.456e4", "1234560" }, { "123.456e-5", "0.00123456" }, { "9007199254740993", "9007199254740993" },
        { "0.10000000000000000000001", "0.10000000000000000000001" }, { "1e999999", "too long" },
        { "1e-999999", "too long" }, { "0e1000000", "0" },
    };
    unsigned i;

    for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        assert_string_equal(plain(*state, forms[i][0]), forms[i][1]);
        if (strcmp(forms[i][1], "too long") != 0) {
            assert_string_equal(plain(*state, forms[i][1]), forms[i][1]);
        }
    }
}

static void what_is_no_number_is_refused(void **state)
{
    static const char *const texts[] = { "", "-", "+", ".5", "5.", "1e", "1e+", "1e1.5", "--1", "+-1", "1 ", " 1",
                                         "1,5",
                                         "0x10", "NaN", "Infinity", "1_000", "1e1000001", "1e-1000001",
                                         "1e99999999999999999999", "e5", "1.2.3", "1e5x", "\xD9\xA1" };
    unsigned i;

    for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_string_equal(plain(*state, texts[i]), "refused");
    }
}

static void length_is_bounded(void **state)
{
    char digits[IDEM_JSON_MAX_NUMBER + 2];
    idem_decimal_t decimal;
    char out[IDEM_DECIMAL_ROOM];

    (void)state;
    memset(digits, '9', sizeof(digits));
    assert_int_equal(idem_decimal_read(digits, IDEM_JSON_MAX_NUMBER + 1, &decimal), APR_EINVAL);
    assert_int_equal(idem_decimal_read(digits, IDEM_JSON_MAX_NUMBER, &decimal), APR_SUCCESS);
    assert_int_equal(idem_decimal_write(&decimal, out), IDEM_JSON_MAX_NUMBER);
    assert_int_equal(idem_decimal_read("-1e-256", 7, &decimal), APR_SUCCESS);
    assert_int_equal(idem_decimal_write(&decimal, out), IDEM_JSON_MAX_NUMBER + 3);
    assert_int_equal(idem_decimal_read("-1e-257", 7, &decimal), APR_SUCCESS);
    assert_int_equal(idem_decimal_write(&decimal, out), 0);
    assert_int_equal(idem_decimal_read("1e255", 5, &decimal), APR_SUCCESS);
    assert_int_equal(idem_decimal_write(&decimal, out), 256);
    assert_int_equal(idem_decimal_read("1e256", 5, &decimal), APR_SUCCESS);
    assert_int_equal(idem_decimal_write(&decimal, out), 0);
}

static void numbers_are_compared_exactly(void **state)
{
    static const char *const rising[] = {
        "-1e1000000", "-1e300", "-100", "-10.1", "-10", "-9.99", "-1", "-0.1", "-0.01", "-1e-1000000", "0",
        "1e-1000000", "0.01", "0.1", "0.10000000000000000000000001", "0.11", "1", "9.99", "10", "10.01", "10.1", "100",
        "9007199254740992", "9007199254740993", "1e300", "1e1000000",
    };
    const int count = sizeof(rising) / sizeof(rising[0]);
    int i;
    int j;

    (void)state;
    for (i = 0; i < count; i++) {
        for (j = 0; j < count; j++) {
            idem_decimal_t a;
            idem_decimal_t b;
            int order;

            assert_int_equal(idem_decimal_read(rising[i], strlen(rising[i]), &a), APR_SUCCESS);
            assert_int_equal(idem_decimal_read(rising[j], strlen(rising[j]), &b), APR_SUCCESS);
            order = idem_decimal_compare(&a, &b);
            if ((order > 0) - (order < 0) != (i > j) - (i < j)) {
                fail_msg("%s and %s", rising[i], rising[j]);
            }
        }
    }
}

static void an_integer_has_no_fraction(void **state)
{
    static const char *const yes[] = { "0", "-0.0", "10", "10.0", "1e1", "1.5e1", "150e-1", "1e400" };
    static const char *const no[] = { "0.5", "10.01", "1e-1", "15e-1", "1e-400" };
    idem_decimal_t decimal;
    unsigned i;

    (void)state;
    for (i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
        assert_int_equal(idem_decimal_read(yes[i], strlen(yes[i]), &decimal), APR_SUCCESS);
        assert_true(idem_decimal_is_integer(&decimal));
    }
    for (i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
        assert_int_equal(idem_decimal_read(no[i], strlen(no[i]), &decimal), APR_SUCCESS);
        assert_false(idem_decimal_is_integer(&decimal));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT_TEST(one_number_has_one_plain_form), UNIT_TEST(what_is_no_number_is_refused),
        UNIT_TEST(length_is_bounded),             UNIT_TEST(numbers_are_compared_exactly),
        UNIT_TEST(an_integer_has_no_fraction),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

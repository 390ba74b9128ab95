/* Payload jcs: RFC 8785. */
#include "unit.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>

#include "core/digest.h"
#include "core/jcs.h"
#include "reading.h"
#include "vectors.h"

static void assert_form(void **state, const char *body, const char *expected)
{
    reading_t r = { .pool = *state, .mode = IDEM_PAYLOAD_JCS };

    assert_string_equal(reading_text(&r, body), expected);
}

static void assert_digest(void **state, const char *body, const char *expected)
{
    reading_t r = { .pool = *state, .mode = IDEM_PAYLOAD_JCS };
    unsigned char digest[IDEM_SHA256_LEN];
    char hex[2 * IDEM_SHA256_LEN + 1];
    int i;

    reading_text(&r, body);
    idem_sha256(r.octets, r.len, digest);
    for (i = 0; i < IDEM_SHA256_LEN; i++) {
        sprintf(hex + 2 * i, "%02x", digest[i]);
    }
    assert_string_equal(hex, expected);
}

static void assert_number(const char *lexeme, const char *expected)
{
    char out[IDEM_JCS_NUMBER_ROOM];
    apr_uint32_t denormals = 0;

    assert_int_equal(idem_jcs_number(lexeme, strlen(lexeme), out, &denormals), strlen(expected));
    assert_string_equal(out, expected);
}

static const char *double_text(double value, char out[IDEM_JCS_NUMBER_ROOM])
{
    apr_size_t len = idem_jcs_double(value, out);

    assert_int_equal(len, strlen(out));
    assert_true(len > 0 && len < IDEM_JCS_NUMBER_ROOM);
    return out;
}

static double of_bits(apr_uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static void published_numbers_come_out_as_published(void **state)
{
    apr_size_t len;
    char *last;
    char *line = apr_strtok(apr_pstrdup(*state, vec_file(*state, "jcs/es6-numbers.csv", &len)), "\r\n", &last);
    char out[IDEM_JCS_NUMBER_ROOM];
    char long_form[64];
    int lines = 0;

    for (; line != NULL; line = apr_strtok(NULL, "\r\n", &last)) {
        char *comma = strchr(line, ',');
        double value = of_bits(strtoull(line, NULL, 16));

        assert_non_null(comma);
        assert_string_equal(double_text(value, out), comma + 1);
        assert_number(comma + 1, comma + 1);
        snprintf(long_form, sizeof(long_form), "%.17e", value);
        assert_number(long_form, comma + 1);
        lines++;
    }
    assert_int_equal(lines, 6667);
}

static void numbers_at_the_edges(void **state)
{
    (void)state;
    assert_number("0", "0");
    assert_number("-0", "0");
    assert_number("-0.0e5", "0");
    assert_number("1e-400", "0");
    assert_number("10.0", "10");
    assert_number("1E1", "10");
    assert_number("1e21", "1e+21");
    assert_number("123456789012345678901", "123456789012345680000");
    assert_number("0.000001", "0.000001");
    assert_number("0.0000001", "1e-7");
    assert_number("9007199254740991", "9007199254740991");
    assert_number("9007199254740992", "9007199254740992");
    assert_number("9007199254740993", "9007199254740992");
    assert_number("-1.7976931348623157e308", "-1.7976931348623157e+308");
    assert_number("4.9e-324", "5e-324");
    assert_number("2.2250738585072014e-308", "2.2250738585072014e-308");
    assert_number("2.225073858507201e-308", "2.225073858507201e-308");
    assert_number("333333333.33333329", "333333333.3333333");
    assert_number("1e-00000000000000000000007", "1e-7");
    assert_number("1e+0000000000000000000000000000000000000000000000000000000000000000000001", "10");
    assert_number("0e999999999999999999999", "0");
    /* below a power of two the nearest decimal may belong to the neighbour (ECMAScript's own answer) */
    assert_number("5.6843418860808015e-14", "5.684341886080802e-14");
}

static void a_number_that_no_double_holds_is_refused(void **state)
{
    reading_t r = { .pool = *state, .mode = IDEM_PAYLOAD_JCS };

    assert_string_equal(reading_refusal(&r, "{\"a\":[1,1e309]}"), "number-range");
    assert_string_equal(r.fault->pointer, "/a/1");
    assert_string_equal(reading_refusal(&r, "[-1e99999999999999999999]"), "number-range");
    assert_string_equal(reading_refusal(&r, "[1.7976931348623159e308]"), "number-range");
}

/* The shortest decimals need no double; they must be those that the doubles give. */
static void short_decimals_come_out_as_their_doubles_do(void **state)
{
    unsigned seed = 815;
    int i;

    (void)state;
    for (i = 0; i < 100000; i++) {
        char lexeme[64];
        char out[IDEM_JCS_NUMBER_ROOM];
        unsigned long long digits = ((unsigned long long)reading_random(&seed) << 32 | reading_random(&seed)) %
                                    (i % 2 ? 1000000000000000ull : 1000000ull);

        snprintf(lexeme, sizeof(lexeme), "%s%llu%s", i % 3 ? "" : "-", digits, i % 5 ? "" : ".0");
        snprintf(lexeme + strlen(lexeme), 16, "e%d", (int)reading_below(&seed, i % 7 ? 40 : 640) - (i % 7 ? 20 : 320));
        if (isfinite(strtod(lexeme, NULL))) {
            assert_number(lexeme, double_text(strtod(lexeme, NULL), out));
        }
    }
}

static void denormal_numbers_are_few(void **state)
{
    char *text = apr_palloc(*state, IDEM_JCS_MAX_DENORMALS * 8 + 32);
    reading_t r = { .pool = *state, .mode = IDEM_PAYLOAD_JCS };
    apr_size_t used = 0;
    int i;

    for (i = 0; i < IDEM_JCS_MAX_DENORMALS; i++) {
        used += (apr_size_t)sprintf(text + used, "%c5e-324", i == 0 ? '[' : ',');
    }
    strcpy(text + used, "]");
    assert_true(reading_of(&r, text, used + 1));
    strcpy(text + used, ",1e-310]");
    assert_string_equal(reading_refusal(&r, text), "too-many-values");
}

/* Whether a decimal of one digit less reads back as the value too: the nearest one or a neighbour of it. */
static int shorter_exists(double value, int digits)
{
    char text[64];
    char whole[64];
    long long mantissa;
    int exponent;
    int step;

    if (digits <= 1) {
        return 0;
    }
    snprintf(text, sizeof(text), "%.*e", digits - 2, fabs(value));
    exponent = atoi(strchr(text, 'e') + 1) - (digits - 2);
    snprintf(whole, sizeof(whole), "%c%.*s", text[0], digits - 2, text + 2);
    mantissa = atoll(whole);
    for (step = -1; step <= 1; step++) {
        snprintf(text, sizeof(text), "%llde%d", mantissa + step, exponent);
        if (strtod(text, NULL) == fabs(value)) {
            return 1;
        }
    }
    return 0;
}

static void any_double_reads_back_from_its_text_and_none_is_shorter(void **state)
{
    unsigned seed = 4711;
    char out[IDEM_JCS_NUMBER_ROOM];
    char again[IDEM_JCS_NUMBER_ROOM];
    apr_uint32_t denormals = 0;
    int i;

    (void)state;
    for (i = 0; i < 200000; i++) {
        apr_uint64_t bits = (apr_uint64_t)reading_random(&seed) << 32 | reading_random(&seed);
        double value = of_bits(i % 8 == 0 ? bits & APR_UINT64_C(0x800FFFFFFFFFFFFF) /* denormal */
                               : i % 8 == 1 ? bits & APR_UINT64_C(0xFFF0000000000000) /* power of two */ : bits);
        const char *s;
        int digits = 0;

        if (!isfinite(value) || value == 0) {
            continue;
        }
        double_text(value, out);
        assert_true(strtod(out, NULL) == value);
        idem_jcs_number(out, strlen(out), again, &denormals);
        assert_string_equal(again, out);
        for (s = out; *s != '\0' && *s != 'e'; s++) {
            digits += *s >= '0' && *s <= '9' && (digits != 0 || *s != '0');
        }
        if (strchr(out, 'e') != NULL && shorter_exists(value, digits)) {
            fail_msg("%s could be shorter", out);
        }
    }
}

static void published_documents_come_out_as_published(void **state)
{
    static const char *const names[] = { "arrays", "french", "structures", "values" };
    unsigned i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        apr_size_t len;
        const char *input = vec_file(*state, apr_psprintf(*state, "jcs/input/%s.json", names[i]), &len);
        const char *output = vec_file(*state, apr_psprintf(*state, "jcs/output/%s.json", names[i]), &len);

        assert_form(state, input, output);
        assert_form(state, output, output);
    }
}

static void published_plans_have_the_published_digest(void **state)
{
    static const char *const names[] = {
        "001-minimal-plan",
        "002-full-plan",
        "004a-human-review-omitted",
        "005a-policy-categories-order-1",
        "005b-policy-categories-order-2",
        "006a-ext-trace-v1",
        "008-numeric-canonicalization",
    };
    unsigned i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const vec_t *plan = vec_load(*state, apr_psprintf(*state, "jcs-adcp/%s.json", names[i]));
        const char *jcs = vec_text(plan, "jcs");

        assert_form(state, reading_json(*state, vec_get(plan, "input"), 0), jcs);
        assert_form(state, reading_json(*state, vec_get(plan, "input"), 1), jcs);
        assert_digest(state, reading_json(*state, vec_get(plan, "input"), 1), vec_text(plan, "sha256"));
    }
}

static void names_are_sorted_by_utf16_code_units(void **state)
{
    /* U+1F600 is D83D DE00 and so before U+FB33 and U+E000, but behind U+D7FF */
    assert_form(state, "{\"\\ue000\":1,\"\\ud83d\\ude00\":2,\"\\ud7ff\":3,\"\\ufb33\":4,\"\\uffff\":5,\"a\":6}",
                "{\"a\":6,\"\xED\x9F\xBF\":3,\"\xF0\x9F\x98\x80\":2,\"\xEE\x80\x80\":1,\"\xEF\xAC\xB3\":4,"
                "\"\xEF\xBF\xBF\":5}");
    assert_form(state, "{\"long-name-\\ue000\":1,\"long-name-\\ud83d\\ude00\":2,\"long-name-\":3}",
                "{\"long-name-\":3,\"long-name-\xF0\x9F\x98\x80\":2,\"long-name-\xEE\x80\x80\":1}");
}

static void json_s_refusals_hold_here_too(void **state)
{
    reading_t r = { .pool = *state, .mode = IDEM_PAYLOAD_JCS };

    assert_string_equal(reading_refusal(&r, ""), "empty");
    assert_string_equal(reading_refusal(&r, "{\"a\":1,\"a\":1}"), "duplicate-member");
    assert_string_equal(reading_refusal(&r, "{\"\\ud83d\\ude00\":1,\"\xF0\x9F\x98\x80\":1}"), "duplicate-member");
    assert_string_equal(reading_refusal(&r, "[\"\\udead\"]"), "unpaired-surrogate");
    assert_string_equal(reading_refusal(&r, "[NaN]"), "syntax");
}

static void no_locale_changes_a_number(void **state)
{
    static const char *const names[] = { "C", "C.UTF-8", "sv_SE.UTF-8", "tr_TR.UTF-8", "de_DE.UTF-8" };
    unsigned i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (setlocale(LC_ALL, names[i]) != NULL) {
            assert_form(state, "[1.5,33.33,1e-7,123456.789e3,0.1]", "[1.5,33.33,1e-7,123456789,0.1]");
        }
    }
    setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT_TEST(published_numbers_come_out_as_published),
        UNIT_TEST(numbers_at_the_edges),
        UNIT_TEST(a_number_that_no_double_holds_is_refused),
        UNIT_TEST(short_decimals_come_out_as_their_doubles_do),
        UNIT_TEST(denormal_numbers_are_few),
        UNIT_TEST(any_double_reads_back_from_its_text_and_none_is_shorter),
        UNIT_TEST(published_documents_come_out_as_published),
        UNIT_TEST(published_plans_have_the_published_digest),
        UNIT_TEST(names_are_sorted_by_utf16_code_units),
        UNIT_TEST(json_s_refusals_hold_here_too),
        UNIT_TEST(no_locale_changes_a_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

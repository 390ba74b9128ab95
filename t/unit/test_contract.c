/* The payload contract: what it takes, what it normalises, which contracts stop start-up (contract.h). */
#include "unit.h"

#include "core/contract.h"
#include "core/json.h"
#include "reading.h"

static idem_contract_t *compiled(void **state, const char *text)
{
    idem_contract_t *contract = NULL;
    const char *error = NULL;

    if (idem_contract_compile(*state, text, strlen(text), &contract, &error) != APR_SUCCESS) {
        fail_msg("%s: %s", text, error);
    }
    assert_null(error);
    return contract;
}

static reading_t under(void **state, const char *contract)
{
    return (reading_t){ .pool = *state, .mode = IDEM_PAYLOAD_JSON, .contract = compiled(state, contract) };
}

static void assert_form(void **state, const char *contract, const char *body, const char *expected)
{
    reading_t r = under(state, contract);

    assert_string_equal(reading_text(&r, body), expected);
}

static void assert_refused(void **state, const char *contract, const char *body, const char *reason,
                           const char *pointer)
{
    reading_t r = under(state, contract);
    const char *got = reading_refusal(&r, body);

    if (strcmp(got, reason) != 0) {
        fail_msg("%s under %s: %s instead of %s", body, contract, got, reason);
    }
    assert_string_equal(r.fault->pointer, pointer);
}

/* Every word of `expected` must be in the error. */
static void assert_no_contract(void **state, const char *text, const char *pointer, const char *expected)
{
    idem_contract_t *contract = NULL;
    const char *error = NULL;

    assert_int_equal(idem_contract_compile(*state, text, strlen(text), &contract, &error), APR_EINVAL);
    assert_null(contract);
    assert_non_null(error);
    if (strstr(error, expected) == NULL || strstr(error, apr_psprintf(*state, "at \"%s\"", pointer)) == NULL) {
        fail_msg("%s: %s", text, error);
    }
}

#define CHARGE                                                                                                         \
    "{\"type\":\"object\",\"x-revision\":\"2026-01\",\"required\":[\"amount\",\"currency\"],\"properties\":{"          \
    "\"amount\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":99999999},"                                            \
    "\"currency\":{\"type\":\"string\",\"pattern\":\"^[A-Z]{3}$\"},"                                                   \
    "\"fee\":{\"type\":\"string\",\"format\":\"decimal\",\"minimum\":0},"                                              \
    "\"note\":{\"type\":[\"string\",\"null\"],\"maxLength\":5},"                                                       \
    "\"items\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"sku\":{\"type\":\"string\"}}}},"   \
    "\"extra\":{\"type\":\"object\",\"additionalProperties\":true}}}"

static void a_body_within_the_contract_is_taken(void **state)
{
    assert_form(state, CHARGE, "{\"currency\":\"EUR\",\"amount\":10}", "{\"amount\":10,\"currency\":\"EUR\"}");
    assert_form(state, CHARGE,
                "{\"currency\":\"EUR\",\"amount\":10,\"note\":null,\"items\":[{\"sku\":\"a\"},{}],\"extra\":{\"x\":[{"
                "\"y\":1.0}]},\"fee\":\"0\"}",
                "{\"amount\":10,\"currency\":\"EUR\",\"extra\":{\"x\":[{\"y\":1.0}]},\"fee\":\"0\",\"items\":[{"
                "\"sku\":\"a\"},{}],\"note\":null}");
}

static void a_member_outside_the_contract_is_refused(void **state)
{
    assert_refused(state, CHARGE, "{\"currency\":\"EUR\",\"amount\":10,\"amont\":1}", "contract-member", "/amont");
    assert_refused(state, CHARGE, "{\"currency\":\"EUR\",\"amount\":10,\"items\":[{},{\"x\":1}]}", "contract-member",
                   "/items/1/x");
    assert_refused(state, "{\"type\":\"object\"}", "{\"a\":1}", "contract-member", "/a");
    assert_refused(state, "{}", "{\"a\":1}", "contract-member", "/a");
    assert_refused(state, "{}", "[[{\"a\":1}]]", "contract-member", "/0/0/a");
    assert_refused(state, "{\"type\":\"array\"}", "[{\"a\":1}]", "contract-member", "/0/a");
    assert_refused(state, "{\"additionalProperties\":false}", "{\"a\":1}", "contract-member", "/a");
    assert_form(state, "{}", "{}", "{}");
    assert_form(state, "{}", "[1.0,[\"a\"],null]", "[1.0,[\"a\"],null]");
    assert_form(state, "{\"additionalProperties\":true}", "{\"a\":{\"b\":[{\"c\":1}]}}", "{\"a\":{\"b\":[{\"c\":1}]}}");
    assert_form(state, "{\"additionalProperties\":{\"type\":\"integer\"}}", "{\"a\":1e1}", "{\"a\":10}");
    assert_refused(state, "{\"additionalProperties\":{\"type\":\"integer\"}}", "{\"a\":1,\"b\":\"x\"}", "contract-type",
                   "/b");
}

static void required_members_must_be_there(void **state)
{
    const char *open = "{\"additionalProperties\":{\"type\":\"integer\"},\"required\":[\"z\",\"b\"],"
                       "\"properties\":{\"b\":{}}}";
    reading_t r = under(state, CHARGE);

    assert_refused(state, CHARGE, "{\"amount\":10}", "contract-required", "");
    assert_refused(state, CHARGE, "{}", "contract-required", "");
    reading_refusal(&r, "{\"amount\":10}");
    assert_non_null(strstr(r.fault->detail, "\"currency\""));
    assert_form(state, open, "{\"z\":1.0,\"b\":1.0}", "{\"b\":1.0,\"z\":1}");
    assert_refused(state, open, "{\"b\":1}", "contract-required", "");
    assert_refused(state, open, "{\"b\":1,\"z\":\"\"}", "contract-type", "/z");
    assert_form(state, "{\"required\":[\"a\"],\"additionalProperties\":true}",
                "{\"a\":{\"x\":1}}", "{\"a\":{\"x\":1}}");
}

static void types_are_checked(void **state)
{
    static const char *const names[] = { "null", "boolean", "number", "string", "array", "object" };
    static const char *const values[] = { "null", "true", "1.5", "\"1\"", "[]", "{}" };
    int i;
    int j;

    for (i = 0; i < 6; i++) {
        for (j = 0; j < 6; j++) {
            const char *contract = apr_psprintf(*state, "{\"type\":\"%s\"}", names[i]);

            if (i == j) {
                assert_form(state, contract, values[j], values[j]);
            }
            else {
                assert_refused(state, contract, values[j], "contract-type", "");
            }
        }
    }
    assert_form(state, "{\"type\":\"boolean\"}", "false", "false");
    assert_form(state, "{\"type\":[\"null\",\"string\"]}", "null", "null");
    assert_form(state, "{\"type\":[\"null\",\"string\"]}", "\"\"", "\"\"");
    assert_refused(state, "{\"type\":[\"null\",\"string\"]}", "1", "contract-type", "");
    assert_refused(state, CHARGE, "{\"currency\":\"EUR\",\"amount\":\"10\"}", "contract-type", "/amount");
}

static void integers_have_one_form(void **state)
{
    const char *integer = "{\"type\":\"integer\"}";

    assert_form(state, integer, "10", "10");
    assert_form(state, integer, "10.0", "10");
    assert_form(state, integer, "1e1", "10");
    assert_form(state, integer, "100e-1", "10");
    assert_form(state, integer, "-0", "0");
    assert_form(state, integer, "0.0", "0");
    assert_form(state, integer, "-12", "-12");
    assert_form(state, integer, "123456789012345678901234567890", "123456789012345678901234567890");
    assert_refused(state, integer, "10.5", "contract-type", "");
    assert_refused(state, integer, "1e-1", "contract-type", "");
    assert_refused(state, integer, "1e999", "contract-decimal", "");
    assert_refused(state, integer, "1e99999999999", "contract-decimal", "");
    assert_refused(state, integer, "\"10\"", "contract-type", "");
    assert_form(state, "{\"type\":[\"integer\",\"null\"]}", "1e1", "10");
    assert_form(state, "{\"type\":[\"integer\",\"number\"]}", "1e1", "10");
    assert_form(state, "{\"type\":[\"integer\",\"number\"]}", "1.50", "1.50");
    assert_form(state, "{\"type\":\"number\"}", "1e1", "1e1");
    assert_form(state, "{\"type\":\"number\"}", "1e99999999999", "1e99999999999");
}

static void decimals_have_one_form_and_stay_what_they_are(void **state)
{
    const char *number = "{\"type\":\"number\",\"format\":\"decimal\"}";
    const char *string = "{\"type\":\"string\",\"format\":\"decimal\"}";
    const char *any = "{\"format\":\"decimal\"}";

    assert_form(state, number, "10.50", "10.5");
    assert_form(state, number, "1.05e1", "10.5");
    assert_form(state, number, "1e2", "100");
    assert_form(state, number, "7", "7");
    assert_form(state, number, "-0.0", "0");
    assert_refused(state, number, "\"7\"", "contract-type", "");
    assert_form(state, string, "\"10.50\"", "\"10.5\"");
    assert_form(state, string, "\"+010.5\"", "\"10.5\"");
    assert_form(state, string, "\"1.05E1\"", "\"10.5\"");
    assert_form(state, string, "\"1\\u0030.5\"", "\"10.5\"");
    assert_form(state, string, "\"7\"", "\"7\"");
    assert_refused(state, string, "\"\"", "contract-decimal", "");
    assert_refused(state, string, "\"ten\"", "contract-decimal", "");
    assert_refused(state, string, "\"1,5\"", "contract-decimal", "");
    assert_refused(state, string, "\" 1\"", "contract-decimal", "");
    assert_refused(state, string, "\"1e999\"", "contract-decimal", "");
    assert_form(state, any, "1.0", "1");
    assert_form(state, any, "\"1.0\"", "\"1\"");
    assert_form(state, any, "true", "true");
}

static void bounds_are_included_and_exact(void **state)
{
    const char *bounds = "{\"minimum\":-0.1,\"maximum\":9007199254740993}";
    const char *text = "{\"type\":\"string\",\"format\":\"decimal\",\"minimum\":1,\"maximum\":2.50}";

    assert_form(state, bounds, "-0.1", "-0.1");
    assert_form(state, bounds, "9007199254740993", "9007199254740993");
    assert_form(state, bounds, "9007199254740993.0", "9007199254740993.0");
    assert_refused(state, bounds, "9007199254740994", "contract-range", "");
    assert_refused(state, bounds, "9007199254740993.0000000000000000001", "contract-range", "");
    assert_refused(state, bounds, "-0.1000000000000000001", "contract-range", "");
    assert_refused(state, bounds, "1e400000", "contract-range", "");
    assert_refused(state, bounds, "1e4000000000", "contract-decimal", "");
    assert_form(state, bounds, "\"zzz\"", "\"zzz\"");
    assert_form(state, text, "\"1.000\"", "\"1\"");
    assert_form(state, text, "\"2.5\"", "\"2.5\"");
    assert_refused(state, text, "\"0.99\"", "contract-range", "");
    assert_refused(state, text, "\"2.51\"", "contract-range", "");
    assert_refused(state, CHARGE, "{\"currency\":\"EUR\",\"amount\":0}", "contract-range", "/amount");
    assert_refused(state, "{\"type\":\"integer\",\"minimum\":0}", "0.5", "contract-type", "");
}

static void strings_are_measured_in_characters(void **state)
{
    assert_form(state, "{\"maxLength\":3}", "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"",
                "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"");
    assert_form(state, "{\"maxLength\":3}", "\"\\ud83d\\ude00ab\"", "\"\xF0\x9F\x98\x80" "ab\"");
    assert_refused(state, "{\"maxLength\":3}", "\"abcd\"", "contract-length", "");
    assert_refused(state, "{\"maxLength\":3}", "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80.\"", "contract-length", "");
    assert_refused(state, "{\"maxLength\":0}", "\"a\"", "contract-length", "");
    assert_form(state, "{\"maxLength\":0}", "\"\"", "\"\"");
    assert_form(state, "{\"maxLength\":0}", "12345", "12345");
}

static void patterns_are_searched_for(void **state)
{
    assert_form(state, "{\"pattern\":\"b\"}", "\"abc\"", "\"abc\"");
    assert_refused(state, "{\"pattern\":\"^b\"}", "\"abc\"", "contract-pattern", "");
    assert_form(state, "{\"pattern\":\"^.$\"}", "\"\xF0\x9F\x98\x80\"", "\"\xF0\x9F\x98\x80\"");
    assert_form(state, "{\"pattern\":\"^\\\\u00e9$\"}", "\"\\u00e9\"", "\"\xC3\xA9\"");
    assert_refused(state, "{\"pattern\":\"^[A-Z]{3}$\"}", "\"EUR\\n\"", "contract-pattern", "");
    assert_refused(state, "{\"pattern\":\"^\\\\d+$\"}", "\"\xD9\xA1\"", "contract-pattern", "");
    assert_form(state, "{\"pattern\":\"a\\u0000b\"}", "\"xa\\u0000b\"", "\"xa\\u0000b\"");
    assert_refused(state, "{\"pattern\":\"a\\u0000b\"}", "\"xa\"", "contract-pattern", "");
    assert_form(state, "{\"pattern\":\"^a\"}", "17", "17");
}

static void a_pattern_cannot_run_away(void **state)
{
    reading_t r = under(state, "{\"pattern\":\"^(a+)+$\"}");

    assert_string_equal(reading_refusal(&r, "\"aaab\""), "contract-pattern");
    assert_non_null(strstr(r.fault->detail, "does not match"));
    /* a million steps or so: PCRE2's own limit would let them pass */
    assert_string_equal(reading_refusal(&r, "\"aaaaaaaaaaaaaaaaaaaab\""), "contract-pattern");
    assert_non_null(strstr(r.fault->detail, "too long"));
}

static void enum_and_const_compare_values(void **state)
{
    const char *some = "{\"enum\":[1,\"a\",null,{\"x\":[1,{\"y\":2}],\"z\":true},[1,2],false]}";

    assert_form(state, some, "1", "1");
    assert_form(state, some, "1.0", "1.0");
    assert_form(state, some, "\"\\u0061\"", "\"a\"");
    assert_form(state, some, "null", "null");
    assert_form(state, some, "false", "false");
    assert_form(state, some, "[1.0,2]", "[1.0,2]");
    assert_form(state, some, "{\"z\":true,\"x\":[1,{\"y\":2}]}", "{\"x\":[1,{\"y\":2}],\"z\":true}");
    assert_refused(state, some, "true", "contract-value", "");
    assert_refused(state, some, "\"1\"", "contract-value", "");
    assert_refused(state, some, "[2,1]", "contract-value", "");
    assert_refused(state, some, "[1]", "contract-value", "");
    assert_refused(state, some, "[1,2,3]", "contract-value", "");
    assert_refused(state, some, "{\"z\":true,\"x\":[1,{\"y\":3}]}", "contract-value", "");
    assert_refused(state, some, "{\"z\":true,\"z\":true}", "contract-value", "");
    assert_refused(state, some, "{}", "contract-value", "");
    assert_form(state, "{\"const\":{\"a\":1}}", "{\"a\":1}", "{\"a\":1}");
    assert_form(state, "{\"enum\":[[{\"a\":[{\"b\":1}]}]]}", "[{\"a\":[{\"b\":1}]}]", "[{\"a\":[{\"b\":1}]}]");
    assert_refused(state, "{\"const\":\"a\"}", "\"b\"", "contract-value", "");
    assert_form(state, "{\"type\":\"integer\",\"enum\":[10,20]}", "1e1", "10");
    assert_refused(state, "{\"const\":1e5,\"minimum\":7}", "1e500000000", "contract-value", "");
}

static void duplicates_are_refused_under_a_contract_too(void **state)
{
    assert_refused(state, CHARGE, "{\"currency\":\"EUR\",\"amount\":1,\"amount\":2}", "duplicate-member", "/amount");
    assert_refused(state, CHARGE, "{\"amount\":1,\"amount\":2}", "duplicate-member", "/amount");
}

static void jcs_is_checked_alike_and_keeps_its_numbers(void **state)
{
    reading_t r = under(state, CHARGE);

    r.mode = IDEM_PAYLOAD_JCS;
    assert_string_equal(reading_text(&r, "{\"currency\":\"EUR\",\"amount\":1e1,\"fee\":\"1.50\"}"),
                        "{\"amount\":10,\"currency\":\"EUR\",\"fee\":\"1.5\"}");
    assert_string_equal(reading_refusal(&r, "{\"currency\":\"EUR\",\"amount\":0}"), "contract-range");
}

static void the_revision_can_be_read(void **state)
{
    assert_string_equal(idem_contract_revision(compiled(state, CHARGE)), "2026-01");
    assert_string_equal(idem_contract_revision(compiled(state, "{\"x-revision\":7}")), "7");
    assert_string_equal(idem_contract_revision(compiled(state, "{}")), "");
}

static void a_broken_contract_names_the_place(void **state)
{
    const char *error;
    idem_contract_t *contract = NULL;

    assert_no_contract(state, "", "", "empty");
    assert_no_contract(state, "{", "", "too early");
    assert_no_contract(state, "{\"type\":\"object\",\"type\":\"object\"}", "/type", "same name");
    assert_no_contract(state, "[]", "", "a schema is an object");
    assert_no_contract(state, "true", "", "a schema is an object");
    assert_no_contract(state, "{\"title\":\"x\"}", "/title", "no such keyword");
    assert_no_contract(state, "{\"$ref\":\"#\"}", "/$ref", "no such keyword");
    assert_no_contract(state, "{\"properties\":{\"a\":{\"minLength\":1}}}", "/properties/a/minLength",
                       "no such keyword");
    assert_no_contract(state, "{\"Type\":\"object\"}", "/Type", "no such keyword");
    assert_no_contract(state, "{\"type\":\"float\"}", "/type", "\"type\"");
    assert_no_contract(state, "{\"type\":1}", "/type", "\"type\"");
    assert_no_contract(state, "{\"type\":[]}", "/type", "\"type\"");
    assert_no_contract(state, "{\"type\":[\"null\",[\"null\"]]}", "/type/1", "\"type\"");
    assert_no_contract(state, "{\"type\":[\"null\",\"null\"]}", "/type/1", "twice");
    assert_no_contract(state, "{\"properties\":[]}", "/properties", "\"properties\"");
    assert_no_contract(state, "{\"properties\":{\"a\":true}}", "/properties/a", "a schema is an object");
    assert_no_contract(state, "{\"required\":{}}", "/required", "\"required\"");
    assert_no_contract(state, "{\"required\":[1]}", "/required/0", "\"required\"");
    assert_no_contract(state, "{\"required\":[\"a\"]}", "/required/0", "not in \"properties\"");
    assert_no_contract(state, "{\"properties\":{\"a\":{}},\"required\":[\"a\",\"a\"]}", "/required/1", "twice");
    assert_no_contract(state, "{\"additionalProperties\":1}", "/additionalProperties", "additionalProperties");
    assert_no_contract(state, "{\"items\":[{}]}", "/items", "a schema is an object");
    assert_no_contract(state, "{\"enum\":[]}", "/enum", "\"enum\"");
    assert_no_contract(state, "{\"enum\":{}}", "/enum", "\"enum\"");
    assert_no_contract(state, "{\"enum\":[1],\"const\":1}", "/enum", "\"const\"");
    assert_no_contract(state, "{\"maxLength\":-1}", "/maxLength", "\"maxLength\"");
    assert_no_contract(state, "{\"maxLength\":1.5}", "/maxLength", "\"maxLength\"");
    assert_no_contract(state, "{\"maxLength\":\"1\"}", "/maxLength", "\"maxLength\"");
    assert_no_contract(state, "{\"maxLength\":99999999999}", "/maxLength", "\"maxLength\"");
    assert_no_contract(state, "{\"pattern\":1}", "/pattern", "\"pattern\"");
    assert_no_contract(state, "{\"items\":{\"pattern\":\"a(\"}}", "/items/pattern", "at character 2");
    assert_no_contract(state, "{\"pattern\":\"\\\\C\"}", "/pattern", "regular expression");
    assert_no_contract(state, "{\"minimum\":\"1\"}", "/minimum", "\"minimum\"");
    assert_no_contract(state, "{\"maximum\":1e99999999}", "/maximum", "\"maximum\"");
    assert_no_contract(state, "{\"minimum\":2,\"maximum\":1}", "/minimum", "above");
    assert_no_contract(state, "{\"format\":\"date\"}", "/format", "decimal");
    assert_no_contract(state, "{\"format\":1}", "/format", "decimal");
    assert_no_contract(state, "{\"properties\":{\"a\":{\"x-revision\":1}}}", "/properties/a/x-revision", "outermost");
    assert_no_contract(state, "{\"x-revision\":\"\"}", "/x-revision", "x-revision");
    assert_no_contract(state, "{\"x-revision\":1.5}", "/x-revision", "x-revision");
    assert_no_contract(state, "{\"x-revision\":null}", "/x-revision", "x-revision");
    assert_no_contract(state, "{\"x-revision\":\"a\\u001eb\"}", "/x-revision", "control");
    assert_int_equal(idem_contract_compile(*state, "{\xFF}", 3, &contract, &error), APR_EINVAL);
    assert_non_null(strstr(error, "UTF-8"));
}

static void a_keyword_that_checks_nothing_is_no_keyword(void **state)
{
    assert_no_contract(state, "{\"type\":\"number\",\"maxLength\":1}", "/maxLength", "says nothing");
    assert_no_contract(state, "{\"type\":\"string\",\"minimum\":1}", "/minimum", "says nothing");
    assert_no_contract(state, "{\"type\":\"boolean\",\"format\":\"decimal\"}", "/format", "says nothing");
    assert_no_contract(state, "{\"type\":\"array\",\"properties\":{}}", "/properties", "says nothing");
    assert_no_contract(state, "{\"type\":[\"object\",\"null\"],\"items\":{}}", "/items", "says nothing");
}

static void a_deep_contract_fits_the_deepest_body_and_a_deeper_one_is_refused(void **state)
{
    apr_pool_t *p = *state;
    const char *contract = "{\"type\":\"integer\"}";
    const char *body = "1.0";
    reading_t r;
    idem_contract_t *none;
    const char *error;
    int i;

    for (i = 0; i < IDEM_JSON_MAX_DEPTH; i++) {
        contract = apr_psprintf(p, "{\"properties\":{\"a\":%s}}", contract);
        body = apr_psprintf(p, "{\"a\":%s}", body);
    }
    r = under(state, contract);
    assert_non_null(strstr(reading_text(&r, body), ":1}"));
    for (i = 0; i < 64; i++) {
        contract = apr_psprintf(p, "{\"properties\":{\"a\":%s}}", contract);
    }
    assert_int_equal(idem_contract_compile(p, contract, strlen(contract), &none, &error), APR_EINVAL);
    assert_non_null(strstr(error, "deep"));
}

/* Members come in any order, and more of them than the contract's list is searched for by hand. */
static void many_members_are_found(void **state)
{
    apr_pool_t *p = *state;
    const char *properties = "";
    const char *body = "";
    const char *expected = "";
    reading_t r;
    int i;

    for (i = 0; i < 200; i++) {
        properties = apr_psprintf(p, "%s%s\"m%03d\":{\"type\":\"%s\"}", properties, i ? "," : "", (i * 37) % 200,
                                  (i * 37) % 200 % 2 ? "integer" : "number");
        if (i % 3 == 0) {
            expected = apr_psprintf(p, "%s%s\"m%03d\":%s", expected, i ? "," : "", i, i % 2 ? "1" : "1.0");
            body = apr_psprintf(p, "\"m%03d\":1.0%s%s", i, i ? "," : "", body);
        }
    }
    r = under(state, apr_pstrcat(p, "{\"properties\":{", properties, "}}", NULL));
    assert_string_equal(reading_text(&r, apr_pstrcat(p, "{", body, "}", NULL)),
                        apr_pstrcat(p, "{", expected, "}", NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT_TEST(a_body_within_the_contract_is_taken),
        UNIT_TEST(a_member_outside_the_contract_is_refused),
        UNIT_TEST(required_members_must_be_there),
        UNIT_TEST(types_are_checked),
        UNIT_TEST(integers_have_one_form),
        UNIT_TEST(decimals_have_one_form_and_stay_what_they_are),
        UNIT_TEST(bounds_are_included_and_exact),
        UNIT_TEST(strings_are_measured_in_characters),
        UNIT_TEST(patterns_are_searched_for),
        UNIT_TEST(a_pattern_cannot_run_away),
        UNIT_TEST(enum_and_const_compare_values),
        UNIT_TEST(duplicates_are_refused_under_a_contract_too),
        UNIT_TEST(jcs_is_checked_alike_and_keeps_its_numbers),
        UNIT_TEST(the_revision_can_be_read),
        UNIT_TEST(a_broken_contract_names_the_place),
        UNIT_TEST(a_keyword_that_checks_nothing_is_no_keyword),
        UNIT_TEST(a_deep_contract_fits_the_deepest_body_and_a_deeper_one_is_refused),
        UNIT_TEST(many_members_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The strict reader: what is refused, and by which name (CONTRACT.md 3.1, json.h). */
#include "unit.h"

#include <dirent.h>
#include <stdio.h>

#include "core/json.h"
#include "reading.h"
#include "vectors.h"

static reading_t json(void **state)
{
    return (reading_t){ .pool = *state, .mode = IDEM_PAYLOAD_JSON };
}

static void assert_taken(void **state, const char *body)
{
    reading_t r = json(state);

    reading_text(&r, body);
}

static void assert_refused(void **state, const char *body, const char *reason)
{
    reading_t r = json(state);
    const char *got = reading_refusal(&r, body);

    if (strcmp(got, reason) != 0) {
        fail_msg("%s: %s instead of %s", body, got, reason);
    }
}

/* ---- the public suite ---- */

/* Where we decide otherwise than by the first letter: the y_ files that the contract refuses. */
static int refused_by_contract(const char *name)
{
    return strcmp(name, "y_object_duplicated_key_and_value.json") == 0;
}

/* Our verdict on what RFC 8259 leaves open: the table in json.h. */
static const char *const open_and_taken[] = {
    "i_number_double_huge_neg_exp.json", "i_number_neg_int_huge_exp.json",     "i_number_pos_double_huge_exp.json",
    "i_number_real_pos_overflow.json",   "i_number_real_underflow.json",       "i_number_too_big_pos_int.json",
    "i_number_very_big_negative_int.json",
};

static int is_taken(const char *name)
{
    unsigned i;

    if (name[0] == 'i') {
        for (i = 0; i < sizeof(open_and_taken) / sizeof(open_and_taken[0]); i++) {
            if (strcmp(name, open_and_taken[i]) == 0) {
                return 1;
            }
        }
        return 0;
    }
    return name[0] == 'y' && !refused_by_contract(name);
}

static void every_file_of_the_suite_is_judged_as_documented(void **state)
{
    const char *root = getenv("IDEM_VECTORS");
    DIR *folder = opendir(apr_pstrcat(*state, root ? root : "t/vectors", "/json-test-suite/test_parsing", NULL));
    struct dirent *entry;
    int files = 0;

    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        apr_pool_t *pool;
        apr_size_t len;
        const char *body;
        unsigned way;

        if (entry->d_name[0] == '.') {
            continue;
        }
        apr_pool_create(&pool, *state);
        body = vec_file(pool, apr_pstrcat(pool, "json-test-suite/test_parsing/", entry->d_name, NULL), &len);
        for (way = 0; way < 4; way++) {
            reading_t r = { .pool = pool, .mode = IDEM_PAYLOAD_JSON, .piece = way == 1, .random = way > 1 ? way : 0 };

            if (reading_of(&r, body, len) != is_taken(entry->d_name)) {
                fail_msg("%s: %s", entry->d_name, r.fault ? r.fault->detail : "taken");
            }
        }
        apr_pool_destroy(pool);
        files++;
    }
    closedir(folder);
    assert_true(files > 190);
}

static const char *transform(void **state, const char *name)
{
    reading_t r = json(state);
    apr_size_t len;
    const char *body = vec_file(*state, apr_pstrcat(*state, "json-test-suite/test_transform/", name, NULL), &len);

    return reading_of(&r, body, len) ? r.octets : r.fault->reason;
}

static void the_transform_files_follow_our_number_and_name_rules(void **state)
{
    assert_string_equal(transform(state, "number_-9223372036854775808.json"), "[-9223372036854775808]");
    assert_string_equal(transform(state, "number_9223372036854775808.json"), "[9223372036854775808]");
    assert_string_equal(transform(state, "number_9223372036854775807.json"), "[9223372036854775807]");
    assert_string_equal(transform(state, "number_10000000000000000999.json"), "[10000000000000000999]");
    assert_string_equal(transform(state, "number_1.0.json"), "[1.0]");
    assert_string_equal(transform(state, "number_1.000000000000000005.json"), "[1.000000000000000005]");
    assert_string_equal(transform(state, "number_1e-999.json"), "[1E-999]");
    assert_string_equal(transform(state, "object_key_nfc_nfd.json"), "{\"e\xCC\x81\":\"NFD\",\"\xC3\xA9\":\"NFC\"}");
    assert_string_equal(transform(state, "object_same_key_different_values.json"), "duplicate-member");
    assert_string_equal(transform(state, "object_same_key_same_value.json"), "duplicate-member");
    assert_string_equal(transform(state, "string_1_escaped_invalid_codepoint.json"), "unpaired-surrogate");
    assert_string_equal(transform(state, "string_2_escaped_invalid_codepoints.json"), "unpaired-surrogate");
    assert_string_equal(transform(state, "string_2_invalid_codepoints.json"), "not-utf8");
    assert_string_equal(transform(state, "string_3_invalid_codepoints.json"), "not-utf8");
    assert_string_equal(transform(state, "string_with_escaped_NULL.json"), "[\"A\\u0000B\"]");
}

/* ---- refusals ---- */

static void refusals_have_their_names(void **state)
{
    assert_refused(state, "", "empty");
    assert_refused(state, " ", "truncated");
    assert_refused(state, "\xEF\xBB\xBF{}", "byte-order-mark");
    assert_refused(state, "{\"a\":1} x", "trailing-text");
    assert_refused(state, "{\"a\":1}{}", "trailing-text");
    assert_refused(state, "1 2", "trailing-text");
    assert_refused(state, "{}\"", "trailing-text");
    assert_refused(state, "[1]\"abc", "trailing-text");
    assert_refused(state, "1 \"\\", "trailing-text");
    assert_refused(state, "null \"\\u00", "trailing-text");
    assert_refused(state, "{}tru", "trailing-text");
    assert_refused(state, "{}-", "trailing-text");
    assert_refused(state, "\"a\"1", "trailing-text");
    assert_refused(state, "{}/", "trailing-text");
    assert_refused(state, "{\"a\":1", "truncated");
    assert_refused(state, "[\"abc", "truncated");
    assert_refused(state, "{\"a\":tr", "truncated");
    assert_refused(state, "[1.", "truncated");
    assert_refused(state, "[1", "truncated");
    assert_refused(state, "-", "truncated");
    assert_refused(state, "]", "syntax");
    assert_refused(state, "[NaN]", "syntax");
    assert_refused(state, "[Infinity]", "syntax");
    assert_refused(state, "[-Infinity]", "syntax");
    assert_refused(state, "[1,]", "syntax");
    assert_refused(state, "{\"a\":1,}", "syntax");
    assert_refused(state, "[01]", "syntax");
    assert_refused(state, "[1.]", "syntax");
    assert_refused(state, "/**/[1]", "syntax");
    assert_refused(state, "[1]//", "trailing-text");
    assert_refused(state, "[1]\f", "syntax");
    assert_refused(state, "\v[1]", "syntax");
    assert_refused(state, "[\"\x01\"]", "syntax");
    assert_refused(state, "[\"\xC0\xAF\"]", "not-utf8");
    assert_refused(state, "[\"\xED\xA0\x80\"]", "not-utf8");
    assert_refused(state, "[\"\xF4\x90\x80\x80\"]", "not-utf8");
    assert_refused(state, "[\"\xFF\"]", "not-utf8");
    assert_refused(state, "[\"\\ud800\"]", "unpaired-surrogate");
    assert_refused(state, "[\"\\udc00\"]", "unpaired-surrogate");
    assert_refused(state, "[\"\\ud800\\ud800\"]", "unpaired-surrogate");
    assert_refused(state, "[\"\\ud800\\u0041\"]", "unpaired-surrogate");
    assert_refused(state, "[\"\\ud800\\n\"]", "unpaired-surrogate");
    assert_refused(state, "[\"\\udc00\\ud800\"]", "unpaired-surrogate");
    assert_refused(state, "{\"\\ud800\":1}", "unpaired-surrogate");
    assert_refused(state, "{\"a\":1,\"a\":1}", "duplicate-member");
    assert_refused(state, "{\"a\":1,\"b\":2,\"\\u0061\":1}", "duplicate-member");
    assert_refused(state, "[{\"x\":{\"\":1,\"\":2}}]", "duplicate-member");
}

static void a_fault_tells_the_place_and_no_value(void **state)
{
    reading_t r = json(state);

    reading_refusal(&r, "{\"pay\":[0,{\"card/no~x\":{\"z\":1,\"pan\":\"4111\",\"y\":2,\"pan\":\"4222\"}}]}");
    assert_string_equal(r.fault->reason, "duplicate-member");
    assert_string_equal(r.fault->pointer, "/pay/1/card~1no~0x/pan");
    assert_null(strstr(r.fault->detail, "4111"));
    assert_null(strstr(r.fault->detail, "4222"));
    reading_refusal(&r, "{\"a\":[1,2,{\"b\\u0007\":\"\\ud800\"}]}");
    assert_string_equal(r.fault->pointer, "/a/2/b\\u0007");
    reading_refusal(&r, "[\"secret\", 12 34]");
    assert_null(strstr(r.fault->detail, "secret"));
    assert_non_null(strstr(r.fault->detail, "octet 1"));
}

static const char *repeat(apr_pool_t *p, const char *before, const char *what, unsigned times, const char *after)
{
    apr_size_t len = strlen(what);
    apr_size_t head = strlen(before);
    char *text = apr_palloc(p, head + len * times + strlen(after) + 1);
    unsigned i;

    strcpy(text, before);
    for (i = 0; i < times; i++) {
        memcpy(text + head + i * len, what, len);
    }
    strcpy(text + head + len * times, after);
    return text;
}

static void limits_hold_exactly(void **state)
{
    apr_pool_t *p = *state;
    char *numbered;
    unsigned i;
    apr_size_t used = 0;

    assert_taken(state, repeat(p, "", "[", 64, repeat(p, "", "]", 64, "")));
    assert_refused(state, repeat(p, "", "[", 65, repeat(p, "", "]", 65, "")), "depth");
    assert_refused(state, repeat(p, "", "{\"a\":", 64, repeat(p, "[", "}", 64, "")), "depth");
    assert_refused(state, repeat(p, "[", "1", IDEM_JSON_MAX_NUMBER + 1, "]"), "number-too-long");
    assert_taken(state, repeat(p, "[", "1", IDEM_JSON_MAX_NUMBER, "]"));
    assert_refused(state, repeat(p, "{\"", "n", IDEM_JSON_MAX_NAME + 1, "\":1}"), "name-too-long");
    assert_refused(state, repeat(p, "{\"", "\\u00e9", IDEM_JSON_MAX_NAME / 2 + 1, "\":1}"), "name-too-long");
    assert_taken(state, repeat(p, "{\"", "n", IDEM_JSON_MAX_NAME, "\":1}"));
    /* the array is a value too */
    assert_refused(state, repeat(p, "[0", ",0", IDEM_JSON_MAX_VALUES - 1, "]"), "too-many-values");
    assert_taken(state, repeat(p, "[0", ",0", IDEM_JSON_MAX_VALUES - 2, "]"));

    numbered = apr_palloc(p, (IDEM_JSON_MAX_MEMBERS + 1) * 16 + 16);
    for (i = 0; i <= IDEM_JSON_MAX_MEMBERS; i++) {
        used += (apr_size_t)sprintf(numbered + used, "%c\"%u\":0", i == 0 ? '{' : ',', i);
    }
    strcpy(numbered + used, "}");
    assert_refused(state, numbered, "too-many-members");
    strrchr(numbered, ',')[1] = '\0';
    *strrchr(numbered, ',') = '}';
    assert_taken(state, numbered);
}

static apr_size_t buffers_of(apr_pool_t *p, const char *text)
{
    idem_json_t *read = idem_json_create(p, IDEM_JSON_MAX_DEPTH);
    idem_payload_fault_t fault = { NULL, NULL, NULL };
    apr_size_t size;

    assert_int_equal(idem_json_feed(read, text, strlen(text), &fault), APR_SUCCESS);
    assert_int_equal(idem_json_finish(read, &fault), APR_SUCCESS);
    size = read->text_room + read->node_room * sizeof(*read->nodes);
    idem_json_free(read);
    assert_null(read->text);
    return size;
}

/* The bound that json.h states. */
static void memory_stays_below_its_bound(void **state)
{
    const char *text;
    unsigned count;

    for (count = 1; count < 1000000; count = count * 3 + 1) {
        text = repeat(*state, "[0", ",0", count > 900000 ? 900000 : count, "]");
        assert_true(buffers_of(*state, text) < 10 * strlen(text) + 8192);
    }
    text = repeat(*state, "[0", ",{\"name\":\"a value as clients send it\",\"amount\":1000}", 50000, "]");
    assert_true(buffers_of(*state, text) < 4 * strlen(text) + 8192);
}

static void a_long_pointer_is_cut(void **state)
{
    apr_pool_t *p = *state;
    const char *deep = "{\"k\":1,\"k\":2}";
    reading_t r = json(state);
    unsigned i;

    for (i = 0; i < 60; i++) {
        deep = apr_psprintf(p, "{\"%s\":%s}", "some-rather-long-member-name", deep);
    }
    assert_string_equal(reading_refusal(&r, deep), "duplicate-member");
    assert_true(strlen(r.fault->pointer) <= IDEM_FAULT_MAX_POINTER);
    assert_string_equal(r.fault->pointer + strlen(r.fault->pointer) - 3, "...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT_TEST(every_file_of_the_suite_is_judged_as_documented),
        UNIT_TEST(the_transform_files_follow_our_number_and_name_rules),
        UNIT_TEST(refusals_have_their_names),
        UNIT_TEST(a_fault_tells_the_place_and_no_value),
        UNIT_TEST(limits_hold_exactly),
        UNIT_TEST(memory_stays_below_its_bound),
        UNIT_TEST(a_long_pointer_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

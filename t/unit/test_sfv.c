#include "unit.h"

#include "core/sfv.h"
#include "vectors.h"

static const idem_key_syntax_e both[] = { IDEM_KEY_STRICT, IDEM_KEY_LENIENT };
static const char *const names[] = { "strict", "lenient" };

/* The combined field value of lines, as httpd makes it. */
static const char *combine(apr_pool_t *p, const vec_t *lines, apr_size_t *len)
{
    const vec_t *line;
    apr_size_t n;
    char *value = apr_palloc(p, 20000);

    *len = 0;
    for (line = lines->first; line; line = line->next) {
        const char *octets = vec_latin1(p, line, &n);

        if (line != lines->first) {
            memcpy(value + *len, ", ", 2);
            *len += 2;
        }
        memcpy(value + *len, octets, n);
        *len += n;
    }
    return value;
}

static idem_key_result_e parse(apr_pool_t *p, const char *value, idem_key_syntax_e syntax, const char **key)
{
    apr_size_t len;
    idem_key_result_e result = idem_key_parse(p, value, strlen(value), syntax, key, &len);

    assert_true(result == IDEM_KEY_OK ? *key && strlen(*key) == len : *key == NULL && len == 0);
    return result;
}

static idem_key_result_e verdict(apr_pool_t *p, const char *value, idem_key_syntax_e syntax)
{
    const char *key;

    return parse(p, value, syntax, &key);
}

/*
 * Hold one field, whose key may have max octets, to its verdict and the key it gives; label tells where the case is
 * from.
 */
static void expect(apr_pool_t *p, const vec_t *lines, idem_key_syntax_e syntax, apr_size_t max, int accepted,
                   const char *wanted, const char *label)
{
    apr_size_t len, key_len;
    const char *key, *value = combine(p, lines, &len);
    idem_key_result_e result = idem_key_parse(p, value, len, syntax, &key, &key_len);

    assert_int_equal(result == IDEM_KEY_OK, key_len > 0);
    if (result == IDEM_KEY_OK) {
        result = idem_key_check_length(key_len, IDEM_KEY_MIN_LENIENT, max);
    }
    if ((result == IDEM_KEY_OK) != accepted) {
        fail_msg("%s (%s): %s", label, names[syntax], idem_key_result_text(result));
    }
    if (accepted) {
        assert_string_equal(key, wanted);
        assert_int_equal(key_len, strlen(wanted));
    }
}

static void field_lines_get_the_verdict_of_the_table(void **state)
{
    const vec_t *all = vec_load(*state, "key-forms/key-forms.json"), *form, *lines;
    int i, judged = 0, count = 0;

    for (form = all->first; form; form = form->next) {
        lines = vec_get(form, "lines");
        if (!lines || lines->count == 0) {
            continue; /* pairs are below; absence is not this parser's */
        }
        for (i = 0; i < 2; i++) {
            judged = vec_is(form, names[i], "accept");
            assert_true(judged || vec_is(form, names[i], "400"));
            expect(*state, lines, both[i], IDEM_KEY_MAX, judged, vec_text(form, "key"), vec_text(form, "class"));
            count++;
        }
    }
    assert_int_equal(count, 58);
}

static void pairs_of_the_table_are_one_record_or_two(void **state)
{
    const vec_t *all = vec_load(*state, "key-forms/key-forms.json"), *form, *pair;
    idem_key_result_e first, second;
    const char *key[2], *value;
    apr_size_t len, key_len[2];
    int i, count = 0;

    for (form = all->first; form; form = form->next) {
        pair = vec_get(form, "pair");
        for (i = 0; pair && i < 2; i++) {
            value = combine(*state, vec_at(pair, 0), &len);
            first = idem_key_parse(*state, value, len, both[i], &key[0], &key_len[0]);
            value = combine(*state, vec_at(pair, 1), &len);
            second = idem_key_parse(*state, value, len, both[i], &key[1], &key_len[1]);
            assert_int_equal(first, IDEM_KEY_OK);
            if (vec_is(form, names[i], "second is 400")) {
                assert_int_not_equal(second, IDEM_KEY_OK);
            }
            else {
                assert_int_equal(second, IDEM_KEY_OK);
                assert_int_equal(strcmp(key[0], key[1]) == 0, vec_is(form, names[i], "same record"));
            }
            count++;
        }
    }
    assert_int_equal(count, 6);
}

static void published_items_get_their_verdict(void **state)
{
    const vec_t *all = vec_load(*state, "structured-fields/items.json"), *item, *product;
    int count = 0;

    for (item = all->first; item; item = item->next) {
        apr_pool_t *p;

        apr_pool_create(&p, *state);
        product = vec_get(item, "x_product");
        expect(p, vec_get(item, "raw"), IDEM_KEY_STRICT, 1000, vec_is(product, "strict", "accept"),
               vec_text(product, "key"), vec_text(item, "name"));
        apr_pool_destroy(p);
        count++;
    }
    assert_int_equal(count, 556);
}

/* Every published item, whole, as the value of a parameter: what is an item there must be one here. */
static void published_items_as_parameters_of_a_key(void **state)
{
    const vec_t *all = vec_load(*state, "structured-fields/items.json"), *item;
    int good = 0, bad = 0;

    for (item = all->first; item; item = item->next) {
        apr_pool_t *p;
        apr_size_t len, key_len;
        const char *raw, *value, *key;
        idem_key_result_e result;
        int valid = !vec_get(item, "must_fail");

        apr_pool_create(&p, *state);
        raw = combine(p, vec_get(item, "raw"), &len);
        for (; len && *raw == ' '; raw++, len--) {
        }
        value = apr_pstrcat(p, "\"k\";a=", apr_pstrmemdup(p, raw, len), NULL);
        /* tables of octets hold NUL, which pstrcat stops at */
        value = memcpy(apr_palloc(p, 6 + len), value, 6);
        memcpy((char *)value + 6, raw, len);
        result = idem_key_parse(p, value, 6 + len, IDEM_KEY_STRICT, &key, &key_len);
        /* white space that only the end of a field may have is dropped there for every field */
        if (!vec_is(item, "name", "trailing space") && (result == IDEM_KEY_OK) != valid) {
            fail_msg("%s: %s", vec_text(item, "name"), idem_key_result_text(result));
        }
        if (result == IDEM_KEY_OK) {
            assert_string_equal(key, "k");
        }
        *(valid ? &good : &bad) += 1;
        apr_pool_destroy(p);
    }
    assert_true(good > 250 && bad > 200);
}

static void parameters_are_read_and_ignored(void **state)
{
    static const char *const good[] = {
        "\"k\";a", "\"k\"; a", "\"k\";   a", "\"k\";a;b=?0;c=?1", "\"k\";a=1;a=2", "\"k\";*x_-.*9=tok/en:*",
        "\"k\";a=\"x\\\"y;,\";b", "\"k\";a=-1.5", "\"k\";a=@-12", "\"k\";a=:YQ==:", "\"k\";a=::", "\"k\";a=:YWI=:",
        "\"k\";a=%\"%e2%82%ac\"", "\"k\";a=999999999999999", "  \"k\";a=b \t"
    };
    static const char *const bad[] = {
        "\"k\";", "\"k\"; ", "\"k\";\ta", "\"k\";A", "\"k\";1=2", "\"k\";a=", "\"k\";a= 1", "\"k\";a=\"x", "\"k\";a=@1.5",
        "\"k\";a=?", "\"k\";a=?2", "\"k\";a=:Y:", "\"k\";a=:YQ=:", "\"k\";a=:YWJj====:", "\"k\";a=:YQ==", "\"k\";a=%x",
        "\"k\";a=%\"%C3%BC\"", "\"k\";a=%\"%ff\"", "\"k\";a=%\"%e2%8\"", "\"k\";a=(1 2)", "\"k\";a=1.", "\"k\";a=-",
        "\"k\";a=1234567890123.1", "\"k\";a=\xc3\xa9", "\"k\";;a", "\"k\";a=%\"x"
    };
    const char *key;
    apr_size_t i;
    int s;

    for (s = 0; s < 2; s++) {
        for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
            assert_int_equal(parse(*state, good[i], both[s], &key), IDEM_KEY_OK);
            assert_string_equal(key, "k");
        }
        for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
            if (verdict(*state, bad[i], both[s]) != IDEM_KEY_BAD_PARAMETER) {
                fail_msg("%s: %s", bad[i], idem_key_result_text(verdict(*state, bad[i], both[s])));
            }
        }
        assert_int_equal(verdict(*state, "\"k\";a b", both[s]), IDEM_KEY_TRAILING);
        assert_int_equal(verdict(*state, "\"k\";a ;b", both[s]), IDEM_KEY_TRAILING);
        assert_int_equal(verdict(*state, "\"k\";aB=1", both[s]), IDEM_KEY_TRAILING);
        assert_int_equal(verdict(*state, "\"k\";a, \"l\"", both[s]), IDEM_KEY_LIST);
    }
}

static void each_fault_has_its_name(void **state)
{
    static const struct { const char *value; idem_key_result_e strict, lenient; } cases[] = {
        { "", IDEM_KEY_EMPTY, IDEM_KEY_EMPTY },
        { " \t ", IDEM_KEY_EMPTY, IDEM_KEY_EMPTY },
        { "\"\"", IDEM_KEY_EMPTY, IDEM_KEY_EMPTY },
        { "\"\";a", IDEM_KEY_EMPTY, IDEM_KEY_EMPTY },
        { "\"a\", \"b\"", IDEM_KEY_LIST, IDEM_KEY_LIST },
        { "\"a\" , \"b\"", IDEM_KEY_LIST, IDEM_KEY_LIST },
        { "a, b", IDEM_KEY_LIST, IDEM_KEY_LIST },
        { "a,", IDEM_KEY_LIST, IDEM_KEY_LIST },
        { "k", IDEM_KEY_NOT_STRING, IDEM_KEY_OK },
        { "(\"k\")", IDEM_KEY_NOT_STRING, IDEM_KEY_OK },
        { "k;v=1", IDEM_KEY_NOT_STRING, IDEM_KEY_OK },
        { "'k'", IDEM_KEY_NOT_STRING, IDEM_KEY_OK },
        { "\"", IDEM_KEY_UNTERMINATED, IDEM_KEY_UNTERMINATED },
        { "\"a\\\"", IDEM_KEY_UNTERMINATED, IDEM_KEY_UNTERMINATED },
        { "\"a\\", IDEM_KEY_UNTERMINATED, IDEM_KEY_UNTERMINATED },
        { "\"a\\n\"", IDEM_KEY_BAD_ESCAPE, IDEM_KEY_BAD_ESCAPE },
        { "\"a\tb\"", IDEM_KEY_BAD_OCTET, IDEM_KEY_BAD_OCTET },
        { "\"\xc3\xa9\"", IDEM_KEY_BAD_OCTET, IDEM_KEY_BAD_OCTET },
        { "a\tb", IDEM_KEY_BAD_OCTET, IDEM_KEY_BAD_OCTET },
        { "a\x1e" "b", IDEM_KEY_BAD_OCTET, IDEM_KEY_BAD_OCTET },
        { "a\x7f", IDEM_KEY_BAD_OCTET, IDEM_KEY_BAD_OCTET },
        { "a\xff", IDEM_KEY_BAD_OCTET, IDEM_KEY_BAD_OCTET },
        { "\"a\"b", IDEM_KEY_TRAILING, IDEM_KEY_TRAILING },
        { "\"a\" ;b", IDEM_KEY_TRAILING, IDEM_KEY_TRAILING },
        { "\"a\"\"b\"", IDEM_KEY_TRAILING, IDEM_KEY_TRAILING }
    };
    apr_size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (verdict(*state, cases[i].value, IDEM_KEY_STRICT) != cases[i].strict
            || verdict(*state, cases[i].value, IDEM_KEY_LENIENT) != cases[i].lenient) {
            fail_msg("%s: strict: %s lenient: %s", cases[i].value,
                     idem_key_result_text(verdict(*state, cases[i].value, IDEM_KEY_STRICT)),
                     idem_key_result_text(verdict(*state, cases[i].value, IDEM_KEY_LENIENT)));
        }
    }
}

static void every_octet_is_judged_alike_quoted_and_bare(void **state)
{
    apr_size_t len;
    const char *key;
    int c;

    for (c = 0; c < 0x100; c++) {
        const char quoted[5] = { '"', 'a', (char)c, 'b', '"' };
        int allowed = c >= 0x20 && c <= 0x7e;
        idem_key_result_e bare = idem_key_parse(*state, quoted + 1, 3, IDEM_KEY_LENIENT, &key, &len);

        assert_int_equal(bare, !allowed ? IDEM_KEY_BAD_OCTET : c == ',' ? IDEM_KEY_LIST : IDEM_KEY_OK);
        if (bare == IDEM_KEY_OK) {
            assert_int_equal(len, 3);
            assert_memory_equal(key, quoted + 1, 3);
        }
        if (c != '"' && c != '\\') {
            assert_int_equal(idem_key_parse(*state, quoted, 5, IDEM_KEY_STRICT, &key, &len),
                             allowed ? IDEM_KEY_OK : IDEM_KEY_BAD_OCTET);
        }
    }
}

/* Any cut of a value must end within it: run under ASan with every prefix in memory of its own size. */
static void cut_values_are_read_to_their_end_only(void **state)
{
    static const char whole[] = "\"a\\\\b\";a=%\"%e2%82%ac\";b=:YWI=:;c=@-12;d=-1.5;e=?1;f=\"x\\\"\";g=to/k";
    apr_size_t n, len;
    const char *key;

    for (n = 0; n < sizeof(whole); n++) {
        char *copy = malloc(n ? n : 1);

        memcpy(copy, whole, n);
        idem_key_parse(*state, n ? copy : NULL, n, IDEM_KEY_STRICT, &key, &len);
        free(copy);
    }
    assert_int_equal(verdict(*state, whole, IDEM_KEY_STRICT), IDEM_KEY_OK);
}

static void length_is_a_rule_of_its_own(void **state)
{
    (void)state;
    assert_int_equal(idem_key_check_length(15, IDEM_KEY_MIN_STRICT, IDEM_KEY_MAX), IDEM_KEY_TOO_SHORT);
    assert_int_equal(idem_key_check_length(16, IDEM_KEY_MIN_STRICT, IDEM_KEY_MAX), IDEM_KEY_OK);
    assert_int_equal(idem_key_check_length(1, IDEM_KEY_MIN_LENIENT, IDEM_KEY_MAX), IDEM_KEY_OK);
    assert_int_equal(idem_key_check_length(0, IDEM_KEY_MIN_LENIENT, IDEM_KEY_MAX), IDEM_KEY_TOO_SHORT);
    assert_int_equal(idem_key_check_length(255, IDEM_KEY_MIN_LENIENT, IDEM_KEY_MAX), IDEM_KEY_OK);
    assert_int_equal(idem_key_check_length(256, IDEM_KEY_MIN_LENIENT, IDEM_KEY_MAX), IDEM_KEY_TOO_LONG);
}

static void every_result_has_a_sentence_of_its_own(void **state)
{
    int i, j;

    (void)state;
    for (i = IDEM_KEY_OK; i <= IDEM_KEY_TOO_LONG; i++) {
        const char *text = idem_key_result_text(i);

        assert_true(strlen(text) > 20 && text[strlen(text) - 1] == '.');
        for (j = IDEM_KEY_OK; j < i; j++) {
            assert_string_not_equal(text, idem_key_result_text(j));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT_TEST(field_lines_get_the_verdict_of_the_table),
        UNIT_TEST(pairs_of_the_table_are_one_record_or_two),
        UNIT_TEST(published_items_get_their_verdict),
        UNIT_TEST(published_items_as_parameters_of_a_key),
        UNIT_TEST(parameters_are_read_and_ignored),
        UNIT_TEST(each_fault_has_its_name),
        UNIT_TEST(every_octet_is_judged_alike_quoted_and_bare),
        UNIT_TEST(cut_values_are_read_to_their_end_only),
        UNIT_TEST(length_is_a_rule_of_its_own),
        UNIT_TEST(every_result_has_a_sentence_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

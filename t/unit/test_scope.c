#include "unit.h"

#include <apr_escape.h>

#include "core/scope.h"

static idem_scope_t example(void)
{
    const idem_scope_t scope = {
        "v1", "acme", "https://idp.example\x1e" "alice", "charges.cr\xc3\xa9" "ate", "1", "u:", "order 42"
    };

    return scope;
}

/* The fields of scope, in the order of the tuple. */
static const char **field(idem_scope_t *scope, int i)
{
    const char **fields[] = {
        &scope->version, &scope->tenant, &scope->principal, &scope->route, &scope->revision, &scope->ns, &scope->key
    };

    return fields[i];
}

static idem_scope_result_e part(int i)
{
    return (idem_scope_result_e)(IDEM_SCOPE_IN_VERSION * (i + 1));
}

static const char *repeat(apr_pool_t *p, char c, apr_size_t n)
{
    char *s = apr_palloc(p, n + 1);

    memset(s, c, n);
    s[n] = '\0';
    return s;
}

static void whole_scope_passes(void **state)
{
    idem_scope_t scope = example();

    assert_int_equal(idem_scope_check(&scope), IDEM_SCOPE_OK);
    scope.version = IDEM_SCOPE_VERSION_SHADOW;
    scope.ns = IDEM_SCOPE_NS_SERVER;
    scope.key = repeat(*state, 'k', 255);
    scope.route = repeat(*state, 'r', 255);
    assert_int_equal(idem_scope_check(&scope), IDEM_SCOPE_OK);
}

static void every_part_is_mandatory(void **state)
{
    int i;

    (void)state;
    for (i = 0; i < 7; i++) {
        idem_scope_t scope = example();

        *field(&scope, i) = "";
        assert_int_equal(idem_scope_check(&scope), IDEM_SCOPE_EMPTY | part(i));
        *field(&scope, i) = NULL;
        assert_int_equal(idem_scope_check(&scope), IDEM_SCOPE_EMPTY | part(i));
    }
}

static void no_part_takes_a_control_octet(void **state)
{
    int i, octet;

    for (i = 0; i < 7; i++) {
        for (octet = 1; octet <= 0x7f; octet++) {
            int control = octet < 0x20 || octet == 0x7f;
            int separates = octet == 0x1e && (part(i) == IDEM_SCOPE_IN_TENANT || part(i) == IDEM_SCOPE_IN_PRINCIPAL);
            idem_scope_t scope = example();

            if (part(i) == IDEM_SCOPE_IN_NS) {
                continue;
            }
            *field(&scope, i) = apr_psprintf(*state, "a%cb", octet);
            assert_int_equal(idem_scope_check(&scope),
                             control && !separates ? (int)(IDEM_SCOPE_CONTROL | part(i)) : IDEM_SCOPE_OK);
            *field(&scope, i) = apr_psprintf(*state, "ab%c", octet);
            assert_int_equal(idem_scope_check(&scope),
                             separates ? (int)(IDEM_SCOPE_EMPTY | part(i))
                             : control ? (int)(IDEM_SCOPE_CONTROL | part(i)) : IDEM_SCOPE_OK);
        }
    }
}

static void malformed_utf8_is_refused(void **state)
{
    int i;

    (void)state;
    for (i = 0; i < 7; i++) {
        idem_scope_t scope = example();

        *field(&scope, i) = "a\xff" "b";
        assert_int_equal(idem_scope_check(&scope),
                         (part(i) == IDEM_SCOPE_IN_NS ? IDEM_SCOPE_BAD_NAMESPACE : IDEM_SCOPE_NOT_UTF8) | part(i));
    }
}

static void limits_are_255_and_800(void **state)
{
    apr_pool_t *p = *state;
    const char *longest = repeat(p, 'x', 255), *longer = repeat(p, 'x', 256);
    const char *sources[4] = { longest, longest, longest, repeat(p, 'y', 32) };
    idem_scope_result_e r;
    const char *joined;
    int i;

    for (i = 0; i < 7; i++) {
        if (part(i) != IDEM_SCOPE_IN_NS) {
            assert_int_equal(idem_scope_check_part(part(i), longest), IDEM_SCOPE_OK);
            assert_int_equal(idem_scope_check_part(part(i), longer), IDEM_SCOPE_TOO_LONG | part(i));
        }
    }
    /* 3 * 255 + 32 + 3 separators = 800 */
    joined = idem_scope_join(p, sources, 4, &r);
    assert_int_equal(r, IDEM_SCOPE_OK);
    assert_int_equal(strlen(joined), 800);
    assert_int_equal(idem_scope_check_part(IDEM_SCOPE_IN_TENANT, joined), IDEM_SCOPE_OK);
    sources[3] = repeat(p, 'y', 33);
    assert_null(idem_scope_join(p, sources, 4, &r));
    assert_int_equal(r, IDEM_SCOPE_TOO_LONG);
    joined = apr_pstrcat(p, joined, "y", NULL);
    assert_int_equal(idem_scope_check_part(IDEM_SCOPE_IN_PRINCIPAL, joined),
                     IDEM_SCOPE_TOO_LONG | IDEM_SCOPE_IN_PRINCIPAL);
    sources[1] = longer;
    assert_null(idem_scope_join(p, sources, 2, &r));
    assert_int_equal(IDEM_SCOPE_FAULT(r), IDEM_SCOPE_TOO_LONG);
    assert_int_equal(IDEM_SCOPE_SOURCE(r), 2);
}

static void limits_count_octets_not_characters(void **state)
{
    char key[257];
    int i;

    (void)state;
    for (i = 0; i < 256; i += 2) {
        memcpy(key + i, "\xc3\xa9", 2);
    }
    key[256] = '\0';
    assert_int_equal(idem_scope_check_part(IDEM_SCOPE_IN_KEY, key), IDEM_SCOPE_TOO_LONG | IDEM_SCOPE_IN_KEY);
    key[254] = '\0';
    assert_int_equal(idem_scope_check_part(IDEM_SCOPE_IN_KEY, key), IDEM_SCOPE_OK);
}

static void namespace_is_one_of_two_words(void **state)
{
    static const char *const wrong[] = { "u", "s", "U:", "u: ", "x:", "u:s:", ":" };
    apr_size_t i;

    (void)state;
    for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(idem_scope_check_part(IDEM_SCOPE_IN_NS, wrong[i]),
                         IDEM_SCOPE_BAD_NAMESPACE | IDEM_SCOPE_IN_NS);
    }
}

static const char *join2(apr_pool_t *p, const char *a, const char *b, idem_scope_result_e *r)
{
    const char *sources[2] = { a, b };

    return idem_scope_join(p, sources, b ? 2 : 1, r);
}

/* "A|B" with "X" must never be "A" with "B|X", nor ("ab", "c") be ("a", "bc"). */
static void join_is_injective(void **state)
{
    idem_scope_result_e r;

    assert_string_equal(join2(*state, "A", "B", &r), "A\x1e" "B");
    assert_int_equal(r, IDEM_SCOPE_OK);
    assert_null(join2(*state, "A\x1e" "B", NULL, &r));
    assert_int_equal(r, IDEM_SCOPE_CONTROL | 1 << 8);
    assert_null(join2(*state, "A", "B\x1eX", &r));
    assert_int_equal(r, IDEM_SCOPE_CONTROL | 2 << 8);
    assert_string_not_equal(join2(*state, "ab", "c", &r), join2(*state, "a", "bc", &r));
    assert_string_not_equal(join2(*state, "ab", NULL, &r), join2(*state, "a", "b", &r));
    assert_string_equal(join2(*state, "alone", NULL, &r), "alone");
}

static void join_refuses_every_bad_source(void **state)
{
    static const struct { const char *source; int fault; } bad[] = {
        { "", IDEM_SCOPE_EMPTY }, { NULL, IDEM_SCOPE_EMPTY }, { "\x1e", IDEM_SCOPE_CONTROL },
        { "a\n", IDEM_SCOPE_CONTROL }, { "\x7f", IDEM_SCOPE_CONTROL }, { "\xed\xa0\x80", IDEM_SCOPE_NOT_UTF8 },
        { "\xc0\xaf", IDEM_SCOPE_NOT_UTF8 }
    };
    idem_scope_result_e r;
    apr_size_t i;
    int at, k;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        for (at = 0; at < 3; at++) {
            const char *sources[3] = { "a", "b", "c" };

            sources[at] = bad[i].source;
            assert_null(idem_scope_join(*state, sources, 3, &r));
            assert_int_equal(r, bad[i].fault | (at + 1) << 8);
        }
    }
    for (k = 0; k >= -1; k--) {
        assert_null(idem_scope_join(*state, NULL, k, &r));
        assert_int_equal(r, IDEM_SCOPE_EMPTY);
    }
}

static void more_sources_than_fit_are_refused(void **state)
{
    const char *sources[402];
    idem_scope_result_e r;
    int i;

    for (i = 0; i < 402; i++) {
        sources[i] = "x";
    }
    assert_int_equal(strlen(idem_scope_join(*state, sources, 400, &r)), 799);
    assert_null(idem_scope_join(*state, sources, 401, &r));
    assert_int_equal(r, IDEM_SCOPE_TOO_LONG);
    assert_null(idem_scope_join(*state, sources, 402, &r));
    assert_int_equal(r, IDEM_SCOPE_TOO_LONG);
}

static void joined_value_is_checked_piece_by_piece(void **state)
{
    static const char *const wrong[] = { "\x1e" "a", "a\x1e", "a\x1e\x1e" "b", "\x1e" };
    const char *piece = apr_pstrcat(*state, "a\x1e", repeat(*state, 'x', 256), NULL);
    apr_size_t i;

    for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(idem_scope_check_part(IDEM_SCOPE_IN_TENANT, wrong[i]),
                         IDEM_SCOPE_EMPTY | IDEM_SCOPE_IN_TENANT);
    }
    assert_int_equal(idem_scope_check_part(IDEM_SCOPE_IN_TENANT, piece), IDEM_SCOPE_TOO_LONG | IDEM_SCOPE_IN_TENANT);
    assert_int_equal(idem_scope_check_part(IDEM_SCOPE_IN_TENANT, "a\x1e\xff"),
                     IDEM_SCOPE_NOT_UTF8 | IDEM_SCOPE_IN_TENANT);
}

/* Computed apart from this code. */
static void digests_never_change(void **state)
{
    idem_scope_t scope = example();
    unsigned char out[IDEM_SHA256_LEN];

    idem_scope_digest(&scope, out);
    assert_string_equal(apr_pescape_hex(*state, out, sizeof(out), 0),
                        "f1002e82a17daf462e68b5c8e8dda17dc10d53701c2bb68fe3caa2c7e2378814");
    assert_string_equal(idem_scope_log_digest(*state, &scope, (const unsigned char *)"secret", 6), "2f3d22c268b43929");
    assert_string_not_equal(idem_scope_log_digest(*state, &scope, (const unsigned char *)"other", 5),
                            "2f3d22c268b43929");
}

static void every_part_is_in_the_digest_and_none_runs_into_the_next(void **state)
{
    const idem_scope_t base = example();
    unsigned char first[IDEM_SHA256_LEN], second[IDEM_SHA256_LEN];
    int i;

    idem_scope_digest(&base, first);
    for (i = 0; i < 7; i++) {
        idem_scope_t scope = example();

        *field(&scope, i) = apr_pstrcat(*state, *field(&scope, i), "x", NULL);
        idem_scope_digest(&scope, second);
        assert_memory_not_equal(first, second, sizeof(first));
        if (i < 6) {
            /* the same octets in a row, cut elsewhere */
            idem_scope_t left = example(), right = example();

            *field(&left, i) = "ab";
            *field(&left, i + 1) = "c";
            *field(&right, i) = "a";
            *field(&right, i + 1) = "bc";
            idem_scope_digest(&left, second);
            idem_scope_digest(&right, first);
            assert_memory_not_equal(first, second, sizeof(first));
            idem_scope_digest(&base, first);
        }
    }
}

static void text_names_part_and_source_but_not_the_value(void **state)
{
    idem_scope_result_e r;

    assert_string_equal(idem_scope_result_text(*state, IDEM_SCOPE_TOO_LONG | IDEM_SCOPE_IN_ROUTE),
                        "the route is too long");
    join2(*state, "a", "", &r);
    assert_string_equal(idem_scope_result_text(*state, r | IDEM_SCOPE_IN_PRINCIPAL),
                        "source 2 of the principal is missing or empty");
    assert_string_equal(idem_scope_result_text(*state, IDEM_SCOPE_BAD_NAMESPACE | IDEM_SCOPE_IN_NS),
                        "the key namespace is neither u: nor s:");
    assert_string_equal(idem_scope_result_text(*state, IDEM_SCOPE_CONTROL), "the value holds a control octet");
}

static void test_version_number(void **state)
{
    (void)state;
    assert_int_equal(idem_scope_version_number("v1"), 1);
    assert_int_equal(idem_scope_version_number("v9999"), 9999);
    assert_int_equal(idem_scope_version_number("v10000"), 0);
    assert_int_equal(idem_scope_version_number("v0"), 0);
    assert_int_equal(idem_scope_version_number("v01"), 0);
    assert_int_equal(idem_scope_version_number("v"), 0);
    assert_int_equal(idem_scope_version_number(""), 0);
    assert_int_equal(idem_scope_version_number("v1x"), 0);
    assert_int_equal(idem_scope_version_number("shadow-v1"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version_number),
        UNIT_TEST(whole_scope_passes),
        UNIT_TEST(every_part_is_mandatory),
        UNIT_TEST(no_part_takes_a_control_octet),
        UNIT_TEST(malformed_utf8_is_refused),
        UNIT_TEST(limits_are_255_and_800),
        UNIT_TEST(limits_count_octets_not_characters),
        UNIT_TEST(namespace_is_one_of_two_words),
        UNIT_TEST(join_is_injective),
        UNIT_TEST(join_refuses_every_bad_source),
        UNIT_TEST(more_sources_than_fit_are_refused),
        UNIT_TEST(joined_value_is_checked_piece_by_piece),
        UNIT_TEST(digests_never_change),
        UNIT_TEST(every_part_is_in_the_digest_and_none_runs_into_the_next),
        UNIT_TEST(text_names_part_and_source_but_not_the_value),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "unit.h"

#include "core/utf8.h"

/* How UTF-8 is written, told apart from the code under test: n octets for code, no range looked at. */
static apr_size_t encode(unsigned int code, apr_size_t n, char *out)
{
    static const unsigned char marks[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    apr_size_t i;

    for (i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    out[0] = (char)(marks[n] | code);
    return n;
}

static apr_size_t octets_needed(unsigned int code)
{
    return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

static void every_code_point_but_surrogates_is_valid(void **state)
{
    unsigned int code;
    char s[4];

    (void)state;
    for (code = 0; code < 0x200000; code++) {
        apr_size_t n = encode(code, octets_needed(code), s);

        if (idem_utf8_valid(s, n) != (code <= 0x10ffff && (code < 0xd800 || code > 0xdfff))) {
            fail_msg("U+%04X is judged wrongly", code);
        }
        if (n > 1 && idem_utf8_valid(s, n - 1)) {
            fail_msg("U+%04X cut off is taken", code);
        }
    }
}

static void overlong_forms_are_refused(void **state)
{
    unsigned int code;
    apr_size_t n;
    char s[4];

    (void)state;
    for (code = 0; code < 0x10000; code++) {
        for (n = octets_needed(code) + 1; n <= 4; n++) {
            if (idem_utf8_valid(s, encode(code, n, s))) {
                fail_msg("U+%04X in %d octets is taken", code, (int)n);
            }
        }
    }
}

/* Nothing but what the two tests above make: all strings of up to three octets, counted. */
static void as_many_strings_are_valid_as_there_are(void **state)
{
    const long one = 0x80, two = 0x800 - 0x80, three = 0x10000 - 0x800 - 0x800;
    long valid[4] = { 0 };
    unsigned int i;
    char s[3];

    (void)state;
    for (i = 0; i < 0x1000000; i++) {
        s[0] = (char)(i >> 16);
        s[1] = (char)(i >> 8);
        s[2] = (char)i;
        valid[3] += idem_utf8_valid(s, 3);
        valid[2] += i < 0x10000 ? idem_utf8_valid(s + 1, 2) : 0;
        valid[1] += i < 0x100 ? idem_utf8_valid(s + 2, 1) : 0;
    }
    assert_int_equal(valid[1], one);
    assert_int_equal(valid[2], one * one + two);
    assert_int_equal(valid[3], one * one * one + 2 * one * two + three);
}

/* Long runs of ASCII are read eight octets at a time; a bad octet is found wherever it stands. */
static void the_first_bad_octet_is_found_at_every_place(void **state)
{
    char s[40];
    apr_size_t at, from;

    (void)state;
    for (from = 0; from < 9; from++) {
        for (at = from; at < sizeof(s); at++) {
            memset(s, 'a', sizeof(s));
            assert_int_equal(idem_utf8_span(s + from, sizeof(s) - from), sizeof(s) - from);
            s[at] = (char)0xff;
            assert_int_equal(idem_utf8_span(s + from, sizeof(s) - from), at - from);
            s[at] = (char)0xc3;
            assert_int_equal(idem_utf8_span(s + from, sizeof(s) - from), at - from);
        }
    }
}

static void characters_are_counted(void **state)
{
    (void)state;
    assert_int_equal(idem_utf8_count("", 0), 0);
    assert_int_equal(idem_utf8_count("a\0\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 11), 5);
}

static void four_octets_are_judged_at_their_edges(void **state)
{
    static const unsigned char edges[] = { 0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff };
    unsigned int lead, b, c, d;

    (void)state;
    for (lead = 0xf0; lead <= 0xff; lead++) {
        for (b = 0; b < 0x100; b++) {
            for (c = 0; c < sizeof(edges); c++) {
                for (d = 0; d < sizeof(edges); d++) {
                    const char s[4] = { (char)lead, (char)b, (char)edges[c], (char)edges[d] };
                    unsigned int code = (lead & 7) << 18 | (b & 0x3f) << 12 | (edges[c] & 0x3fU) << 6 | (edges[d] & 0x3fU);
                    int formed = lead < 0xf8 && b >> 6 == 2 && edges[c] >> 6 == 2 && edges[d] >> 6 == 2;

                    assert_int_equal(idem_utf8_valid(s, 4), formed && code >= 0x10000 && code <= 0x10ffff);
                }
            }
        }
    }
}

static void fault_is_found_anywhere(void **state)
{
    (void)state;
    assert_true(idem_utf8_valid("", 0));
    assert_true(idem_utf8_valid("a\0b", 3));
    assert_true(idem_utf8_valid("na\xc3\xafve \xe2\x82\xac \xf0\x9f\x8d\x8a", 15));
    assert_false(idem_utf8_valid("abc\xff", 4));
    assert_false(idem_utf8_valid("\x80" "abc", 4));
    assert_false(idem_utf8_valid("a\xc3 b", 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT_TEST(every_code_point_but_surrogates_is_valid),
        UNIT_TEST(overlong_forms_are_refused),
        UNIT_TEST(as_many_strings_are_valid_as_there_are),
        UNIT_TEST(the_first_bad_octet_is_found_at_every_place),
        UNIT_TEST(characters_are_counted),
        UNIT_TEST(four_octets_are_judged_at_their_edges),
        UNIT_TEST(fault_is_found_anywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Payload form: decoded pairs in order (CONTRACT.md section 3, form.h). */
#include "unit.h"

#include <stdio.h>

#include "core/form.h"
#include "reading.h"

typedef struct {
    char name[64];
    apr_size_t name_len;
    char value[64];
    apr_size_t value_len;
    int has_value;
} pair_t;

static reading_t form(void **state)
{
    return (reading_t){ .pool = *state, .mode = IDEM_PAYLOAD_FORM };
}

static void assert_form(void **state, const char *body, const char *expected)
{
    reading_t r = form(state);

    assert_string_equal(reading_text(&r, body), expected);
}

static void assert_refused(void **state, const char *body, const char *reason)
{
    reading_t r = form(state);

    assert_string_equal(reading_refusal(&r, body), reason);
}

static void pairs_are_decoded_and_keep_their_order(void **state)
{
    assert_form(state, "", "");
    assert_form(state, "a=1&b=2", "a=1&b=2&");
    assert_form(state, "b=2&a=1", "b=2&a=1&");
    assert_form(state, "a=1&a=1", "a=1&a=1&");
    assert_form(state, "a=x+y", "a=x%20y&");
    assert_form(state, "a=x%20y", "a=x%20y&");
    assert_form(state, "%61=%31", "a=1&");
    assert_form(state, "a=%e2%82%AC", "a=%E2%82%AC&");
    assert_form(state, "a=\xE2\x82\xAC", "a=%E2%82%AC&");
    assert_form(state, "a=b=c", "a=b%3Dc&");
    assert_form(state, "a%3Db=c", "a%3Db=c&");
    assert_form(state, "a=1%262", "a=1%262&");
    assert_form(state, "a=1;b=2", "a=1%3Bb%3D2&");
    assert_form(state, "a=%00\x01%ff", "a=%00%01%FF&");
    assert_form(state, "a=%2B+%25", "a=%2B%20%25&");
    assert_form(state, "a-._~=*", "a-._~=%2A&");
}

static void no_value_differs_from_an_empty_one_and_empty_pairs_are_none(void **state)
{
    assert_form(state, "a", "a&");
    assert_form(state, "a=", "a=&");
    assert_form(state, "=", "=&");
    assert_form(state, "=b", "=b&");
    assert_form(state, "&&a=1&&b&", "a=1&b&");
    assert_form(state, "&", "");
}

static void a_broken_escape_is_refused(void **state)
{
    reading_t r = form(state);

    assert_refused(state, "a=%", "bad-escape");
    assert_refused(state, "a=%4", "bad-escape");
    assert_refused(state, "a=%&b=1", "bad-escape");
    assert_refused(state, "a=%4&b", "bad-escape");
    assert_refused(state, "a=%zz", "bad-escape");
    assert_refused(state, "a=100%", "bad-escape");
    assert_refused(state, "%4g=1", "bad-escape");
    assert_refused(state, "a=%%41", "bad-escape");
    reading_refusal(&r, "x=1&card=4111%");
    assert_non_null(strstr(r.fault->detail, "pair 2"));
    assert_null(strstr(r.fault->detail, "4111"));
}

static void more_pairs_than_the_limit_are_refused(void **state)
{
    char *body = apr_palloc(*state, IDEM_FORM_MAX_PAIRS * 2 + 3);
    reading_t r = form(state);
    int i;

    for (i = 0; i < IDEM_FORM_MAX_PAIRS; i++) {
        memcpy(body + 2 * i, "a&", 2);
    }
    strcpy(body + 2 * i, "");
    assert_true(reading_of(&r, body, 2 * (apr_size_t)i));
    strcpy(body + 2 * i, "a");
    assert_false(reading_of(&r, body, 2 * (apr_size_t)i + 1));
    assert_string_equal(r.fault->reason, "too-many-pairs");
}

static apr_size_t decode(const char *from, const char *end, char *to)
{
    apr_size_t len = 0;

    while (from < end) {
        unsigned octet = (unsigned char)*from++;

        if (octet == '%') {
            assert_int_equal(sscanf(from, "%2X", &octet), 1);
            from += 2;
        }
        to[len++] = (char)octet;
    }
    return len;
}

/* What a body says can be read back from its canonical octets, so two bodies share them only if they say the same. */
static int read_back(const char *octets, apr_size_t len, pair_t *pairs)
{
    const char *end = octets + len;
    int count = 0;

    while (octets < end) {
        const char *stop = memchr(octets, '&', (apr_size_t)(end - octets));
        const char *equals;
        pair_t *pair = &pairs[count++];

        assert_non_null(stop);
        equals = memchr(octets, '=', (apr_size_t)(stop - octets));
        pair->has_value = equals != NULL;
        pair->name_len = decode(octets, equals != NULL ? equals : stop, pair->name);
        pair->value_len = equals != NULL ? decode(equals + 1, stop, pair->value) : 0;
        octets = stop + 1;
    }
    return count;
}

static apr_size_t encode(unsigned *seed, const char *octets, apr_size_t len, char *to)
{
    apr_size_t used = 0;
    apr_size_t i;

    for (i = 0; i < len; i++) {
        unsigned char c = (unsigned char)octets[i];

        if (c == ' ' && reading_below(seed, 2)) {
            to[used++] = '+';
        }
        else if (strchr("&=+%", c) != NULL || reading_below(seed, 2)) {
            used += (apr_size_t)sprintf(to + used, reading_below(seed, 2) ? "%%%02x" : "%%%02X", c);
        }
        else {
            to[used++] = (char)c;
        }
    }
    return used;
}

static apr_size_t random_octets(unsigned *seed, char *to)
{
    apr_size_t len = reading_below(seed, 8);
    apr_size_t i;

    for (i = 0; i < len; i++) {
        to[i] = reading_below(seed, 3) != 0 ? "=&%+ a1~"[reading_below(seed, 8)] : (char)reading_below(seed, 256);
    }
    return len;
}

static void any_pairs_in_any_encoding_are_read_back(void **state)
{
    unsigned seed = 99;
    int round;

    for (round = 0; round < 2000; round++) {
        pair_t pairs[8];
        pair_t seen[8];
        char body[8 * 64 * 2];
        apr_size_t used = 0;
        int count = (int)reading_below(&seed, 8);
        apr_pool_t *p;
        reading_t r;
        int i;

        apr_pool_create(&p, *state);
        r = (reading_t){ .pool = p, .mode = IDEM_PAYLOAD_FORM, .random = seed };
        for (i = 0; i < count; i++) {
            pairs[i].name_len = random_octets(&seed, pairs[i].name);
            pairs[i].has_value = pairs[i].name_len == 0 || reading_below(&seed, 4) != 0;
            pairs[i].value_len = pairs[i].has_value ? random_octets(&seed, pairs[i].value) : 0;
            used += encode(&seed, pairs[i].name, pairs[i].name_len, body + used);
            if (pairs[i].has_value) {
                body[used++] = '=';
                used += encode(&seed, pairs[i].value, pairs[i].value_len, body + used);
            }
            body[used++] = '&';
        }
        assert_true(reading_of(&r, body, used));
        assert_int_equal(read_back(r.octets, r.len, seen), count);
        for (i = 0; i < count; i++) {
            assert_int_equal(seen[i].has_value, pairs[i].has_value);
            assert_int_equal(seen[i].name_len, pairs[i].name_len);
            assert_memory_equal(seen[i].name, pairs[i].name, pairs[i].name_len);
            assert_int_equal(seen[i].value_len, pairs[i].value_len);
            assert_memory_equal(seen[i].value, pairs[i].value, pairs[i].value_len);
        }
        apr_pool_destroy(p);
    }
}

static void a_contract_is_refused(void **state)
{
    reading_t r = form(state);

    r.contract = (const idem_contract_t *)&r; /* never looked into */
    assert_false(reading_of(&r, "a=1", 3));
    assert_string_equal(r.fault->reason, "not-json");
}

static void raw_octets_pass_as_they_are(void **state)
{
    reading_t r = { .pool = *state, .mode = IDEM_PAYLOAD_RAW };

    assert_true(reading_of(&r, "a\0\r\n\xFF", 5));
    assert_int_equal(r.len, 5);
    assert_memory_equal(r.octets, "a\0\r\n\xFF", 5);
    r.piece = 1;
    assert_true(reading_of(&r, "a\0\r\n\xFF", 5));
    assert_memory_equal(r.octets, "a\0\r\n\xFF", 5);
    assert_true(reading_of(&r, "", 0));
    assert_int_equal(r.len, 0);
}

static void modes_have_the_directive_s_words(void **state)
{
    static const char *const names[] = { "raw", "json", "jcs", "form", "multipart" };
    idem_payload_mode_e mode;
    int i;

    (void)state;
    for (i = 0; i < 5; i++) {
        assert_int_equal(idem_payload_mode_parse(names[i], &mode), APR_SUCCESS);
        assert_int_equal(mode, i);
        assert_string_equal(idem_payload_mode_name(mode), names[i]);
    }
    assert_int_equal(idem_payload_mode_parse("JSON", &mode), APR_NOTFOUND);
    assert_int_equal(idem_payload_mode_parse("", &mode), APR_NOTFOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT_TEST(pairs_are_decoded_and_keep_their_order),
        UNIT_TEST(no_value_differs_from_an_empty_one_and_empty_pairs_are_none),
        UNIT_TEST(a_broken_escape_is_refused),
        UNIT_TEST(more_pairs_than_the_limit_are_refused),
        UNIT_TEST(any_pairs_in_any_encoding_are_read_back),
        UNIT_TEST(a_contract_is_refused),
        UNIT_TEST(raw_octets_pass_as_they_are),
        UNIT_TEST(modes_have_the_directive_s_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

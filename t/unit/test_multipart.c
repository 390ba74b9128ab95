/* Payload multipart: part headers and contents, boundary left out (CONTRACT.md section 3, multipart.h). */
#include "unit.h"

#include <stdio.h>

#include "core/multipart.h"
#include "reading.h"

static reading_t multipart(void **state)
{
    return (reading_t){ .pool = *state, .mode = IDEM_PAYLOAD_MULTIPART, .boundary = "XX" };
}

/* Canonical octets told in words: [name: value, name: value|content] for each part. */
static const char *told(apr_pool_t *p, const char *octets, apr_size_t len);

static void assert_parts(void **state, const char *body, const char *expected)
{
    reading_t r = multipart(state);

    reading_text(&r, body);
    assert_string_equal(told(*state, r.octets, r.len), expected);
}

static void assert_refused(void **state, const char *body, const char *reason)
{
    reading_t r = multipart(state);
    const char *got = reading_refusal(&r, body);

    if (strcmp(got, reason) != 0) {
        fail_msg("%s: %s instead of %s", body, got, reason);
    }
}

static apr_size_t length_at(const char **at, const char *end)
{
    apr_size_t len = 0;
    int i;

    assert_true(end - *at >= 8);
    for (i = 0; i < 8; i++) {
        len = len << 8 | (unsigned char)*(*at)++;
    }
    assert_true(len <= (apr_size_t)(end - *at));
    return len;
}

static const char *text_of(apr_pool_t *p, const char **at, const char *end)
{
    apr_size_t len = length_at(at, end);
    const char *text = apr_pstrmemdup(p, *at, len);

    *at += len;
    return text;
}

static const char *told(apr_pool_t *p, const char *octets, apr_size_t len)
{
    const char *at = octets;
    const char *end = octets + len;
    const char *out = "";

    while (at < end) {
        const char *comma = "";
        apr_size_t size;

        assert_int_equal(*at++, 'P');
        out = apr_pstrcat(p, out, "[", NULL);
        while (*at == 'H') {
            const char *name;

            at++;
            name = text_of(p, &at, end);
            out = apr_pstrcat(p, out, comma, name, ": ", text_of(p, &at, end), NULL);
            comma = ", ";
        }
        out = apr_pstrcat(p, out, "|", NULL);
        do {
            assert_int_equal(*at++, 'C');
            size = length_at(&at, end);
            assert_true(size <= IDEM_MULTIPART_BLOCK);
            out = apr_pstrcat(p, out, apr_pstrmemdup(p, at, size), NULL);
            at += size;
        } while (size == IDEM_MULTIPART_BLOCK);
        out = apr_pstrcat(p, out, "]", NULL);
    }
    return out;
}

static void parts_are_headers_and_content(void **state)
{
    assert_parts(state,
                 "--XX\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\none\r\n"
                 "--XX\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x.txt\"\r\n"
                 "Content-Type: text/plain\r\n\r\ntwo\r\nlines\r\n--XX--\r\n",
                 "[content-disposition: form-data; name=\"a\"|one]"
                 "[content-disposition: form-data; name=\"f\"; filename=\"x.txt\", content-type: text/plain|"
                 "two\r\nlines]");
    assert_parts(state, "--XX--", "");
    assert_parts(state, "\r\n--XX--\r\n", "");
    assert_parts(state, "--XX\r\n\r\n\r\n--XX--", "[|]");
    assert_parts(state, "--XX\r\n\r\n--XX--", "[|]");
    assert_parts(state, "--XX\r\nA: b\r\n\r\n--XX--", "[a: b|]");
    assert_parts(state, "--XX\r\n\r\nx\r\n--XX \t\r\n\r\ny\r\n--XX--", "[|x][|y]");
    assert_parts(state, "--XX\r\n\r\nx\r\n--XX-- \r\n\r\n", "[|x]");
}

static void header_fields_have_one_form(void **state)
{
    assert_parts(state, "--XX\r\nCONTENT-type:text/plain\r\n\r\n\r\n--XX--", "[content-type: text/plain|]");
    assert_parts(state, "--XX\r\ncontent-type: \t text/plain \t\r\n\r\n\r\n--XX--", "[content-type: text/plain|]");
    assert_parts(state, "--XX\r\nA: b;\r\n  c=d\r\n\te\r\nB:\r\n\r\n\r\n--XX--", "[a: b; c=d e, b: |]");
    assert_parts(state, "--XX\r\nB: 1\r\nA: 2\r\n\r\n\r\n--XX--", "[b: 1, a: 2|]");
    assert_parts(state, "--XX\r\nA: \xC3\xA9:\"\r\n\r\n\r\n--XX--", "[a: \xC3\xA9:\"|]");
}

static void content_may_look_almost_like_a_delimiter(void **state)
{
    assert_parts(state, "--XX\r\n\r\na\r\n--X\r\n--YX\r\n-\r\n--\r\r\n--X--XX\r\n--XX--",
                 "[|a\r\n--X\r\n--YX\r\n-\r\n--\r\r\n--X--XX]");
    assert_parts(state, "--XX\r\n\r\n--X\r\n--XX--", "[|--X]");
    assert_parts(state, "--XX\r\n\r\n\r\n\r\n--XX--", "[|\r\n]");
    assert_parts(state, "--XX\r\n\r\n\r\r\n\n--XX\r\n--XX--", "[|\r\r\n\n--XX]");
    assert_parts(state, "--XX\r\n\r\n\n--XX\r\n--XX--", "[|\n--XX]");
}

static void the_boundary_makes_no_difference_and_all_else_does(void **state)
{
    static const char *const bodies[] = {
        "--%s\r\nA: b\r\n\r\nx\r\n--%s--\r\n",       "--%s\r\nA: c\r\n\r\nx\r\n--%s--\r\n",
        "--%s\r\nC: b\r\n\r\nx\r\n--%s--\r\n",       "--%s\r\nA: b\r\n\r\ny\r\n--%s--\r\n",
        "--%s\r\nA: b\r\n\r\nx\r\n\r\n--%s--\r\n",   "--%s\r\n\r\nA: b\r\n\r\nx\r\n--%s--\r\n",
        "--%s\r\nA: b\r\nC:d\r\n\r\nx\r\n--%s--\r\n", "--%s--", "--%s\r\nC:d\r\nA: b\r\n\r\nx\r\n--%s--\r\n",
    };
    const int count = sizeof(bodies) / sizeof(bodies[0]);
    int i;
    int j;

    for (i = 0; i < count; i++) {
        for (j = 0; j < count; j++) {
            reading_t a = { .pool = *state, .mode = IDEM_PAYLOAD_MULTIPART, .boundary = "one" };
            reading_t b = { .pool = *state, .mode = IDEM_PAYLOAD_MULTIPART, .boundary = "----Other 'Boundary'_7" };

            reading_text(&a, apr_psprintf(*state, bodies[i], a.boundary, a.boundary));
            reading_text(&b, apr_psprintf(*state, bodies[j], b.boundary, b.boundary));
            assert_int_equal(a.len == b.len && memcmp(a.octets, b.octets, a.len) == 0, i == j);
        }
    }
}

static void what_readers_could_take_in_two_ways_is_refused(void **state)
{
    assert_refused(state, "", "truncated");
    assert_refused(state, "--XX", "truncated");
    assert_refused(state, "--XX\r\nA: b\r\n\r\nx", "truncated");
    assert_refused(state, "--XX\r\nA: b\r\n\r\nx\r\n--XX", "truncated");
    assert_refused(state, "--XX\r\nA: b\r\n\r\nx\r\n--XX-", "truncated");
    assert_refused(state, "--XX\r\nA: b\r\n\r\nx\r\n--XX\r\n", "truncated");
    assert_refused(state, "--XX\r\nA: b", "truncated");
    assert_refused(state, "hello\r\n--XX--", "preamble");
    assert_refused(state, "\r\n\r\n--XX--", "preamble");
    assert_refused(state, "--XY--", "preamble");
    assert_refused(state, "\n--XX--", "preamble");
    assert_refused(state, "--XX--\r\nmore", "epilogue");
    assert_refused(state, "--XX--\r\n--XX--", "epilogue");
    assert_refused(state, "--XX--x", "epilogue");
    assert_refused(state, "--XX\r\n\r\nx\r\n--XXY\r\n--XX--", "boundary-in-content");
    assert_refused(state, "--XX\r\n\r\nx\r\n--XX-Y\r\n--XX--", "boundary-in-content");
    assert_refused(state, "--XX\r\n\r\nx\r\n--XX --\r\n", "boundary-in-content");
    assert_refused(state, "--XX\n\nx\r\n--XX--", "boundary-in-content");
    assert_refused(state, "--XX\r\r\n\r\nx\r\n--XX--", "boundary-in-content");
    assert_refused(state, "--XX\r\nA: b\n\r\nx\r\n--XX--", "part-header");
    assert_refused(state, "--XX\r\nA: b\rC: d\r\n\r\nx\r\n--XX--", "part-header");
    assert_refused(state, "--XX\r\nA: b\x01\r\n\r\nx\r\n--XX--", "part-header");
    assert_refused(state, "--XX\r\nA: b\x7F\r\n\r\nx\r\n--XX--", "part-header");
    assert_refused(state, "--XX\r\nno colon\r\n\r\nx\r\n--XX--", "part-header");
    assert_refused(state, "--XX\r\n: b\r\n\r\nx\r\n--XX--", "part-header");
    assert_refused(state, "--XX\r\nA : b\r\n\r\nx\r\n--XX--", "part-header");
    assert_refused(state, "--XX\r\n A: b\r\n\r\nx\r\n--XX--", "part-header");
    assert_refused(state, "--XX\r\n--XX--", "truncated");
}

static void a_nul_is_content_but_no_header_or_padding(void **state)
{
    static const char content[] = "--XX\r\n\r\na\0b\r\n--XX--";
    static const char header[] = "--XX\r\nA: \0\r\n\r\nab\r\n--XX--";
    static const char epilogue[] = "--XX--\0";
    static const char padding[] = "--XX\0\r\n\r\n\r\n--XX--";
    reading_t r = multipart(state);

    assert_true(reading_of(&r, content, sizeof(content) - 1));
    assert_memory_equal(r.octets + r.len - 3, "a\0b", 3);
    assert_false(reading_of(&r, header, sizeof(header) - 1));
    assert_false(reading_of(&r, epilogue, sizeof(epilogue) - 1));
    assert_false(reading_of(&r, padding, sizeof(padding) - 1));
}

static void a_boundary_is_checked(void **state)
{
    static const char *const bad[] = { NULL, "", "a ", "a\"b", "a\r\nb", "a;b", "a\xC3\xA9",
                                       "12345678901234567890123456789012345678901234567890123456789012345678901" };
    unsigned i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        reading_t r = { .pool = *state, .mode = IDEM_PAYLOAD_MULTIPART, .boundary = bad[i] };

        assert_string_equal(reading_refusal(&r, apr_pstrcat(*state, "--", bad[i] ? bad[i] : "", "--", NULL)),
                            "boundary");
        assert_string_equal(reading_refusal(&r, ""), "boundary");
    }
}

static void limits_hold_exactly(void **state)
{
    apr_pool_t *p = *state;
    char *body = apr_palloc(p, (IDEM_MULTIPART_MAX_PARTS + 1) * 16);
    apr_size_t used = 0;
    int i;
    char *value;
    reading_t r = multipart(state);

    for (i = 0; i < IDEM_MULTIPART_MAX_PARTS; i++) {
        used += (apr_size_t)sprintf(body + used, "--XX\r\n\r\nx\r\n");
    }
    strcpy(body + used, "--XX--");
    reading_text(&r, body);
    strcpy(body + used, "--XX\r\n\r\nx\r\n--XX--");
    assert_refused(state, body, "too-many-parts");

    value = apr_pcalloc(p, IDEM_MULTIPART_MAX_HEADERS + 1);
    memset(value, 'v', IDEM_MULTIPART_MAX_HEADERS - strlen("a:\r\n\r\n"));
    reading_text(&r, apr_pstrcat(p, "--XX\r\na:", value, "\r\n\r\nx\r\n--XX--", NULL));
    assert_refused(state, apr_pstrcat(p, "--XX\r\na:", value, "v\r\n\r\nx\r\n--XX--", NULL), "part-header-too-long");
}

/* Content of every size around the block's, cut in any way, is read back. */
static void content_of_any_size_is_read_back(void **state)
{
    unsigned seed = 5;
    apr_size_t size;

    for (size = 0; size < 3 * IDEM_MULTIPART_BLOCK; size += size % IDEM_MULTIPART_BLOCK < 4090 &&
                                                            size % IDEM_MULTIPART_BLOCK > 4 ? 511 : 1) {
        apr_pool_t *p;
        reading_t r;
        char *body;
        apr_size_t i;
        const char *expected;

        apr_pool_create(&p, *state);
        r = (reading_t){ .pool = p, .mode = IDEM_PAYLOAD_MULTIPART, .boundary = "XX", .random = seed + 1 };
        body = apr_palloc(p, size + 64);
        strcpy(body, "--XX\r\n\r\n");
        for (i = 0; i < size; i++) {
            body[8 + i] = "\r\n--Xabc"[reading_below(&seed, 8)];
        }
        body[8 + size] = '\0';
        if (strstr(body + 8, "\r\n--XX") != NULL || strncmp(body + 8, "--XX", 4) == 0) {
            apr_pool_destroy(p);
            continue;
        }
        expected = apr_pstrcat(p, "[|", body + 8, "]", NULL);
        strcpy(body + 8 + size, "\r\n--XX--");
        assert_true(reading_of(&r, body, strlen(body)));
        assert_string_equal(told(p, r.octets, r.len), expected);
        apr_pool_destroy(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT_TEST(parts_are_headers_and_content),
        UNIT_TEST(header_fields_have_one_form),
        UNIT_TEST(content_may_look_almost_like_a_delimiter),
        UNIT_TEST(the_boundary_makes_no_difference_and_all_else_does),
        UNIT_TEST(what_readers_could_take_in_two_ways_is_refused),
        UNIT_TEST(a_nul_is_content_but_no_header_or_padding),
        UNIT_TEST(a_boundary_is_checked),
        UNIT_TEST(limits_hold_exactly),
        UNIT_TEST(content_of_any_size_is_read_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

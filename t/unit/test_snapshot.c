#include "unit.h"

#include <apr_lib.h>

#include "core/snapshot.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* CONTRACT section 5, read apart from the code. */
static const char *const approved[] = {
    "Content-Type", "Content-Encoding", "Content-Language", "Content-Disposition", "Location", "Content-Location",
    "Content-Range", "ETag", "Last-Modified", "Link", "Retry-After", "Vary", "Allow", "Cache-Control",
    "Access-Control-Allow-Origin", "Access-Control-Allow-Headers", "Access-Control-Expose-Headers",
    "Content-Security-Policy", "X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy", "Content-Digest",
    "Repr-Digest", "Deprecation", "Sunset"
};

static const char *const never[] = {
    "Set-Cookie", "Set-Cookie2", "Date", "Server", "Via", "Connection", "Keep-Alive", "Proxy-Connection",
    "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Authentication-Info", "TE", "Trailer", "Transfer-Encoding",
    "Upgrade", "Content-Length", "WWW-Authenticate", "Authorization", "X-Authorization", "Authentication-Info",
    "X-Auth-Token", "X-CSRF-Token", "X-Api-Key", "traceparent", "tracestate", "traceresponse", "X-Request-Id",
    "Request-Id", "X-Correlation-Id", "X-B3-TraceId", "X-B3-SpanId", "b3", "X-Amzn-Trace-Id", "x-amzn-RequestId",
    "CF-Ray", "X-Ms-Request-Id", "X-Trace-Id", "Paypal-Debug-Id", "Idempotency-Key", "Idempotency-Operation",
    "Idempotency-Replayed", "Idempotency-Contract", "Idempotency-Outcome", "Idempotency-Generation"
};

static const char *upper(apr_pool_t *p, const char *s)
{
    char *copy = apr_pstrdup(p, s), *c;

    for (c = copy; *c; c++) {
        *c = (char)apr_toupper(*c);
    }
    return copy;
}

static apr_array_header_t *listed(apr_pool_t *p, const char *name)
{
    apr_array_header_t *extra = apr_array_make(p, 2, sizeof(const char *));

    APR_ARRAY_PUSH(extra, const char *) = "X-Other";
    APR_ARRAY_PUSH(extra, const char *) = name;
    return extra;
}

static void approved_fields_are_wanted_in_any_case(void **state)
{
    apr_size_t i;

    for (i = 0; i < COUNT(approved); i++) {
        if (!idem_snapshot_wants(approved[i], NULL) || !idem_snapshot_wants(upper(*state, approved[i]), NULL)
            || idem_snapshot_forbidden(approved[i])) {
            fail_msg("%s is not kept", approved[i]);
        }
    }
}

static void forbidden_fields_are_never_wanted_even_if_listed(void **state)
{
    apr_size_t i;

    for (i = 0; i < COUNT(never); i++) {
        const char *other = upper(*state, never[i]);

        if (!idem_snapshot_forbidden(never[i]) || !idem_snapshot_forbidden(other)
            || idem_snapshot_wants(never[i], NULL) || idem_snapshot_wants(never[i], listed(*state, never[i]))
            || idem_snapshot_wants(other, listed(*state, never[i]))) {
            fail_msg("%s is kept", never[i]);
        }
    }
}

static void other_fields_are_wanted_only_if_listed(void **state)
{
    static const char *const others[] = {
        "X-Custom", "X-Powered-By", "Strict-Transport-Security", "Accept-Ranges", "Age", "ETags", "X-ETag",
        "Access-Control", "Content-Type-Options", "Tee", "X-Date"
    };
    apr_size_t i;

    for (i = 0; i < COUNT(others); i++) {
        assert_false(idem_snapshot_wants(others[i], NULL));
        assert_false(idem_snapshot_wants(others[i], listed(*state, "X-Elsewhere")));
        assert_false(idem_snapshot_forbidden(others[i]));
        assert_true(idem_snapshot_wants(others[i], listed(*state, others[i])));
        assert_true(idem_snapshot_wants(upper(*state, others[i]), listed(*state, others[i])));
    }
}

static void names_are_tokens(void **state)
{
    int c;

    for (c = 1; c < 0x100; c++) {
        int token = apr_isalnum(c) || strchr("!#$%&'*+-.^_`|~", c);

        assert_int_equal(idem_snapshot_is_name(apr_psprintf(*state, "X-%cy", c)), token && c < 0x80);
    }
    assert_false(idem_snapshot_is_name(""));
}

static void layout_is_the_documented_one(void **state)
{
    static const char expected[] = "\1" "\0\0\0\2" "OK" "\0\0\0\2" "\0\0\0\4" "ETag" "\0\0\0\3" "\"x\"" "\0\0\0\1" "a"
                                   "\0\0\0\0";
    apr_table_t *headers = apr_table_make(*state, 2);
    unsigned char *out;
    apr_size_t len;

    apr_table_addn(headers, "ETag", "\"x\"");
    apr_table_addn(headers, "a", "");
    assert_int_equal(idem_snapshot_encode_headers(*state, headers, "OK", &out, &len), IDEM_SNAPSHOT_OK);
    assert_int_equal(len, sizeof(expected) - 1);
    assert_memory_equal(out, expected, len);
}

/* A row of fields with what a table could lose: case, order, repetition, octets. */
static apr_table_t *rich(apr_pool_t *p)
{
    apr_table_t *headers = apr_table_make(p, 8);
    char *octets = apr_pcalloc(p, 256);
    int c, n = 0;

    for (c = 1; c < 0x100; c++) {
        if ((c >= 0x20 && c != 0x7f) || c == '\t') {
            octets[n++] = (char)c;
        }
    }
    apr_table_addn(headers, "Link", "</b>; rel=next");
    apr_table_addn(headers, "x-Octets", octets);
    apr_table_addn(headers, "LINK", "</a>; rel=prev");
    apr_table_addn(headers, "Vary", "");
    apr_table_addn(headers, "Link", "</b>; rel=next");
    return headers;
}

static void assert_same_fields(const apr_table_t *is, const apr_table_t *wanted)
{
    const apr_array_header_t *a = apr_table_elts(is), *b = apr_table_elts(wanted);
    int i;

    assert_int_equal(a->nelts, b->nelts);
    for (i = 0; i < a->nelts; i++) {
        assert_string_equal(APR_ARRAY_IDX(a, i, apr_table_entry_t).key, APR_ARRAY_IDX(b, i, apr_table_entry_t).key);
        assert_string_equal(APR_ARRAY_IDX(a, i, apr_table_entry_t).val, APR_ARRAY_IDX(b, i, apr_table_entry_t).val);
    }
}

static void fields_come_back_as_they_went_in(void **state)
{
    static const char *const reasons[] = { NULL, "", "I'm a teapot", "Schl\xe4""frig", "a\tb" };
    apr_table_t *headers = rich(*state), *back;
    const char *reason;
    unsigned char *out;
    apr_size_t len, i;

    for (i = 0; i < COUNT(reasons); i++) {
        assert_int_equal(idem_snapshot_encode_headers(*state, headers, reasons[i], &out, &len), IDEM_SNAPSHOT_OK);
        assert_int_equal(idem_snapshot_decode_headers(*state, out, len, &back, &reason), IDEM_SNAPSHOT_OK);
        memset(out, 'x', len); /* nothing of it may be pointed to */
        assert_same_fields(back, headers);
        if (reasons[i] && reasons[i][0]) {
            assert_string_equal(reason, reasons[i]);
        }
        else {
            assert_null(reason);
        }
    }
}

static void empty_snapshot_is_one(void **state)
{
    apr_table_t *headers = apr_table_make(*state, 1), *back;
    const char *reason;
    unsigned char *out;
    apr_size_t len;

    assert_int_equal(idem_snapshot_encode_headers(*state, headers, NULL, &out, &len), IDEM_SNAPSHOT_OK);
    assert_int_equal(len, 9);
    assert_int_equal(idem_snapshot_decode_headers(*state, out, len, &back, &reason), IDEM_SNAPSHOT_OK);
    assert_int_equal(apr_table_elts(back)->nelts, 0);
}

static idem_snapshot_result_e encode(apr_pool_t *p, const char *name, const char *value, const char *reason)
{
    apr_table_t *headers = apr_table_make(p, 2);
    unsigned char *out;
    apr_size_t len;
    idem_snapshot_result_e result;

    apr_table_addn(headers, "ETag", "x");
    apr_table_addn(headers, name, value);
    result = idem_snapshot_encode_headers(p, headers, reason, &out, &len);
    assert_true(result == IDEM_SNAPSHOT_OK ? out && len : out == NULL && len == 0);
    return result;
}

static void encoder_names_what_it_refuses(void **state)
{
    assert_int_equal(encode(*state, "X", "v", "OK"), IDEM_SNAPSHOT_OK);
    assert_int_equal(encode(*state, "X Y", "v", "OK"), IDEM_SNAPSHOT_BAD_NAME);
    assert_int_equal(encode(*state, "", "v", "OK"), IDEM_SNAPSHOT_BAD_NAME);
    assert_int_equal(encode(*state, "X", "v\r\nSet-Cookie: a=b", "OK"), IDEM_SNAPSHOT_BAD_VALUE);
    assert_int_equal(encode(*state, "X", "v\n", "OK"), IDEM_SNAPSHOT_BAD_VALUE);
    assert_int_equal(encode(*state, "X", "v\r", "OK"), IDEM_SNAPSHOT_BAD_VALUE);
    assert_int_equal(encode(*state, "X", "v\001", "OK"), IDEM_SNAPSHOT_BAD_VALUE);
    assert_int_equal(encode(*state, "X", "v\177", "OK"), IDEM_SNAPSHOT_BAD_VALUE);
    assert_int_equal(encode(*state, "X", "v\tw \351", "OK"), IDEM_SNAPSHOT_OK);
    assert_int_equal(encode(*state, "X", "v", "O\nK"), IDEM_SNAPSHOT_BAD_REASON);
    assert_int_equal(encode(*state, "X", "v", "O\x7f"), IDEM_SNAPSHOT_BAD_REASON);
    assert_int_equal(encode(*state, "set-cookie", "a=b", "OK"), IDEM_SNAPSHOT_FORBIDDEN);
}

static void number_of_fields_is_bounded(void **state)
{
    apr_table_t *headers = apr_table_make(*state, 256), *back;
    const char *reason;
    unsigned char *out;
    apr_size_t len;
    int i;

    for (i = 0; i < 256; i++) {
        apr_table_addn(headers, "Link", "x");
    }
    assert_int_equal(idem_snapshot_encode_headers(*state, headers, NULL, &out, &len), IDEM_SNAPSHOT_OK);
    assert_int_equal(idem_snapshot_decode_headers(*state, out, len, &back, &reason), IDEM_SNAPSHOT_OK);
    assert_same_fields(back, headers);
    out[7] = 1; /* 0x100 -> 0x101 fields */
    out[8] = 1;
    assert_int_equal(idem_snapshot_decode_headers(*state, out, len, &back, &reason), IDEM_SNAPSHOT_TOO_MANY);
    apr_table_addn(headers, "Link", "x");
    assert_int_equal(idem_snapshot_encode_headers(*state, headers, NULL, &out, &len), IDEM_SNAPSHOT_TOO_MANY);
}

static void size_is_bounded(void **state)
{
    const apr_size_t around = 1 + 4 + 4 + 4 + 1 + 4; /* of a field "X" */
    apr_size_t len, n = IDEM_SNAPSHOT_MAX_OCTETS - around;
    char *value = apr_pcalloc(*state, n + 2);
    apr_table_t *headers = apr_table_make(*state, 1), *back;
    const char *reason;
    unsigned char *out, *longer;

    memset(value, 'v', n);
    apr_table_addn(headers, "X", value);
    assert_int_equal(idem_snapshot_encode_headers(*state, headers, NULL, &out, &len), IDEM_SNAPSHOT_OK);
    assert_int_equal(len, IDEM_SNAPSHOT_MAX_OCTETS);
    assert_int_equal(idem_snapshot_decode_headers(*state, out, len, &back, &reason), IDEM_SNAPSHOT_OK);
    longer = apr_pcalloc(*state, len + 1);
    memcpy(longer, out, len);
    assert_int_equal(idem_snapshot_decode_headers(*state, longer, len + 1, &back, &reason), IDEM_SNAPSHOT_TOO_LARGE);
    value[n] = 'v';
    assert_int_equal(idem_snapshot_encode_headers(*state, headers, NULL, &out, &len), IDEM_SNAPSHOT_TOO_LARGE);
}

static idem_snapshot_result_e decode(apr_pool_t *p, const unsigned char *octets, apr_size_t len)
{
    unsigned char *copy = malloc(len ? len : 1); /* of its own size, so that ASan sees a step over its end */
    apr_table_t *headers;
    const char *reason;
    idem_snapshot_result_e result;

    if (len) {
        memcpy(copy, octets, len);
    }
    result = idem_snapshot_decode_headers(p, copy, len, &headers, &reason);
    free(copy);
    assert_true(result == IDEM_SNAPSHOT_OK ? headers != NULL : headers == NULL && reason == NULL);
    return result;
}

static void every_cut_is_truncated_and_every_addition_trailing(void **state)
{
    unsigned char *out, longer[1000];
    apr_size_t len, n;

    assert_int_equal(idem_snapshot_encode_headers(*state, rich(*state), "OK", &out, &len), IDEM_SNAPSHOT_OK);
    for (n = 0; n < len; n++) {
        assert_int_equal(decode(*state, out, n), IDEM_SNAPSHOT_TRUNCATED);
    }
    memcpy(longer, out, len);
    longer[len] = 0;
    assert_int_equal(decode(*state, longer, len + 1), IDEM_SNAPSHOT_TRAILING);
}

static void decoder_names_what_it_refuses(void **state)
{
    static const struct { const char *octets; apr_size_t len; idem_snapshot_result_e result; } cases[] = {
        { "\1\0\0\0\0\0\0\0\1\0\0\0\1X\0\0\0\1v", 19, IDEM_SNAPSHOT_OK },
        { "\0\0\0\0\0\0\0\0\1\0\0\0\1X\0\0\0\1v", 19, IDEM_SNAPSHOT_UNKNOWN_VERSION },
        { "\2\0\0\0\0\0\0\0\1\0\0\0\1X\0\0\0\1v", 19, IDEM_SNAPSHOT_UNKNOWN_VERSION },
        { "\1\xff\xff\xff\xff\0\0\0\1\0\0\0\1X\0\0\0\1v", 19, IDEM_SNAPSHOT_TRUNCATED },
        { "\1\0\0\0\0\xff\xff\xff\xff\0\0\0\1X\0\0\0\1v", 19, IDEM_SNAPSHOT_TOO_MANY },
        { "\1\0\0\0\0\0\0\0\1\xff\xff\xff\xffX\0\0\0\1v", 19, IDEM_SNAPSHOT_TRUNCATED },
        { "\1\0\0\0\0\0\0\0\1\0\0\0\1X\xff\xff\xff\xffv", 19, IDEM_SNAPSHOT_TRUNCATED },
        { "\1\0\0\0\0\0\0\0\1\0\0\0\1X\0\0\0\2v", 19, IDEM_SNAPSHOT_TRUNCATED },
        { "\1\0\0\0\0\0\0\0\1\0\0\0\1X\0\0\0\0v", 19, IDEM_SNAPSHOT_TRAILING },
        { "\1\0\0\0\0\0\0\0\0\0\0\0\1X\0\0\0\1v", 19, IDEM_SNAPSHOT_TRAILING },
        { "\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1v", 18, IDEM_SNAPSHOT_BAD_NAME },
        { "\1\0\0\0\0\0\0\0\1\0\0\0\1:\0\0\0\1v", 19, IDEM_SNAPSHOT_BAD_NAME },
        { "\1\0\0\0\0\0\0\0\1\0\0\0\1\0\0\0\0\1v", 19, IDEM_SNAPSHOT_BAD_NAME },
        { "\1\0\0\0\0\0\0\0\1\0\0\0\1X\0\0\0\1\0", 19, IDEM_SNAPSHOT_BAD_VALUE },
        { "\1\0\0\0\0\0\0\0\1\0\0\0\1X\0\0\0\1\r", 19, IDEM_SNAPSHOT_BAD_VALUE },
        { "\1\0\0\0\0\0\0\0\1\0\0\0\1X\0\0\0\1\n", 19, IDEM_SNAPSHOT_BAD_VALUE },
        { "\1\0\0\0\1\n\0\0\0\0", 10, IDEM_SNAPSHOT_BAD_REASON },
        { "\1\0\0\0\1\0\0\0\0\0", 10, IDEM_SNAPSHOT_BAD_REASON },
        { "\1\0\0\0\1x\0\0\0\0", 10, IDEM_SNAPSHOT_OK }
    };
    apr_size_t i;

    for (i = 0; i < COUNT(cases); i++) {
        idem_snapshot_result_e result = decode(*state, (const unsigned char *)cases[i].octets, cases[i].len);

        if (result != cases[i].result) {
            fail_msg("case %d %s", (int)i, idem_snapshot_result_text(result));
        }
    }
}

/* A backend may have settled with a cookie of its own. */
static void decoder_leaves_forbidden_fields_out(void **state)
{
    static const unsigned char octets[] = "\1\0\0\0\0\0\0\0\3" "\0\0\0\1X\0\0\0\1v" "\0\0\0\12Set-Cookie\0\0\0\3a=b"
                                          "\0\0\0\1Y\0\0\0\1w";
    apr_table_t *headers;
    const char *reason;

    assert_int_equal(idem_snapshot_decode_headers(*state, octets, sizeof(octets) - 1, &headers, &reason),
                     IDEM_SNAPSHOT_OK);
    assert_null(apr_table_get(headers, "Set-Cookie"));
    assert_string_equal(apr_table_get(headers, "X"), "v");
    assert_string_equal(apr_table_get(headers, "Y"), "w");
    assert_int_equal(apr_table_elts(headers)->nelts, 2);
}

static void every_single_changed_octet_is_survived(void **state)
{
    unsigned char *out;
    apr_size_t len, i;
    int bit;

    assert_int_equal(idem_snapshot_encode_headers(*state, rich(*state), "OK", &out, &len), IDEM_SNAPSHOT_OK);
    for (i = 0; i < len; i++) {
        for (bit = 0; bit < 8; bit++) {
            out[i] ^= (unsigned char)(1 << bit);
            decode(*state, out, len);
            out[i] ^= (unsigned char)(1 << bit);
        }
    }
    assert_int_equal(decode(*state, out, len), IDEM_SNAPSHOT_OK);
}

static void every_result_has_words_of_its_own(void **state)
{
    int i, j;

    (void)state;
    for (i = IDEM_SNAPSHOT_OK; i <= IDEM_SNAPSHOT_FORBIDDEN; i++) {
        for (j = IDEM_SNAPSHOT_OK; j < i; j++) {
            assert_string_not_equal(idem_snapshot_result_text(i), idem_snapshot_result_text(j));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT_TEST(approved_fields_are_wanted_in_any_case),
        UNIT_TEST(forbidden_fields_are_never_wanted_even_if_listed),
        UNIT_TEST(other_fields_are_wanted_only_if_listed),
        UNIT_TEST(names_are_tokens),
        UNIT_TEST(layout_is_the_documented_one),
        UNIT_TEST(fields_come_back_as_they_went_in),
        UNIT_TEST(empty_snapshot_is_one),
        UNIT_TEST(encoder_names_what_it_refuses),
        UNIT_TEST(number_of_fields_is_bounded),
        UNIT_TEST(size_is_bounded),
        UNIT_TEST(every_cut_is_truncated_and_every_addition_trailing),
        UNIT_TEST(decoder_names_what_it_refuses),
        UNIT_TEST(decoder_leaves_forbidden_fields_out),
        UNIT_TEST(every_single_changed_octet_is_survived),
        UNIT_TEST(every_result_has_words_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

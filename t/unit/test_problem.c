#include "unit.h"

#include "core/problem.h"
#include "core/utf8.h"
#include "vectors.h"

#define DOCS "https://docs.example/idempotency"
#define OPERATION "0190a6e0-7b3c-7def-8123-456789abcdef"

/* The table of CONTRACT section 5, read apart from the code. */
static const struct { const char *slug; int status, retry_after; const char *retry; } contract[] = {
    { "key-missing", 400, 0, "after-fix" },
    { "key-malformed", 400, 0, "after-fix" },
    { "payload-rejected", 400, 0, "after-fix" },
    { "route-unresolved", 400, 0, "after-fix" },
    { "identity-missing", 403, 0, "after-fix" },
    { "in-progress", 409, 1, "same-key" },
    { "outcome-unknown", 409, 0, "ask-operator" },
    { "response-not-stored", 409, 0, "ask-operator" },
    { "key-expired", 410, 0, "ask-operator" },
    { "payload-too-large", 413, 0, "after-fix" },
    { "key-reused", 422, 0, "after-fix" },
    { "quota-exceeded", 429, 1, "same-key" },
    { "body-consumed", 500, 0, "ask-operator" },
    { "store-unavailable", 503, 1, "same-key" },
    { "writer-fenced", 503, 1, "same-key" },
};

static const char *build(apr_pool_t *p, const idem_problem_args_t *args)
{
    const char *body;
    apr_size_t len;

    idem_problem_build(p, args, &body, &len);
    assert_int_equal(strlen(body), len);
    assert_true(idem_utf8_valid(body, len));
    return body;
}

static const vec_t *tree(apr_pool_t *p, const idem_problem_args_t *args)
{
    const char *body = build(p, args);

    return vec_parse(p, body, strlen(body));
}

/* A URI reference by the characters it may have (RFC 3986); none of ours needs more to be told from a sentence. */
static int is_uri_reference(const char *s)
{
    return s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:/?#[]@!$&'()*+,;=%")] == '\0';
}

/* The rules of RFC 9457 for the members it defines. */
static int is_problem(const vec_t *v)
{
    static const char *const texts[] = { "type", "title", "detail", "instance" };
    const vec_t *member;
    int i;

    if (v->type != VEC_OBJECT) {
        return 0;
    }
    for (i = 0; i < 4; i++) {
        member = vec_get(v, texts[i]);
        if (member && member->type != VEC_STRING) {
            return 0;
        }
        if (member && (i == 0 || i == 3) && !is_uri_reference(member->text)) {
            return 0;
        }
    }
    member = vec_get(v, "status");
    return !member || (member->type == VEC_NUMBER && strspn(member->text, "0123456789") == member->len
                       && atoi(member->text) >= 100 && atoi(member->text) <= 599);
}

static void published_instances_tell_a_good_checker(void **state)
{
    const vec_t *all = vec_load(*state, "rfc9457/instances.json"), *v;

    for (v = vec_get(all, "valid")->first; v; v = v->next) {
        assert_true(is_problem(v));
    }
    for (v = vec_get(all, "invalid")->first; v; v = v->next) {
        assert_false(is_problem(v));
    }
    assert_int_equal(vec_get(all, "valid")->count, 5);
    assert_int_equal(vec_get(all, "invalid")->count, 6);
}

static int number(const vec_t *v, const char *name)
{
    const vec_t *member = vec_get(v, name);

    return member && member->type == VEC_NUMBER ? atoi(member->text) : -1;
}

static void every_type_is_as_the_contract_says(void **state)
{
    int i;

    assert_int_equal(IDEM_PROBLEM_COUNT, sizeof(contract) / sizeof(contract[0]));
    for (i = 0; i < IDEM_PROBLEM_COUNT; i++) {
        const idem_problem_args_t args = { .problem = (idem_problem_e)i };
        const idem_problem_type_t *type = idem_problem_type((idem_problem_e)i);
        const vec_t *v = tree(*state, &args);

        assert_true(is_problem(v));
        assert_string_equal(vec_text(v, "type"), apr_pstrcat(*state, "tag:mod-idempotency,2026:", contract[i].slug, NULL));
        assert_string_equal(type->slug, contract[i].slug);
        assert_int_equal(type->status, contract[i].status);
        assert_int_equal(number(v, "status"), contract[i].status);
        assert_int_equal(type->retry_after, contract[i].retry_after);
        assert_string_equal(vec_text(v, "retry"), contract[i].retry);
        assert_string_equal(vec_text(v, "title"), type->title);
        assert_string_equal(vec_text(v, "detail"), type->detail);
        assert_int_equal(v->count, 5);
    }
}

/* CASES C114: opposite cures never share a type; Retry-After only where waiting helps. */
static void types_are_distinct_and_waiting_is_told_where_it_helps(void **state)
{
    int i, j;

    for (i = 0; i < IDEM_PROBLEM_COUNT; i++) {
        const idem_problem_type_t *type = idem_problem_type((idem_problem_e)i);

        assert_int_equal(type->retry_after, strcmp(type->retry, "same-key") == 0);
        assert_int_equal(type->retry_after, strstr(type->detail, "Retry-After") != NULL);
        for (j = 0; j < i; j++) {
            const idem_problem_type_t *other = idem_problem_type((idem_problem_e)j);

            assert_string_not_equal(type->title, other->title);
            assert_string_not_equal(idem_problem_type_uri(*state, (idem_problem_e)i, NULL),
                                    idem_problem_type_uri(*state, (idem_problem_e)j, NULL));
            assert_string_not_equal(idem_problem_type_uri(*state, (idem_problem_e)i, DOCS),
                                    idem_problem_type_uri(*state, (idem_problem_e)j, DOCS));
        }
    }
}

static void no_text_offers_a_new_key_as_a_way_to_repeat(void **state)
{
    int i;

    (void)state;
    for (i = 0; i < IDEM_PROBLEM_COUNT; i++) {
        const idem_problem_type_t *type = idem_problem_type((idem_problem_e)i);
        const char *advice = strstr(type->detail, "new key");

        assert_true(strstr(type->detail, "not executed") != NULL);
        assert_null(strstr(type->detail, "another key"));
        assert_null(strstr(type->detail, "different key"));
        assert_null(strstr(type->title, "new key"));
        if (i == IDEM_PROBLEM_KEY_REUSED) {
            assert_non_null(strstr(type->detail, "resend it unchanged; a new key is for a new operation"));
        }
        else {
            assert_null(advice);
        }
        if (strcmp(type->retry, "same-key") == 0) {
            assert_non_null(strstr(type->detail, "same key"));
        }
    }
}

static void body_is_the_same_octets_every_time(void **state)
{
    const idem_problem_args_t args = {
        .problem = IDEM_PROBLEM_RESPONSE_NOT_STORED, .detail = "d", .operation = OPERATION, .docs = DOCS,
        .error_member = 1, .outcome = "succeeded", .original_status = 201, .settled = "2026-01-02T03:04:05Z"
    };

    assert_string_equal(build(*state, &args),
                        "{\"type\":\"https://docs.example/idempotency#response-not-stored\","
                        "\"title\":\"The first request was executed, but its answer was not kept\",\"status\":409,"
                        "\"detail\":\"d\",\"retry\":\"ask-operator\",\"operation\":\"" OPERATION "\","
                        "\"outcome\":\"succeeded\",\"original_status\":201,"
                        "\"error\":{\"code\":\"response-not-stored\",\"message\":\"d\"}}");
    assert_string_equal(build(*state, &args), build(*state, &args));
}

static void settled_operation_is_told_only_where_the_contract_says(void **state)
{
    int i;

    for (i = 0; i < IDEM_PROBLEM_COUNT; i++) {
        const idem_problem_args_t args = {
            .problem = (idem_problem_e)i, .operation = OPERATION, .outcome = "failed", .original_status = 402,
            .settled = "2026-01-02T03:04:05Z"
        };
        const vec_t *v = tree(*state, &args);
        int not_stored = i == IDEM_PROBLEM_RESPONSE_NOT_STORED, expired = i == IDEM_PROBLEM_KEY_EXPIRED;

        assert_true(is_problem(v));
        assert_string_equal(vec_text(v, "operation"), OPERATION);
        assert_int_equal(vec_is(v, "outcome", "failed"), not_stored || expired);
        assert_int_equal(vec_get(v, "outcome") != NULL, not_stored || expired);
        assert_int_equal(number(v, "original_status"), not_stored ? 402 : -1);
        assert_int_equal(vec_get(v, "original_status") != NULL, not_stored);
        assert_int_equal(vec_is(v, "settled", "2026-01-02T03:04:05Z"), expired);
        assert_int_equal(vec_get(v, "settled") != NULL, expired);
    }
}

static void absent_facts_have_no_member(void **state)
{
    const idem_problem_args_t args = { .problem = IDEM_PROBLEM_KEY_EXPIRED };

    assert_int_equal(tree(*state, &args)->count, 5);
}

static void error_member_repeats_slug_and_detail(void **state)
{
    idem_problem_args_t args = { .problem = IDEM_PROBLEM_KEY_REUSED, .error_member = 1 };
    const vec_t *v = tree(*state, &args), *error = vec_get(v, "error");

    assert_string_equal(vec_text(error, "code"), "key-reused");
    assert_string_equal(vec_text(error, "message"), vec_text(v, "detail"));
    assert_int_equal(error->count, 2);
    args.error_member = 0;
    assert_null(vec_get(tree(*state, &args), "error"));
}

static void strings_are_escaped(void **state)
{
    static const char evil[] = "\"},\"status\":200,{\"\\ \n\r\t\b\f\x01\x1f\x7f </script> \xe2\x80\xa8 \xf0\x9f\x8d\x8a";
    const idem_problem_args_t args = {
        .problem = IDEM_PROBLEM_KEY_EXPIRED, .detail = evil, .operation = evil, .outcome = evil, .settled = evil,
        .error_member = 1
    };
    const vec_t *v = tree(*state, &args);

    assert_string_equal(vec_text(v, "detail"), evil);
    assert_string_equal(vec_text(v, "operation"), evil);
    assert_string_equal(vec_text(v, "outcome"), evil);
    assert_string_equal(vec_text(v, "settled"), evil);
    assert_string_equal(vec_text(vec_get(v, "error"), "message"), evil);
    assert_int_equal(number(v, "status"), 410);
    assert_null(strpbrk(build(*state, &args), "\n\r\t\b\f\x01\x1f"));
}

static void text_that_json_cannot_hold_is_left_out(void **state)
{
    const idem_problem_args_t args = {
        .problem = IDEM_PROBLEM_KEY_EXPIRED, .detail = "\xff", .operation = "\xc3", .outcome = "\xed\xa0\x80",
        .settled = "\xc0\xaf", .docs = "http://x/\xff"
    };
    const vec_t *v = tree(*state, &args);

    assert_string_equal(vec_text(v, "detail"), idem_problem_type(IDEM_PROBLEM_KEY_EXPIRED)->detail);
    assert_string_equal(vec_text(v, "type"), "tag:mod-idempotency,2026:key-expired");
    assert_int_equal(v->count, 5);
}

static void documentation_gives_type_and_link(void **state)
{
    const idem_problem_args_t args = { .problem = IDEM_PROBLEM_IN_PROGRESS, .docs = DOCS };

    assert_string_equal(vec_text(tree(*state, &args), "type"), DOCS "#in-progress");
    assert_string_equal(idem_problem_link(*state, DOCS), "<" DOCS ">; rel=\"describedby\"");
    assert_null(idem_problem_link(*state, NULL));
}

static void documentation_is_a_url_without_fragment(void **state)
{
    static const char *const good[] = {
        "https://docs.example/idempotency", "http://docs.example", "https://docs.example:8443/a/b?c=d&e=%20",
        "https://[::1]/x"
    };
    static const char *const bad[] = {
        "", "docs", "/docs", "//docs.example/x", "ftp://docs.example/", "https://", "https:///x", "mailto:a@b.example",
        "https://docs.example/#x", "https://docs.example/>; rel=\"x", "https://docs.example/a b", "https://d.example/\"",
        "https://docs.example/\xc3\xa9", "https://docs.example/\n", "https://docs.example/\x7f", "javascript:alert(1)"
    };
    apr_size_t i;

    for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_null(idem_problem_docs_fault(*state, good[i]));
    }
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (!idem_problem_docs_fault(*state, bad[i])) {
            fail_msg("%s is taken", bad[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT_TEST(published_instances_tell_a_good_checker),
        UNIT_TEST(every_type_is_as_the_contract_says),
        UNIT_TEST(types_are_distinct_and_waiting_is_told_where_it_helps),
        UNIT_TEST(no_text_offers_a_new_key_as_a_way_to_repeat),
        UNIT_TEST(body_is_the_same_octets_every_time),
        UNIT_TEST(settled_operation_is_told_only_where_the_contract_says),
        UNIT_TEST(absent_facts_have_no_member),
        UNIT_TEST(error_member_repeats_slug_and_detail),
        UNIT_TEST(strings_are_escaped),
        UNIT_TEST(text_that_json_cannot_hold_is_left_out),
        UNIT_TEST(documentation_gives_type_and_link),
        UNIT_TEST(documentation_is_a_url_without_fragment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

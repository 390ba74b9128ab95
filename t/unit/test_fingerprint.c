/* CONTRACT section 3: what is bound, in which form, and that framing loses nothing. */
#include "unit.h"

#include "core/digest.h"
#include "core/fingerprint.h"
#include "core/media.h"
#include "core/target.h"

static const char *find_header(void *baton, const char *name)
{
    const char *const *pairs = baton;

    for (; pairs && pairs[0]; pairs += 2) {
        if (!strcasecmp(pairs[0], name)) {
            return pairs[1];
        }
    }
    return NULL;
}

static apr_array_header_t *list(apr_pool_t *p, const char *a, const char *b)
{
    apr_array_header_t *names = apr_array_make(p, 2, sizeof(const char *));

    if (a) {
        APR_ARRAY_PUSH(names, const char *) = a;
    }
    if (b) {
        APR_ARRAY_PUSH(names, const char *) = b;
    }
    return names;
}

static idem_recipe_t plain_recipe(apr_pool_t *p)
{
    idem_recipe_t recipe = {IDEM_PAYLOAD_RAW, 1, IDEM_QUERY_ALL, NULL, list(p, "X-HTTP-Method-Override", NULL), ""};

    return recipe;
}

static idem_request_t plain_request(void)
{
    idem_request_t request = {"POST", "api.example", 0, "/v1/charges?a=1&b=2", "application/json", NULL, find_header, NULL,
                              {0}};

    idem_sha256("{}", 2, request.payload);
    return request;
}

static const char *hex(apr_pool_t *p, const idem_recipe_t *recipe, const idem_request_t *request)
{
    unsigned char digest[IDEM_FINGERPRINT_LEN];
    char *text = apr_palloc(p, 65);
    int i;

    idem_fingerprint(p, recipe, request, digest);
    for (i = 0; i < IDEM_FINGERPRINT_LEN; i++) {
        apr_snprintf(text + 2 * i, 3, "%02x", digest[i]);
    }
    return text;
}

#define SAME(p, a, b)   assert_string_equal(hex(p, &recipe, &(a)), hex(p, &recipe, &(b)))
#define DIFFER(p, a, b) assert_string_not_equal(hex(p, &recipe, &(a)), hex(p, &recipe, &(b)))

static void every_field_is_bound(void **state)
{
    static const char *const overridden[] = {"X-HTTP-Method-Override", "DELETE", NULL};
    static const char *const empty[] = {"X-HTTP-Method-Override", "", NULL};
    apr_pool_t *p = *state;
    idem_recipe_t recipe = plain_recipe(p);
    idem_request_t first = plain_request();
    idem_request_t other;
    idem_request_t third;

#define CHANGED(change) do { other = first; change; DIFFER(p, first, other); } while (0)
    CHANGED(other.method = "PATCH");
    CHANGED(other.host = "shop.example");
    CHANGED(other.port = 8443);
    CHANGED(other.target = "/v1/refunds?a=1&b=2");
    CHANGED(other.target = "/v1/charges?b=2&a=1");
    CHANGED(other.target = "/v1/charges");
    CHANGED(other.content_type = "text/plain");
    CHANGED(other.content_type = NULL);
    CHANGED(other.content_coding = "gzip");
    CHANGED(other.header_baton = (void *)overridden);
    CHANGED(other.header_baton = (void *)empty);
    CHANGED(idem_sha256("{ }", 3, other.payload));
    other = first;
    other.header_baton = (void *)overridden;
    third = first;
    third.header_baton = (void *)empty;
    DIFFER(p, other, third);
    recipe.schema = "2";
    other = first;
    assert_string_not_equal(hex(p, &recipe, &other), hex(p, &(idem_recipe_t){recipe.mode, 1, recipe.query, NULL,
                                                                             recipe.headers, "3"}, &other));
}

static void what_changes_nothing_is_not_bound(void **state)
{
    apr_pool_t *p = *state;
    idem_recipe_t recipe = plain_recipe(p);
    idem_request_t first = plain_request();
    idem_request_t other = first;

    other.host = "API.Example";
    SAME(p, first, other);
    other.content_type = "Application/JSON";
    SAME(p, first, other);
    other.target = "/v1/./x/../%63harges?a=1&b=2";
    SAME(p, first, other);
    other.target = "https://api.example/v1/charges?a=1&b=2#frag";
    SAME(p, first, other);
    first.content_type = NULL;
    other.content_type = "";
    SAME(p, first, other);
    recipe.host = 0;
    other.host = "elsewhere.example";
    SAME(p, first, other);
    recipe.query = IDEM_QUERY_NONE;
    other.target = "/v1/charges?c=3";
    SAME(p, first, other);
    recipe.query = IDEM_QUERY_NAMES;
    recipe.query_names = list(p, "a", NULL);
    first.target = "/v1/charges?a=1&b=2&a=3";
    other.target = "/v1/charges?b=9&a=1&c&a=3";
    SAME(p, first, other);
    other.target = "/v1/charges?a=3&a=1";
    DIFFER(p, first, other);
}

static void targets(void **state)
{
    static const struct {
        const char *target, *path, *query;
    } rows[] = {
        {"/", "/", NULL},
        {"/a?", "/a", ""},
        {"/a?b=%7e&c=%2f", "/a", "b=~&c=%2F"},
        {"/a%2fb", "/a%2Fb", NULL},
        {"/%61%2E%2e/b", "/a../b", NULL},
        {"/a/%2e%2e/b", "/b", NULL},
        {"/a/./b/../../c/", "/c/", NULL},
        {"/../../x", "/x", NULL},
        {"/a/..", "/", NULL},
        {"/a/.", "/a/", NULL},
        {"/a//b", "/a//b", NULL},
        {"/%2561", "/%2561", NULL},
        {"/%c3%a9", "/%C3%A9", NULL},
        {"/a%00b", "/a%00b", NULL},
        {"/a%zz%4", "/a%zz%4", NULL},
        {"http://h:80/a?q", "/a", "q"},
        {"http://h", "/", NULL},
        {"*", "*", NULL},
        {"/a#frag?x", "/a", NULL},
    };
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *path;
        const char *query;

        idem_target_split(*state, rows[i].target, &path, &query);
        assert_string_equal(path, rows[i].path);
        assert_int_equal(query == NULL, rows[i].query == NULL);
        if (query) {
            assert_string_equal(query, rows[i].query);
        }
    }
}

static void selected_parameters(void **state)
{
    apr_array_header_t *names = list(*state, "a b", "c");

    assert_string_equal(idem_target_select(*state, "a+b=1&x=2&c&a%20b=%2F&cc=1", names), "a+b=1&c&a%20b=%2F");
    assert_null(idem_target_select(*state, "x=1&&y", names));
    assert_null(idem_target_select(*state, NULL, names));
}

static void media_types(void **state)
{
    static const struct {
        const char *value, *normal;
    } rows[] = {
        {"", ""},
        {"  ", ""},
        {"Text/HTML", "text/html"},
        {"text/html; Charset=UTF-8", "text/html;charset=\"UTF-8\""},
        {"text/html;charset=\"UTF-8\"", "text/html;charset=\"UTF-8\""},
        {"a/b; z=1; a=\"x\\\"y\"", "a/b;a=\"x\\\"y\";z=\"1\""},
        {"multipart/form-data; boundary=xyz", "multipart/form-data"},
        {"a/b;", "a/b"},
        {"nonsense", NULL},
        {"a/", NULL},
        {"a/b; x", NULL},
        {"a/b; x=\"open", NULL},
        {"a/b, c/d", NULL},
    };
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *normal = idem_media_normalise(*state, rows[i].value);

        if (rows[i].normal) {
            assert_non_null(normal);
            assert_string_equal(normal, rows[i].normal);
        }
        else {
            assert_null(normal);
        }
    }
    assert_string_equal(idem_media_parameter(*state, "multipart/mixed; boundary=\"a b\"", "boundary"), "a b");
    assert_null(idem_media_parameter(*state, "multipart/mixed", "boundary"));
    assert_true(idem_media_is_json(*state, "application/json; charset=utf-8"));
    assert_true(idem_media_is_json(*state, "application/merge-patch+JSON"));
    assert_false(idem_media_is_json(*state, "text/json"));
    assert_false(idem_media_is_json(*state, NULL));
}

/* A type that cannot be parsed never equals one that can and looks the same. */
static void an_unparsable_type_stands_apart(void **state)
{
    apr_pool_t *p = *state;
    idem_recipe_t recipe = plain_recipe(p);
    idem_request_t first = plain_request();
    idem_request_t other = first;

    first.content_type = "json";
    other.content_type = "JSON";
    DIFFER(p, first, other);
}

/* What was framed comes back, field by field. */
static void framing_is_injective(void **state)
{
    apr_pool_t *p = *state;
    idem_recipe_t recipe = plain_recipe(p);
    idem_request_t request = plain_request();
    static const int tags[] = {'C', 'S', 'M', 'A', 'T', 'Q', 'Y', 'E', 'H', 'F', 'P'};
    const unsigned char *octets;
    const unsigned char *framed;
    apr_size_t left;
    apr_size_t len;
    size_t i;
    int tag;

    idem_fingerprint_frame(p, &recipe, &request, &framed, &left);
    for (i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
        assert_true(idem_fingerprint_next(&framed, &left, &tag, &octets, &len));
        assert_int_equal(tag, tags[i]);
        if (tag == IDEM_FIELD_PATH) {
            assert_int_equal(len, strlen("/v1/charges"));
            assert_memory_equal(octets, "/v1/charges", len);
        }
        if (tag == IDEM_FIELD_PAYLOAD) {
            assert_int_equal(len, 32);
            assert_memory_equal(octets, request.payload, 32);
        }
    }
    assert_int_equal(left, 0);
    assert_false(idem_fingerprint_next(&framed, &left, &tag, &octets, &len));
}

static void broken_frames_end(void **state)
{
    static const unsigned char too_long[] = {'M', 0, 0, 0, 0, 0, 0, 0, 5, 'P'};
    static const unsigned char endless[] = {'M', 255, 255, 255, 255, 255, 255, 255, 255, 'P'};
    const unsigned char *at = too_long;
    const unsigned char *octets;
    apr_size_t left = sizeof(too_long);
    apr_size_t len;
    int tag;

    (void)state;
    assert_false(idem_fingerprint_next(&at, &left, &tag, &octets, &len));
    at = endless;
    left = sizeof(endless);
    assert_false(idem_fingerprint_next(&at, &left, &tag, &octets, &len));
    left = 3;
    assert_false(idem_fingerprint_next(&at, &left, &tag, &octets, &len));
}

static void parts_name_what_differs(void **state)
{
    static const unsigned char key[32] = "a key that nobody else has......";
    apr_pool_t *p = *state;
    idem_recipe_t recipe = plain_recipe(p);
    idem_request_t request = plain_request();
    unsigned char a[IDEM_PARTS_LEN];
    unsigned char b[IDEM_PARTS_LEN];
    const unsigned char *framed;
    apr_size_t len;

    idem_fingerprint_frame(p, &recipe, &request, &framed, &len);
    idem_fingerprint_parts(p, framed, len, key, a);
    assert_string_equal(idem_fingerprint_differing(p, a, sizeof(a), a, sizeof(a)), "");
    request.target = "/v1/charges?a=2&b=2";
    idem_sha256("x", 1, request.payload);
    idem_fingerprint_frame(p, &recipe, &request, &framed, &len);
    idem_fingerprint_parts(p, framed, len, key, b);
    assert_string_equal(idem_fingerprint_differing(p, a, sizeof(a), b, sizeof(b)), "query, payload");
    assert_string_equal(idem_fingerprint_differing(p, a, sizeof(a), b, 0), "");
    b[0] = 9;
    assert_string_equal(idem_fingerprint_differing(p, a, sizeof(a), b, sizeof(b)), "");
}

static void recipes_go_both_ways(void **state)
{
    apr_pool_t *p = *state;
    idem_recipe_t recipe = {IDEM_PAYLOAD_JCS, 0, IDEM_QUERY_NAMES, list(p, "-", "a,b c"), list(p, "X-A", "X-B"), "v 2/1"};
    const char *text = idem_recipe_format(p, &recipe);
    const idem_recipe_t *back = idem_recipe_parse(p, text, strlen(text));

    assert_non_null(back);
    assert_string_equal(idem_recipe_format(p, back), text);
    assert_int_equal(back->mode, IDEM_PAYLOAD_JCS);
    assert_int_equal(back->host, 0);
    assert_string_equal(APR_ARRAY_IDX(back->query_names, 0, const char *), "-");
    assert_string_equal(APR_ARRAY_IDX(back->query_names, 1, const char *), "a,b c");
    assert_string_equal(APR_ARRAY_IDX(back->headers, 1, const char *), "X-B");
    assert_string_equal(back->schema, "v 2/1");
}

static void strange_recipes_are_not_known(void **state)
{
    static const char *const strange[] = {"", "2 raw host * - -", "1 raw host *", "1 blob host * - -", "1 raw host * - - -",
                                          "1 raw host %G - -"};
    size_t i;

    for (i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
        assert_null(idem_recipe_parse(*state, strange[i], strlen(strange[i])));
    }
    assert_null(idem_recipe_parse(*state, NULL, 0));
}

/* Golden, computed apart from this code: a digest that changes turns every honest retry across an upgrade into a conflict. */
static void digests_never_change(void **state)
{
    apr_pool_t *p = *state;
    idem_recipe_t recipe = plain_recipe(p);
    idem_request_t request = plain_request();

    assert_string_equal(hex(p, &recipe, &request), "5ce7084a47ed6fabbd9f3da5670b7288969ce9d6c379e1f27fb12921e5f6c73d");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT_TEST(every_field_is_bound),
        UNIT_TEST(what_changes_nothing_is_not_bound),
        UNIT_TEST(targets),
        UNIT_TEST(selected_parameters),
        UNIT_TEST(media_types),
        UNIT_TEST(an_unparsable_type_stands_apart),
        UNIT_TEST(framing_is_injective),
        UNIT_TEST(broken_frames_end),
        UNIT_TEST(parts_name_what_differs),
        UNIT_TEST(recipes_go_both_ways),
        UNIT_TEST(strange_recipes_are_not_known),
        UNIT_TEST(digests_never_change),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Locale, architecture and release never change a fingerprint: t/vectors/fingerprints. */
#include "unit.h"

#include <locale.h>

#include "core/digest.h"
#include "core/fingerprint.h"
#include "vectors.h"

static const char *find_header(void *baton, const char *name)
{
    const vec_t *field;

    for (field = ((const vec_t *)baton)->first; field; field = field->next) {
        if (!strcasecmp(field->name, name)) {
            return field->text;
        }
    }
    return NULL;
}

static apr_array_header_t *words(apr_pool_t *p, const vec_t *list)
{
    apr_array_header_t *out = apr_array_make(p, 4, sizeof(const char *));
    const vec_t *word;

    for (word = list->first; word; word = word->next) {
        APR_ARRAY_PUSH(out, const char *) = word->text;
    }
    return out;
}

static void digest_octets(void *baton, const void *octets, apr_size_t len)
{
    idem_sha256_update(baton, octets, len);
}

static const char *hex(apr_pool_t *p, const unsigned char *octets)
{
    char *text = apr_palloc(p, 65);
    int i;

    for (i = 0; i < 32; i++) {
        apr_snprintf(text + 2 * i, 3, "%02x", octets[i]);
    }
    return text;
}

/* One octet at a time, or whole: the cut never matters. */
static void digest_payload(apr_pool_t *p, const vec_t *golden, idem_payload_mode_e mode, apr_size_t step,
                           unsigned char out[32])
{
    idem_sha256_t *sha = idem_sha256_init(p);
    idem_payload_t *payload = idem_payload_create(p, mode, NULL, NULL, digest_octets, sha);
    const vec_t *body = vec_get(golden, "body");
    apr_size_t at;

    for (at = 0; at < body->len; at += step) {
        apr_size_t len = body->len - at < step ? body->len - at : step;

        assert_int_equal(idem_payload_feed(payload, body->text + at, len), APR_SUCCESS);
    }
    assert_int_equal(idem_payload_finish(payload), APR_SUCCESS);
    idem_sha256_final(sha, out);
    assert_string_equal(hex(p, out), vec_text(golden, "canonical_sha256"));
}

static const char *text_or_null(const vec_t *golden, const char *name)
{
    return vec_get(golden, name)->type == VEC_NULL ? NULL : vec_text(golden, name);
}

static void check(apr_pool_t *p, const vec_t *golden, apr_size_t step)
{
    idem_recipe_t recipe = {0};
    idem_request_t request = {0};
    unsigned char fingerprint[IDEM_FINGERPRINT_LEN];

    assert_int_equal(idem_payload_mode_parse(vec_text(golden, "mode"), &recipe.mode), APR_SUCCESS);
    recipe.host = vec_get(golden, "bind_host")->truth;
    recipe.query = vec_is(golden, "query", "all")    ? IDEM_QUERY_ALL
                   : vec_is(golden, "query", "none") ? IDEM_QUERY_NONE
                                                     : IDEM_QUERY_NAMES;
    recipe.query_names = words(p, vec_get(golden, "names"));
    recipe.headers = words(p, vec_get(golden, "bound"));
    recipe.schema = vec_text(golden, "schema");
    request.method = vec_text(golden, "method");
    request.host = vec_text(golden, "host");
    request.port = (unsigned)atoi(vec_get(golden, "port")->text);
    request.target = vec_text(golden, "target");
    request.content_type = text_or_null(golden, "type");
    request.content_coding = text_or_null(golden, "coding");
    request.header = find_header;
    request.header_baton = (void *)vec_get(golden, "headers");
    digest_payload(p, golden, recipe.mode, step, request.payload);
    idem_fingerprint(p, &recipe, &request, fingerprint);
    if (strcmp(hex(p, fingerprint), vec_text(golden, "fingerprint"))) {
        fail_msg("golden request '%s' has another fingerprint", vec_text(golden, "name"));
    }
}

static void fifty_requests_in(apr_pool_t *p, const char *locale)
{
    const vec_t *all = vec_load(p, "fingerprints/golden.json");
    const vec_t *golden;
    int count = 0;

    if (!setlocale(LC_ALL, locale)) {
        fail_msg("locale %s is missing: `make units` makes it", locale);
    }
    for (golden = all->first; golden; golden = golden->next) {
        check(p, golden, 1);
        check(p, golden, 4096);
        count++;
    }
    setlocale(LC_ALL, "C");
    assert_int_equal(count, 50);
}

static void in_c(void **state)
{
    fifty_requests_in(*state, "C");
}

static void in_swedish(void **state)
{
    fifty_requests_in(*state, "sv_SE.UTF-8");
}

static void in_turkish(void **state)
{
    fifty_requests_in(*state, "tr_TR.UTF-8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {UNIT_TEST(in_c), UNIT_TEST(in_swedish), UNIT_TEST(in_turkish)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

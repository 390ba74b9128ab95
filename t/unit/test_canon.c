/* The canonical form of payload json (CONTRACT.md 3.1, canon.h), and what holds for any document. */
#include "unit.h"

#include <locale.h>
#include <stdio.h>

#include "reading.h"
#include "vectors.h"

static reading_t json(void **state)
{
    return (reading_t){ .pool = *state, .mode = IDEM_PAYLOAD_JSON };
}

static void assert_form(void **state, const char *body, const char *expected)
{
    reading_t r = json(state);

    assert_string_equal(reading_text(&r, body), expected);
}

static int same_form(void **state, const char *a, const char *b)
{
    reading_t ra = json(state);
    reading_t rb = json(state);

    reading_text(&ra, a);
    reading_text(&rb, b);
    return ra.len == rb.len && memcmp(ra.octets, rb.octets, ra.len) == 0;
}

/* ---- the canonical form ---- */

static void blanks_member_order_and_escapes_make_no_difference(void **state)
{
    assert_form(state, " { \"b\" : 1 ,\r\n\t\"a\" : [ 1 , 2 ] } ", "{\"a\":[1,2],\"b\":1}");
    assert_form(state, "{\"b\":{\"d\":1,\"c\":2},\"a\":null}", "{\"a\":null,\"b\":{\"c\":2,\"d\":1}}");
    assert_form(state, "\"\\u0041\\/\\u00e9\\ud834\\udd1e\"", "\"A/\xC3\xA9\xF0\x9D\x84\x9E\"");
    assert_form(state, "\"\\u0008\\u0009\\u000A\\u000c\\u000D\\u0022\\u005c\\u001F\\u007f\"",
                "\"\\b\\t\\n\\f\\r\\\"\\\\\\u001f\x7F\"");
    assert_true(same_form(state, "{\"\\u0061\":1}", "{\"a\":1}"));
    assert_form(state, "{}", "{}");
    assert_form(state, "[]", "[]");
    assert_form(state, "[[],{},\"\",[[]]]", "[[],{},\"\",[[]]]");
    assert_form(state, "true", "true");
    assert_form(state, " -0 ", "-0");
}

static void members_are_sorted_by_the_code_points_of_the_unescaped_name(void **state)
{
    assert_form(state, "{\"\\ud83d\\ude00\":1,\"\\ufb33\":2,\"\\u20ac\":3,\"\\u0080\":4,\"1\":5,\"\":6,\"\\r\":7}",
                "{\"\":6,\"\\r\":7,\"1\":5,\"\xC2\x80\":4,\"\xE2\x82\xAC\":3,\"\xEF\xAC\xB3\":2,"
                "\"\xF0\x9F\x98\x80\":1}");
    assert_form(state, "{\"aaaaaaaab\":1,\"aaaaaaaa\":2,\"aaaaaaaaa\":3,\"aaaaaaa\":4}",
                "{\"aaaaaaa\":4,\"aaaaaaaa\":2,\"aaaaaaaaa\":3,\"aaaaaaaab\":1}");
    assert_form(state, "{\"a\\u0000\":1,\"a\":2,\"\\u0000\":3,\"\":4}",
                "{\"\":4,\"\\u0000\":3,\"a\":2,\"a\\u0000\":1}");
}

static void what_has_an_effect_makes_a_difference(void **state)
{
    static const char *const bodies[] = {
        "{\"a\":10}",    "{\"a\":10.0}",     "{\"a\":1e1}",    "{\"a\":1E1}",  "{\"a\":1e+1}", "{\"a\":\"10\"}",
        "{\"a\":null}",  "{}",               "{\"a\":[1,2]}",  "{\"a\":[2,1]}", "{\"a\":[[1],2]}", "{\"a\":[1,[2]]}",
        "{\"a\":true}",  "{\"a\":\"true\"}", "{\"a\":false}",  "{\"a\":\"\"}", "{\"a\":{}}",   "{\"a\":[]}",
        "{\"a\":0}",     "{\"a\":-0}",       "{\"A\":0}",      "[\"a\",0]",    "[\"a,0\"]",    "[\"a\\\",\\\"0\"]",
        "\"\\u00e9\"",   "\"e\\u0301\"",     "\"\\u0000\"",    "\"\"",         "[{\"a\":1},{\"b\":2}]",
        "[{\"a\":1,\"b\":2}]",
    };
    const unsigned count = sizeof(bodies) / sizeof(bodies[0]);
    unsigned i;
    unsigned j;

    for (i = 0; i < count; i++) {
        for (j = 0; j < count; j++) {
            if (same_form(state, bodies[i], bodies[j]) != (i == j)) {
                fail_msg("%s and %s", bodies[i], bodies[j]);
            }
        }
    }
}

/* ---- properties, on random documents ---- */

typedef struct {
    char *out;
    apr_size_t used;
    unsigned *shape;  /* decides what the document is */
    unsigned *dress;  /* decides how it is written: member order, blanks, escapes */
    int members_left;
} writer_t;

static void put(writer_t *w, const char *text)
{
    w->used += (apr_size_t)sprintf(w->out + w->used, "%s", text);
}

static void put_blank(writer_t *w)
{
    static const char *const blanks[] = { "", "", "", " ", "\n", "\t ", "\r\n  " };

    put(w, blanks[reading_below(w->dress, 7)]);
}

static void put_string(writer_t *w, const unsigned short *units, unsigned count)
{
    static const char *const utf8[] = { "A", "\xC3\xA9", "\xE2\x82\xAC", "z", "\xEE\x80\x80", "0" };
    static const char *const escaped[] = { "\\u0041", "\\u00E9", "\\u20aC", "\\u007a", "\\ue000", "\\u0030" };
    static const char *const controls[][2] = { { "\\n", "\\u000a" }, { "\\\"", "\\u0022" }, { "\\\\", "\\u005C" },
                                               { "/", "\\/" }, { "\xF0\x9F\x98\x80", "\\uD83D\\uDE00" } };
    unsigned i;

    put(w, "\"");
    for (i = 0; i < count; i++) {
        int way = reading_below(w->dress, 3) == 0;

        put(w, units[i] < 6 ? (way ? escaped : utf8)[units[i]] : controls[units[i] - 6][way]);
    }
    put(w, "\"");
}

static void put_random_string(writer_t *w, unsigned number)
{
    unsigned short units[12];
    unsigned count = reading_below(w->shape, 9);
    unsigned i;

    for (i = 0; i < count; i++) {
        units[i] = (unsigned short)reading_below(w->shape, 11);
    }
    /* `number` in base four, so that names of one object are different */
    for (; i < 12 && number != 0; i++, number /= 4) {
        units[i] = (unsigned short)(number % 4);
    }
    put_string(w, units, i);
}

static void put_random(writer_t *w, int depth);

static void put_members(writer_t *w, int depth)
{
    unsigned count = reading_below(w->shape, 24);
    struct {
        unsigned key;
        char *text;
    } members[24];
    writer_t inner = *w;
    unsigned i;

    for (i = 0; i < count; i++) {
        inner.out = malloc(1 << 16);
        inner.used = 0;
        put_random_string(&inner, i + 1);
        put_blank(&inner);
        put(&inner, ":");
        put_blank(&inner);
        put_random(&inner, depth + 1);
        members[i].text = inner.out;
    }
    put(w, "{");
    for (i = count; i > 0; i--) {
        unsigned pick = reading_below(w->dress, i);

        put_blank(w);
        put(w, members[pick].text);
        put(w, i > 1 ? "," : "");
        free(members[pick].text);
        members[pick] = members[i - 1];
    }
    put_blank(w);
    put(w, "}");
}

static void put_random(writer_t *w, int depth)
{
    static const char *const scalars[] = { "null", "true", "false", "0", "-0", "10", "10.0", "1e1", "1E1", "1.5e-7" };
    unsigned kind = reading_below(w->shape, depth > 2 ? 6 : 10);
    unsigned count;
    unsigned i;

    if (kind < 4) {
        put(w, scalars[reading_below(w->shape, 10)]);
    }
    else if (kind < 6) {
        put_random_string(w, 0);
    }
    else if (kind < 8) {
        put(w, "[");
        count = reading_below(w->shape, 6);
        for (i = 0; i < count; i++) {
            put(w, i != 0 ? "," : "");
            put_blank(w);
            put_random(w, depth + 1);
            put_blank(w);
        }
        put(w, "]");
    }
    else {
        put_members(w, depth);
    }
}

static const char *random_document(apr_pool_t *p, unsigned shape, unsigned dress)
{
    writer_t w = { .out = malloc(1 << 20), .shape = &shape, .dress = &dress };
    const char *text;

    put(&w, "[");
    put_random(&w, 0);
    put(&w, ",");
    put_random(&w, 0);
    put(&w, "]");
    text = apr_pstrmemdup(p, w.out, w.used);
    free(w.out);
    return text;
}

/* Names may collide by chance where random units look like a number's; such a document is no test of order. */
static int taken(reading_t *r, const char *body)
{
    int ok = reading_of(r, body, strlen(body));

    assert_true(ok || strcmp(r->fault->reason, "duplicate-member") == 0);
    return ok;
}

static void any_writing_of_one_document_has_one_form(void **state)
{
    unsigned shape;
    unsigned dress;
    int documents = 0;

    for (shape = 1; shape <= 300; shape++) {
        apr_pool_t *p;
        reading_t first;

        apr_pool_create(&p, *state);
        first = (reading_t){ .pool = p, .mode = IDEM_PAYLOAD_JSON };
        if (taken(&first, random_document(p, shape * 7919, 1))) {
            documents++;
            for (dress = 2; dress < 8; dress++) {
                reading_t other = { .pool = p, .mode = IDEM_PAYLOAD_JSON, .random = dress };
                reading_t again = { .pool = p, .mode = IDEM_PAYLOAD_JSON };

                assert_true(taken(&other, random_document(p, shape * 7919, dress * 104729)));
                assert_string_equal(other.octets, first.octets);
                assert_true(taken(&again, other.octets));
                assert_string_equal(again.octets, first.octets);
            }
        }
        apr_pool_destroy(p);
    }
    assert_true(documents > 200);
}

static void any_change_of_an_octet_of_the_form_changes_it_or_is_refused(void **state)
{
    const char *form = "{\"a\":[1,-2.50,true,\"x\\u0000\xC3\xA9\",null],\"b\":{\"c\":\"d\"},\"e\":1e5}";
    apr_size_t len = strlen(form);
    apr_size_t i;
    unsigned c;

    for (i = 0; i < len; i++) {
        for (c = 0; c < 256; c++) {
            reading_t r = json(state);
            char *changed = apr_pstrmemdup(*state, form, len);

            changed[i] = (char)c;
            if ((char)c != form[i] && reading_of(&r, changed, len) && strcmp(r.octets, form) == 0) {
                fail_msg("%s has the same form", changed);
            }
        }
    }
}

static void large_objects_are_sorted_and_searched_for_duplicates(void **state)
{
    apr_pool_t *p = *state;
    char *text = apr_palloc(p, 20000 * 24);
    apr_size_t used = 0;
    unsigned seed = 77;
    reading_t r = json(state);
    const char *last = "";
    char *name;
    unsigned i;

    for (i = 0; i < 20000; i++) {
        used += (apr_size_t)sprintf(text + used, "%c\"%u-%08x\":0", i == 0 ? '{' : ',', i % 3, i * 2654435761u);
    }
    strcpy(text + used, "}");
    for (name = apr_strtok(apr_pstrdup(p, reading_text(&r, text)), "{,}", &text); name != NULL;
         name = apr_strtok(NULL, "{,}", &text)) {
        assert_true(strcmp(last, name) < 0);
        last = name;
    }
    text = apr_palloc(p, 20000 * 24);
    for (i = 0, used = 0; i < 20000; i++) {
        used += (apr_size_t)sprintf(text + used, "%c\"%08x\":0", i == 0 ? '{' : ',', reading_below(&seed, 1u << 20));
    }
    strcpy(text + used, "}");
    assert_string_equal(reading_refusal(&r, text), "duplicate-member");
}

static const vec_t *step(const vec_t *cases, const char *what)
{
    const vec_t *steps = vec_get(vec_at(cases, 0), "steps");
    int i;

    for (i = 0; i < steps->count; i++) {
        if (vec_is(vec_at(steps, i), "do", what)) {
            return vec_get(vec_at(steps, i), "body");
        }
    }
    fail_msg("no step \"%s\"", what);
    return NULL;
}

static int same_effect(void **state, const vec_t *a, const vec_t *b)
{
    return same_form(state, reading_json(*state, a, 0), reading_json(*state, b, 1));
}

/* A payment switch's published cases: the same transfer sent again, and a changed one under the same id. */
static void repeated_and_modified_transfers_are_told_apart(void **state)
{
    const vec_t *cases = vec_load(*state, "mojaloop-duplicates/original_transfer_at_committed.json");

    assert_true(same_effect(state, step(cases, "Send transfer"), step(cases, "Duplicate transfer")));
    assert_false(same_effect(state, step(cases, "Send transfer"), step(cases, "Send quote")));
    cases = vec_load(*state, "mojaloop-duplicates/duplicate_fx_transfers.json");
    assert_false(same_effect(state, step(cases, "Duplicate POST /fxTransfers with modified payload"),
                             step(cases, "Duplicate POST /fxTransfers with sam payload")));
}

static void no_locale_changes_anything(void **state)
{
    static const char *const names[] = { "C", "C.UTF-8", "sv_SE.UTF-8", "tr_TR.UTF-8", "de_DE.UTF-8" };
    const char *body = "{\"I\":1.5,\"i\":2,\"\xC4\xB0\":3,\"\xC3\xA4\":4,\"z\":5,\"\xC3\xA5\":6,\"Z\":1.50}";
    reading_t r = json(state);
    const char *expected = reading_text(&r, body);
    unsigned i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (setlocale(LC_ALL, names[i]) != NULL) {
            assert_form(state, body, expected);
        }
    }
    setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT_TEST(blanks_member_order_and_escapes_make_no_difference),
        UNIT_TEST(members_are_sorted_by_the_code_points_of_the_unescaped_name),
        UNIT_TEST(what_has_an_effect_makes_a_difference),
        UNIT_TEST(any_writing_of_one_document_has_one_form),
        UNIT_TEST(any_change_of_an_octet_of_the_form_changes_it_or_is_refused),
        UNIT_TEST(large_objects_are_sorted_and_searched_for_duplicates),
        UNIT_TEST(repeated_and_modified_transfers_are_told_apart),
        UNIT_TEST(no_locale_changes_anything),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "unit.h"

#include <apr_strings.h>

#include "core/alias.h"

static apr_pool_t *pool;

static idem_alias_result_e add(idem_alias_book_t *book, const char *from, const char *to)
{
    idem_alias_t alias = {{"t", from}, {"t", to}};

    return idem_alias_book_add(book, &alias);
}

/* The members of an identity's tree, joined by spaces. */
static const char *members(const idem_alias_book_t *book, const char *principal)
{
    idem_identity_t identity = {"t", principal};
    idem_identity_t found[IDEM_ALIAS_MAX_MEMBERS];
    int count = idem_alias_book_members(book, &identity, found);
    const char *text = "";
    int i;

    for (i = 0; i < count; i++) {
        text = apr_pstrcat(pool, text, i ? " " : "", found[i].principal, NULL);
    }
    return text;
}

static void test_nobody(void **state)
{
    (void)state;
    assert_string_equal(members(idem_alias_book_create(pool), "a"), "");
}

static void test_chain(void **state)
{
    idem_alias_book_t *book = idem_alias_book_create(pool);

    (void)state;
    assert_int_equal(add(book, "b", "c"), IDEM_ALIAS_OK);
    assert_int_equal(add(book, "a", "b"), IDEM_ALIAS_OK);
    assert_int_equal(add(book, "c", "d"), IDEM_ALIAS_OK);
    assert_int_equal(add(book, "d", "e"), IDEM_ALIAS_OK);
    assert_string_equal(members(book, "a"), "e d c b a");
    assert_string_equal(members(book, "e"), "e d c b a");
    assert_string_equal(members(book, "f"), "");
    assert_int_equal(add(book, "e", "f"), IDEM_ALIAS_TOO_LONG);
    assert_int_equal(add(book, "z", "a"), IDEM_ALIAS_TOO_LONG);
    assert_int_equal(add(book, "z", "b"), IDEM_ALIAS_OK);
    assert_string_equal(members(book, "z"), "e d c b a z");
}

static void test_refusals(void **state)
{
    idem_alias_book_t *book = idem_alias_book_create(pool);

    (void)state;
    assert_int_equal(add(book, "a", "a"), IDEM_ALIAS_SELF);
    assert_int_equal(add(book, "a", "b"), IDEM_ALIAS_OK);
    assert_int_equal(add(book, "a", "c"), IDEM_ALIAS_TAKEN);
    assert_int_equal(add(book, "a", "b"), IDEM_ALIAS_TAKEN);
    assert_int_equal(add(book, "b", "a"), IDEM_ALIAS_CYCLE);
    assert_int_equal(add(book, "b", "c"), IDEM_ALIAS_OK);
    assert_int_equal(add(book, "c", "a"), IDEM_ALIAS_CYCLE);
    assert_string_equal(members(book, "c"), "c b a");
}

static void test_members(void **state)
{
    idem_alias_book_t *book = idem_alias_book_create(pool);
    int i;

    (void)state;
    for (i = 1; i < IDEM_ALIAS_MAX_MEMBERS; i++) {
        assert_int_equal(add(book, apr_itoa(pool, i), "root"), IDEM_ALIAS_OK);
    }
    assert_int_equal(add(book, "one more", "root"), IDEM_ALIAS_TOO_MANY);
    assert_int_equal(add(book, "one more", "3"), IDEM_ALIAS_TOO_MANY);
    assert_string_equal(members(book, "7"), "root 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15");
}

static void test_pairs(void **state)
{
    idem_alias_book_t *book = idem_alias_book_create(pool);
    idem_alias_t alias = {{"t\x1eu", "p"}, {"t", "u\x1ep"}};
    idem_identity_t near_miss = {"t", "u"};
    idem_identity_t found[IDEM_ALIAS_MAX_MEMBERS];

    (void)state;
    assert_int_equal(idem_alias_book_add(book, &alias), IDEM_ALIAS_OK);
    assert_int_equal(idem_alias_book_members(book, &alias.from, found), 2);
    assert_string_equal(found[0].tenant, "t");
    assert_string_equal(found[1].tenant, "t\x1eu");
    assert_int_equal(idem_alias_book_members(book, &near_miss, found), 0);
}

static int set_up(void **state)
{
    (void)state;
    apr_initialize();
    return apr_pool_create(&pool, NULL) != APR_SUCCESS;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody),   cmocka_unit_test(test_chain), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_members), cmocka_unit_test(test_pairs),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}

/* Does connecting end some time? What DBDParams say of it. */
#include "unit.h"

#include <stdlib.h>

#include "store/pgsql.h"

static void words_that_bound(void **state)
{
    (void)state;
    assert_true(idem_pgsql_connect_is_bounded("host=db connect_timeout=2"));
    assert_true(idem_pgsql_connect_is_bounded("connect_timeout = '10' host=db"));
    assert_true(idem_pgsql_connect_is_bounded("postgresql://web@db/registry?connect_timeout=3"));
    assert_true(idem_pgsql_connect_is_bounded("service=registry"));
}

static void words_that_do_not(void **state)
{
    (void)state;
    assert_false(idem_pgsql_connect_is_bounded(NULL));
    assert_false(idem_pgsql_connect_is_bounded(""));
    assert_false(idem_pgsql_connect_is_bounded("host=db user=connect_timeout"));
    assert_false(idem_pgsql_connect_is_bounded("host=db connect_timeout=0"));
    assert_false(idem_pgsql_connect_is_bounded("host=db application_name='connect_timeout=2'"));
    assert_false(idem_pgsql_connect_is_bounded("postgresql://web@db/registry"));
    assert_false(idem_pgsql_connect_is_bounded("host='never ended"));
}

static void libpqs_environment(void **state)
{
    (void)state;
    setenv("PGCONNECT_TIMEOUT", "5", 1);
    assert_true(idem_pgsql_connect_is_bounded("host=db"));
    unsetenv("PGCONNECT_TIMEOUT");
    setenv("PGSERVICE", "registry", 1);
    assert_true(idem_pgsql_connect_is_bounded(""));
    unsetenv("PGSERVICE");
    assert_false(idem_pgsql_connect_is_bounded("host=db"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_that_bound),
        cmocka_unit_test(words_that_do_not),
        cmocka_unit_test(libpqs_environment),
    };

    unsetenv("PGCONNECT_TIMEOUT");
    unsetenv("PGSERVICE");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

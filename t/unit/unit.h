/*
 * unit.h - what every unit test of the core includes: cmocka with the headers it wants, and one pool per test.
 */
#ifndef IDEM_TEST_UNIT_H
#define IDEM_TEST_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <apr_general.h>
#include <apr_pools.h>
#include <apr_strings.h>
#include <cmocka.h>

/* cmocka setup and teardown of one test: *state is a pool, gone with the test. */
static inline int unit_setup(void **state)
{
    apr_initialize();
    return apr_pool_create((apr_pool_t **)state, NULL) == APR_SUCCESS ? 0 : -1;
}

static inline int unit_teardown(void **state)
{
    apr_pool_destroy(*state);
    apr_terminate();
    return 0;
}

#define UNIT_TEST(f) cmocka_unit_test_setup_teardown(f, unit_setup, unit_teardown)

#endif

/*
 * Decimal numbers of any size, compared and written exactly: what a payload contract needs for minimum, maximum,
 * enum, const, `integer` and `format: decimal`.
 */
#ifndef IDEM_CORE_DECIMAL_H
#define IDEM_CORE_DECIMAL_H

#include <apr_errno.h>

#include "core/json.h"

/* Exponents beyond this, either way, are refused; so no sum of exponents can overflow. */
#define IDEM_DECIMAL_MAX_EXPONENT 1000000

/* The most octets of idem_decimal_write(), its sign and point included. */
#define IDEM_DECIMAL_ROOM (IDEM_JSON_MAX_NUMBER + 3)

/* (negative ? -1 : 1) * 0.DIGITS * 10^point; no zero at either end of the digits; zero has none and no sign. */
typedef struct {
    int negative;
    int count;
    long point;
    char digits[IDEM_JSON_MAX_NUMBER];
} idem_decimal_t;

/*
 * Reads [+-]digits[.digits][e[+-]digits]: JSON's numbers, and with a plus sign or leading zeros those that people put
 * in strings. APR_EINVAL: not such a text, longer than IDEM_JSON_MAX_NUMBER, or an exponent too large.
 */
apr_status_t idem_decimal_read(const char *text, apr_size_t len, idem_decimal_t *out);

/* Below, at or above 0 as a < b, a = b, a > b. */
int idem_decimal_compare(const idem_decimal_t *a, const idem_decimal_t *b);

/* Whether it has no fraction: 10, 10.0 and 1e1 have none. */
int idem_decimal_is_integer(const idem_decimal_t *d);

/*
 * The one plain form: no exponent, no plus sign, no zero that could be left out, 0 without sign. Not terminated.
 * Returns the length, 0 when more than IDEM_JSON_MAX_NUMBER digits would be needed (1e999).
 */
apr_size_t idem_decimal_write(const idem_decimal_t *d, char out[IDEM_DECIMAL_ROOM]);

#endif

#include "core/jcs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/decimal.h"
#include "core/json.h"

#define MAX_DIGITS 17 /* enough for any double */
#define SURE_DIGITS 15 /* a decimal of so many digits survives the way into a normal double and back */
#define SURE_POINT  300 /* as long as its first digit is no further from the point than this */
#define EXACT_INTEGER 9007199254740992.0 /* 2^53 */

/* 0.d1d2d3... times ten to the power of `point`: ECMAScript's k digits and its n. */
typedef struct {
    char digits[MAX_DIGITS + 2];
    int count;
    int point;
} decimal_t;

/*
 * The nearest decimal of `count` digits. printf writes a locale's own radix character, so only the digits and the
 * exponent are looked at.
 */
static void nearest(double value, int count, decimal_t *out)
{
    char text[64];
    const char *s = text;

    snprintf(text, sizeof(text), "%.*e", count - 1, value);
    out->count = 0;
    for (; *s != 'e'; s++) {
        if (*s >= '0' && *s <= '9') {
            out->digits[out->count++] = *s;
        }
    }
    out->point = atoi(s + 1) + 1;
}

/* The double that reads from the digits. Without a radix character strtod asks no locale. */
static double read_back(const decimal_t *in)
{
    char text[64];

    snprintf(text, sizeof(text), "%.*se%d", in->count, in->digits, in->point - in->count);
    return strtod(text, NULL);
}

/* The next decimal of as many digits, away from zero. */
static void step_up(decimal_t *d)
{
    int i = d->count - 1;

    while (i >= 0 && d->digits[i] == '9') {
        d->digits[i--] = '0';
    }
    if (i >= 0) {
        d->digits[i]++;
    }
    else {
        d->digits[0] = '1';
        d->point++;
    }
}

/*
 * Whether `count` digits will do. The nearest decimal does, if any, with one exception: below a power of two doubles
 * are twice as dense as above it, so the nearest decimal may be a little below and belong to the neighbour while the
 * next one up still reads back as the value.
 */
static int fits(double value, int count, decimal_t *out)
{
    int exponent;

    nearest(value, count, out);
    if (read_back(out) == value) {
        return 1;
    }
    if (frexp(value, &exponent) == 0.5) {
        step_up(out);
        return read_back(out) == value;
    }
    return 0;
}

static void shortest(double value, decimal_t *out)
{
    int count = SURE_DIGITS;

    if (!isnormal(value)) {
        count = 1; /* fewer digits tell denormal numbers apart, so 15 may be too many */
    }
    while (count < MAX_DIGITS && !fits(value, count, out)) {
        count++;
    }
    if (count == MAX_DIGITS) {
        nearest(value, count, out);
    }
    while (out->count > 1 && out->digits[out->count - 1] == '0') {
        out->count--;
    }
}

/* ECMAScript's Number::toString for a positive value. */
static apr_size_t lay_out(const decimal_t *d, char *out)
{
    int k = d->count;
    int n = d->point;

    if (k <= n && n <= 21) {
        return (apr_size_t)sprintf(out, "%.*s%.*s", k, d->digits, n - k, "000000000000000000000");
    }
    if (0 < n && n <= 21) {
        return (apr_size_t)sprintf(out, "%.*s.%.*s", n, d->digits, k - n, d->digits + n);
    }
    if (-6 < n && n <= 0) {
        return (apr_size_t)sprintf(out, "0.%.*s%.*s", -n, "000000", k, d->digits);
    }
    if (k == 1) {
        return (apr_size_t)sprintf(out, "%ce%+d", d->digits[0], n - 1);
    }
    return (apr_size_t)sprintf(out, "%c.%.*se%+d", d->digits[0], k - 1, d->digits + 1, n - 1);
}

apr_size_t idem_jcs_double(double value, char out[IDEM_JCS_NUMBER_ROOM])
{
    apr_size_t sign = 0;
    decimal_t d;

    if (value == 0) {
        memcpy(out, "0", 2); /* and so does -0 */
        return 1;
    }
    if (value < 0) {
        out[sign++] = '-';
        value = -value;
    }
    if (value < EXACT_INTEGER && value == floor(value)) {
        return sign + (apr_size_t)sprintf(out + sign, "%.0f", value);
    }
    shortest(value, &d);
    return sign + lay_out(&d, out + sign);
}

/*
 * The double nearest to a JSON number. The radix character, which strtod takes from the locale, is taken out and the
 * exponent made to say where it was.
 */
static double read_lexeme(const char *lexeme, apr_size_t len)
{
    char text[IDEM_JSON_MAX_NUMBER + 32];
    apr_size_t used = 0;
    apr_size_t i = 0;
    long fraction = 0;
    long exponent = 0;
    int negative = 0;

    for (; i < len && lexeme[i] != '.' && (lexeme[i] | 0x20) != 'e'; i++) {
        text[used++] = lexeme[i];
    }
    if (i < len && lexeme[i] == '.') {
        for (i++; i < len && (lexeme[i] | 0x20) != 'e'; i++) {
            text[used++] = lexeme[i];
            fraction++;
        }
    }
    if (i < len) {
        i++;
        negative = lexeme[i] == '-';
        i += lexeme[i] == '-' || lexeme[i] == '+';
        for (; i < len && exponent < 1000000; i++) {
            exponent = exponent * 10 + (lexeme[i] - '0');
        }
    }
    snprintf(text + used, sizeof(text) - used, "e%ld", (negative ? -exponent : exponent) - fraction);
    return strtod(text, NULL);
}

/*
 * A decimal of at most 15 digits in the range of normal doubles is the only one of so many digits that reads as its
 * double, so it is the shortest, and no double has to be looked at.
 */
static apr_size_t lay_out_short(const char *lexeme, apr_size_t len, char *out)
{
    idem_decimal_t exact;
    decimal_t d;
    apr_size_t sign;

    if (idem_decimal_read(lexeme, len, &exact) != APR_SUCCESS || exact.count > SURE_DIGITS ||
        exact.point < -SURE_POINT || exact.point > SURE_POINT) {
        return 0;
    }
    if (exact.count == 0) {
        memcpy(out, "0", 2);
        return 1;
    }
    sign = exact.negative != 0;
    out[0] = '-';
    d.count = exact.count;
    d.point = (int)exact.point;
    memcpy(d.digits, exact.digits, (apr_size_t)exact.count);
    return sign + lay_out(&d, out + sign);
}

apr_size_t idem_jcs_number(const char *lexeme, apr_size_t len, char out[IDEM_JCS_NUMBER_ROOM], apr_uint32_t *denormals)
{
    apr_size_t used;
    double value;

    if (len > IDEM_JSON_MAX_NUMBER) {
        return 0;
    }
    used = lay_out_short(lexeme, len, out);
    if (used != 0) {
        return used;
    }
    value = read_lexeme(lexeme, len);
    if (!isfinite(value)) {
        return 0;
    }
    *denormals += value != 0 && !isnormal(value);
    return idem_jcs_double(value, out);
}

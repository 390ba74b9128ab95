#include "core/decimal.h"

#include <string.h>

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits of an exponent up to the end of the text. -1: none, something else, or too large. */
static long read_exponent(const char *s, const char *end)
{
    long value = 0;

    if (s == end) {
        return -1;
    }
    for (; s < end; s++) {
        if (!is_digit(*s)) {
            return -1;
        }
        value = value * 10 + (*s - '0');
        if (value > IDEM_DECIMAL_MAX_EXPONENT) {
            return -1;
        }
    }
    return value;
}

static void add_digit(idem_decimal_t *d, char digit)
{
    if (d->count == 0 && digit == '0') {
        d->point--; /* a leading zero: the point moves, as seen from the first digit that counts */
        return;
    }
    d->digits[d->count++] = digit;
}

apr_status_t idem_decimal_read(const char *text, apr_size_t len, idem_decimal_t *out)
{
    const char *s = text;
    const char *end = text + len;

    if (len == 0 || len > IDEM_JSON_MAX_NUMBER) {
        return APR_EINVAL;
    }
    out->negative = *s == '-';
    out->count = 0;
    out->point = 0;
    s += *s == '-' || *s == '+';
    if (s == end || !is_digit(*s)) {
        return APR_EINVAL;
    }
    for (; s < end && is_digit(*s); s++) {
        add_digit(out, *s);
        out->point++;
    }
    if (s < end && *s == '.') {
        s++;
        if (s == end || !is_digit(*s)) {
            return APR_EINVAL;
        }
        for (; s < end && is_digit(*s); s++) {
            add_digit(out, *s);
        }
    }
    if (s < end) {
        int negative = s + 1 < end && s[1] == '-';
        long exponent;

        if (*s != 'e' && *s != 'E') {
            return APR_EINVAL;
        }
        s += 1 + (s + 1 < end && (s[1] == '-' || s[1] == '+'));
        exponent = read_exponent(s, end);
        if (exponent < 0) {
            return APR_EINVAL;
        }
        out->point += negative ? -exponent : exponent;
    }
    while (out->count != 0 && out->digits[out->count - 1] == '0') {
        out->count--;
    }
    if (out->count == 0) {
        out->negative = 0;
        out->point = 0;
    }
    return APR_SUCCESS;
}

/* Of what stands behind the sign. Neither is zero. */
static int compare_size(const idem_decimal_t *a, const idem_decimal_t *b)
{
    int order;

    if (a->point != b->point) {
        return a->point < b->point ? -1 : 1;
    }
    order = memcmp(a->digits, b->digits, (apr_size_t)(a->count < b->count ? a->count : b->count));
    return order != 0 ? order : a->count - b->count;
}

int idem_decimal_compare(const idem_decimal_t *a, const idem_decimal_t *b)
{
    if (a->negative != b->negative) {
        return a->negative ? -1 : 1;
    }
    if (a->count == 0 || b->count == 0) {
        int nearer_zero = (a->count != 0) - (b->count != 0);

        return a->negative ? -nearer_zero : nearer_zero;
    }
    return a->negative ? compare_size(b, a) : compare_size(a, b);
}

int idem_decimal_is_integer(const idem_decimal_t *d)
{
    return d->point >= d->count;
}

apr_size_t idem_decimal_write(const idem_decimal_t *d, char out[IDEM_DECIMAL_ROOM])
{
    long whole = d->point > 0 ? d->point : 0;      /* digits before the point */
    long gap = d->point < 0 ? -d->point : 0;       /* zeros between point and digits */
    long fraction = d->count > whole ? d->count - whole : 0; /* digits behind the point */
    char *to = out;
    long i;

    if (whole + gap + fraction > IDEM_JSON_MAX_NUMBER) {
        return 0;
    }
    if (d->negative) {
        *to++ = '-';
    }
    if (whole == 0) {
        *to++ = '0';
    }
    for (i = 0; i < whole; i++) {
        *to++ = i < d->count ? d->digits[i] : '0';
    }
    if (fraction != 0) {
        *to++ = '.';
        memset(to, '0', (apr_size_t)gap);
        to += gap;
        memcpy(to, d->digits + whole, (apr_size_t)fraction);
        to += fraction;
    }
    return (apr_size_t)(to - out);
}

#include "core/octets.h"

#include <string.h>

unsigned char *idem_put(unsigned char *at, const void *octets, apr_size_t len)
{
    if (len) {
        memcpy(at, octets, len);
    }
    return at + len;
}

unsigned char *idem_put_number(unsigned char *at, apr_uint32_t number)
{
    int shift;

    for (shift = 24; shift >= 0; shift -= 8) {
        *at++ = (unsigned char)(number >> shift);
    }
    return at;
}

unsigned char *idem_put_time(unsigned char *at, apr_int64_t time)
{
    at = idem_put_number(at, (apr_uint32_t)((apr_uint64_t)time >> 32));
    return idem_put_number(at, (apr_uint32_t)time);
}

const unsigned char *idem_get(idem_rest_t *rest, apr_size_t len)
{
    const unsigned char *at = rest->at;

    if (rest->short_of || len > rest->left) {
        rest->short_of = 1;
        return NULL;
    }
    rest->at += len;
    rest->left -= len;
    return at;
}

apr_uint32_t idem_get_number(idem_rest_t *rest)
{
    const unsigned char *at = idem_get(rest, IDEM_NUMBER_LEN);

    return at ? (apr_uint32_t)at[0] << 24 | (apr_uint32_t)at[1] << 16 | (apr_uint32_t)at[2] << 8 | at[3] : 0;
}

apr_int64_t idem_get_time(idem_rest_t *rest)
{
    apr_uint64_t high = idem_get_number(rest);

    return (apr_int64_t)(high << 32 | idem_get_number(rest));
}

void idem_get_fixed(idem_rest_t *rest, unsigned char *to, apr_size_t len)
{
    const unsigned char *at = idem_get(rest, len);

    if (at) {
        memcpy(to, at, len);
    }
}

#include "core/utf8.h"

#include <string.h>

#define HIGH_BITS APR_UINT64_C(0x8080808080808080)

/*
 * How many octets a sequence that begins with lead has, 0 where none begins so, and the range its second octet must
 * be in: that range alone keeps out overlong forms, surrogates and what is over U+10FFFF.
 */
static apr_size_t sequence(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (lead < 0x80) {
        return 1;
    }
    if (lead >= 0xc2 && lead <= 0xdf) {
        return 2;
    }
    if (lead >= 0xe0 && lead <= 0xef) {
        *low = lead == 0xe0 ? 0xa0 : 0x80;
        *high = lead == 0xed ? 0x9f : 0xbf;
        return 3;
    }
    if (lead >= 0xf0 && lead <= 0xf4) {
        *low = lead == 0xf0 ? 0x90 : 0x80;
        *high = lead == 0xf4 ? 0x8f : 0xbf;
        return 4;
    }
    return 0;
}

apr_size_t idem_utf8_span(const char *s, apr_size_t len)
{
    const unsigned char *u = (const unsigned char *)s;
    unsigned char low, high;
    apr_size_t at = 0, n, i;

    for (;;) {
        apr_uint64_t word;

        /* Most text is ASCII: eight octets at a time. */
        while (len - at >= sizeof(word)) {
            memcpy(&word, u + at, sizeof(word));
            if ((word & HIGH_BITS) != 0) {
                break;
            }
            at += sizeof(word);
        }
        if (at == len) {
            return at;
        }
        n = sequence(u[at], &low, &high);
        if (n == 0 || n > len - at || (n > 1 && (u[at + 1] < low || u[at + 1] > high))) {
            return at;
        }
        for (i = 2; i < n; i++) {
            if ((u[at + i] & 0xc0) != 0x80) {
                return at;
            }
        }
        at += n;
    }
}

int idem_utf8_valid(const char *s, apr_size_t len)
{
    return idem_utf8_span(s, len) == len;
}

apr_size_t idem_utf8_count(const char *s, apr_size_t len)
{
    apr_size_t count = 0, i;

    for (i = 0; i < len; i++) {
        count += ((unsigned char)s[i] & 0xc0) != 0x80;
    }
    return count;
}

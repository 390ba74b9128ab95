/*
 * What RFC 8785 asks for beyond canon.h: numbers as ECMAScript prints the double they stand for, and the order of
 * names by UTF-16 code units. No locale changes any of it.
 *
 * Mind what RFC 8785 means for a fingerprint: numbers that share a double are one value (9007199254740992 and
 * 9007199254740993, 10 and 1e1, 0 and -0). Payload `json` keeps them apart.
 */
#ifndef IDEM_CORE_JCS_H
#define IDEM_CORE_JCS_H

#include <apr.h>

/* Room for any number, its terminating NUL included: "-1.2345678901234567e+100" and "-0.0000012345678901234567". */
#define IDEM_JCS_NUMBER_ROOM 32

/* So many denormal numbers (below 2.3e-308) a text may have [too-many-values]. */
#define IDEM_JCS_MAX_DENORMALS 10000

/* The shortest text that reads back as the finite `value`, NUL-terminated. Returns its length. */
apr_size_t idem_jcs_double(double value, char out[IDEM_JCS_NUMBER_ROOM]);

/*
 * The same for a JSON number's lexeme of at most IDEM_JSON_MAX_NUMBER octets. Returns 0 when it is too large for any
 * double (RFC 8785 knows no infinity); one too small becomes 0. Adds 1 to *denormals for a number so small that its
 * shortest text takes long to find (20 microseconds): who reads many should not take more than a few.
 */
apr_size_t idem_jcs_number(const char *lexeme, apr_size_t len, char out[IDEM_JCS_NUMBER_ROOM],
                           apr_uint32_t *denormals);

/*
 * An octet of UTF-8 so mapped that strings of mapped octets sort as their UTF-16 code units do: there, U+E000 to
 * U+FFFF (which begin with EE and EF) come behind the characters above them (F0 to F4), which are written in
 * surrogates.
 */
static inline unsigned char idem_jcs_rank(unsigned char octet)
{
    return octet == 0xEE || octet == 0xEF ? (unsigned char)(octet + 0x0A) : octet;
}

#endif

/*
 * utf8.h - strict UTF-8 (RFC 3629): APR has no such check.
 */
#ifndef IDEM_UTF8_H
#define IDEM_UTF8_H

#include <apr.h>

/*
 * Are the len octets at s well-formed UTF-8? No overlong forms, no surrogates (U+D800 to U+DFFF), nothing over
 * U+10FFFF, nothing cut off. NUL is an ordinary character here. Empty is well-formed. 1 or 0.
 */
int idem_utf8_valid(const char *s, apr_size_t len);

#endif

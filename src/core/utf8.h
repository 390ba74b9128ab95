/*
 * utf8.h - strict UTF-8 (RFC 3629): APR has no such check.
 *
 * Well-formed means: no overlong forms, no surrogates (U+D800 to U+DFFF), nothing over U+10FFFF, nothing cut off. NUL
 * is an ordinary character here.
 */
#ifndef IDEM_UTF8_H
#define IDEM_UTF8_H

#include <apr.h>

/* Are the len octets at s well-formed UTF-8? Empty is. 1 or 0. */
int idem_utf8_valid(const char *s, apr_size_t len);

/* How many octets from the start are: len when all are, else where the first bad sequence begins. */
apr_size_t idem_utf8_span(const char *s, apr_size_t len);

/* The number of characters (code points) in octets that are known to be well-formed. */
apr_size_t idem_utf8_count(const char *s, apr_size_t len);

#endif

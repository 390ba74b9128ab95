/*
 * pattern.h - regular expressions that a client's octets are matched against: PCRE2 with limits, so that no input can
 * make a match run away (ap_regex has no limit to set).
 */
#ifndef IDEM_PATTERN_H
#define IDEM_PATTERN_H

#include <apr_pools.h>

typedef struct idem_pattern_t idem_pattern_t;

/* Compiles into p. NULL with *error (in p: PCRE2's words and the place) where the pattern is broken. */
const idem_pattern_t *idem_pattern_compile(apr_pool_t *p, const char *pattern, const char **error);

/* 1 where the pattern is found in the subject, 0 where it is not or the match ran into a limit. Thread-safe. */
int idem_pattern_matches(const idem_pattern_t *pattern, const char *subject, apr_size_t len);

#endif

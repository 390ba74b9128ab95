/*
 * media.h - Content-Type values in one form. CONTRACT section 3, RFC 9110 section 8.3.1.
 */
#ifndef IDEM_MEDIA_H
#define IDEM_MEDIA_H

#include <apr_pools.h>

/*
 * Type and subtype in lower case, then the parameters sorted by their lower-case name, each as ;name="value" with the
 * value as it was (quoted or not), without `boundary`. "" for an empty value; NULL where the value cannot be parsed.
 */
const char *idem_media_normalise(apr_pool_t *p, const char *value);

/* The value of one parameter, unquoted; NULL where there is none or the value cannot be parsed. */
const char *idem_media_parameter(apr_pool_t *p, const char *value, const char *name);

/* 1 where the type is that one; `type` in lower case, or "multipart/" for all of them. */
int idem_media_is(apr_pool_t *p, const char *value, const char *type);

/* 1 for application/json and for any type with the suffix +json. */
int idem_media_is_json(apr_pool_t *p, const char *value);

#endif

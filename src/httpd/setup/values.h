/*
 * values.h - reading the words of directives: durations, sizes, statuses, sources. No state, nothing but their checks.
 */
#ifndef IDEM_HTTPD_VALUES_H
#define IDEM_HTTPD_VALUES_H

#include "httpd/setup/config.h"

/* A whole number with ms, s, m, h or d behind it (none is s), 0 to 100 years. 1 if it is one. */
int idem_values_duration(const char *text, apr_interval_time_t *value);
/* A whole number with K, M or G behind it or nothing, 0 to 1 GiB. */
int idem_values_size(const char *text, apr_off_t *value);
int idem_values_number(const char *text, int low, int high, int *value);
/* A status 200 to 599, or a class such as 5xx. */
int idem_values_status(const char *text, int *first, int *last);
/* A token of RFC 9110. */
int idem_values_is_token(const char *text);
/* A field name that the module writes itself (CONTRACT section 5): no key header may have it. */
int idem_values_is_backend_header(const char *name);
/* A request field that holds a credential, or that httpd itself lives by: no key may be read from it. */
int idem_values_is_credential(const char *name);
/* Method names joined by commas, NULL where one is no token or a safe method. */
const apr_array_header_t *idem_values_methods(apr_pool_t *p, const char *text);
/* One source of IdempotencyTenant or IdempotencyPrincipal; NULL or what is wrong with it. */
const char *idem_values_source(apr_pool_t *p, const char *text, idem_source_t *source);
/* What is wrong with a route's name or revision, or NULL. */
const char *idem_values_route_fault(apr_pool_t *p, const char *name, const char *revision);

/* The revisions of accepts=, joined by commas: at most five, none of them twice or the route's own. NULL or what is
 * wrong. */
const char *idem_values_accepts(apr_pool_t *p, const char *text, const char *revision, const apr_array_header_t **list);

#endif

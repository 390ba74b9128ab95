/*
 * quota.h - how many operations a principal has, near enough. CONTRACT section 8 "Quotas".
 *
 * No request counts anything in the store. A child knows what it has begun itself, and its thread counts in the store,
 * every idem_quota interval, for those principals that came by here. What other children begin in between is not seen:
 * a quota may be overrun by what they take in within one interval, and by the requests that ask at the same moment.
 */
#ifndef IDEM_HTTPD_QUOTA_H
#define IDEM_HTTPD_QUOTA_H

#include "httpd/request/context.h"

#define IDEM_QUOTA_INTERVAL apr_time_from_sec(2)

typedef struct idem_quotas_t idem_quotas_t;

/* wake: called when a principal is new, so that its count does not wait for the next interval. */
idem_quotas_t *idem_quotas_create(apr_pool_t *pchild, void (*wake)(void *baton), void *baton);

/* By the child's thread: counts what is due, each statement within the store's timeout. Returns when to come again. */
apr_time_t idem_quotas_count(idem_quotas_t *quotas, idem_store_t *store, const char *version, apr_pool_t *p);

/* 1 where the caller may begin one more operation by the quotas of this route, as far as this child knows. */
int idem_quota_allows(request_rec *r, const idem_ctx_t *ctx);

/* An operation has begun, and has ended, here. Of no effect where the route has no quota. */
void idem_quota_begin(idem_ctx_t *ctx);
void idem_quota_end(idem_ctx_t *ctx);

/* IdempotencyQuota live=N inflight=N, or None. */
const char *idem_quota_set(cmd_parms *cmd, void *conf, int argc, char *const argv[]);

#endif

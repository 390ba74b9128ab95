/*
 * cached.h - final answers out of the replay cache, where the registry would be asked. CONTRACT section 11.
 *
 * An entry is used for a request that the registry would give the same replay: of the same registry, found under the
 * whole tuple of its scope, of the same fingerprint by the recipe of its record, and for at most 30 s after the
 * registry was last asked about it, or until it expires. Everything else, a failure of the cache too, is a miss, and
 * then the registry decides.
 */
#ifndef IDEM_HTTPD_CACHED_H
#define IDEM_HTTPD_CACHED_H

#include "httpd/request/context.h"

/* The record that answers this request, whose scopes, fingerprint and recipe are in wanted; NULL for a miss. */
const idem_record_t *idem_cached_find(request_rec *r, idem_ctx_t *ctx, const idem_reserve_t *wanted);

/* Keeps a record that the registry has just given in answer to wanted, asked not before ctx->reserved_at. */
void idem_cached_keep(request_rec *r, idem_ctx_t *ctx, const idem_reserve_t *wanted, const idem_record_t *found);

/* Keeps what a settlement of this request's own, confirmed by the registry, has made final. */
void idem_cached_keep_settled(request_rec *r, idem_ctx_t *ctx, const idem_settle_t *settle);

#endif

/*
 * lookup.h - under which scopes a request's record may lie. CONTRACT section 8: identities that changed, and revisions
 * that a route still accepts, and the scope version before the present one.
 *
 * Usually one scope. Else a list, the newest first: all are looked at, the newest alone is written. The record that is
 * of this very request decides, wherever it lies; where none is, that of the newest scope.
 */
#ifndef IDEM_HTTPD_LOOKUP_H
#define IDEM_HTTPD_LOOKUP_H

#include "httpd/request/context.h"

/* Fills in scope, older scopes and alias version of a reserve, from the request's identity and its route. */
void idem_lookup_scopes(idem_ctx_t *ctx, idem_reserve_t *wanted);

/* 1 where this request may begin something, after idem_lookup_scopes. */
int idem_lookup_may_write(const idem_ctx_t *ctx);

/*
 * Reads the aliases anew, once in a request. 1 where that gives the reserve other scopes than it had: then they are filled in, and the
 * store is to be asked once more.
 */
int idem_lookup_refresh(request_rec *r, idem_ctx_t *ctx, idem_reserve_t *wanted);

/*
 * The record that decides among those that a reserve has found, and whether it is of the same request: 1, 0, or -1
 * where nobody can say, because it was made in a way that is not known any more.
 */
const idem_record_t *idem_lookup_decisive(idem_ctx_t *ctx, const idem_reserve_t *wanted, int *same);

/*
 * A record of the caller's own, as who it is or as who it was, by its operation id. OK, NOT_FOUND (no such record, or
 * somebody else's), UNAVAILABLE, AMBIGUOUS (no answer)
 */
idem_store_result_e idem_lookup_operation(idem_ctx_t *ctx, const unsigned char *operation, idem_record_t **record);

#endif

/*
 * aliases.h - the registry's aliases in a child's memory. CONTRACT section 8 "Aliases".
 *
 * A stale copy does no harm: a reserve says the version that its scopes were made with, and the registry refuses
 * another one. So the child's thread reads the aliases now and then, and a request only where it was refused.
 */
#ifndef IDEM_HTTPD_ALIASES_H
#define IDEM_HTTPD_ALIASES_H

#include <apr_pools.h>

#include "store/store.h"

typedef struct idem_aliases_t idem_aliases_t;

/* NULL where there is no lock to be had. */
idem_aliases_t *idem_aliases_create(apr_pool_t *pchild);

/*
 * The identities that `identity` has become or been, the newest first, copied into p; 0 where it is by itself.
 * version: of the aliases that say so. writes: the scope version that the registry is written in, in p.
 */
int idem_aliases_members(idem_aliases_t *aliases, const idem_identity_t *identity,
                         idem_identity_t members[IDEM_ALIAS_MAX_MEMBERS], int *version, const char **writes,
                         apr_pool_t *p);

/* That scope version by itself. */
const char *idem_aliases_writes(idem_aliases_t *aliases, apr_pool_t *p);

/* Reads them from the store, within its timeout. By any thread. The result of the store's call. */
idem_store_result_e idem_aliases_read(idem_aliases_t *aliases, idem_store_t *store, apr_pool_t *p);

/*
 * By the child's thread, after a read: ends aliases whose date has passed, where nothing is remembered behind them, in the
 * registry and so for everybody. How many have ended.
 */
int idem_aliases_end(idem_aliases_t *aliases, idem_store_t *store, apr_pool_t *p);

#endif

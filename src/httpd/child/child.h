/*
 * child.h - what one httpd child keeps for a store: its connections, its name as an owner, and a thread of its own.
 *
 * The thread opens and repairs connections, sends the heartbeat of the child's row in idempotency_owners, and settles
 * what request threads must not (withdrawn reserves, requests that ended without a response). It is not mod_watchdog's:
 * that one ends at a graceful restart while requests still run. Ours ends when the child's pool is destroyed, after
 * the last of them.
 */
#ifndef IDEM_HTTPD_CHILD_H
#define IDEM_HTTPD_CHILD_H

#include <httpd.h>

#include "httpd/setup/config.h"
#include "httpd/child/aliases.h"
#include "httpd/child/quota.h"
#include "store/store.h"

/* Hook child_init: one of these for every server whose DBD settings hold a registry. */
void idem_child_init(apr_pool_t *pchild, server_rec *main_server);

/* The store as request threads use it. Never NULL. */
idem_store_t *idem_child_store(idem_child_store_t *child);

/* The aliases, as this child knows them. */
idem_aliases_t *idem_child_aliases(idem_child_store_t *child);

/* What this child knows of its callers' quotas. */
idem_quotas_t *idem_child_quotas(idem_child_store_t *child);

/* 1 for the first call in this child: there it is worth a warning that a request went unprotected. */
int idem_child_first_bypass(idem_child_store_t *child);

/* The queue of Shadow mode; NULL for no child, or where there was no lock to be had. */
struct idem_shadow_queue_t *idem_child_shadow(idem_child_store_t *child);

/* Lets the thread look for work now. */
void idem_child_wake(idem_child_store_t *child);

/* Counts operations that this child has reserved and not settled: +1, -1. */
void idem_child_running(idem_child_store_t *child, int change);

/* Queues the withdrawal of a reserve or takeover that got no answer: its row may come to be at any later time.
 * A full queue is an error line; the row then lapses with this child. */
void idem_child_withdraw(idem_child_store_t *child, const char *tenant, const unsigned char *operation,
                         const unsigned char *owner_token, int generation);

/* Queues a settlement without a response: UNKNOWN, REJECTED or RELEASED; backend_first as in idem_settlement_t. Never
 * blocks on the store. A full queue is an error line; the row then lapses with this child. */
void idem_child_settle_later(idem_child_store_t *child, const char *tenant, const unsigned char *operation,
                             int generation, idem_outcome_e outcome, int backend_first);

#endif

/*
 * journaling.h - the journal as a child of httpd uses it: request threads write, the child's thread applies.
 * CONTRACT section 9.
 */
#ifndef IDEM_HTTPD_JOURNALING_H
#define IDEM_HTTPD_JOURNALING_H

#include <httpd.h>

#include "httpd/setup/config.h"
#include "store/settlement.h"

typedef struct idem_journaling_t idem_journaling_t;

/* Hook check_config: what is wrong with the folder of IdempotencyJournal, a sentence, or NULL. */
const char *idem_journaling_fault(const char *dir, apr_pool_t *p);

/* In child_init: an array of idem_journaling_t *, one for each folder that servers of this registry name; each of these
 * servers' configurations gets its own. */
apr_array_header_t *idem_journaling_open(apr_pool_t *pchild, server_rec *main_server, const server_rec *registry);

/*
 * On a request's thread: one durable file. 1, or 0 after an error line (no disk, no right): then the settlement is
 * lost, and the operation ends as UNKNOWN.
 */
int idem_journaling_write(idem_journaling_t *journaling, const idem_store_t *store, const idem_settlement_t *settlement,
                          request_rec *r);

/*
 * By the child's thread, while the store can be reached: applies what is due, in a round that is short beside a lease.
 * Returns when it wants to be called again.
 */
apr_time_t idem_journaling_work(idem_journaling_t *journaling, idem_store_t *store, apr_pool_t *p);

#endif

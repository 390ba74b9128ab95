/*
 * announce.h - a server tells the registry what its routes are made of, and hears whether that has changed.
 *
 * Another source of tenant or principal is another scope for every caller: retries of operations that are still
 * remembered would run a second time. Nobody can forbid that, but it must not happen unseen.
 */
#ifndef IDEM_HTTPD_ANNOUNCE_H
#define IDEM_HTTPD_ANNOUNCE_H

#include "httpd/setup/sections.h"
#include "store/store.h"

/* One named route and revision, and the words of its sources; of several sections, joined by " | ". */
typedef struct idem_announced_t {
    const char *route;
    const char *revision;
    const char *former;  /* the same of the scope version before; NULL: there is none */
    const char *sources;
    int unprotected;     /* IdempotencyMode Off or Shadow in one of them: said with the sources */
} idem_announced_t;

/* Of all sections of a server, in pconf; of idem_announced_t. Automatic names and captures are left out: no one name
 * stands for them. */
apr_array_header_t *idem_announce_collect(apr_pool_t *pconf, const apr_array_header_t *sections);

/* 1 where there is a route of mode Off or Shadow: no request of it would ever open a connection to tell by. */
int idem_announce_needed(const apr_array_header_t *routes);

/* By a child's thread, once: a warning for each route whose sources have changed or that is not protected any more, with
 * the number of live records. */
void idem_announce(idem_store_t *store, const apr_array_header_t *routes, server_rec *s, apr_pool_t *p);

#endif

/*
 * pools.h - a child's pool for more than one thread.
 */
#ifndef IDEM_HTTPD_POOLS_H
#define IDEM_HTTPD_POOLS_H

#include <apr_pools.h>

/*
 * Called in child_init, before the child has a second thread: gives the child's pool the lock that pools below it need
 * when two threads make and destroy them. The event MPM's has one. Prefork, which has one thread only, leaves it out,
 * and every request's pool there has its memory from the same place as those of our thread and of mod_dbd.
 */
apr_status_t idem_pools_share(apr_pool_t *pchild);

#endif

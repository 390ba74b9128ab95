#include "httpd/child/pools.h"

#include <apr_allocator.h>
#include <apr_thread_mutex.h>

apr_status_t idem_pools_share(apr_pool_t *pchild)
{
    apr_allocator_t *allocator = apr_pool_allocator_get(pchild);
    apr_thread_mutex_t *lock;
    apr_status_t rv;

    if (apr_allocator_mutex_get(allocator)) {
        return APR_SUCCESS;
    }
    /*
     * Nested: prefork destroys the pool in its signal handler, maybe in the middle of an allocation of the same thread.
     * Of the parent's memory: the pool's own cleanups still need it.
     */
    rv = apr_thread_mutex_create(&lock, APR_THREAD_MUTEX_NESTED, apr_pool_parent_get(pchild));
    if (rv == APR_SUCCESS) {
        apr_allocator_mutex_set(allocator, lock);
    }
    return rv;
}

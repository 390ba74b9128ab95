#include "httpd/child/aliases.h"

#include <apr_strings.h>
#include <apr_thread_mutex.h>

/* Where something is still remembered behind those whose date has passed, the next attempt can wait. */
#define LOOK_AGAIN apr_time_from_sec(60)

struct idem_aliases_t {
    apr_thread_mutex_t *lock; /* held for a look-up in memory, never while the store is asked */
    apr_pool_t *parent;
    apr_pool_t *pool;         /* of the book */
    idem_alias_book_t *book;
    int version;              /* 0, as in a registry that never had an alias */
    const char *writes;       /* changes only together with version; in the pool of the book */
    int due;                  /* the date of an alias has passed */
    apr_time_t look_again;    /* of the child's thread alone */
};

idem_aliases_t *idem_aliases_create(apr_pool_t *pchild)
{
    idem_aliases_t *aliases = apr_pcalloc(pchild, sizeof(*aliases));

    if (apr_pool_create(&aliases->parent, pchild) != APR_SUCCESS ||
        apr_pool_create(&aliases->pool, aliases->parent) != APR_SUCCESS ||
        apr_thread_mutex_create(&aliases->lock, APR_THREAD_MUTEX_DEFAULT, aliases->parent) != APR_SUCCESS) {
        return NULL;
    }
    aliases->book = idem_alias_book_create(aliases->pool);
    aliases->writes = IDEM_SCOPE_VERSION;
    return aliases;
}

int idem_aliases_members(idem_aliases_t *aliases, const idem_identity_t *identity,
                         idem_identity_t members[IDEM_ALIAS_MAX_MEMBERS], int *version, const char **writes,
                         apr_pool_t *p)
{
    int count;
    int i;

    apr_thread_mutex_lock(aliases->lock);
    *version = aliases->version;
    *writes = apr_pstrdup(p, aliases->writes);
    count = idem_alias_book_members(aliases->book, identity, members);
    for (i = 0; i < count; i++) {
        members[i].tenant = apr_pstrdup(p, members[i].tenant);
        members[i].principal = apr_pstrdup(p, members[i].principal);
    }
    apr_thread_mutex_unlock(aliases->lock);
    return count;
}

const char *idem_aliases_writes(idem_aliases_t *aliases, apr_pool_t *p)
{
    const char *writes;

    apr_thread_mutex_lock(aliases->lock);
    writes = apr_pstrdup(p, aliases->writes);
    apr_thread_mutex_unlock(aliases->lock);
    return writes;
}

/* The newer of two books stays: several threads may have read at the same time. */
static void install(idem_aliases_t *aliases, apr_pool_t *pool, idem_alias_book_t *book, int version, const char *writes,
                    int due)
{
    apr_pool_t *old = pool;

    apr_thread_mutex_lock(aliases->lock);
    aliases->due = due;
    if (version > aliases->version) {
        old = aliases->pool;
        aliases->pool = pool;
        aliases->book = book;
        aliases->version = version;
        aliases->writes = apr_pstrdup(pool, writes);
    }
    apr_pool_destroy(old);
    apr_thread_mutex_unlock(aliases->lock);
}

idem_store_result_e idem_aliases_read(idem_aliases_t *aliases, idem_store_t *store, apr_pool_t *p)
{
    idem_alias_book_t *book;
    idem_store_result_e result;
    apr_pool_t *pool;
    apr_status_t rv;
    const char *writes = NULL;
    int version;
    int due = 0;

    /* pools of one parent are made and destroyed under the lock */
    apr_thread_mutex_lock(aliases->lock);
    rv = apr_pool_create(&pool, aliases->parent);
    version = aliases->version;
    apr_thread_mutex_unlock(aliases->lock);
    if (rv != APR_SUCCESS) {
        return IDEM_STORE_UNAVAILABLE;
    }
    book = idem_alias_book_create(pool);
    result = store->provider->aliases(store, book, &version, &writes, &due, apr_time_now() + store->timeout, p);
    install(aliases, pool, book, result == IDEM_STORE_OK && writes ? version : -1, writes, due);
    return result;
}

int idem_aliases_end(idem_aliases_t *aliases, idem_store_t *store, apr_pool_t *p)
{
    int ended = 0;
    int due;

    apr_thread_mutex_lock(aliases->lock);
    due = aliases->due;
    apr_thread_mutex_unlock(aliases->lock);
    if (!due || apr_time_now() < aliases->look_again) {
        return 0;
    }
    if (store->provider->end_aliases(store, &ended, apr_time_now() + store->timeout, p) == IDEM_STORE_OK && ended) {
        idem_aliases_read(aliases, store, p);
        return ended;
    }
    aliases->look_again = apr_time_now() + LOOK_AGAIN;
    return 0;
}

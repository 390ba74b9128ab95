#include "httpd/request/pile.h"

#include <string.h>

#include "core/large.h"

#define SMALLEST 512

void idem_pile_begin(idem_pile_t *pile, apr_pool_t *p)
{
    memset(pile, 0, sizeof(*pile));
    pile->pool = p;
}

static apr_status_t grow(idem_pile_t *pile, apr_size_t wanted)
{
    apr_size_t size = pile->size ? pile->size : SMALLEST;
    char *octets;

    while (size < wanted) {
        if (size > APR_SIZE_MAX / 2) {
            return APR_ENOMEM;
        }
        size *= 2;
    }
    octets = idem_large_alloc(pile->pool, size);
    if (!octets) {
        return APR_ENOMEM;
    }
    if (pile->len) {
        memcpy(octets, pile->octets, pile->len);
    }
    idem_large_free(pile->pool, pile->octets, pile->size);
    pile->octets = octets;
    pile->size = size;
    return APR_SUCCESS;
}

apr_status_t idem_pile_add(idem_pile_t *pile, const char *octets, apr_size_t len)
{
    if (len > pile->size - pile->len) {
        apr_status_t rv = len > APR_SIZE_MAX - pile->len ? APR_ENOMEM : grow(pile, pile->len + len);

        if (rv != APR_SUCCESS) {
            return rv;
        }
    }
    if (len) {
        memcpy(pile->octets + pile->len, octets, len);
        pile->len += len;
    }
    return APR_SUCCESS;
}

void idem_pile_drop(idem_pile_t *pile)
{
    idem_large_free(pile->pool, pile->octets, pile->size);
    idem_pile_begin(pile, pile->pool);
}

apr_bucket *idem_pile_bucket(idem_pile_t *pile, apr_bucket_alloc_t *list)
{
    apr_bucket *bucket = NULL;

    if (pile->len) {
        bucket = idem_large_detach(pile->pool, pile->octets, pile->size)
                     ? apr_bucket_heap_create(pile->octets, pile->len, idem_large_release, list)
                     : apr_bucket_immortal_create(pile->octets, pile->len, list);
    }
    idem_pile_begin(pile, pile->pool);
    return bucket;
}

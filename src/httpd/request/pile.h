/*
 * pile.h - octets that come in pieces and are held in one: a response until it is settled, a body while it is small.
 *
 * It grows by doubling, in memory that goes back to the system once it is large (core/large).
 */
#ifndef IDEM_HTTPD_PILE_H
#define IDEM_HTTPD_PILE_H

#include <apr_buckets.h>
#include <apr_pools.h>

typedef struct idem_pile_t {
    apr_pool_t *pool;
    char *octets;
    apr_size_t len;
    apr_size_t size;
} idem_pile_t;

/* An empty one, which takes its memory from p. */
void idem_pile_begin(idem_pile_t *pile, apr_pool_t *p);

/* Adds a piece. APR_SUCCESS, or APR_ENOMEM: then the pile is as it was. */
apr_status_t idem_pile_add(idem_pile_t *pile, const char *octets, apr_size_t len);

/* Empties it and gives its memory back. Nobody may have its octets any more. */
void idem_pile_drop(idem_pile_t *pile);

/*
 * All of it as one bucket, NULL where there is nothing. The pile is empty afterwards; its memory goes back with the
 * bucket, or where it is small with the pool.
 */
apr_bucket *idem_pile_bucket(idem_pile_t *pile, apr_bucket_alloc_t *list);

#endif

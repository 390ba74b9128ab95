/*
 * large.h - memory for large octets, which goes back to the system.
 *
 * A pool keeps what was freed in it for its next user, and each thread of httpd has one: twenty bodies of 1 MiB stay
 * resident for ever after. What is large is therefore mapped by itself and unmapped when its pool ends, or earlier.
 */
#ifndef IDEM_CORE_LARGE_H
#define IDEM_CORE_LARGE_H

#include <apr_pools.h>

/* From this length on memory is mapped; below it is the pool's own, as a mapping costs more than it saves there. */
#define IDEM_LARGE_MIN 65536

/*
 * len octets that live as long as p. Their content is not set. NULL where there is no memory, which only happens to a
 * large one: below IDEM_LARGE_MIN a pool ends the process, as it does everywhere.
 */
void *idem_large_alloc(apr_pool_t *p, apr_size_t len);

/* Gives back what idem_large_alloc(p, len) returned before p ends; small ones stay with their pool. */
void idem_large_free(apr_pool_t *p, void *octets, apr_size_t len);

/*
 * Takes what idem_large_alloc(p, len) returned away from its pool: the caller gives it back by idem_large_release, from
 * whatever thread. 1, or 0 where it is small and stays with its pool.
 */
int idem_large_detach(apr_pool_t *p, void *octets, apr_size_t len);

/* Gives back what was detached. */
void idem_large_release(void *octets);

#endif

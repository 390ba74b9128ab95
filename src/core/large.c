#include "core/large.h"

#include <sys/mman.h>

/* What stands before the octets of a mapping, as whoever gives it back may not know its length. */
typedef union head_t {
    apr_size_t mapped;
    char alignment[64];
} head_t;

static head_t *head_of(void *octets)
{
    return (head_t *)((char *)octets - sizeof(head_t));
}

void idem_large_release(void *octets)
{
    head_t *head = head_of(octets);

    munmap(head, head->mapped);
}

static apr_status_t release(void *octets)
{
    idem_large_release(octets);
    return APR_SUCCESS;
}

void *idem_large_alloc(apr_pool_t *p, apr_size_t len)
{
    head_t *head;

    if (len < IDEM_LARGE_MIN) {
        return apr_palloc(p, len);
    }
    if (len > APR_SIZE_MAX - sizeof(head_t)) {
        return NULL;
    }
    head = mmap(NULL, sizeof(head_t) + len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (head == MAP_FAILED) {
        return NULL;
    }
    head->mapped = sizeof(head_t) + len;
    apr_pool_cleanup_register(p, head + 1, release, apr_pool_cleanup_null);
    return head + 1;
}

void idem_large_free(apr_pool_t *p, void *octets, apr_size_t len)
{
    if (octets && len >= IDEM_LARGE_MIN) {
        apr_pool_cleanup_run(p, octets, release);
    }
}

int idem_large_detach(apr_pool_t *p, void *octets, apr_size_t len)
{
    if (!octets || len < IDEM_LARGE_MIN) {
        return 0;
    }
    apr_pool_cleanup_kill(p, octets, release);
    return 1;
}

#include "httpd/child/inflight.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <apr_strings.h>

#include "httpd/child/child.h"
#include "httpd/child/counters.h"
#include "httpd/child/quota.h"

#define TRIES 16 /* places that are looked at for one that is free */

static void enter(idem_inflight_t *inflight, idem_ctx_t *ctx)
{
    apr_uint32_t place = __atomic_fetch_add(&inflight->next, 1, __ATOMIC_RELAXED);
    int tries;

    for (tries = 0; tries < TRIES; tries++, place++) {
        idem_running_t *slot = &inflight->slots[place % IDEM_INFLIGHT_SLOTS];
        apr_uint32_t nobody = 0;

        if (__atomic_load_n(&slot->pid, __ATOMIC_RELAXED)) {
            continue;
        }
        if (!__atomic_compare_exchange_n(&slot->pid, &nobody, (apr_uint32_t)getpid(), 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            continue;
        }
        memcpy(slot->operation, ctx->operation, IDEM_UUID_LEN);
        apr_cpystrn(slot->route, ctx->scope.route, sizeof(slot->route));
        __atomic_store_n(&slot->since, apr_time_now(), __ATOMIC_RELEASE);
        ctx->running_slot = slot;
        return;
    }
}

void idem_inflight_begin(idem_ctx_t *ctx)
{
    idem_inflight_t *inflight = idem_counters_inflight(ctx->server->counters);

    idem_child_running(ctx->server->store, 1);
    idem_quota_begin(ctx);
    if (inflight) {
        enter(inflight, ctx);
    }
}

void idem_inflight_end(idem_ctx_t *ctx)
{
    idem_running_t *slot = ctx->running_slot;

    idem_child_running(ctx->server->store, -1);
    idem_quota_end(ctx);
    ctx->running_slot = NULL;
    if (slot && __atomic_load_n(&slot->pid, __ATOMIC_RELAXED) == (apr_uint32_t)getpid()) {
        __atomic_store_n(&slot->since, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&slot->pid, 0, __ATOMIC_RELEASE);
    }
}

/* All children of a server run as one user, and may ask for one another. */
static int lives(apr_uint32_t pid)
{
    return !kill((pid_t)pid, 0) || errno != ESRCH;
}

static int by_age(const void *a, const void *b)
{
    const idem_running_t *one = a;
    const idem_running_t *other = b;

    return (one->since > other->since) - (one->since < other->since);
}

apr_array_header_t *idem_inflight_read(const idem_inflight_t *inflight, int most, int *count, apr_pool_t *p)
{
    apr_array_header_t *found = apr_array_make(p, 16, sizeof(idem_running_t));
    int i;

    for (i = 0; inflight && i < IDEM_INFLIGHT_SLOTS; i++) {
        const idem_running_t *slot = &inflight->slots[i];
        apr_uint32_t pid = __atomic_load_n(&slot->pid, __ATOMIC_RELAXED);

        /* a time of 0: being written, or just over */
        if (pid && __atomic_load_n(&slot->since, __ATOMIC_ACQUIRE) && lives(pid)) {
            idem_running_t *copy = apr_array_push(found);

            *copy = *slot;
            copy->route[IDEM_INFLIGHT_ROUTE - 1] = '\0';
        }
    }
    *count = found->nelts;
    qsort(found->elts, (size_t)found->nelts, sizeof(idem_running_t), by_age);
    found->nelts = found->nelts > most ? most : found->nelts;
    return found;
}

void idem_inflight_bury(idem_inflight_t *inflight)
{
    int i;

    for (i = 0; i < IDEM_INFLIGHT_SLOTS; i++) {
        idem_running_t *slot = &inflight->slots[i];
        apr_uint32_t pid = __atomic_load_n(&slot->pid, __ATOMIC_RELAXED);

        if (pid && !lives(pid)) {
            __atomic_store_n(&slot->since, 0, __ATOMIC_RELAXED);
            __atomic_store_n(&slot->pid, 0, __ATOMIC_RELEASE);
        }
    }
}

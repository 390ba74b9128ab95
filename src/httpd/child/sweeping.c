#include "httpd/child/sweeping.h"

#include <string.h>

#include <apr_strings.h>
#include <apr_tables.h>
#include <httpd.h>

#include "httpd/child/counters.h"
#include "store/sweep.h"

#define ROUND      apr_time_from_sec(20)   /* between two rounds of one child, give or take a half */
#define MOST_DONE  64                      /* dead owners that are remembered */
#define ACTOR      "sweep"

struct idem_sweeping_t {
    apr_time_t due;
    int recovering;                 /* this round still looks for what the dead have left */
    struct idem_counters_t *counters;
    apr_pool_t *pool;               /* of what is remembered of them */
    idem_sweep_t sweep;
    idem_recovery_t recovery;
    apr_array_header_t *done;
};

static apr_time_t next_round(void)
{
    return apr_time_now() + ROUND / 2 + ap_random_pick(0, (apr_uint32_t)ROUND);
}

static void forget_the_dead(idem_sweeping_t *sweeping)
{
    apr_pool_clear(sweeping->pool);
    sweeping->done = apr_array_make(sweeping->pool, MOST_DONE, sizeof(const char *));
    sweeping->recovery.done = sweeping->done;
}

idem_sweeping_t *idem_sweeping_create(apr_pool_t *pchild, apr_interval_time_t silence, struct idem_counters_t *counters)
{
    idem_sweeping_t *sweeping = apr_pcalloc(pchild, sizeof(*sweeping));

    apr_pool_create(&sweeping->pool, pchild);
    sweeping->counters = counters;
    sweeping->sweep.most = IDEM_SWEEP_FIRST;
    sweeping->sweep.actor = ACTOR;
    sweeping->recovery.silence = silence;
    sweeping->recovery.actor = ACTOR;
    sweeping->recovery.most = IDEM_SWEEP_FIRST;
    sweeping->recovering = 1;
    sweeping->due = next_round();
    forget_the_dead(sweeping);
    return sweeping;
}

/* One batch of what the dead have left. 1 while there is more of it in this round. */
static int recover(idem_sweeping_t *sweeping, idem_store_t *store, apr_pool_t *p)
{
    idem_recovery_t *recovery = &sweeping->recovery;
    apr_time_t begun = apr_time_now();

    if (store->provider->recover(store, recovery, begun + store->timeout, p) != IDEM_STORE_OK || recovery->busy) {
        return 0;
    }
    if (recovery->looked) {
        idem_sweep_t found = {.looked = recovery->looked, .doubtful = recovery->doubtful};

        idem_counters_swept(sweeping->counters, &found, apr_time_now() - begun);
    }
    recovery->most = idem_sweep_next(recovery->most, apr_time_now() - begun);
    if (!recovery->finished) {
        return 1;
    }
    if (recovery->waiting) {
        /* it may come back, or its other records lapse: from the beginning, in the next round */
        *recovery->owner = '\0';
        return 0;
    }
    if (sweeping->done->nelts == MOST_DONE) {
        forget_the_dead(sweeping);
    }
    APR_ARRAY_PUSH(sweeping->done, const char *) = apr_pstrdup(sweeping->pool, recovery->owner);
    *recovery->owner = '\0';
    return 1;
}

/* One batch of what age does. 1 while more is due. */
static int sweep(idem_sweeping_t *sweeping, idem_store_t *store, apr_pool_t *p)
{
    idem_sweep_t *batch = &sweeping->sweep;
    apr_time_t begun = apr_time_now();
    int most = batch->most;

    if (store->provider->sweep(store, batch, begun + store->timeout, p) != IDEM_STORE_OK || batch->busy) {
        return 0;
    }
    idem_counters_swept(sweeping->counters, batch, apr_time_now() - begun);
    batch->most = idem_sweep_next(most, apr_time_now() - begun);
    return batch->looked >= most;
}

apr_time_t idem_sweeping_work(idem_sweeping_t *sweeping, idem_store_t *store, apr_pool_t *p)
{
    apr_time_t begun;
    apr_time_t ended;

    if (apr_time_now() < sweeping->due) {
        return sweeping->due;
    }
    begun = apr_time_now();
    if (sweeping->recovering) {
        sweeping->recovering = recover(sweeping, store, p);
    }
    else if (!sweep(sweeping, store, p)) {
        sweeping->recovering = 1;
        sweeping->due = next_round();
        return sweeping->due;
    }
    ended = apr_time_now();
    sweeping->due = ended + idem_sweep_rest(ended - begun);
    return sweeping->due;
}

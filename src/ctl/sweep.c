/* idempotencyctl sweep: what age does to records, now and to the end; the web servers do it by and by. CONTRACT section 8. */
#include <stdio.h>
#include <string.h>

#include <apr_strings.h>

#include "ctl/operations.h"
#include "ctl/store.h"
#include "store/sweep.h"

#define PATIENCE apr_time_from_sec(10) /* with another worker, in a row */

typedef struct sums_t {
    apr_int64_t looked, expired, removed, doubtful;
    apr_interval_time_t longest; /* of one batch */
} sums_t;

/* Waits for another worker to end its batch. 0 where it has been at it for too long. */
static int wait_for_other(apr_time_t *since)
{
    apr_time_t now = apr_time_now();

    *since = *since ? *since : now;
    apr_sleep(apr_time_from_msec(20));
    return now - *since < PATIENCE;
}

static idem_ctl_exit_e sweep_all(idem_ctl_t *ctl, idem_store_t *store, sums_t *sums)
{
    idem_sweep_t sweep = {.most = IDEM_SWEEP_FIRST, .actor = idem_ctl_actor(ctl)};
    apr_time_t other = 0;
    apr_pool_t *p;

    apr_pool_create(&p, ctl->p);
    do {
        apr_time_t begun = apr_time_now();
        apr_interval_time_t took;

        if (store->provider->sweep(store, &sweep, begun + store->timeout, p) != IDEM_STORE_OK) {
            return IDEM_CTL_STORE;
        }
        apr_pool_clear(p);
        if (sweep.busy) {
            if (!wait_for_other(&other)) {
                return idem_ctl_fail(IDEM_CTL_REFUSED, "another worker is at it");
            }
            continue;
        }
        other = 0;
        took = apr_time_now() - begun;
        sums->longest = took > sums->longest ? took : sums->longest;
        sums->looked += sweep.looked;
        sums->expired += sweep.expired;
        sums->removed += sweep.removed;
        sums->doubtful += sweep.doubtful;
        idem_ctl_progress(ctl, sums->looked, 0);
        if (sweep.looked < sweep.most) {
            return IDEM_CTL_DONE;
        }
        sweep.most = idem_sweep_next(sweep.most, took);
        apr_sleep(idem_sweep_rest(took));
    } while (1);
}

static idem_ctl_exit_e recover_all(idem_ctl_t *ctl, idem_store_t *store, sums_t *sums)
{
    apr_array_header_t *done = apr_array_make(ctl->p, 8, sizeof(const char *));
    /* each record is judged by its own lease; younger silence than this is not worth a look */
    idem_recovery_t recovery = {.silence = apr_time_from_sec(1), .actor = idem_ctl_actor(ctl), .done = done, .most = IDEM_SWEEP_MOST};
    idem_store_result_e result;
    apr_time_t other = 0;

    while ((result = store->provider->recover(store, &recovery, apr_time_now() + store->timeout, ctl->p)) == IDEM_STORE_OK) {
        if (recovery.busy) {
            if (!wait_for_other(&other)) {
                return idem_ctl_fail(IDEM_CTL_REFUSED, "another worker is at it");
            }
            continue;
        }
        other = 0;
        sums->doubtful += recovery.doubtful;
        if (recovery.finished) {
            APR_ARRAY_PUSH(done, const char *) = apr_pstrdup(ctl->p, recovery.owner);
            *recovery.owner = '\0';
        }
    }
    return result == IDEM_STORE_NOT_FOUND ? IDEM_CTL_DONE : IDEM_CTL_STORE;
}

static idem_ctl_exit_e run(idem_ctl_t *ctl, int argc, const char *const *argv)
{
    const idem_ctl_option_t options[] = {{NULL, NULL, NULL}};
    idem_ctl_exit_e status;
    idem_store_t *store;
    sums_t sums = {0};

    if (idem_ctl_options(argc, argv, options, NULL, 0) < 0) {
        return IDEM_CTL_USAGE;
    }
    status = idem_ctl_connect(ctl);
    if (status != IDEM_CTL_DONE) {
        return status;
    }
    store = idem_ctl_store(ctl);
    if (!store) {
        return IDEM_CTL_STORE;
    }
    store->writer_epoch = APR_INT32_MAX; /* an operator's word is never fenced */
    status = recover_all(ctl, store, &sums);
    status = status == IDEM_CTL_DONE ? sweep_all(ctl, store, &sums) : status;
    printf(ctl->json ? "{\"looked_at\": %" APR_INT64_T_FMT ", \"expired\": %" APR_INT64_T_FMT ", \"removed\": %" APR_INT64_T_FMT
                       ", \"unknown\": %" APR_INT64_T_FMT ", \"longest_batch_ms\": %" APR_TIME_T_FMT "}\n"
                     : "%" APR_INT64_T_FMT " were due: %" APR_INT64_T_FMT " expired, %" APR_INT64_T_FMT " removed, %" APR_INT64_T_FMT
                       " UNKNOWN; longest batch %" APR_TIME_T_FMT " ms\n",
           sums.looked, sums.expired, sums.removed, sums.doubtful, apr_time_as_msec(sums.longest));
    return status;
}

const idem_ctl_command_t idem_ctl_sweep = {
    "sweep", "", "expires and removes what is due, and marks what died UNKNOWN; web servers do the same by and by", run};

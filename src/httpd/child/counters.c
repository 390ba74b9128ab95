#include "httpd/child/counters.h"

#include <string.h>

#include <apr_shm.h>
#include <http_config.h>
#include <http_log.h>

#include "httpd/setup/config.h"
#include "httpd/child/inflight.h"
#include "httpd/logging.h"

APLOG_USE_MODULE(idempotency);

#define LAYOUT       2
#define RETAINED     "mod_idempotency counters"
#define CHILDREN     256
#define CHILD_SILENT apr_time_from_sec(60) /* a view older than that is of a child that was killed */

typedef struct minute_t {
    apr_uint32_t number; /* minutes since 1970 */
    apr_uint32_t counts[IDEM_COUNTED];
} minute_t;

struct idem_counters_t {
    apr_size_t size; /* of this struct, and its layout: memory of another release is not read */
    int layout;
    apr_time_t since;
    apr_uint64_t totals[IDEM_COUNTED];
    apr_uint64_t times[IDEM_TIMED][IDEM_TIME_BUCKETS];
    minute_t minutes[IDEM_COUNT_MINUTES];
    idem_swept_t swept;
    idem_child_view_t children[CHILDREN];
    idem_inflight_t inflight;
};

static idem_counters_t *make(server_rec *s)
{
    apr_shm_t *shm;
    idem_counters_t *counters;
    /* anonymous, in the process's own pool: children inherit it, and a restart leaves it where it is */
    apr_status_t rv = apr_shm_create(&shm, sizeof(*counters), NULL, s->process->pool);

    if (rv != APR_SUCCESS) {
        ap_log_error(APLOG_MARK, APLOG_WARNING, rv, s, IDEM_LOG("1301") "no shared memory for counters: nothing is counted");
        return NULL;
    }
    counters = apr_shm_baseaddr_get(shm);
    memset(counters, 0, sizeof(*counters));
    counters->size = sizeof(*counters);
    counters->layout = LAYOUT;
    counters->since = apr_time_now();
    return counters;
}

idem_counters_t *idem_counters_open(server_rec *s)
{
    idem_counters_t **retained = ap_retained_data_get(RETAINED);

    if (!retained) {
        retained = ap_retained_data_create(RETAINED, sizeof(*retained));
    }
    if (!*retained || (*retained)->size != sizeof(**retained) || (*retained)->layout != LAYOUT) {
        *retained = make(s);
    }
    return *retained;
}

const char *idem_counters_word(int outcome)
{
    static const char *const words[IDEM_COUNT_PROBLEMS] = {"executed", "replayed", "rejected", "unknown", "unprotected"};

    return outcome < IDEM_COUNT_PROBLEMS ? words[outcome]
                                         : idem_problem_type((idem_problem_e)(outcome - IDEM_COUNT_PROBLEMS))->slug;
}

int idem_counters_number(const char *word)
{
    int i;

    for (i = 0; i < IDEM_COUNTED && strcmp(word, idem_counters_word(i)); i++) {
    }
    return i;
}

static apr_uint32_t this_minute(void)
{
    return (apr_uint32_t)(apr_time_sec(apr_time_now()) / 60);
}

void idem_counters_add(idem_counters_t *counters, const char *word)
{
    apr_uint32_t now = this_minute();
    minute_t *minute;
    apr_uint32_t was;
    int outcome = counters ? idem_counters_number(word) : IDEM_COUNTED;

    if (outcome == IDEM_COUNTED) {
        return;
    }
    __atomic_add_fetch(&counters->totals[outcome], 1, __ATOMIC_RELAXED);
    minute = &counters->minutes[now % IDEM_COUNT_MINUTES];
    was = __atomic_load_n(&minute->number, __ATOMIC_RELAXED);
    if (was != now && __atomic_compare_exchange_n(&minute->number, &was, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        memset(minute->counts, 0, sizeof(minute->counts));
    }
    __atomic_add_fetch(&minute->counts[outcome], 1, __ATOMIC_RELAXED);
}

apr_interval_time_t idem_counters_bound(int bucket)
{
    return APR_INT64_C(32) * (IDEM_TIME_STEPS + bucket % IDEM_TIME_STEPS) << bucket / IDEM_TIME_STEPS;
}

void idem_counters_time(idem_counters_t *counters, idem_timed_e call, apr_interval_time_t took)
{
    int bucket = 0;

    if (!counters) {
        return;
    }
    while (bucket < IDEM_TIME_BUCKETS - 1 && took >= idem_counters_bound(bucket)) {
        /* by whole powers of two first */
        bucket += bucket + IDEM_TIME_STEPS < IDEM_TIME_BUCKETS && took >= idem_counters_bound(bucket + IDEM_TIME_STEPS - 1)
                      ? IDEM_TIME_STEPS : 1;
    }
    __atomic_add_fetch(&counters->times[call][bucket], 1, __ATOMIC_RELAXED);
}

/* The slot of a child: its own, or one that nobody has, or whose owner was killed. */
static idem_child_view_t *slot_of(idem_counters_t *counters, apr_int32_t pid)
{
    apr_time_t now = apr_time_now();
    int i;

    for (i = 0; i < CHILDREN; i++) {
        if (__atomic_load_n(&counters->children[i].pid, __ATOMIC_RELAXED) == pid) {
            return &counters->children[i];
        }
    }
    for (i = 0; i < CHILDREN; i++) {
        apr_int32_t other = __atomic_load_n(&counters->children[i].pid, __ATOMIC_RELAXED);

        if ((!other || now - counters->children[i].seen > CHILD_SILENT) &&
            __atomic_compare_exchange_n(&counters->children[i].pid, &other, pid, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            return &counters->children[i];
        }
    }
    return NULL;
}

void idem_counters_swept(idem_counters_t *counters, const idem_sweep_t *batch, apr_interval_time_t took)
{
    idem_swept_t *swept = counters ? &counters->swept : NULL;

    if (!swept) {
        return;
    }
    __atomic_add_fetch(&swept->batches, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&swept->looked, (apr_uint64_t)batch->looked, __ATOMIC_RELAXED);
    __atomic_add_fetch(&swept->expired, (apr_uint64_t)batch->expired, __ATOMIC_RELAXED);
    __atomic_add_fetch(&swept->removed, (apr_uint64_t)batch->removed, __ATOMIC_RELAXED);
    __atomic_add_fetch(&swept->unknown, (apr_uint64_t)batch->doubtful, __ATOMIC_RELAXED);
    /* one worker of a registry at a time: a second writer of these two is another registry's, and loses little */
    swept->longest = took > swept->longest ? took : swept->longest;
    swept->last = apr_time_now();
}

void idem_counters_child(idem_counters_t *counters, const idem_child_view_t *view)
{
    idem_child_view_t *slot = counters ? slot_of(counters, view->pid) : NULL;

    if (slot) {
        *slot = *view;
        idem_inflight_bury(&counters->inflight);
    }
}

struct idem_inflight_t *idem_counters_inflight(idem_counters_t *counters)
{
    return counters ? &counters->inflight : NULL;
}

void idem_counters_child_gone(idem_counters_t *counters, apr_int32_t pid)
{
    int i;

    for (i = 0; counters && i < CHILDREN; i++) {
        if (counters->children[i].pid == pid) {
            __atomic_store_n(&counters->children[i].pid, 0, __ATOMIC_RELAXED);
        }
    }
}

void idem_counters_read(idem_counters_t *counters, idem_counters_view_t *view)
{
    apr_uint32_t now = this_minute();
    apr_time_t oldest = apr_time_now() - CHILD_SILENT;
    int i;

    memset(view, 0, sizeof(*view));
    if (!counters) {
        return;
    }
    view->since = counters->since;
    memcpy(view->totals, counters->totals, sizeof(view->totals));
    memcpy(view->times, counters->times, sizeof(view->times));
    view->swept = counters->swept;
    for (i = 0; i < IDEM_COUNT_MINUTES; i++) {
        apr_uint32_t number = now - IDEM_COUNT_MINUTES + 1 + (apr_uint32_t)i;
        const minute_t *minute = &counters->minutes[number % IDEM_COUNT_MINUTES];

        if (minute->number == number) {
            memcpy(view->minutes[i], minute->counts, sizeof(view->minutes[i]));
        }
    }
    for (i = 0; i < CHILDREN; i++) {
        if (counters->children[i].pid && counters->children[i].seen > oldest) {
            view->children[view->child_count++] = counters->children[i];
        }
    }
}

apr_interval_time_t idem_counters_percentile(const idem_counters_view_t *view, idem_timed_e call, double share)
{
    apr_uint64_t all = 0;
    apr_uint64_t below = 0;
    int i;

    for (i = 0; i < IDEM_TIME_BUCKETS; i++) {
        all += view->times[call][i];
    }
    for (i = 0; all && i < IDEM_TIME_BUCKETS; i++) {
        below += view->times[call][i];
        if ((double)below >= share * (double)all) {
            return idem_counters_bound(i);
        }
    }
    return 0;
}

/* Several threads at once: equal scopes that race, and rates. */
#include "driver.h"

#include <stdio.h>
#include <string.h>

#include <apr_atomic.h>
#include <apr_strings.h>
#include <apr_thread_proc.h>

#include "core/uuid.h"

#define MAX_THREADS 64

typedef struct worker_t {
    driver_t *driver;
    const line_t *line;
    int number;
    volatile apr_uint32_t *start;
    apr_time_t end;
    int kinds[8];      /* results of reserve */
    apr_int64_t calls;
    apr_int64_t faults;
} worker_t;

static void wait_for_start(const worker_t *worker)
{
    while (!apr_atomic_read32(worker->start)) {
        apr_thread_yield();
    }
}

static void *APR_THREAD_FUNC race(apr_thread_t *thread, void *baton)
{
    worker_t *worker = baton;
    line_t line = *worker->line;
    idem_reserve_t wanted;
    idem_reserve_t *list[] = {&wanted};

    (void)thread;
    apr_pool_create(&line.p, NULL);
    wait_for_start(worker);
    line_reserve(&line, &wanted);
    worker->driver->store.provider->reserve(&worker->driver->store, list, 1, line_deadline(&line, worker->driver), line.p);
    worker->kinds[wanted.result]++;
    apr_pool_destroy(line.p);
    return NULL;
}

#define MAX_ROWS 64

/* A settlement for what was reserved. */
static void fill_settle(idem_settle_t *settle, const idem_reserve_t *wanted)
{
    static const char body[] = "{\"id\":\"ch_000000000000000000000000\",\"object\":\"charge\",\"amount\":1999}";

    memset(settle, 0, sizeof(*settle));
    settle->tenant = wanted->scope.tenant;
    memcpy(settle->operation, wanted->operation, IDEM_UUID_LEN);
    settle->generation = 1;
    settle->outcome = IDEM_OUTCOME_SUCCEEDED;
    settle->response_code = 201;
    settle->response_headers.octets = (const unsigned char *)body;
    settle->response_headers.len = 60;
    settle->response_body.octets = (const unsigned char *)body;
    settle->response_body.len = sizeof(body) - 1;
    settle->response_digest.octets = wanted->fingerprint;
    settle->response_digest.len = 32;
    settle->actor = "httpd";
}

/* Fresh keys, reserve and settle; or one key, replay; rows of them in each call. */
static void *APR_THREAD_FUNC bench(apr_thread_t *thread, void *baton)
{
    worker_t *worker = baton;
    int replay = !strcmp(line_text(worker->line, "mode", "fresh"), "replay");
    int rows = (int)line_number(worker->line, "rows", 1);
    idem_store_t *store = &worker->driver->store;
    apr_pool_t *p;
    int i;

    (void)thread;
    rows = rows < MAX_ROWS ? rows : MAX_ROWS;
    apr_pool_create(&p, NULL);
    wait_for_start(worker);
    while (apr_time_now() < worker->end) {
        line_t line = *worker->line;
        idem_reserve_t wanted[MAX_ROWS];
        idem_reserve_t *reserves[MAX_ROWS];
        idem_settle_t settle[MAX_ROWS];
        idem_settle_t *settles[MAX_ROWS];

        line.p = p;
        for (i = 0; i < rows; i++) {
            line_reserve(&line, &wanted[i]);
            if (!replay) {
                wanted[i].scope.key = idem_uuid_text(p, wanted[i].owner_token);
                wanted[i].scope.principal = apr_psprintf(p, "p%d", (int)((worker->calls + i) % 1000));
            }
            reserves[i] = &wanted[i];
            settles[i] = &settle[i];
        }
        store->provider->reserve(store, reserves, rows, line_deadline(&line, worker->driver), p);
        for (i = 0; i < rows; i++) {
            worker->faults += wanted[i].result != (replay ? IDEM_STORE_FOUND : IDEM_STORE_OK);
            fill_settle(&settle[i], &wanted[i]);
        }
        if (!replay) {
            store->provider->settle(store, settles, rows, line_deadline(&line, worker->driver), p);
            for (i = 0; i < rows; i++) {
                worker->faults += settle[i].result != IDEM_STORE_OK;
            }
        }
        worker->calls += rows;
        apr_pool_clear(p);
    }
    apr_pool_destroy(p);
    return NULL;
}

static int run_workers(driver_t *driver, const line_t *line, apr_thread_start_t work, apr_time_t end, worker_t *workers)
{
    int count = (int)line_number(line, "threads", 8);
    apr_thread_t *threads[MAX_THREADS];
    volatile apr_uint32_t start = 0;
    int i;

    count = count < MAX_THREADS ? count : MAX_THREADS;
    for (i = 0; i < count; i++) {
        worker_t *worker = &workers[i];

        memset(worker, 0, sizeof(*worker));
        worker->driver = driver;
        worker->line = line;
        worker->number = i;
        worker->start = &start;
        worker->end = end;
        apr_thread_create(&threads[i], NULL, work, worker, line->p);
    }
    apr_atomic_set32(&start, 1);
    for (i = 0; i < count; i++) {
        apr_status_t rv;

        apr_thread_join(&rv, threads[i]);
    }
    return count;
}

void run_race(driver_t *driver, const line_t *line)
{
    worker_t workers[MAX_THREADS];
    int count = run_workers(driver, line, race, 0, workers);
    int kind;

    printf("RACE");
    for (kind = 0; kind < 8; kind++) {
        int sum = 0;
        int i;

        for (i = 0; i < count; i++) {
            sum += workers[i].kinds[kind];
        }
        printf(" %s=%d", result_name((idem_store_result_e)kind), sum);
    }
}

void run_bench(driver_t *driver, const line_t *line)
{
    apr_interval_time_t length = apr_time_from_msec(line_number(line, "length", 3000));
    worker_t workers[MAX_THREADS];
    apr_int64_t calls = 0;
    apr_int64_t faults = 0;
    int count;
    int i;

    count = run_workers(driver, line, bench, apr_time_now() + length, workers);
    for (i = 0; i < count; i++) {
        calls += workers[i].calls;
        faults += workers[i].faults;
    }
    printf("BENCH calls=%" APR_INT64_T_FMT " faults=%" APR_INT64_T_FMT " rate=%" APR_INT64_T_FMT, calls, faults,
           calls * APR_USEC_PER_SEC / length);
}

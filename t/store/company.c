/* Calls that run at the same time: `begin` starts one on a thread of its own, `join` waits for it and says how it ended. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <apr_strings.h>
#include <apr_thread_proc.h>

#define MOST 128

typedef struct call_t {
    driver_t *driver;
    line_t line;
    int is_settle;
    idem_reserve_t reserve;
    idem_settle_t settle;
    apr_time_t took;
    apr_thread_t *thread;
} call_t;

static call_t *calls[MOST];

static void *APR_THREAD_FUNC work(apr_thread_t *thread, void *baton)
{
    call_t *call = baton;
    idem_store_t *store = &call->driver->store;
    idem_reserve_t *reserve = &call->reserve;
    idem_settle_t *settle = &call->settle;
    apr_time_t begun = apr_time_now();

    (void)thread;
    if (call->is_settle) {
        store->provider->settle(store, &settle, 1, line_deadline(&call->line, call->driver), call->line.p);
    }
    else {
        store->provider->reserve(store, &reserve, 1, line_deadline(&call->line, call->driver), call->line.p);
    }
    call->took = apr_time_now() - begun;
    return NULL;
}

void run_begin(driver_t *driver, const line_t *line)
{
    apr_hash_index_t *each;
    apr_pool_t *p;
    call_t *call;
    int id;

    for (id = 0; id < MOST && calls[id]; id++) {
    }
    if (id == MOST) {
        fputs("driver: too many calls at once\n", stderr);
        exit(2);
    }
    apr_pool_create(&p, driver->p);
    call = calls[id] = apr_pcalloc(p, sizeof(*call));
    call->driver = driver;
    call->line.p = p;
    call->line.values = apr_hash_make(p);
    for (each = apr_hash_first(line->p, line->values); each; each = apr_hash_next(each)) {
        const void *name;
        void *value;

        apr_hash_this(each, &name, NULL, &value);
        apr_hash_set(call->line.values, apr_pstrdup(p, name), APR_HASH_KEY_STRING, apr_pstrdup(p, value));
    }
    call->is_settle = !strcmp(line_text(&call->line, "call", "reserve"), "settle");
    if (call->is_settle) {
        line_settle(&call->line, &call->settle);
        if (line_number(line, "size", 0)) {
            call->settle.response_body.len = (apr_size_t)line_number(line, "size", 0);
            call->settle.response_body.octets = apr_pcalloc(p, call->settle.response_body.len);
        }
    }
    else {
        line_reserve(&call->line, &call->reserve);
    }
    apr_thread_create(&call->thread, NULL, work, call, p);
    printf("BEGUN id=%d", id);
}

void run_join(driver_t *driver, const line_t *line)
{
    int id = (int)line_number(line, "id", 0);
    call_t *call = id >= 0 && id < MOST ? calls[id] : NULL;
    apr_status_t rv;

    (void)driver;
    if (!call) {
        fputs("driver: no such call\n", stderr);
        exit(2);
    }
    apr_thread_join(&rv, call->thread);
    if (call->is_settle) {
        print_settled(&call->settle);
    }
    else {
        print_reserved(&call->reserve);
    }
    printf(" took=%" APR_TIME_T_FMT, apr_time_as_msec(call->took));
    apr_pool_destroy(call->line.p);
    calls[id] = NULL;
}

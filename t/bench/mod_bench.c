/*
 * mod_bench.c - the cheapest backend there is: a handler in httpd itself that reads the request, counts it where all
 * children see it, and answers a small JSON object. For measuring only.
 *
 *   SetHandler bench          POST is executed and counted
 *   SetHandler bench-count    says how many were
 *   SetHandler bench-reserve  what the module did before this handler ran took, since the last time this was asked: how
 *                             often, and the microseconds that 50, 95 and 99 % of the requests stayed within
 */
#include <apr_atomic.h>
#include <apr_shm.h>
#include <apr_strings.h>
#include <httpd.h>
#include <http_config.h>
#include <http_core.h>
#include <http_protocol.h>

#define STEP   50   /* microseconds */
#define STEPS  4000 /* the last one holds everything longer */

/* In memory that the children inherit. */
typedef struct bench_t {
    volatile apr_uint32_t executed;
    volatile apr_uint32_t waited[STEPS];
} bench_t;

static bench_t *bench;

module AP_MODULE_DECLARE_DATA bench_module __attribute__((visibility("default")));

static int start(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp, server_rec *s)
{
    apr_shm_t *shm;

    (void)plog;
    (void)ptemp;
    (void)s;
    if (apr_shm_create(&shm, sizeof(*bench), NULL, pconf) != APR_SUCCESS) {
        return HTTP_INTERNAL_SERVER_ERROR;
    }
    bench = apr_shm_baseaddr_get(shm);
    memset(bench, 0, sizeof(*bench));
    return OK;
}

/* Before the module's own handler, which calls all of them once more: the clock starts. */
static int note_arrival(request_rec *r)
{
    if (r->handler && !strcmp(r->handler, "bench") && !ap_get_module_config(r->request_config, &bench_module)) {
        apr_time_t *arrived = apr_palloc(r->pool, sizeof(*arrived));

        *arrived = apr_time_now();
        ap_set_module_config(r->request_config, &bench_module, arrived);
    }
    return DECLINED;
}

static void note_wait(const request_rec *r)
{
    const apr_time_t *arrived = ap_get_module_config(r->request_config, &bench_module);

    if (arrived) {
        apr_int64_t step = (apr_time_now() - *arrived) / STEP;

        apr_atomic_inc32(&bench->waited[step < 0 ? 0 : step < STEPS ? step : STEPS - 1]);
    }
}

static unsigned within(const apr_uint32_t *waited, apr_uint32_t all, unsigned percent)
{
    apr_uint64_t enough = ((apr_uint64_t)all * percent + 99) / 100;
    apr_uint64_t sum = 0;
    unsigned step;

    for (step = 0; step < STEPS; step++) {
        sum += waited[step];
        if (sum >= enough) {
            break;
        }
    }
    return (step + 1) * STEP;
}

static void say_waits(request_rec *r)
{
    apr_uint32_t *waited = apr_palloc(r->pool, sizeof(bench->waited));
    apr_uint32_t all = 0;
    int step;

    for (step = 0; step < STEPS; step++) {
        waited[step] = apr_atomic_xchg32(&bench->waited[step], 0);
        all += waited[step];
    }
    ap_set_content_type(r, "text/plain");
    ap_rprintf(r, "%u %u %u %u\n", all, all ? within(waited, all, 50) : 0, all ? within(waited, all, 95) : 0,
               all ? within(waited, all, 99) : 0);
}

/* Where callgrind is to dump its counters: see t/bench/instructions. */
__attribute__((noinline)) void bench_mark(void);
void bench_mark(void)
{
    __asm__ volatile("");
}

static int answer(request_rec *r)
{
    int status;

    if (r->handler && !strcmp(r->handler, "bench-count")) {
        bench_mark();
        ap_set_content_type(r, "text/plain");
        ap_rprintf(r, "%u\n", apr_atomic_read32(&bench->executed));
        return OK;
    }
    if (r->handler && !strcmp(r->handler, "bench-reserve")) {
        say_waits(r);
        return OK;
    }
    if (!r->handler || strcmp(r->handler, "bench")) {
        return DECLINED;
    }
    note_wait(r);
    status = ap_discard_request_body(r);
    if (status != OK) {
        return status;
    }
    ap_set_content_type(r, "application/json");
    ap_rprintf(r, "{\"id\":\"ch_%08x\",\"object\":\"charge\",\"amount\":1999,\"currency\":\"eur\",\"status\":\"succeeded\"}\n",
               apr_atomic_inc32(&bench->executed));
    return OK;
}

static void register_hooks(apr_pool_t *p)
{
    static const char *const before[] = {"mod_idempotency.c", NULL};

    (void)p;
    ap_hook_handler(note_arrival, NULL, before, APR_HOOK_REALLY_FIRST);
    ap_hook_post_config(start, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_handler(answer, NULL, NULL, APR_HOOK_MIDDLE);
}

module AP_MODULE_DECLARE_DATA bench_module = {
    STANDARD20_MODULE_STUFF, NULL, NULL, NULL, NULL, NULL, register_hooks, 0,
};

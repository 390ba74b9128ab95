/*
 * mod_bench.c - the cheapest backend there is: a handler in httpd itself that reads the request, counts it where all
 * children see it, and answers a small JSON object. For measuring only.
 *
 *   SetHandler bench         POST is executed and counted
 *   SetHandler bench-count   says how many were
 */
#include <apr_atomic.h>
#include <apr_shm.h>
#include <apr_strings.h>
#include <httpd.h>
#include <http_config.h>
#include <http_core.h>
#include <http_protocol.h>

static volatile apr_uint32_t *executed; /* in memory that the children inherit */

static int start(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp, server_rec *s)
{
    apr_shm_t *shm;

    (void)plog;
    (void)ptemp;
    (void)s;
    if (apr_shm_create(&shm, sizeof(*executed), NULL, pconf) != APR_SUCCESS) {
        return HTTP_INTERNAL_SERVER_ERROR;
    }
    executed = apr_shm_baseaddr_get(shm);
    apr_atomic_set32(executed, 0);
    return OK;
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
        ap_rprintf(r, "%u\n", apr_atomic_read32(executed));
        return OK;
    }
    if (!r->handler || strcmp(r->handler, "bench")) {
        return DECLINED;
    }
    status = ap_discard_request_body(r);
    if (status != OK) {
        return status;
    }
    ap_set_content_type(r, "application/json");
    ap_rprintf(r, "{\"id\":\"ch_%08x\",\"object\":\"charge\",\"amount\":1999,\"currency\":\"eur\",\"status\":\"succeeded\"}\n",
               apr_atomic_inc32(executed));
    return OK;
}

static void register_hooks(apr_pool_t *p)
{
    (void)p;
    ap_hook_post_config(start, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_handler(answer, NULL, NULL, APR_HOOK_MIDDLE);
}

extern module AP_MODULE_DECLARE_DATA bench_module __attribute__((visibility("default")));

module AP_MODULE_DECLARE_DATA bench_module = {
    STANDARD20_MODULE_STUFF, NULL, NULL, NULL, NULL, NULL, register_hooks, 0,
};

#include "httpd/request/wait.h"

#include <poll.h>
#include <string.h>

#include <apr_atomic.h>
#include <apr_portable.h>
#include <httpd.h>
#include <http_core.h>
#include <http_log.h>
#include <ap_mpm.h>

#include "httpd/request/dispatch.h"
#include "httpd/logging.h"

APLOG_USE_MODULE(idempotency);

#define SHORTEST_PAUSE apr_time_from_msec(50)
#define LONGEST_PAUSE  apr_time_from_msec(500)

struct idem_waiters_t {
    apr_uint32_t most;
    volatile apr_uint32_t now;
};

void idem_wait_child_init(apr_pool_t *pchild, server_rec *s)
{
    struct idem_waiters_t *waiters = apr_pcalloc(pchild, sizeof(*waiters));
    int threads = 0;

    if (ap_mpm_query(AP_MPMQ_MAX_THREADS, &threads) == APR_SUCCESS && threads > 0) {
        waiters->most = (apr_uint32_t)threads / 4;
    }
    for (; s; s = s->next) {
        idem_config_server(s)->waiters = waiters;
    }
}

/* Takes a place among those who wait. */
static int begin(request_rec *r, const idem_ctx_t *ctx, idem_wait_t *wait)
{
    struct idem_waiters_t *waiters = ctx->server->waiters;

    if (!waiters) {
        return 0;
    }
    if (apr_atomic_inc32(&waiters->now) >= waiters->most) {
        apr_atomic_dec32(&waiters->now);
        ap_log_rerror(APLOG_MARK, APLOG_DEBUG, 0, r, IDEM_LOG("1701") "not waiting: %u others do already", waiters->most);
        return 0;
    }
    wait->counted = 1;
    wait->until = idem_dispatch_moment() + ctx->conf->wait;
    wait->pause = SHORTEST_PAUSE;
    return 1;
}

/* As far as it is known without reading: a client that will not send any more is taken to have gone. */
static int client_has_gone(const conn_rec *c)
{
    apr_socket_t *socket = c->master ? NULL : ap_get_conn_socket((conn_rec *)c);
    struct pollfd fd = {-1, POLLRDHUP, 0};
    apr_os_sock_t native;

    if (c->aborted) {
        return 1;
    }
    if (!socket || apr_os_sock_get(&native, socket) != APR_SUCCESS) {
        return 0;
    }
    fd.fd = native;
    return poll(&fd, 1, 0) == 1 && (fd.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

static int child_is_ending(void)
{
    int state;

    return ap_mpm_query(AP_MPMQ_MPM_STATE, &state) == APR_SUCCESS && state == AP_MPMQ_STOPPING;
}

int idem_wait_again(request_rec *r, idem_ctx_t *ctx, idem_wait_t *wait)
{
    apr_interval_time_t left;

    if (ctx->phase != IDEM_PHASE_ANSWER || ctx->answer.replay || ctx->answer.problem != IDEM_PROBLEM_IN_PROGRESS ||
        ctx->conf->wait <= 0 || (!wait->counted && !begin(r, ctx, wait))) {
        return 0;
    }
    left = wait->until - idem_dispatch_moment();
    if (left <= 0 || client_has_gone(r->connection) || child_is_ending()) {
        return 0;
    }
    apr_sleep(wait->pause < left ? wait->pause : left);
    wait->pause = wait->pause * 3 / 2 > LONGEST_PAUSE ? LONGEST_PAUSE : wait->pause * 3 / 2;
    memset(&ctx->answer, 0, sizeof(ctx->answer));
    ctx->phase = IDEM_PHASE_READY;
    return 1;
}

void idem_wait_end(const idem_ctx_t *ctx, idem_wait_t *wait)
{
    if (wait->counted) {
        apr_atomic_dec32(&ctx->server->waiters->now);
        wait->counted = 0;
    }
}

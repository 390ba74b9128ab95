#include "httpd/request/dispatch.h"

#include <time.h>

#include <httpd.h>
#include <http_log.h>

#include "core/uuid.h"
#include "httpd/request/accept.h"
#include "httpd/child/child.h"
#include "httpd/child/inflight.h"
#include "httpd/logging.h"

APLOG_USE_MODULE(idempotency);

apr_interval_time_t idem_dispatch_moment(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return apr_time_from_sec(now.tv_sec) + now.tv_nsec / 1000;
}

int idem_dispatch(request_rec *r, idem_ctx_t *ctx)
{
    idem_store_t *store = idem_context_store(ctx);
    idem_state_e wanted = idem_machine_first(ctx->effect, 0);
    int late = idem_dispatch_moment() - ctx->reserved_at > ctx->conf->lease / 2;
    idem_store_result_e result;

    if (ctx->dispatched || (ctx->state == wanted && !late)) {
        ctx->dispatched = 1;
        return 1;
    }
    result = store->provider->dispatch(store, ctx->scope.tenant, ctx->operation, ctx->generation, wanted,
                                       apr_time_now() + store->timeout, r->pool);
    if (result == IDEM_STORE_OK) {
        ctx->state = wanted;
        ctx->dispatched = 1;
        return 1;
    }
    idem_inflight_end(ctx);
    if (result == IDEM_STORE_STALE || result == IDEM_STORE_NOT_FOUND) {
        ap_log_rerror(APLOG_MARK, APLOG_WARNING, 0, r,
                      IDEM_LOG("1501") "operation %s: generation %d came too late to its backend, which does not run",
                      idem_uuid_text(r->pool, ctx->operation), ctx->generation);
        idem_accept_look(r, ctx);
        return 0;
    }
    ap_log_rerror(APLOG_MARK, APLOG_ERR, 0, r,
                  IDEM_LOG("1502") "operation %s: the store did not take the dispatch; the backend does not run",
                  idem_uuid_text(r->pool, ctx->operation));
    idem_child_withdraw(ctx->server->store, ctx->scope.tenant, ctx->operation, ctx->owner_token, ctx->generation);
    idem_accept_refuse_store(ctx);
    return 0;
}

#include "httpd/request/context.h"

#include <httpd.h>
#include <http_config.h>

#include "httpd/child/child.h"

int idem_context_create(request_rec *r)
{
    idem_ctx_t *ctx;

    if (r->main) {
        return OK;
    }
    if (r->prev) {
        ctx = idem_context_get(r->prev);
    }
    else {
        ctx = apr_pcalloc(r->pool, sizeof(*ctx));
        ctx->pool = r->pool;
        ctx->server = idem_config_server(r->server);
    }
    ap_set_module_config(r->request_config, &idempotency_module, ctx);
    return OK;
}

const request_rec *idem_context_received(const request_rec *r)
{
    while (r->prev) {
        r = r->prev;
    }
    return r;
}

idem_ctx_t *idem_context_get(const request_rec *r)
{
    return r->main || !r->request_config ? NULL : ap_get_module_config(r->request_config, &idempotency_module);
}

void idem_context_refuse(idem_ctx_t *ctx, idem_problem_e problem, const char *detail)
{
    ctx->phase = IDEM_PHASE_ANSWER;
    ctx->answer.problem = problem;
    ctx->answer.detail = detail;
    ctx->outcome_note = idem_problem_type(problem)->slug;
}

idem_store_t *idem_context_store(const idem_ctx_t *ctx)
{
    return ctx->server->store ? idem_child_store(ctx->server->store) : NULL;
}

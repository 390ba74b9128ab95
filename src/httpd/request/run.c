#include "httpd/request/run.h"

#include <apr_strings.h>
#include <httpd.h>
#include <http_log.h>
#include <util_script.h>

#include "core/uuid.h"
#include "httpd/request/accept.h"
#include "httpd/child/child.h"
#include "httpd/child/counters.h"
#include "httpd/request/dispatch.h"
#include "httpd/request/edge.h"
#include "httpd/request/forward.h"
#include "httpd/child/inflight.h"
#include "httpd/logging.h"
#include "httpd/request/replay.h"
#include "httpd/request/settle.h"
#include "httpd/request/wait.h"

APLOG_USE_MODULE(idempotency);

/*
 * A request that httpd made to show an error: what it answers belongs to the response of the one before. To be asked
 * before its handler has run, which may set another status.
 */
static int shows_an_error(const request_rec *r)
{
    return r->prev && ap_is_HTTP_ERROR(r->status);
}

static int only_redirects(const request_rec *r)
{
    return r->handler && !strcmp(r->handler, "redirect-handler");
}

/*
 * What the handler of r returned. One that passed the request on by an internal redirect has nothing to say: the
 * last handler of the chain has, and its status was noted already.
 */
static void note_status(idem_ctx_t *ctx, const request_rec *r, int status)
{
    if (r->next) {
        return;
    }
    ctx->handler_status = status == DECLINED ? HTTP_INTERNAL_SERVER_ERROR : status > 0 || status == AP_FILTER_ERROR ? status : 0;
}

/*
 * May the handler of r, which is at work and has passed the request on, have had an effect? A script that answers by a
 * local Location may. mod_actions only looks for the script; it leaves its name for that in HANDLER.
 */
static int may_have_effects(const request_rec *r, int counts)
{
    const char *action = apr_table_get(r->subprocess_env, "HANDLER");

    return counts && !(action && r->handler && !strcmp(action, r->handler));
}

static void begin_handler(request_rec *r, idem_ctx_t *ctx, int counts)
{
    idem_forward(r, ctx);
    /*
     * A CGI or FastCGI script that says how long its answer is can be seen to be cut; httpd throws that length away
     * unless it is told that it may be believed. Where the script said too little, capture.c throws it away.
     */
    if (!apr_table_get(r->subprocess_env, AP_TRUST_CGILIKE_CL_ENVVAR)) {
        apr_table_setn(r->subprocess_env, AP_TRUST_CGILIKE_CL_ENVVAR, "1");
        ctx->length_is_a_hint = 1;
    }
    if (counts) {
        ctx->handler_ran = 1;
        ctx->handler_status = 0;
        ctx->passed_anything = 0;
    }
    else if (shows_an_error(r) && !ctx->error_status) {
        ctx->error_status = r->status;
    }
    idem_edge_insert(r, ctx);
}

/* As httpd does for a handler that leaves the end to it, but while there is still something to be done about a filter
 * that fails at the end. */
static void end_response(request_rec *r)
{
    apr_bucket_brigade *bb = apr_brigade_create(r->pool, r->connection->bucket_alloc);

    APR_BRIGADE_INSERT_TAIL(bb, apr_bucket_eos_create(r->connection->bucket_alloc));
    ap_pass_brigade(r->output_filters, bb);
}

/* After the last handler of a chain, with the record still to be settled: how the response got lost, if it did. */
static int make_up(request_rec *r, idem_ctx_t *ctx, int status)
{
    if (status > 0 || r->next) {
        return status;
    }
    if (idem_edge_was_bypassed(r, ctx)) {
        /* An nph- script or a switched protocol: what was said to the client nobody knows, and it has left. */
        ctx->broken = 1;
        ap_log_rerror(APLOG_MARK, APLOG_WARNING, 0, r,
                      IDEM_LOG("0509") "operation %s: the handler's answer went past httpd's filters, nobody saw it",
                      idem_uuid_text(r->pool, ctx->operation));
        idem_settle(r, ctx, NULL);
        return status;
    }
    if (status != AP_FILTER_ERROR && !r->eos_sent) {
        end_response(r);
    }
    if (ctx->phase == IDEM_PHASE_RUNNING) {
        /*
         * The handler gave up in the middle, or a filter did and swallowed the end: httpd would close the connection,
         * or end an HTTP/2 stream, without a word. Nothing was sent, as the response is held, so a status can answer.
         */
        ctx->broken = 1;
        return HTTP_BAD_GATEWAY;
    }
    return status;
}

static int run_backend(request_rec *r, idem_ctx_t *ctx)
{
    const request_rec *outer = ctx->running;
    int outer_counts = ctx->running_counts;
    int counts = !shows_an_error(r) && !only_redirects(r);
    int status;

    if (counts && !idem_dispatch(r, ctx)) {
        return idem_replay_answer(r, ctx);
    }
    ctx->earlier_ran |= outer && may_have_effects(outer, outer_counts);
    begin_handler(r, ctx, counts);
    ctx->running = r;
    ctx->running_counts = counts;
    status = ap_run_handler(r);
    ctx->running = outer;
    ctx->running_counts = outer_counts;
    if (counts) {
        note_status(ctx, r, status);
    }
    return ctx->phase == IDEM_PHASE_RUNNING ? make_up(r, ctx, status) : status;
}

/* A verdict; where the first request is still at work and the route says so, the one that there is when it has ended. */
static void accept_or_wait(request_rec *r, idem_ctx_t *ctx)
{
    idem_wait_t wait = {0};

    do {
        idem_accept(r, ctx);
    } while (idem_wait_again(r, ctx, &wait));
    idem_wait_end(ctx, &wait);
}

int idem_run(request_rec *r)
{
    idem_ctx_t *ctx = idem_context_get(r);

    if (!ctx || ctx->running == r) {
        return DECLINED;
    }
    if (ctx->phase == IDEM_PHASE_READY && !shows_an_error(r)) {
        accept_or_wait(r, ctx);
    }
    if (ctx->phase == IDEM_PHASE_ANSWER && !shows_an_error(r)) {
        return idem_replay_answer(r, ctx);
    }
    return ctx->phase == IDEM_PHASE_RUNNING ? run_backend(r, ctx) : DECLINED;
}

/*
 * Where a line has its tag: in the format, as a backend, and a client through it, can put the like into the message.
 * mod_cgid's own format takes the tag as its first word, and with that the message begins.
 */
static const char *tagged(const ap_errorlog_info *info, const char *message)
{
    return message && !strncmp(info->format, "%sstderr from ", 14) ? message : info->format;
}

static int begins_with_any(const char *line, const char *const *tags)
{
    for (; *tags; tags++) {
        if (!strncmp(line, *tags, strlen(*tags))) {
            return 1;
        }
    }
    return 0;
}

void idem_run_watch_log(const ap_errorlog_info *info, const char *message)
{
    static const char *const never_connected[] = {"AH01114:", "AH01079:", "AH01257:", "AH02833:", NULL};
    static const char *const no_member[] = {"AH01167:", "AH01170:", "AH01171:", NULL};
    static const char *const sent[] = {"AH01067:", "AH01075:", NULL};
    idem_ctx_t *ctx;
    const char *line;

    if (!info->r || info->r->main || !info->format) {
        return;
    }
    ctx = idem_context_get(info->r);
    if (!ctx || ctx->phase != IDEM_PHASE_RUNNING) {
        return;
    }
    line = tagged(info, message);
    ctx->never_connected |= begins_with_any(line, never_connected);
    ctx->request_sent |= begins_with_any(line, sent);
    /* a balancer without a member to take: nobody was tried, unless it had chosen one for this request before */
    ctx->never_connected |= begins_with_any(line, no_member) &&
                            !apr_table_get(info->r->subprocess_env, "BALANCER_WORKER_NAME");
}

int idem_run_finish(request_rec *r)
{
    idem_ctx_t *ctx = idem_context_get(r);
    request_rec *last;

    if (!ctx || !ctx->outcome_note) {
        return DECLINED;
    }
    if (ctx->phase == IDEM_PHASE_RUNNING) {
        /* No database here: in the event MPM this may be the listener's thread. */
        ap_log_rerror(APLOG_MARK, APLOG_WARNING, 0, r,
                      IDEM_LOG("0501") "operation %s ended without a response that the module could see: UNKNOWN",
                      idem_uuid_text(r->pool, ctx->operation));
        idem_child_settle_later(ctx->server->store, ctx->scope.tenant, ctx->operation, ctx->generation,
                                IDEM_OUTCOME_UNKNOWN, ctx->effect == IDEM_EFFECT_TRANSACTIONAL);
        ctx->phase = IDEM_PHASE_SETTLED;
        ctx->outcome_note = "unknown";
        idem_inflight_end(ctx);
    }
    for (last = r; last->next; last = last->next) {
    }
    idem_counters_add(ctx->server->counters, ctx->outcome_note);
    apr_table_setn(last->notes, "idempotency-outcome", ctx->outcome_note);
    if (ctx->has_operation) {
        apr_table_setn(last->notes, "idempotency-operation", idem_uuid_text(last->pool, ctx->operation));
    }
    return DECLINED;
}

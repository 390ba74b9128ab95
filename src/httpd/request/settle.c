#include "httpd/request/settle.h"

#include <stdlib.h>

#include <apr_cstr.h>
#include <apr_strings.h>
#include <httpd.h>
#include <http_log.h>
#include <http_protocol.h>

#include "core/digest.h"
#include "core/snapshot.h"
#include "core/uuid.h"
#include "httpd/request/accept.h"
#include "httpd/request/cached.h"
#include "httpd/child/child.h"
#include "httpd/child/counters.h"
#include "httpd/child/inflight.h"
#include "httpd/child/journaling.h"
#include "httpd/logging.h"
#include "store/settlement.h"

APLOG_USE_MODULE(idempotency);

/* One line of it. One word said twice is one word; two words are none. */
static int hear_outcome(void *baton, const char *name, const char *value)
{
    idem_outcome_e *outcome = baton;
    idem_outcome_e heard = idem_outcome_parse(value);

    (void)name;
    if (heard == IDEM_OUTCOME_NONE || (*outcome != IDEM_OUTCOME_NONE && *outcome != heard)) {
        heard = IDEM_OUTCOME_COUNT;
    }
    *outcome = heard;
    return 1;
}

/* The backend's own word, taken out of the response. */
static idem_outcome_e said_outcome(request_rec *r)
{
    static const char name[] = "Idempotency-Outcome";
    idem_outcome_e outcome = IDEM_OUTCOME_NONE;

    if (!apr_table_get(r->headers_out, name) && !apr_table_get(r->err_headers_out, name)) {
        return IDEM_OUTCOME_NONE;
    }
    apr_table_do(hear_outcome, &outcome, r->headers_out, name, NULL);
    apr_table_do(hear_outcome, &outcome, r->err_headers_out, name, NULL);
    if (outcome == IDEM_OUTCOME_NONE || outcome >= IDEM_OUTCOME_RELEASED) {
        ap_log_rerror(APLOG_MARK, APLOG_ERR, 0, r, IDEM_LOG("0801")
                      "the backend's %s is none of succeeded, failed, rejected, unknown: taken as unknown", name);
        outcome = IDEM_OUTCOME_UNKNOWN;
    }
    apr_table_unset(r->headers_out, name);
    apr_table_unset(r->err_headers_out, name);
    return outcome;
}

/*
 * The status that tells how it went: the client's, except where httpd shows an error. An ErrorDocument may be a script
 * that says 200, or lie elsewhere, which makes a 302 of it; neither makes a success of a backend that failed.
 */
static int telling_status(const request_rec *r, const idem_ctx_t *ctx)
{
    return ctx->error_status ? ctx->error_status : ap_is_HTTP_ERROR(ctx->handler_status) ? ctx->handler_status : r->status;
}

idem_outcome_e idem_settle_rule(request_rec *r, const idem_ctx_t *ctx)
{
    int status = telling_status(r, ctx);
    const apr_array_header_t *rules = ctx->conf->outcomes;
    int i;

    for (i = 0; i < rules->nelts; i++) {
        const idem_outcome_rule_t *rule = &APR_ARRAY_IDX(rules, i, idem_outcome_rule_t);
        const char *error = NULL;

        if (status < rule->first_status || status > rule->last_status) {
            continue;
        }
        if (!rule->expr || ap_expr_exec(r, rule->expr, &error) > 0) {
            return rule->outcome;
        }
        if (error) {
            ap_log_rerror(APLOG_MARK, APLOG_ERR, 0, r, IDEM_LOG("0802") "IdempotencyOutcome: expr= failed: %s", error);
        }
    }
    return IDEM_OUTCOME_NONE;
}

/*
 * mod_proxy asks a worker with ping= by sending it the head of the request and waiting for 100 Continue; where that
 * comes to nothing it connects anew, and so may say "never connected" of a backend that it has talked to.
 */
static int may_ping(const request_rec *r)
{
    for (; r; r = r->prev) {
        if (apr_table_get(r->notes, "proxy-100-continue")) {
            return 1;
        }
    }
    return 0;
}

static void gather(request_rec *r, idem_ctx_t *ctx, idem_response_facts_t *facts)
{
    const request_rec *any;

    facts->handler_ran = ctx->handler_ran;
    facts->handler_status = ctx->handler_status > 0 ? ctx->handler_status : 0;
    /* what an earlier handler of the chain did, or one that had part of the body, no refusal of a later one undoes */
    facts->passed_nothing = !ctx->passed_anything && !ctx->earlier_ran && !ctx->body_failed;
    for (any = r; any; any = any->prev) {
        facts->error_override |= apr_table_get(any->notes, "proxy-error-override") != NULL;
    }
    facts->never_connected = ctx->never_connected && !ctx->earlier_ran;
    facts->request_sent = ctx->request_sent || may_ping(r);
    facts->broken = ctx->broken || ctx->handler_status == AP_FILTER_ERROR;
    facts->backend_answered = ctx->passed_anything || facts->error_override;
    facts->status = telling_status(r, ctx);
    facts->said = said_outcome(r);
    facts->rule = idem_settle_rule(r, ctx);
    facts->effect = ctx->effect;
}

typedef struct selection_t {
    apr_table_t *fields;
    const apr_array_header_t *extra;
} selection_t;

static int select_field(void *baton, const char *name, const char *value)
{
    selection_t *selection = baton;

    if (apr_cstr_casecmp(name, "Content-Type") && idem_snapshot_wants(name, selection->extra)) {
        apr_table_addn(selection->fields, name, value);
    }
    return 1;
}

static void add_known(apr_table_t *fields, const char *name, const char *value)
{
    if (value && !apr_table_get(fields, name)) {
        apr_table_setn(fields, name, value);
    }
}

/* An empty head says that the response came and was not kept; no head would say that it is on its way. */
static void keep_nothing(request_rec *r, idem_octets_t *head)
{
    unsigned char *octets;

    idem_snapshot_encode_headers(r->pool, apr_table_make(r->pool, 1), NULL, &octets, &head->len);
    head->octets = octets;
}

/*
 * The reason phrase where the backend has said one; IDEM_SNAPSHOT_NO_REASON where it has said that there is none. httpd
 * takes a line of its own where that does not begin with the status, or is the status alone, as of a CGI script.
 */
static const char *own_reason(const request_rec *r)
{
    if (!r->status_line || atoi(r->status_line) != r->status || strlen(r->status_line) < 4) {
        return NULL;
    }
    return strlen(r->status_line) > 4 ? r->status_line + 4 : IDEM_SNAPSHOT_NO_REASON;
}

/* What is kept of the head. A CGI's own fields are in err_headers_out, a proxy's in headers_out. */
static int keep_head(request_rec *r, const idem_ctx_t *ctx, idem_settle_t *settle)
{
    selection_t selection = {apr_table_make(r->pool, 16), ctx->conf->snapshot_headers};
    const char *reason = own_reason(r);
    unsigned char *octets;
    idem_snapshot_result_e result;

    /* httpd sends no Content-Type of its own with a status that has no body; a proxied one goes out all the same */
    add_known(selection.fields, "Content-Type",
              AP_STATUS_IS_HEADER_ONLY(r->status) ? apr_table_get(r->headers_out, "Content-Type") : r->content_type);
    apr_table_do(select_field, &selection, r->headers_out, NULL);
    apr_table_do(select_field, &selection, r->err_headers_out, NULL);
    add_known(selection.fields, "Content-Encoding", r->content_encoding);
    if (r->content_languages && r->content_languages->nelts) {
        add_known(selection.fields, "Content-Language", apr_array_pstrcat(r->pool, r->content_languages, ','));
    }
    result = idem_snapshot_encode_headers(r->pool, selection.fields, reason, &octets, &settle->response_headers.len);
    if (result != IDEM_SNAPSHOT_OK) {
        ap_log_rerror(APLOG_MARK, APLOG_WARNING, 0, r, IDEM_LOG("0803") "no snapshot can be made of this response: %s",
                      idem_snapshot_result_text(result));
        keep_nothing(r, &settle->response_headers);
        return 0;
    }
    settle->response_headers.octets = octets;
    return 1;
}

static void keep_body(request_rec *r, const idem_pile_t *body, idem_settle_t *settle)
{
    unsigned char *digest = apr_palloc(r->pool, IDEM_SHA256_LEN);

    settle->response_body.len = body->len;
    settle->response_body.octets = (const unsigned char *)(body->len ? body->octets : "");
    idem_sha256(settle->response_body.octets, settle->response_body.len, digest);
    settle->response_digest.octets = digest;
    settle->response_digest.len = IDEM_SHA256_LEN;
}

static void report(request_rec *r, const idem_settlement_t *settlement)
{
    const idem_settle_t *settle = &settlement->settle;
    const char *operation = idem_uuid_text(r->pool, settle->operation);

    switch (settle->result) {
    case IDEM_STORE_OK:
        ap_log_rerror(APLOG_MARK, APLOG_DEBUG, 0, r, IDEM_LOG("0804") "operation %s settled as %s%s", operation,
                      idem_outcome_name(settle->outcome), settlement->by_backend ? " by its backend" : "");
        if (settlement->backend_first && !settlement->by_backend && settle->outcome == IDEM_OUTCOME_UNKNOWN &&
            r->status < 400) {
            ap_log_rerror(APLOG_MARK, APLOG_ERR, 0, r, IDEM_LOG("0808")
                          "operation %s: its backend answered %d and has not settled, as a transactional one must: UNKNOWN",
                          operation, r->status);
        }
        break;
    case IDEM_STORE_STALE:
    case IDEM_STORE_NOT_FOUND:
        ap_log_rerror(APLOG_MARK, APLOG_ERR, 0, r, IDEM_LOG("0805")
                      "operation %s: the settlement (%s) of generation %d came too late, the record is %s", operation,
                      idem_outcome_name(settle->outcome), settle->generation, idem_state_name(settle->state));
        break;
    default:
        ap_log_rerror(APLOG_MARK, APLOG_ERR, 0, r, IDEM_LOG("0806")
                      "operation %s: the store did not take the settlement (%s); the response is sent all the same",
                      operation, idem_outcome_name(settle->outcome));
        break;
    }
}

/*
 * The settlement was refused because the record has gone on without this owner. What the client is told: where a
 * later generation can only have begun with this one's work undone or repeatable, what every retry will be told.
 * In `external` the effect has happened and only this response knows of it: it goes out as it is.
 */
static int answer_late(request_rec *r, idem_ctx_t *ctx, const idem_settle_t *settle)
{
    if ((settle->result != IDEM_STORE_STALE && settle->result != IDEM_STORE_NOT_FOUND) ||
        ctx->effect == IDEM_EFFECT_EXTERNAL) {
        return 0;
    }
    idem_accept_look(r, ctx);
    return 1;
}

/* The store is away. Without the response nobody may claim success: without a journal the child's thread says UNKNOWN. */
static void keep_for_later(request_rec *r, idem_ctx_t *ctx, const idem_settlement_t *settlement)
{
    const idem_settle_t *settle = &settlement->settle;
    int needs_response = settle->outcome == IDEM_OUTCOME_SUCCEEDED || settle->outcome == IDEM_OUTCOME_FAILED;

    if (ctx->server->journaling &&
        idem_journaling_write(ctx->server->journaling, idem_context_store(ctx), settlement, r)) {
        idem_child_wake(ctx->server->store);
        return;
    }
    idem_child_settle_later(ctx->server->store, settle->tenant, settle->operation, settle->generation,
                            needs_response ? IDEM_OUTCOME_UNKNOWN : settle->outcome, settlement->backend_first);
}

static void fill(request_rec *r, idem_ctx_t *ctx, const idem_pile_t *body, idem_settlement_t *settlement)
{
    idem_settle_t *settle = &settlement->settle;
    idem_response_facts_t facts = {0};
    int keeps;

    gather(r, ctx, &facts);
    settle->tenant = ctx->scope.tenant;
    memcpy(settle->operation, ctx->operation, sizeof(settle->operation));
    settle->generation = ctx->generation;
    settle->outcome = idem_machine_outcome(&facts);
    settle->response_code = r->status;
    settle->actor = "httpd";
    settle->reason = "settled by the response";
    settlement->backend_first = ctx->effect == IDEM_EFFECT_TRANSACTIONAL && !idem_machine_refused(&facts);
    settlement->response_whole = !facts.broken && facts.backend_answered;
    keep_nothing(r, &settlement->empty_head);
    keeps = settle->outcome == IDEM_OUTCOME_SUCCEEDED || settle->outcome == IDEM_OUTCOME_FAILED ||
            ((settle->outcome == IDEM_OUTCOME_UNKNOWN || settlement->backend_first) && !ctx->broken);
    if (keeps && keep_head(r, ctx, settle) && body) {
        keep_body(r, body, settle);
    }
}

int idem_settle(request_rec *r, idem_ctx_t *ctx, const idem_pile_t *body)
{
    idem_store_t *store = idem_context_store(ctx);
    idem_settlement_t settlement = {0};
    const idem_settle_t *settle = &settlement.settle;
    apr_time_t begun;
    int replaced;

    fill(r, ctx, body, &settlement);
    begun = apr_time_now();
    idem_settlement_apply(store, &settlement, begun + store->timeout, r->pool);
    idem_counters_time(ctx->server->counters, IDEM_TIMED_SETTLE, apr_time_now() - begun);
    report(r, &settlement);
    if (ctx->reserve_in_doubt && settle->result == IDEM_STORE_OK && !idem_machine_is_record(settle->state)) {
        /* the row is gone; a sending of its reserve that is still under way would make it anew, with nobody to end it */
        idem_child_withdraw(ctx->server->store, ctx->scope.tenant, ctx->operation, ctx->owner_token, ctx->generation);
    }
    if (settle->outcome == IDEM_OUTCOME_REJECTED && settle->result == IDEM_STORE_OK) {
        ctx->outcome_note = "rejected";
    }
    else if (settle->outcome == IDEM_OUTCOME_UNKNOWN) {
        ctx->outcome_note = "unknown";
    }
    if (settle->result == IDEM_STORE_UNAVAILABLE || settle->result == IDEM_STORE_AMBIGUOUS) {
        keep_for_later(r, ctx, &settlement);
    }
    if (!settlement.by_backend) {
        idem_cached_keep_settled(r, ctx, settle);
    }
    replaced = answer_late(r, ctx, settle);
    ctx->phase = IDEM_PHASE_SETTLED;
    idem_inflight_end(ctx);
    return !replaced;
}

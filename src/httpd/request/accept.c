#include "httpd/request/accept.h"

#include <apr_strings.h>
#include <httpd.h>
#include <http_log.h>

#include "core/digest.h"
#include "core/uuid.h"
#include "httpd/request/answer.h"
#include "httpd/request/cached.h"
#include "httpd/child/child.h"
#include "httpd/child/counters.h"
#include "httpd/request/dispatch.h"
#include "httpd/child/inflight.h"
#include "httpd/logging.h"
#include "httpd/request/lookup.h"

APLOG_USE_MODULE(idempotency);

#define RETRY_QUOTA 60
#define MOST_LOOKS 4 /* a lost race is seen by the next look; a record that changes at every look is in progress */

static void keep_operation(idem_ctx_t *ctx, const unsigned char *operation, int generation)
{
    memcpy(ctx->operation, operation, IDEM_UUID_LEN);
    ctx->generation = generation;
    ctx->has_operation = 1;
}

void idem_accept_refuse_store(idem_ctx_t *ctx)
{
    idem_context_refuse(ctx, IDEM_PROBLEM_STORE_UNAVAILABLE, NULL);
    ctx->answer.retry_after = IDEM_RETRY_STORE;
}

/* Nothing may begin, and no record answers. */
static void refuse_new(idem_ctx_t *ctx)
{
    if (ctx->over_quota) {
        idem_context_refuse(ctx, IDEM_PROBLEM_QUOTA_EXCEEDED, NULL);
        ctx->answer.retry_after = RETRY_QUOTA;
        return;
    }
    if (ctx->look_only) {
        idem_context_refuse(ctx, IDEM_PROBLEM_PAYLOAD_REJECTED, *ctx->look_only ? ctx->look_only : NULL);
        return;
    }
    idem_context_refuse(ctx, IDEM_PROBLEM_WRITER_FENCED, NULL);
    ctx->answer.retry_after = IDEM_RETRY_STORE;
}

/*
 * The registry certainly has nothing of this request and cannot be asked. IdempotencyStoreFailure Open: it runs as if
 * there were no module. Only for a reserve: where a record was seen, or one may have been made, that is never done.
 */
static void without_store(request_rec *r, idem_ctx_t *ctx)
{
    if (ctx->server->store_failure != IDEM_FAILURE_OPEN || ctx->over_quota || ctx->look_only || ctx->conf->mode == IDEM_MODE_READ_ONLY) {
        idem_accept_refuse_store(ctx);
        return;
    }
    ap_log_rerror(APLOG_MARK, APLOG_WARNING, 0, r,
                  IDEM_LOG("0403") "the registry cannot be used: the request runs without protection and leaves no record");
    ctx->phase = IDEM_PHASE_PASSED;
    ctx->outcome_note = "unprotected";
}

/* A sending of this reserve got no answer: it may show at any time, and must not stay. */
static void withdraw(idem_ctx_t *ctx, const idem_reserve_t *wanted)
{
    idem_child_withdraw(ctx->server->store, wanted->scope.tenant, wanted->operation, wanted->owner_token, 1);
}

/* A child's first request comes before its first connection, and with that the key for digests: it is waited for. */
static void wait_for_digest_key(const idem_store_t *store)
{
    idem_conn_t *conn;

    if (!store->digest_key_known &&
        store->source->borrow(store->source->baton, apr_time_now() + store->timeout, &conn) == APR_SUCCESS) {
        store->source->give_back(store->source->baton, conn);
    }
}

/* What a record is looked for by. */
static idem_reserve_t *begin_request(idem_ctx_t *ctx)
{
    idem_reserve_t *wanted = apr_pcalloc(ctx->pool, sizeof(*wanted));
    const char *recipe = idem_recipe_format(ctx->pool, ctx->recipe);

    idem_lookup_scopes(ctx, wanted);
    wanted->contract = IDEM_CONTRACT_NAME;
    memcpy(wanted->fingerprint, ctx->fingerprint, sizeof(wanted->fingerprint));
    wanted->recipe.octets = (const unsigned char *)recipe;
    wanted->recipe.len = strlen(recipe);
    wanted->retention = ctx->conf->retention;
    return wanted;
}

/* The rest of what the registry is told. */
static idem_reserve_t *make_request(idem_ctx_t *ctx, const idem_store_t *store, idem_reserve_t *wanted)
{
    const idem_dir_t *conf = ctx->conf;

    wait_for_digest_key(store);
    wanted->fingerprint_parts.octets = (const unsigned char *)"";
    if (store->digest_key_known) {
        unsigned char *parts = apr_palloc(ctx->pool, IDEM_PARTS_LEN);

        idem_fingerprint_parts(ctx->pool, ctx->framed, ctx->framed_len, store->digest_key, parts);
        wanted->fingerprint_parts.octets = parts;
        wanted->fingerprint_parts.len = IDEM_PARTS_LEN;
    }
    wanted->effect = (idem_effect_e)conf->effect;
    wanted->state = idem_machine_first(wanted->effect, conf->dispatch_mark);
    wanted->lease = conf->lease;
    wanted->max_run = conf->max_run;
    wanted->quiet = conf->quiet;
    wanted->tombstone = conf->tombstone;
    wanted->reuse_allowed = conf->reuse == IDEM_REUSE_ALLOW;
    wanted->body_limit = conf->max_snapshot;
    wanted->may_write = idem_lookup_may_write(ctx);
    return wanted;
}

/* Ids of their own for every attempt: an attempt without an answer must not be mistaken for a later one. */
static int new_ids(idem_reserve_t *wanted)
{
    return idem_uuid_v7_pair(wanted->operation, wanted->owner_token, apr_time_now()) == APR_SUCCESS;
}

static idem_verdict_e judge(const idem_ctx_t *ctx, const idem_reserve_t *wanted, const idem_record_t *found, int same)
{
    idem_facts_t facts = {0};

    facts.state = found->state;
    facts.record_effect = found->effect;
    facts.route_effect = wanted->effect;
    facts.fingerprint_equal = same;
    facts.expired = found->expired;
    facts.tombstone_over = found->tombstone_over;
    facts.reuse_allowed = found->reuse_allowed;
    facts.lapsed = found->lapsed;
    facts.attempt_open = found->attempt_open;
    facts.response_stored = found->response_headers.octets && found->response_body.octets;
    facts.response_on_its_way = !found->response_headers.octets && found->owner_alive;
    facts.writer_allowed = 1;
    facts.read_only = ctx->conf->mode == IDEM_MODE_READ_ONLY;
    return idem_machine_verdict(&facts);
}

static void begin(idem_ctx_t *ctx, const idem_reserve_t *wanted, const unsigned char *operation, int generation)
{
    keep_operation(ctx, operation, generation);
    memcpy(ctx->owner_token, wanted->owner_token, IDEM_UUID_LEN);
    ctx->effect = wanted->effect;
    ctx->state = wanted->state;
    ctx->phase = IDEM_PHASE_RUNNING;
    ctx->outcome_note = "executed";
    idem_inflight_begin(ctx);
}

/* Verdicts that write once more. 1 where the record has changed meanwhile and deserves another look. */
static int act(request_rec *r, idem_ctx_t *ctx, idem_store_t *store, idem_verdict_e verdict, idem_reserve_t *wanted,
               const idem_record_t *found)
{
    apr_time_t deadline = apr_time_now() + store->timeout;
    idem_reserve_t owner = *wanted;
    idem_take_over_t take = {found, &owner, verdict == IDEM_VERDICT_REUSE, 0};
    idem_store_result_e result;

    if (!take.reuse && found->effect > owner.effect) {
        /* the stricter mode decides, also on what is written before the backend runs */
        owner.effect = found->effect;
        owner.state = idem_machine_first(owner.effect, ctx->conf->dispatch_mark);
    }

    if (verdict == IDEM_VERDICT_MARK_UNKNOWN) {
        result = store->provider->mark_unknown(store, found, "httpd", "owner lapsed", deadline, ctx->pool);
    }
    else {
        result = store->provider->take_over(store, &take, deadline, ctx->pool);
    }
    switch (result) {
    case IDEM_STORE_OK:
        if (verdict == IDEM_VERDICT_MARK_UNKNOWN) {
            ap_log_rerror(APLOG_MARK, APLOG_WARNING, 0, r, IDEM_LOG("0401") "operation %s is UNKNOWN: its owner is gone",
                          idem_uuid_text(r->pool, found->operation));
            idem_answer_verdict(ctx, IDEM_VERDICT_OUTCOME_UNKNOWN, wanted, found);
        }
        else {
            begin(ctx, &owner, take.reuse ? owner.operation : found->operation, take.generation);
        }
        return 0;
    case IDEM_STORE_STALE:
    case IDEM_STORE_NOT_FOUND:
        return 1;
    case IDEM_STORE_BUSY:
        idem_answer_verdict(ctx, IDEM_VERDICT_IN_PROGRESS, wanted, found);
        return 0;
    case IDEM_STORE_FENCED:
        if (idem_lookup_refresh(r, ctx, wanted)) {
            return 1;
        }
        idem_answer_verdict(ctx, IDEM_VERDICT_WRITER_FENCED, wanted, found);
        return 0;
    case IDEM_STORE_AMBIGUOUS:
        if (verdict != IDEM_VERDICT_MARK_UNKNOWN) {
            idem_child_withdraw(ctx->server->store, ctx->scope.tenant,
                                take.reuse ? wanted->operation : found->operation, wanted->owner_token,
                                found->generation + 1);
        }
        idem_accept_refuse_store(ctx);
        return 0;
    default:
        idem_accept_refuse_store(ctx);
        return 0;
    }
}

/* The record was made in a way that this server cannot repeat. Never a conflict: the retry may be an honest one. */
static void say_unreadable(request_rec *r, idem_ctx_t *ctx)
{
    ap_log_rerror(APLOG_MARK, APLOG_NOTICE, 0, r, IDEM_LOG("0405") "operation %s was made by a contract or recipe that is not "
                  "configured or not known here: no retry can be compared with it", idem_uuid_text(r->pool, ctx->operation));
    ctx->answer.detail = "This request was not executed. The key was used before, by a request that cannot be compared with "
                         "this one any more: the service has changed how it reads requests. Keep the key and ask the "
                         "operator, who can find out what became of the first one.";
}

/* One look. 1 where another one is needed. */
static int look(request_rec *r, idem_ctx_t *ctx, idem_store_t *store, idem_reserve_t *wanted)
{
    apr_time_t begun = apr_time_now();
    const idem_record_t *found;
    idem_verdict_e verdict;
    int same;

    ctx->scope = wanted->scope;
    store->provider->reserve(store, &wanted, 1, begun + store->timeout, ctx->pool);
    idem_counters_time(ctx->server->counters, IDEM_TIMED_RESERVE, apr_time_now() - begun);
    if (wanted->maybe_written && wanted->result != IDEM_STORE_OK) {
        withdraw(ctx, wanted);
    }
    switch (wanted->result) {
    case IDEM_STORE_OK:
        ctx->reserve_in_doubt = wanted->maybe_written;
        ctx->reserve = wanted;
        begin(ctx, wanted, wanted->operation, 1);
        return 0;
    case IDEM_STORE_FOUND:
        break;
    case IDEM_STORE_FENCED:
        if (idem_lookup_refresh(r, ctx, wanted)) {
            return 1;
        }
        idem_answer_verdict(ctx, IDEM_VERDICT_WRITER_FENCED, wanted, NULL);
        return 0;
    case IDEM_STORE_NOT_FOUND:
        if (idem_lookup_refresh(r, ctx, wanted)) {
            return 1;
        }
        refuse_new(ctx);
        return 0;
    case IDEM_STORE_AMBIGUOUS:
        /* never executed; the child's thread takes the row away again if it came to be */
        idem_accept_refuse_store(ctx);
        return 0;
    default:
        without_store(r, ctx);
        return 0;
    }
    found = idem_lookup_decisive(ctx, wanted, &same);
    /* an alias that this child has not seen yet may lead to the record of this very request */
    if (!same && idem_lookup_refresh(r, ctx, wanted)) {
        return 1;
    }
    ctx->scope = found->scope;
    keep_operation(ctx, found->operation, found->generation);
    verdict = judge(ctx, wanted, found, same);
    if ((ctx->look_only && (verdict == IDEM_VERDICT_TAKE_OVER || verdict == IDEM_VERDICT_REUSE)) ||
        (ctx->over_quota && verdict == IDEM_VERDICT_REUSE)) {
        refuse_new(ctx);
        return 0;
    }
    if (verdict == IDEM_VERDICT_TAKE_OVER || verdict == IDEM_VERDICT_REUSE || verdict == IDEM_VERDICT_MARK_UNKNOWN) {
        return act(r, ctx, store, verdict, wanted, found);
    }
    idem_answer_verdict(ctx, verdict, wanted, found);
    if (same < 0) {
        say_unreadable(r, ctx);
    }
    if (verdict == IDEM_VERDICT_REPLAY) {
        idem_cached_keep(r, ctx, wanted, found);
    }
    return 0;
}

void idem_accept(request_rec *r, idem_ctx_t *ctx)
{
    idem_store_t *store = idem_context_store(ctx);
    const idem_record_t *cached;
    idem_reserve_t *wanted;
    int looks;

    if (!store) {
        without_store(r, ctx);
        return;
    }
    ctx->over_quota = 0;
    wanted = begin_request(ctx);
    cached = idem_cached_find(r, ctx, wanted);
    if (cached) {
        ctx->scope = cached->scope;
        keep_operation(ctx, cached->operation, cached->generation);
        idem_answer_verdict(ctx, IDEM_VERDICT_REPLAY, wanted, cached);
        return;
    }
    make_request(ctx, store, wanted);
    ctx->over_quota = wanted->may_write && !idem_quota_allows(r, ctx);
    wanted->may_write &= !ctx->over_quota;
    for (looks = 0; looks < MOST_LOOKS; looks++) {
        ctx->reserved_at = idem_dispatch_moment();
        if (!new_ids(wanted)) {
            ap_log_rerror(APLOG_MARK, APLOG_ERR, 0, r, IDEM_LOG("0402") "no random octets to be had for an operation id");
            idem_accept_refuse_store(ctx);
            return;
        }
        if (!look(r, ctx, store, wanted)) {
            return;
        }
    }
    idem_answer_verdict(ctx, IDEM_VERDICT_IN_PROGRESS, wanted, NULL);
}

void idem_accept_look(request_rec *r, idem_ctx_t *ctx)
{
    idem_store_t *store = idem_context_store(ctx);
    idem_reserve_t *wanted = make_request(ctx, store, begin_request(ctx));
    const idem_record_t *found;
    idem_verdict_e verdict;
    int same;

    wanted->may_write = 0;
    store->provider->reserve(store, &wanted, 1, apr_time_now() + store->timeout, ctx->pool);
    if (wanted->result == IDEM_STORE_FOUND) {
        found = idem_lookup_decisive(ctx, wanted, &same);
        ctx->scope = found->scope;
        keep_operation(ctx, found->operation, found->generation);
        verdict = judge(ctx, wanted, found, same);
        /* an owner that lapsed is the next retry's to deal with */
        idem_answer_verdict(ctx, verdict == IDEM_VERDICT_MARK_UNKNOWN ? IDEM_VERDICT_OUTCOME_UNKNOWN : verdict, wanted, found);
    }
    else if (wanted->result == IDEM_STORE_NOT_FOUND) {
        idem_answer_verdict(ctx, IDEM_VERDICT_IN_PROGRESS, wanted, NULL);
    }
    else {
        idem_accept_refuse_store(ctx);
    }
    ap_log_rerror(APLOG_MARK, APLOG_DEBUG, 0, r, IDEM_LOG("0404") "operation %s, looked at again: %s",
                  idem_uuid_text(r->pool, ctx->operation), ctx->outcome_note);
}

#include "httpd/request/shadow.h"

#include <apr_strings.h>
#include <httpd.h>
#include <http_log.h>
#include <util_filter.h>

#include "core/digest.h"
#include "httpd/request/body.h"
#include "httpd/child/child.h"
#include "httpd/request/key.h"
#include "httpd/request/prepare.h"
#include "httpd/request/recipe.h"
#include "httpd/request/route.h"
#include "httpd/request/settle.h"
#include "httpd/child/shadow_queue.h"

#define FILTER_NAME        "IDEMPOTENCY_SHADOW"
#define ANSWER_FILTER_NAME "IDEMPOTENCY_SHADOW_ANSWER"

/* What is known of one request. */
struct idem_shadow_t {
    apr_time_t begun;
    apr_time_t answered;    /* when the end of the response set out for the client; 0: not seen */
    const char *refused;    /* a problem's word; NULL: none so far */
    int unkeyed;
    idem_recipe_t *recipe;
    idem_request_t *request;
    idem_payload_t *payload;
    idem_sha256_t *sha;
    apr_off_t length;
    int ended;              /* the body was seen to its end */
    int rejected;
};

static void look_at(request_rec *r, idem_ctx_t *ctx, apr_bucket_brigade *bb)
{
    idem_shadow_t *shadow = ctx->shadow;
    apr_bucket *e;

    for (e = APR_BRIGADE_FIRST(bb); e != APR_BRIGADE_SENTINEL(bb); e = APR_BUCKET_NEXT(e)) {
        const char *data;
        apr_size_t len;

        if (APR_BUCKET_IS_EOS(e)) {
            shadow->ended = 1;
            return;
        }
        /* what is not there yet is the reader's to wait for */
        if (APR_BUCKET_IS_METADATA(e) || apr_bucket_read(e, &data, &len, APR_BLOCK_READ) != APR_SUCCESS) {
            continue;
        }
        shadow->length += (apr_off_t)len;
        if (shadow->length > idem_body_largest(r, ctx->conf)) {
            shadow->refused = idem_problem_type(IDEM_PROBLEM_PAYLOAD_TOO_LARGE)->slug;
        }
        else if (!shadow->rejected && !shadow->refused) {
            shadow->rejected = idem_payload_feed(shadow->payload, data, len) != APR_SUCCESS;
        }
    }
}

static apr_status_t shadow_filter(ap_filter_t *f, apr_bucket_brigade *bb, ap_input_mode_t mode, apr_read_type_e block,
                                  apr_off_t readbytes)
{
    idem_ctx_t *ctx = f->ctx;
    apr_status_t rv = ap_get_brigade(f->next, bb, mode, block, readbytes);

    if (rv == APR_SUCCESS && (mode == AP_MODE_READBYTES || mode == AP_MODE_GETLINE || mode == AP_MODE_EXHAUSTIVE)) {
        look_at(f->r, ctx, bb);
    }
    return rv;
}

/* Who has the whole answer may ask again at once, while this request is still to be logged. */
static apr_status_t answer_filter(ap_filter_t *f, apr_bucket_brigade *bb)
{
    idem_ctx_t *ctx = f->ctx;

    if (ctx->shadow && !APR_BRIGADE_EMPTY(bb) && APR_BUCKET_IS_EOS(APR_BRIGADE_LAST(bb))) {
        ctx->shadow->answered = apr_time_now();
    }
    return ap_pass_brigade(f->next, bb);
}

static int has_body(const request_rec *r)
{
    return apr_table_get(r->headers_in, "Content-Length") || apr_table_get(r->headers_in, "Transfer-Encoding");
}

/* Everything that Enforce asks before it reads the body. What would be an answer is only remembered. */
static int look_at_head(request_rec *r, idem_ctx_t *ctx, idem_shadow_t *shadow)
{
    const char *detail;

    if (!idem_key_read(r, ctx) || !idem_prepare_scope(r, ctx)) {
        shadow->unkeyed = ctx->phase == IDEM_PHASE_PASSED && !ctx->outcome_note;
        shadow->refused = ctx->outcome_note;
        return 0;
    }
    shadow->request = idem_prepare_describe(r, ctx);
    shadow->recipe = idem_recipe_of(r, ctx, &detail);
    if (!shadow->recipe) {
        shadow->refused = idem_problem_type(IDEM_PROBLEM_PAYLOAD_REJECTED)->slug;
    }
    return shadow->recipe != NULL;
}

void idem_shadow_begin(request_rec *r, idem_ctx_t *ctx)
{
    idem_shadow_t *shadow = apr_pcalloc(ctx->pool, sizeof(*shadow));

    ctx->shadow = shadow;
    shadow->begun = apr_time_now();
    ap_add_output_filter(ANSWER_FILTER_NAME, ctx, r, r->connection);
    if (look_at_head(r, ctx, shadow)) {
        ctx->request = shadow->request;
        shadow->sha = idem_sha256_init(ctx->pool);
        shadow->payload = idem_body_reader(ctx, shadow->recipe, shadow->sha);
        shadow->ended = !has_body(r);
        if (!shadow->ended) {
            ap_add_input_filter(FILTER_NAME, ctx, r, r->connection);
        }
    }
    /* and now as if nothing had been asked */
    memset(&ctx->answer, 0, sizeof(ctx->answer));
    ctx->outcome_note = NULL;
    ctx->phase = IDEM_PHASE_PASSED;
}

/* Before httpd's own protocol filter and after all others: what it sees is the body. An internal redirect loses it. */
void idem_shadow_follow(request_rec *r, idem_ctx_t *ctx)
{
    if (r->prev && ctx->shadow->payload && !ctx->shadow->ended) {
        ap_add_input_filter(FILTER_NAME, ctx, r, r->connection);
    }
}

/* What Enforce would have made of the response, as far as that is seen from outside. */
static idem_outcome_e outcome_of(request_rec *last, idem_ctx_t *ctx)
{
    idem_response_facts_t facts = {0};
    const char *said = apr_table_get(last->headers_out, "Idempotency-Outcome");

    said = said ? said : apr_table_get(last->err_headers_out, "Idempotency-Outcome");
    facts.handler_ran = 1;
    facts.backend_answered = 1;
    facts.status = last->status;
    facts.said = said ? idem_outcome_parse(said) : IDEM_OUTCOME_NONE;
    facts.said = facts.said >= IDEM_OUTCOME_RELEASED ? IDEM_OUTCOME_UNKNOWN : facts.said;
    facts.rule = idem_settle_rule(last, ctx);
    facts.effect = (idem_effect_e)ctx->conf->effect;
    return idem_machine_outcome(&facts);
}

/* The fingerprint, or the word of why there is none. */
static const char *finish_body(idem_ctx_t *ctx, idem_shadow_t *shadow, idem_shadow_job_t *job)
{
    if (shadow->refused) {
        return shadow->refused;
    }
    if (!shadow->ended) {
        return "body-not-read";
    }
    if (shadow->rejected || idem_payload_finish(shadow->payload) != APR_SUCCESS) {
        return idem_problem_type(IDEM_PROBLEM_PAYLOAD_REJECTED)->slug;
    }
    idem_sha256_final(shadow->sha, shadow->request->payload);
    idem_fingerprint_frame(ctx->pool, shadow->recipe, shadow->request, &job->framed, &job->framed_len);
    idem_sha256(job->framed, job->framed_len, job->fingerprint);
    job->framed = apr_pmemdup(job->pool, job->framed, job->framed_len);
    return NULL;
}

static apr_array_header_t *copy_texts(apr_pool_t *p, const apr_array_header_t *texts)
{
    apr_array_header_t *copy = apr_array_make(p, texts->nelts, sizeof(const char *));
    int i;

    for (i = 0; i < texts->nelts; i++) {
        APR_ARRAY_PUSH(copy, const char *) = apr_pstrdup(p, APR_ARRAY_IDX(texts, i, const char *));
    }
    return copy;
}

int idem_shadow_finish(request_rec *r)
{
    idem_ctx_t *ctx = idem_context_get(r);
    idem_shadow_queue_t *queue = ctx && ctx->shadow ? idem_child_shadow(ctx->server->store) : NULL;
    idem_shadow_job_t *job = queue ? idem_shadow_queue_job(queue) : NULL;
    const idem_dir_t *conf;
    request_rec *last;

    if (!job) {
        return DECLINED;
    }
    conf = ctx->conf;
    for (last = r; last->next; last = last->next) {
    }
    job->route = apr_pstrdup(job->pool, ctx->route_name ? ctx->route_name : ctx->route->name);
    job->begun = ctx->shadow->begun;
    job->ended = ctx->shadow->answered ? ctx->shadow->answered : apr_time_now();
    job->refused = ctx->shadow->unkeyed ? "unkeyed" : finish_body(ctx, ctx->shadow, job);
    job->refused = job->refused ? apr_pstrdup(job->pool, job->refused) : NULL;
    if (!job->refused) {
        job->scope = idem_scope_copy(job->pool, &ctx->scope);
        job->scope.version = IDEM_SCOPE_VERSION_SHADOW;
        job->accepts = ctx->route->accepts ? copy_texts(job->pool, ctx->route->accepts) : NULL;
        job->recipe = idem_recipe_format(job->pool, ctx->shadow->recipe);
        job->lease = conf->lease;
        job->max_run = conf->max_run;
        job->quiet = conf->quiet;
        job->retention = conf->retention;
        job->tombstone = conf->tombstone;
        job->reuse_allowed = conf->reuse == IDEM_REUSE_ALLOW;
        job->status = last->status;
        job->outcome = outcome_of(last, ctx);
    }
    ctx->shadow = NULL;
    if (idem_shadow_queue_add(queue, job)) {
        idem_child_wake(ctx->server->store);
    }
    return DECLINED;
}

void idem_shadow_register(void)
{
    ap_register_input_filter(FILTER_NAME, shadow_filter, NULL, AP_FTYPE_PROTOCOL - 1);
    /* an internal redirect and an error leave it where it is */
    ap_register_output_filter(ANSWER_FILTER_NAME, answer_filter, NULL, AP_FTYPE_PROTOCOL);
}

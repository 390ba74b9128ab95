#include "httpd/request/replay.h"

#include <apr_cstr.h>
#include <apr_strings.h>
#include <httpd.h>
#include <http_core.h>
#include <http_log.h>
#include <http_protocol.h>
#include <util_filter.h>

#include "core/digest.h"
#include "core/snapshot.h"
#include "core/uuid.h"
#include "httpd/request/capture.h"
#include "httpd/child/child.h"
#include "httpd/logging.h"

APLOG_USE_MODULE(idempotency);

void idem_replay_unmark(request_rec *r, const idem_ctx_t *ctx)
{
    const char *names[] = {"Idempotency-Contract", "Idempotency-Operation", "Idempotency-Replayed", ctx->conf->replayed_header};
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        apr_table_unset(r->headers_out, names[i]);
        apr_table_unset(r->err_headers_out, names[i]);
    }
}

static void mark(request_rec *r, const idem_ctx_t *ctx, apr_table_t *fields)
{
    apr_table_setn(fields, "Idempotency-Contract", IDEM_CONTRACT_NAME);
    if (ctx->has_operation) {
        apr_table_setn(fields, "Idempotency-Operation", idem_uuid_text(r->pool, ctx->operation));
    }
}

void idem_replay_mark(request_rec *r, const idem_ctx_t *ctx)
{
    mark(r, ctx, r->headers_out);
}

void idem_replay_mark_error(request_rec *r, const idem_ctx_t *ctx)
{
    mark(r, ctx, r->err_headers_out);
}

/* The status line as it goes out: httpd turns a status that it does not know into 500 unless there is a line. */
static void set_status(request_rec *r, int status, const char *reason)
{
    r->status = status;
    r->status_line = reason && *reason ? apr_psprintf(r->pool, "%03d %s", status,
                                                      strcmp(reason, IDEM_SNAPSHOT_NO_REASON) ? reason : "")
                                       : ap_get_status_line_ex(r->pool, status);
}

static int send_octets(request_rec *r, const idem_ctx_t *ctx, const void *octets, apr_size_t len)
{
    ap_filter_t *next = idem_capture_position(r, ctx);
    apr_bucket_brigade *bb = apr_brigade_create(r->pool, r->connection->bucket_alloc);

    if (len) {
        APR_BRIGADE_INSERT_TAIL(bb, apr_bucket_immortal_create(octets, len, r->connection->bucket_alloc));
    }
    APR_BRIGADE_INSERT_TAIL(bb, apr_bucket_eos_create(r->connection->bucket_alloc));
    /* A client that has left is no error of ours: the connection is ended by the core. */
    ap_pass_brigade(next, bb);
    return OK;
}

/* Who and which key, for a log: recognisable, and not to be read. NULL while the request has no scope. */
static const char *scope_digest(request_rec *r, const idem_ctx_t *ctx)
{
    const idem_store_t *store = idem_context_store(ctx);

    return ctx->scope.key && ctx->scope.route && store && store->digest_key_known
               ? idem_scope_log_digest(r->pool, &ctx->scope, store->digest_key, sizeof(store->digest_key))
               : NULL;
}

static int send_problem(request_rec *r, const idem_ctx_t *ctx)
{
    const idem_answer_t *answer = &ctx->answer;
    const idem_problem_type_t *type = idem_problem_type(answer->problem);
    idem_problem_args_t args = {0};
    const char *scope = APLOG_R_IS_LEVEL(r, APLOG_INFO) ? scope_digest(r, ctx) : NULL;
    const char *body;
    apr_size_t len;

    args.problem = answer->problem;
    args.detail = answer->detail;
    args.operation = ctx->has_operation ? idem_uuid_text(r->pool, ctx->operation) : NULL;
    args.docs = ctx->server->docs;
    args.error_member = ctx->conf->error_member;
    args.outcome = answer->outcome;
    args.original_status = answer->original_status;
    args.settled = answer->settled;
    idem_problem_build(r->pool, &args, &body, &len);

    ap_log_rerror(APLOG_MARK, APLOG_INFO, 0, r, IDEM_LOG("0601") "%s%s%s%s%s", type->slug,
                  args.operation ? ", operation " : "", args.operation ? args.operation : "", scope ? ", scope " : "",
                  scope ? scope : "");
    set_status(r, type->status, NULL);
    ap_set_content_type(r, IDEM_PROBLEM_MEDIA_TYPE);
    apr_table_setn(r->headers_out, "Cache-Control", "no-store");
    if (answer->retry_after) {
        apr_table_setn(r->headers_out, "Retry-After", apr_itoa(r->pool, answer->retry_after));
    }
    if (ctx->server->docs) {
        apr_table_setn(r->headers_out, "Link", idem_problem_link(r->pool, ctx->server->docs));
    }
    if (ctx->conf->status_path && args.operation && type->status == HTTP_CONFLICT) {
        apr_table_mergen(r->headers_out, "Link",
                         apr_pstrcat(r->pool, "<", ctx->conf->status_path, args.operation, ">; rel=\"status\"", NULL));
    }
    if (answer->location) {
        apr_table_setn(r->headers_out, "Location", answer->location);
    }
    idem_replay_mark(r, ctx);
    return send_octets(r, ctx, body, len);
}

/* What other modules have set already (mod_session its Cache-Control) they had set for the first answer as well. */
static int make_room(void *baton, const char *name, const char *value)
{
    request_rec *r = baton;

    (void)value;
    apr_table_unset(r->headers_out, name);
    return 1;
}

static int copy_field(void *baton, const char *name, const char *value)
{
    request_rec *r = baton;

    if (!apr_cstr_casecmp(name, "Content-Type")) {
        ap_set_content_type(r, apr_pstrdup(r->pool, value));
    }
    apr_table_addn(r->headers_out, name, value);
    return 1;
}

static int snapshot_is_sound(const idem_record_t *record)
{
    unsigned char digest[IDEM_SHA256_LEN];

    idem_sha256(record->response_body.octets, record->response_body.len, digest);
    return record->response_digest.len == sizeof(digest) && !memcmp(record->response_digest.octets, digest, sizeof(digest));
}

static int send_snapshot(request_rec *r, idem_ctx_t *ctx)
{
    const idem_record_t *record = ctx->answer.replay;
    apr_table_t *fields = NULL;
    const char *reason = NULL;
    idem_snapshot_result_e result = idem_snapshot_decode_headers(r->pool, record->response_headers.octets,
                                                                 record->response_headers.len, &fields, &reason);

    if (result != IDEM_SNAPSHOT_OK || !snapshot_is_sound(record)) {
        ap_log_rerror(APLOG_MARK, APLOG_ERR, 0, r, IDEM_LOG("0602") "the snapshot of operation %s is damaged: %s",
                      idem_uuid_text(r->pool, record->operation),
                      result == IDEM_SNAPSHOT_OK ? "its digest does not fit its body" : idem_snapshot_result_text(result));
        idem_context_refuse(ctx, IDEM_PROBLEM_RESPONSE_NOT_STORED, NULL);
        ctx->answer.replay = NULL;
        ctx->answer.outcome = idem_outcome_name(record->outcome);
        ctx->answer.original_status = record->response_code;
        return send_problem(r, ctx);
    }
    set_status(r, record->response_code, reason);
    apr_table_do(make_room, r, fields, NULL);
    apr_table_do(copy_field, r, fields, NULL);
    if (!apr_table_get(r->headers_out, "Cache-Control")) {
        apr_table_setn(r->headers_out, "Cache-Control", "no-store");
    }
    if (*ctx->conf->replayed_header) {
        apr_table_setn(r->headers_out, ctx->conf->replayed_header, "true");
    }
    /* the snapshot is the whole answer, whatever part of a resource this client may have asked for */
    apr_table_unset(r->headers_in, "Range");
    apr_table_unset(r->headers_in, "If-Range");
    idem_replay_mark(r, ctx);
    return send_octets(r, ctx, record->response_body.octets, record->response_body.len);
}

int idem_replay_answer(request_rec *r, idem_ctx_t *ctx)
{
    return ctx->answer.replay ? send_snapshot(r, ctx) : send_problem(r, ctx);
}

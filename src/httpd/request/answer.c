#include "httpd/request/answer.h"

#include <string.h>

#include <apr_strings.h>
#include <httpd.h>

#include "core/fingerprint.h"
#include "core/snapshot.h"

/* The groups in which the request differs from the first one, by name only. */
static const char *differing(idem_ctx_t *ctx, const idem_reserve_t *wanted, const idem_record_t *found)
{
    const char *names = idem_fingerprint_differing(ctx->pool, wanted->fingerprint_parts.octets,
                                                   wanted->fingerprint_parts.len, found->fingerprint_parts.octets,
                                                   found->fingerprint_parts.len);

    return *names ? apr_pstrcat(ctx->pool, idem_problem_type(IDEM_PROBLEM_KEY_REUSED)->detail, " What differs: ", names, ".", NULL)
                  : NULL;
}

static const char *http_time(apr_pool_t *p, apr_time_t when)
{
    apr_time_exp_t exploded;
    char *text = apr_palloc(p, 32);
    apr_size_t len;

    if (!when || apr_time_exp_gmt(&exploded, when) != APR_SUCCESS) {
        return NULL;
    }
    apr_strftime(text, &len, 32, "%Y-%m-%dT%H:%M:%SZ", &exploded);
    return text;
}

/* Where the first answer pointed, as far as it was kept. */
static const char *first_location(apr_pool_t *p, const idem_record_t *found)
{
    apr_table_t *fields;
    const char *reason;

    if (!found->response_headers.octets ||
        idem_snapshot_decode_headers(p, found->response_headers.octets, found->response_headers.len, &fields, &reason) !=
            IDEM_SNAPSHOT_OK) {
        return NULL;
    }
    return apr_table_get(fields, "Location");
}

void idem_answer_verdict(idem_ctx_t *ctx, idem_verdict_e verdict, const idem_reserve_t *wanted, const idem_record_t *found)
{
    switch (verdict) {
    case IDEM_VERDICT_REPLAY:
        ctx->phase = IDEM_PHASE_ANSWER;
        ctx->answer.replay = found;
        ctx->outcome_note = "replayed";
        break;
    case IDEM_VERDICT_KEY_REUSED:
        idem_context_refuse(ctx, IDEM_PROBLEM_KEY_REUSED, differing(ctx, wanted, found));
        break;
    case IDEM_VERDICT_KEY_EXPIRED:
        idem_context_refuse(ctx, IDEM_PROBLEM_KEY_EXPIRED, NULL);
        ctx->answer.outcome = idem_outcome_name(found->outcome);
        ctx->answer.settled = http_time(ctx->pool, found->settled_at);
        break;
    case IDEM_VERDICT_RESPONSE_NOT_STORED:
        idem_context_refuse(ctx, IDEM_PROBLEM_RESPONSE_NOT_STORED, NULL);
        ctx->answer.outcome = idem_outcome_name(found->outcome);
        ctx->answer.original_status = found->response_code;
        ctx->answer.location = first_location(ctx->pool, found);
        break;
    case IDEM_VERDICT_OUTCOME_UNKNOWN:
        idem_context_refuse(ctx, IDEM_PROBLEM_OUTCOME_UNKNOWN, NULL);
        break;
    case IDEM_VERDICT_WRITER_FENCED:
        idem_context_refuse(ctx, IDEM_PROBLEM_WRITER_FENCED, NULL);
        ctx->answer.retry_after = IDEM_RETRY_STORE;
        break;
    default:
        idem_context_refuse(ctx, IDEM_PROBLEM_IN_PROGRESS, NULL);
        ctx->answer.retry_after = found ? idem_machine_retry_after(found->age, found->lease_left) : 1;
        break;
    }
}

#include "core/problem.h"

#include <string.h>

#include <apr_strings.h>
#include <apr_uri.h>
#include <yajl/yajl_gen.h>

#include "core/utf8.h"

#define SAME_KEY "same-key"
#define AFTER_FIX "after-fix"
#define ASK_OPERATOR "ask-operator"

static const idem_problem_type_t types[IDEM_PROBLEM_COUNT] = {
    [IDEM_PROBLEM_KEY_MISSING] = {
        "key-missing", 400, AFTER_FIX, 0, "This request needs an idempotency key",
        "This request was not executed. It is accepted only with an idempotency key, so that repeating it has no "
        "second effect. Send it with a key, and with the same key whenever you repeat it."
    },
    [IDEM_PROBLEM_KEY_MALFORMED] = {
        "key-malformed", 400, AFTER_FIX, 0, "The idempotency key cannot be used",
        "This request was not executed. Its idempotency key does not have the form that this service accepts."
    },
    [IDEM_PROBLEM_PAYLOAD_REJECTED] = {
        "payload-rejected", 400, AFTER_FIX, 0, "The content of the request cannot be accepted",
        "This request was not executed. Its content is not well-formed or holds what this service does not accept. "
        "Correct the content and send the request again."
    },
    [IDEM_PROBLEM_ROUTE_UNRESOLVED] = {
        "route-unresolved", 400, AFTER_FIX, 0, "The URL of the request cannot be used",
        "This request was not executed. A part of its URL that tells operations apart is empty, too long or holds "
        "control characters."
    },
    [IDEM_PROBLEM_IDENTITY_MISSING] = {
        "identity-missing", 403, AFTER_FIX, 0, "The caller cannot be told from others",
        "This request was not executed. Idempotency keys belong to one caller each, and the credentials of this "
        "request do not say enough about who sends it."
    },
    [IDEM_PROBLEM_IN_PROGRESS] = {
        "in-progress", 409, SAME_KEY, 1, "The first request with this key is still being executed",
        "This request was not executed, because an earlier one with the same key is not finished. Wait as long as "
        "Retry-After says, then send the same request with the same key to get its answer."
    },
    [IDEM_PROBLEM_OUTCOME_UNKNOWN] = {
        "outcome-unknown", 409, ASK_OPERATOR, 0, "It is not known whether the first request had its effect",
        "This request was not executed. An earlier one with the same key was begun and may have had its effect, so it "
        "is not run again. Keep the key and ask the operator, who can find out and settle it; then the same request "
        "with the same key gets its answer."
    },
    [IDEM_PROBLEM_RESPONSE_NOT_STORED] = {
        "response-not-stored", 409, ASK_OPERATOR, 0, "The first request was executed, but its answer was not kept",
        "This request was not executed, because an earlier one with the same key was and has ended. Its answer cannot "
        "be given again. Look up the result of the operation, or ask the operator for it."
    },
    [IDEM_PROBLEM_KEY_EXPIRED] = {
        "key-expired", 410, ASK_OPERATOR, 0, "The answer to this key is no longer kept",
        "This request was not executed, because an earlier one with the same key was and has ended. The time for "
        "which its answer is kept is over. Look up the result of the operation, or ask the operator for it."
    },
    [IDEM_PROBLEM_PAYLOAD_TOO_LARGE] = {
        "payload-too-large", 413, AFTER_FIX, 0, "The content of the request is too large",
        "This request was not executed. Its content is larger than this service accepts with an idempotency key."
    },
    [IDEM_PROBLEM_KEY_REUSED] = {
        "key-reused", 422, AFTER_FIX, 0, "The idempotency key belongs to another request",
        "This request was not executed: its key was used before, for a request that differs from this one. To repeat "
        "the first request, resend it unchanged; a new key is for a new operation."
    },
    [IDEM_PROBLEM_QUOTA_EXCEEDED] = {
        "quota-exceeded", 429, SAME_KEY, 1, "Too many operations of this caller are open or kept",
        "This request was not executed. Wait as long as Retry-After says, then send the same request with the same "
        "key."
    },
    [IDEM_PROBLEM_BODY_CONSUMED] = {
        "body-consumed", 500, ASK_OPERATOR, 0, "The server lost the content of the request",
        "This request was not executed. Another part of the server had read its content before it could be compared. "
        "The operator finds the reason in the error log."
    },
    [IDEM_PROBLEM_STORE_UNAVAILABLE] = {
        "store-unavailable", 503, SAME_KEY, 1, "Idempotency keys cannot be looked up at the moment",
        "This request was not executed, because it could not be recorded. Wait as long as Retry-After says, then send "
        "the same request with the same key."
    },
    [IDEM_PROBLEM_WRITER_FENCED] = {
        "writer-fenced", 503, SAME_KEY, 1, "This server takes no new operations at the moment",
        "This request was not executed. Wait as long as Retry-After says, then send the same request with the same "
        "key."
    }
};

const idem_problem_type_t *idem_problem_type(idem_problem_e problem)
{
    return &types[problem];
}

/* s where JSON can hold it, else NULL */
static const char *usable(const char *s)
{
    return s && idem_utf8_valid(s, strlen(s)) ? s : NULL;
}

const char *idem_problem_type_uri(apr_pool_t *p, idem_problem_e problem, const char *docs)
{
    docs = usable(docs);
    return docs ? apr_pstrcat(p, docs, "#", types[problem].slug, NULL)
                : apr_pstrcat(p, IDEM_PROBLEM_TAG, types[problem].slug, NULL);
}

const char *idem_problem_link(apr_pool_t *p, const char *docs)
{
    return docs ? apr_pstrcat(p, "<", docs, ">; rel=\"describedby\"", NULL) : NULL;
}

const char *idem_problem_docs_fault(apr_pool_t *p, const char *docs)
{
    apr_uri_t uri;
    const char *at;

    for (at = docs; *at; at++) {
        if (*at <= ' ' || *at > '~' || strchr("<>\"\\^`{|}", *at)) {
            return "holds a character that a URL cannot have";
        }
    }
    if (strchr(docs, '#')) {
        return "must not have a fragment: the name of each problem type is added as one";
    }
    if (apr_uri_parse(p, docs, &uri) != APR_SUCCESS || !uri.scheme || !uri.hostname || !*uri.hostname
        || (strcmp(uri.scheme, "https") != 0 && strcmp(uri.scheme, "http") != 0)) {
        return "is not an http or https URL with a host";
    }
    return NULL;
}

static void put_string(yajl_gen json, const char *s)
{
    yajl_gen_string(json, (const unsigned char *)s, strlen(s));
}

static void put_member(yajl_gen json, const char *name, const char *value)
{
    if (value) {
        put_string(json, name);
        put_string(json, value);
    }
}

static void put_number(yajl_gen json, const char *name, int value)
{
    put_string(json, name);
    yajl_gen_integer(json, value);
}

/* The members that only some types have: what a caller is told of their own settled operation. */
static void put_settlement(yajl_gen json, const idem_problem_args_t *args)
{
    int not_stored = args->problem == IDEM_PROBLEM_RESPONSE_NOT_STORED;
    int expired = args->problem == IDEM_PROBLEM_KEY_EXPIRED;

    if (not_stored || expired) {
        put_member(json, "outcome", usable(args->outcome));
    }
    if (not_stored && args->original_status) {
        put_number(json, "original_status", args->original_status);
    }
    if (expired) {
        put_member(json, "settled", usable(args->settled));
    }
}

void idem_problem_build(apr_pool_t *p, const idem_problem_args_t *args, const char **body, apr_size_t *len)
{
    const idem_problem_type_t *type = &types[args->problem];
    const char *detail = usable(args->detail) ? args->detail : type->detail;
    yajl_gen json = yajl_gen_alloc(NULL);
    const unsigned char *octets;
    size_t n;

    yajl_gen_map_open(json);
    put_member(json, "type", idem_problem_type_uri(p, args->problem, args->docs));
    put_member(json, "title", type->title);
    put_number(json, "status", type->status);
    put_member(json, "detail", detail);
    put_member(json, "retry", type->retry);
    put_member(json, "operation", usable(args->operation));
    put_settlement(json, args);
    if (args->error_member) {
        put_string(json, "error");
        yajl_gen_map_open(json);
        put_member(json, "code", type->slug);
        put_member(json, "message", detail);
        yajl_gen_map_close(json);
    }
    yajl_gen_map_close(json);

    yajl_gen_get_buf(json, &octets, &n);
    *body = apr_pstrmemdup(p, (const char *)octets, n);
    *len = n;
    yajl_gen_free(json);
}

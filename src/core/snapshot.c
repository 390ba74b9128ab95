#include "core/snapshot.h"

#include <string.h>

#include <apr_cstr.h>
#include <apr_strings.h>

#include "core/octets.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* CONTRACT section 5; "*" at the end of a name stands for anything. */
static const char *const approved[] = {
    "Content-Type", "Content-Encoding", "Content-Language", "Content-Disposition", "Location", "Content-Location",
    "Content-Range", "ETag", "Last-Modified", "Link", "Retry-After", "Vary", "Allow", "Cache-Control",
    "Access-Control-*", "Content-Security-Policy", "X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy",
    "Content-Digest", "Repr-Digest", "Deprecation", "Sunset"
};

/* The same, and "*" at the beginning too. */
static const char *const forbidden[] = {
    /* of one browser */
    "Set-Cookie", "Set-Cookie2", "Cookie", "Cookie2", "*CSRF-Token", "*XSRF-Token",
    /* of one answer or one hop */
    "Date", "Server", "Via", "Content-Length", "Connection", "Keep-Alive", "Proxy-*", "TE", "Trailer",
    "Transfer-Encoding", "Upgrade", "HTTP2-Settings",
    /* of one caller's authentication */
    "WWW-Authenticate", "*Authorization", "*Authentication-Info", "Authentication-Control", "*Auth-Token",
    "*Subject-Token", "*Access-Token", "*Refresh-Token", "*Security-Token", "*Api-Key",
    /* of one exchange */
    "traceparent", "tracestate", "traceresponse", "baggage", "b3", "X-B3-*", "uber-trace-id", "sentry-trace",
    "X-Datadog-*", "X-Ot-Span-Context", "X-Cloud-Trace-Context", "*Trace-Id", "*Span-Id", "*Request-Id", "*RequestId",
    "*Correlation-Id", "*Debug-Id", "CF-Ray", "X-Amz-Cf-Id", "X-Amz-Id-2", "X-Vercel-Id",
    /* ours: made anew for every answer */
    "Idempotency-*"
};

static const char *const texts[] = {
    "is well-formed",
    "is of an unknown layout version",
    "ends before what it announces",
    "goes on after what it announces",
    "has too many fields",
    "is too large",
    "has a field name that is not a token",
    "has a field value with control octets",
    "has a reason phrase with control octets",
    "has a field that is never kept"
};

const char *idem_snapshot_result_text(idem_snapshot_result_e result)
{
    return (apr_size_t)result < COUNT(texts) ? texts[result] : "is not well-formed";
}

static int matches(const char *name, const char *pattern)
{
    apr_size_t name_len = strlen(name), len = strlen(pattern);

    if (pattern[0] == '*') {
        return name_len >= len - 1 && apr_cstr_casecmp(name + name_len - (len - 1), pattern + 1) == 0;
    }
    if (pattern[len - 1] == '*') {
        return apr_cstr_casecmpn(name, pattern, len - 1) == 0;
    }
    return apr_cstr_casecmp(name, pattern) == 0;
}

static int matches_any(const char *name, const char *const *patterns, apr_size_t count)
{
    apr_size_t i;

    for (i = 0; i < count; i++) {
        if (matches(name, patterns[i])) {
            return 1;
        }
    }
    return 0;
}

int idem_snapshot_forbidden(const char *name)
{
    return matches_any(name, forbidden, COUNT(forbidden));
}

int idem_snapshot_wants(const char *name, const apr_array_header_t *extra)
{
    int i;

    if (idem_snapshot_forbidden(name)) {
        return 0;
    }
    if (matches_any(name, approved, COUNT(approved))) {
        return 1;
    }
    for (i = 0; extra && i < extra->nelts; i++) {
        if (apr_cstr_casecmp(name, APR_ARRAY_IDX(extra, i, const char *)) == 0) {
            return 1;
        }
    }
    return 0;
}

static int is_name(const char *name, apr_size_t len)
{
    static const char others[] = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    apr_size_t i;

    for (i = 0; i < len; i++) {
        if (!name[i] || !strchr(others, name[i])) {
            return 0;
        }
    }
    return len > 0;
}

int idem_snapshot_is_name(const char *name)
{
    return is_name(name, strlen(name));
}

/* RFC 9110 section 5.5, RFC 9112 section 4: no control octet but HT. httpd sends no response that has another one. */
static int is_text(const char *text, apr_size_t len)
{
    apr_size_t i;

    for (i = 0; i < len; i++) {
        if (((unsigned char)text[i] < 0x20 && text[i] != '\t') || text[i] == 0x7f) {
            return 0;
        }
    }
    return 1;
}

static idem_snapshot_result_e check_field(const char *name, const char *value)
{
    if (!idem_snapshot_is_name(name)) {
        return IDEM_SNAPSHOT_BAD_NAME;
    }
    if (!is_text(value, strlen(value))) {
        return IDEM_SNAPSHOT_BAD_VALUE;
    }
    return idem_snapshot_forbidden(name) ? IDEM_SNAPSHOT_FORBIDDEN : IDEM_SNAPSHOT_OK;
}

/* Check what is to be laid out and count its octets. No sum here can overflow: each addend is a string in memory. */
static idem_snapshot_result_e measure(const apr_array_header_t *fields, const char *reason, apr_size_t *len)
{
    const apr_table_entry_t *field = (const apr_table_entry_t *)fields->elts;
    idem_snapshot_result_e result;
    apr_size_t sum = 1 + 4 + strlen(reason) + 4;
    int i;

    if (!is_text(reason, strlen(reason))) {
        return IDEM_SNAPSHOT_BAD_REASON;
    }
    if (fields->nelts > IDEM_SNAPSHOT_MAX_FIELDS) {
        return IDEM_SNAPSHOT_TOO_MANY;
    }
    for (i = 0; i < fields->nelts; i++) {
        result = check_field(field[i].key, field[i].val);
        if (result != IDEM_SNAPSHOT_OK) {
            return result;
        }
        sum += 4 + strlen(field[i].key) + 4 + strlen(field[i].val);
    }
    *len = sum;
    return sum > IDEM_SNAPSHOT_MAX_OCTETS ? IDEM_SNAPSHOT_TOO_LARGE : IDEM_SNAPSHOT_OK;
}

static unsigned char *put_text(unsigned char *at, const char *text)
{
    apr_size_t len = strlen(text);

    return idem_put(idem_put_number(at, (apr_uint32_t)len), text, len);
}

idem_snapshot_result_e idem_snapshot_encode_headers(apr_pool_t *p, const apr_table_t *headers, const char *reason,
                                                    unsigned char **out, apr_size_t *len)
{
    const apr_array_header_t *fields = apr_table_elts(headers);
    const apr_table_entry_t *field = (const apr_table_entry_t *)fields->elts;
    idem_snapshot_result_e result;
    unsigned char *at;
    int i;

    *out = NULL;
    *len = 0;
    reason = reason ? reason : "";
    result = measure(fields, reason, len);
    if (result != IDEM_SNAPSHOT_OK) {
        *len = 0;
        return result;
    }
    *out = at = apr_palloc(p, *len);
    *at++ = IDEM_SNAPSHOT_LAYOUT;
    at = put_text(at, reason);
    at = idem_put_number(at, (apr_uint32_t)fields->nelts);
    for (i = 0; i < fields->nelts; i++) {
        at = put_text(at, field[i].key);
        at = put_text(at, field[i].val);
    }
    return IDEM_SNAPSHOT_OK;
}

static int get_text(idem_rest_t *rest, const char **text, apr_size_t *len)
{
    *len = idem_get_number(rest);
    *text = (const char *)idem_get(rest, *len);
    return !rest->short_of;
}

static idem_snapshot_result_e get_field(apr_pool_t *p, idem_rest_t *rest, apr_table_t *into)
{
    const char *name, *value;
    apr_size_t name_len, value_len;

    if (!get_text(rest, &name, &name_len) || !get_text(rest, &value, &value_len)) {
        return IDEM_SNAPSHOT_TRUNCATED;
    }
    if (!is_name(name, name_len)) {
        return IDEM_SNAPSHOT_BAD_NAME;
    }
    if (!is_text(value, value_len)) {
        return IDEM_SNAPSHOT_BAD_VALUE;
    }
    name = apr_pstrmemdup(p, name, name_len);
    if (!idem_snapshot_forbidden(name)) {
        apr_table_addn(into, name, apr_pstrmemdup(p, value, value_len));
    }
    return IDEM_SNAPSHOT_OK;
}

idem_snapshot_result_e idem_snapshot_decode_headers(apr_pool_t *p, const unsigned char *octets, apr_size_t len,
                                                    apr_table_t **headers, const char **reason)
{
    idem_rest_t rest;
    idem_snapshot_result_e result = IDEM_SNAPSHOT_OK;
    apr_table_t *fields;
    const char *phrase;
    apr_size_t phrase_len;
    apr_uint32_t count, i;

    *headers = NULL;
    *reason = NULL;
    if (len > IDEM_SNAPSHOT_MAX_OCTETS) {
        return IDEM_SNAPSHOT_TOO_LARGE;
    }
    if (len == 0) {
        return IDEM_SNAPSHOT_TRUNCATED;
    }
    if (octets[0] != IDEM_SNAPSHOT_LAYOUT) {
        return IDEM_SNAPSHOT_UNKNOWN_VERSION;
    }
    rest = (idem_rest_t){octets + 1, len - 1, 0};
    (void)get_text(&rest, &phrase, &phrase_len);
    count = idem_get_number(&rest);
    if (rest.short_of) {
        return IDEM_SNAPSHOT_TRUNCATED;
    }
    if (!is_text(phrase, phrase_len)) {
        return IDEM_SNAPSHOT_BAD_REASON;
    }
    if (count > IDEM_SNAPSHOT_MAX_FIELDS) {
        return IDEM_SNAPSHOT_TOO_MANY;
    }
    fields = apr_table_make(p, (int)count);
    for (i = 0; i < count && result == IDEM_SNAPSHOT_OK; i++) {
        result = get_field(p, &rest, fields);
    }
    if (result == IDEM_SNAPSHOT_OK && rest.left) {
        result = IDEM_SNAPSHOT_TRAILING;
    }
    if (result == IDEM_SNAPSHOT_OK) {
        *headers = fields;
        *reason = phrase_len ? apr_pstrmemdup(p, phrase, phrase_len) : NULL;
    }
    return result;
}

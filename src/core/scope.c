#include "core/scope.h"

#include <string.h>

#include <apr_escape.h>
#include <apr_strings.h>

#include "core/utf8.h"

/* More sources than could ever fit are refused before anything is added up. */
#define MAX_SOURCES ((IDEM_SCOPE_MAX_JOINED + 1) / 2)

/* The octets of a log digest: enough to tell scopes apart, too few to be of other use. */
#define LOG_DIGEST_LEN 8

static const char *const part_names[IDEM_SCOPE_PARTS + 1] = {
    "value", "scope version", "tenant", "principal", "route", "revision", "key namespace", "key"
};

static const char *const fault_texts[] = {
    "is fit for use", "is missing or empty", "is too long", "holds a control octet", "is not valid UTF-8",
    "is neither u: nor s:"
};

const char *idem_scope_result_text(apr_pool_t *p, idem_scope_result_e r)
{
    unsigned int fault = IDEM_SCOPE_FAULT(r), part = IDEM_SCOPE_PART(r) >> 4;
    const char *what = part_names[part <= IDEM_SCOPE_PARTS ? part : 0];
    const char *why = fault < sizeof(fault_texts) / sizeof(fault_texts[0]) ? fault_texts[fault] : "is not fit for use";

    if (IDEM_SCOPE_SOURCE(r)) {
        return apr_psprintf(p, "source %d of the %s %s", IDEM_SCOPE_SOURCE(r), what, why);
    }
    return apr_psprintf(p, "the %s %s", what, why);
}

static idem_scope_result_e check_octets(const char *value, apr_size_t len)
{
    apr_size_t i;

    if (len == 0) {
        return IDEM_SCOPE_EMPTY;
    }
    if (len > IDEM_SCOPE_MAX_SOURCE) {
        return IDEM_SCOPE_TOO_LONG;
    }
    for (i = 0; i < len; i++) {
        if ((unsigned char)value[i] < 0x20 || value[i] == 0x7f) {
            return IDEM_SCOPE_CONTROL;
        }
    }
    return idem_utf8_valid(value, len) ? IDEM_SCOPE_OK : IDEM_SCOPE_NOT_UTF8;
}

idem_scope_result_e idem_scope_check_source(const char *value)
{
    return value ? check_octets(value, strlen(value)) : IDEM_SCOPE_EMPTY;
}

static idem_scope_result_e check_joined(const char *value)
{
    const char *piece = value, *end;
    idem_scope_result_e r;

    if (!value || !*value) {
        return IDEM_SCOPE_EMPTY;
    }
    if (strlen(value) > IDEM_SCOPE_MAX_JOINED) {
        return IDEM_SCOPE_TOO_LONG;
    }
    do {
        end = strchr(piece, IDEM_SCOPE_SEPARATOR);
        r = check_octets(piece, end ? (apr_size_t)(end - piece) : strlen(piece));
        piece = end ? end + 1 : NULL;
    } while (r == IDEM_SCOPE_OK && piece);
    return r;
}

static idem_scope_result_e check_namespace(const char *value)
{
    if (!value || !*value) {
        return IDEM_SCOPE_EMPTY;
    }
    if (strcmp(value, IDEM_SCOPE_NS_CLIENT) != 0 && strcmp(value, IDEM_SCOPE_NS_SERVER) != 0) {
        return IDEM_SCOPE_BAD_NAMESPACE;
    }
    return IDEM_SCOPE_OK;
}

idem_scope_result_e idem_scope_check_part(idem_scope_result_e part, const char *value)
{
    idem_scope_result_e r;

    if (part == IDEM_SCOPE_IN_TENANT || part == IDEM_SCOPE_IN_PRINCIPAL) {
        r = check_joined(value);
    }
    else if (part == IDEM_SCOPE_IN_NS) {
        r = check_namespace(value);
    }
    else {
        r = idem_scope_check_source(value);
    }
    return r == IDEM_SCOPE_OK ? r : (idem_scope_result_e)(r | part);
}

void idem_scope_list(const idem_scope_t *scope, const char *parts[IDEM_SCOPE_PARTS])
{
    parts[0] = scope->version;
    parts[1] = scope->tenant;
    parts[2] = scope->principal;
    parts[3] = scope->route;
    parts[4] = scope->revision;
    parts[5] = scope->ns;
    parts[6] = scope->key;
}

idem_scope_t idem_scope_of_list(const char *const parts[IDEM_SCOPE_PARTS])
{
    idem_scope_t scope = {parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6]};

    return scope;
}

idem_scope_t idem_scope_copy(apr_pool_t *p, const idem_scope_t *scope)
{
    const char *parts[IDEM_SCOPE_PARTS];
    int i;

    idem_scope_list(scope, parts);
    for (i = 0; i < IDEM_SCOPE_PARTS; i++) {
        parts[i] = apr_pstrdup(p, parts[i]);
    }
    return idem_scope_of_list(parts);
}

int idem_scope_compare(const idem_scope_t *a, const idem_scope_t *b)
{
    const char *left[IDEM_SCOPE_PARTS];
    const char *right[IDEM_SCOPE_PARTS];
    int order = 0;
    int i;

    idem_scope_list(a, left);
    idem_scope_list(b, right);
    for (i = 0; !order && i < IDEM_SCOPE_PARTS; i++) {
        order = strcmp(left[i], right[i]);
    }
    return order;
}

idem_scope_result_e idem_scope_check(const idem_scope_t *scope)
{
    const char *parts[IDEM_SCOPE_PARTS];
    idem_scope_result_e r = IDEM_SCOPE_OK;
    int i;

    idem_scope_list(scope, parts);
    for (i = 0; i < IDEM_SCOPE_PARTS && r == IDEM_SCOPE_OK; i++) {
        r = idem_scope_check_part((idem_scope_result_e)((i + 1) << 4), parts[i]);
    }
    return r;
}

static idem_scope_result_e check_sources(const char *const *sources, int n, apr_size_t *joined_len)
{
    idem_scope_result_e r;
    apr_size_t len = 0;
    int i;

    if (n < 1 || n > MAX_SOURCES) {
        return n < 1 ? IDEM_SCOPE_EMPTY : IDEM_SCOPE_TOO_LONG;
    }
    for (i = 0; i < n; i++) {
        r = idem_scope_check_source(sources[i]);
        if (r != IDEM_SCOPE_OK) {
            return (idem_scope_result_e)(r | (i + 1) << 8);
        }
        len += strlen(sources[i]) + (i > 0);
    }
    *joined_len = len;
    return len > IDEM_SCOPE_MAX_JOINED ? IDEM_SCOPE_TOO_LONG : IDEM_SCOPE_OK;
}

const char *idem_scope_join(apr_pool_t *p, const char *const *sources, int n, idem_scope_result_e *result)
{
    apr_size_t len = 0;
    char *joined, *at;
    int i;

    *result = check_sources(sources, n, &len);
    if (*result != IDEM_SCOPE_OK) {
        return NULL;
    }
    joined = at = apr_palloc(p, len + 1);
    for (i = 0; i < n; i++) {
        if (i > 0) {
            *at++ = IDEM_SCOPE_SEPARATOR;
        }
        len = strlen(sources[i]);
        memcpy(at, sources[i], len);
        at += len;
    }
    *at = '\0';
    return joined;
}

void idem_scope_digest(const idem_scope_t *scope, unsigned char out[IDEM_SHA256_LEN])
{
    const char *parts[IDEM_SCOPE_PARTS];

    idem_scope_list(scope, parts);
    idem_sha256_strings(parts, IDEM_SCOPE_PARTS, out);
}

const char *idem_scope_log_digest(apr_pool_t *p, const idem_scope_t *scope, const unsigned char *secret,
                                  apr_size_t secret_len)
{
    unsigned char digest[IDEM_SHA256_LEN], mac[IDEM_SHA256_LEN];

    idem_scope_digest(scope, digest);
    idem_hmac_sha256(secret, secret_len, digest, sizeof(digest), mac);
    return apr_pescape_hex(p, mac, LOG_DIGEST_LEN, 0);
}

int idem_scope_version_number(const char *version)
{
    int number = 0;
    int digits;

    if (version[0] != 'v' || version[1] == '0') {
        return 0;
    }
    for (digits = 0; version[1 + digits] >= '0' && version[1 + digits] <= '9' && digits < 4; digits++) {
        number = number * 10 + (version[1 + digits] - '0');
    }
    return version[1 + digits] ? 0 : number;
}

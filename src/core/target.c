#include "core/target.h"

#include <string.h>

#include <apr_lib.h>
#include <apr_strings.h>

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The octet of a percent triplet, or -1. */
static int triplet(const char *s)
{
    int high = s[0] == '%' ? hex_value(s[1]) : -1;
    int low = high < 0 ? -1 : hex_value(s[2]);

    return low < 0 ? -1 : high * 16 + low;
}

/* RFC 3986 section 2.3, spelled out: the C library's classes follow the locale. */
static int is_unreserved(int c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_' || c == '~';
}

static char *normalise_percent(apr_pool_t *p, const char *s, apr_size_t len)
{
    static const char digits[] = "0123456789ABCDEF";
    char *out = apr_palloc(p, len + 1);
    char *o = out;
    const char *end = s + len;

    while (s < end) {
        int octet = end - s >= 3 ? triplet(s) : -1;

        if (octet < 0) {
            *o++ = *s++;
            continue;
        }
        if (is_unreserved(octet)) {
            *o++ = (char)octet;
        }
        else {
            *o++ = '%';
            *o++ = digits[octet >> 4];
            *o++ = digits[octet & 15];
        }
        s += 3;
    }
    *o = '\0';
    return out;
}

/* Resolves "." and ".." segments in place; the path begins with "/". */
static void resolve_dots(char *path)
{
    char *out = path;
    char *in = path;

    while (*in) {
        char *end = in + 1 + strcspn(in + 1, "/");
        apr_size_t len = (apr_size_t)(end - in);
        int last = *end == '\0';

        if (len == 2 && in[1] == '.') {
            if (last) {
                *out++ = '/';
            }
        }
        else if (len == 3 && in[1] == '.' && in[2] == '.') {
            while (out > path && *--out != '/') {
            }
            if (last) {
                *out++ = '/';
            }
        }
        else {
            memmove(out, in, len);
            out += len;
        }
        in = end;
    }
    if (out == path) {
        *out++ = '/';
    }
    *out = '\0';
}

void idem_target_split(apr_pool_t *p, const char *target, const char **path, const char **query)
{
    const char *scheme_end = target[0] == '/' ? NULL : strstr(target, "://");
    apr_size_t len;
    char *normal;

    if (scheme_end) {
        target = scheme_end + 3 + strcspn(scheme_end + 3, "/?#");
    }
    len = strcspn(target, "?#");
    *query = NULL;
    if (target[len] == '?') {
        const char *q = target + len + 1;

        *query = normalise_percent(p, q, strcspn(q, "#"));
    }
    if (target[0] != '/') {
        *path = len ? apr_pstrmemdup(p, target, len) : "/";
        return;
    }
    normal = normalise_percent(p, target, len);
    resolve_dots(normal);
    *path = normal;
}

static const char *decode_name(apr_pool_t *p, const char *s, apr_size_t len)
{
    char *out = apr_palloc(p, len + 1);
    char *o = out;
    const char *end = s + len;

    while (s < end) {
        int octet = end - s >= 3 ? triplet(s) : -1;

        if (octet > 0) {
            *o++ = (char)octet;
            s += 3;
        }
        else {
            *o++ = *s == '+' ? ' ' : *s;
            s++;
        }
    }
    *o = '\0';
    return out;
}

static int is_selected(const char *name, const apr_array_header_t *names)
{
    int i;

    for (i = 0; i < names->nelts; i++) {
        if (!strcmp(name, APR_ARRAY_IDX(names, i, const char *))) {
            return 1;
        }
    }
    return 0;
}

const char *idem_target_select(apr_pool_t *p, const char *query, const apr_array_header_t *names)
{
    apr_array_header_t *chosen = apr_array_make(p, 4, sizeof(const char *));

    while (query && *query) {
        apr_size_t len = strcspn(query, "&");
        const char *equals = memchr(query, '=', len);
        apr_size_t name_len = equals ? (apr_size_t)(equals - query) : len;

        if (len && is_selected(decode_name(p, query, name_len), names)) {
            APR_ARRAY_PUSH(chosen, const char *) = apr_pstrmemdup(p, query, len);
        }
        query += len + (query[len] == '&');
    }
    return chosen->nelts ? apr_array_pstrcat(p, chosen, '&') : NULL;
}

#include "core/sfv.h"

#include <string.h>

#include "core/utf8.h"

/* What is still to be read. */
typedef struct {
    const char *at, *end;
} input_t;

static int more(const input_t *in)
{
    return in->at < in->end;
}

/* The next octet, or -1 at the end. */
static int peek(const input_t *in)
{
    return in->at < in->end ? (unsigned char)*in->at : -1;
}

static int take(input_t *in, char c)
{
    if (peek(in) != c) {
        return 0;
    }
    in->at++;
    return 1;
}

static int is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static int is_lower(int c)
{
    return c >= 'a' && c <= 'z';
}

static int is_alpha(int c)
{
    return is_lower(c) || (c >= 'A' && c <= 'Z');
}

/* c is one of set; the end of input (-1) and NUL are never. */
static int is_one_of(int c, const char *set)
{
    return c > 0 && strchr(set, c) != NULL;
}

const char *idem_key_result_text(idem_key_result_e result)
{
    switch (result) {
    case IDEM_KEY_OK:
        return "The idempotency key is well-formed.";
    case IDEM_KEY_EMPTY:
        return "The idempotency key is empty.";
    case IDEM_KEY_LIST:
        return "The request carries more than one idempotency key: send one field line with one value, and put a key "
               "that holds a comma in double quotes.";
    case IDEM_KEY_NOT_STRING:
        return "The idempotency key must be a string in double quotes.";
    case IDEM_KEY_UNTERMINATED:
        return "The idempotency key begins with a double quote, but none ends it.";
    case IDEM_KEY_BAD_ESCAPE:
        return "A backslash in a quoted idempotency key may only stand before a double quote or another backslash.";
    case IDEM_KEY_BAD_OCTET:
        return "The idempotency key may hold only visible ASCII characters and spaces.";
    case IDEM_KEY_TRAILING:
        return "Nothing but parameters may follow the quoted idempotency key, and no white space may stand before "
               "their semicolon.";
    case IDEM_KEY_BAD_PARAMETER:
        return "A parameter after the idempotency key is not well-formed.";
    case IDEM_KEY_TOO_SHORT:
        return "The idempotency key is shorter than this service accepts.";
    case IDEM_KEY_TOO_LONG:
        return "The idempotency key is longer than this service accepts.";
    }
    return "The idempotency key is not well-formed.";
}

/* RFC 9651 4.2.5. out has room for what is left of in; *out_len octets are written. */
static idem_key_result_e read_string(input_t *in, char *out, apr_size_t *out_len)
{
    apr_size_t n = 0;
    int c;

    if (!take(in, '"')) {
        return IDEM_KEY_NOT_STRING;
    }
    while (more(in)) {
        c = (unsigned char)*in->at++;
        if (c == '"') {
            *out_len = n;
            return IDEM_KEY_OK;
        }
        if (c == '\\') {
            c = peek(in);
            if (c == -1) {
                return IDEM_KEY_UNTERMINATED;
            }
            if (c != '"' && c != '\\') {
                return IDEM_KEY_BAD_ESCAPE;
            }
            in->at++;
        }
        if (c < 0x20 || c > 0x7e) {
            return IDEM_KEY_BAD_OCTET;
        }
        out[n++] = (char)c;
    }
    return IDEM_KEY_UNTERMINATED;
}

/* RFC 9651 4.2.4: at most 15 digits; with a point, 1 to 12 before it and 1 to 3 after. An integer only if asked so. */
static int read_number(input_t *in, int integer_only)
{
    int whole = 0, fraction = 0;

    take(in, '-');
    while (is_digit(peek(in))) {
        in->at++;
        whole++;
    }
    if (whole == 0 || whole > 15) {
        return 0;
    }
    if (!take(in, '.')) {
        return 1;
    }
    while (is_digit(peek(in))) {
        in->at++;
        fraction++;
    }
    return !integer_only && whole <= 12 && fraction >= 1 && fraction <= 3;
}

/* RFC 9651 4.2.6; the first octet has been looked at. */
static void skip_token(input_t *in)
{
    int c = peek(in);

    while (is_alpha(c) || is_digit(c) || is_one_of(c, "!#$%&'*+-.^_`|~:/")) {
        in->at++;
        c = peek(in);
    }
}

/*
 * RFC 9651 4.2.7. Missing padding and pad bits that are not zero are taken, as the RFC wants it by default; a count
 * of digits that no octets give is not.
 */
static int read_binary(input_t *in)
{
    int digits = 0, pads = 0;

    take(in, ':');
    while (is_alpha(peek(in)) || is_digit(peek(in)) || is_one_of(peek(in), "+/")) {
        in->at++;
        digits++;
        digits &= 3;
    }
    while (pads < 3 && take(in, '=')) {
        pads++;
    }
    if (digits == 1 || (pads > 0 && digits + pads != 4)) {
        return 0;
    }
    return take(in, ':');
}

static int lower_hex(int c)
{
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* RFC 9651 4.2.10. What it decodes to goes into scratch, which has room for what is left of in. */
static int read_display_string(input_t *in, char *scratch)
{
    apr_size_t n = 0;
    int c, high, low;

    if (!take(in, '%') || !take(in, '"')) {
        return 0;
    }
    while (more(in)) {
        c = (unsigned char)*in->at++;
        if (c == '"') {
            return idem_utf8_valid(scratch, n);
        }
        if (c < 0x20 || c > 0x7e) {
            return 0;
        }
        if (c == '%') {
            if (in->end - in->at < 2) {
                return 0;
            }
            high = lower_hex((unsigned char)in->at[0]);
            low = lower_hex((unsigned char)in->at[1]);
            if (high < 0 || low < 0) {
                return 0;
            }
            c = high << 4 | low;
            in->at += 2;
        }
        scratch[n++] = (char)c;
    }
    return 0;
}

/* RFC 9651 4.2.3.1: skip one bare item of any type; 0 where it is not one. */
static int read_bare_item(input_t *in, char *scratch)
{
    apr_size_t ignored;
    int c = peek(in);

    if (c == '-' || is_digit(c)) {
        return read_number(in, 0);
    }
    if (c == '"') {
        return read_string(in, scratch, &ignored) == IDEM_KEY_OK;
    }
    if (c == '*' || is_alpha(c)) {
        skip_token(in);
        return 1;
    }
    if (c == ':') {
        return read_binary(in);
    }
    if (take(in, '?')) {
        return take(in, '0') || take(in, '1');
    }
    if (take(in, '@')) {
        return read_number(in, 1);
    }
    return c == '%' && read_display_string(in, scratch);
}

/* RFC 9651 4.2.3.2: skip parameters; a repeated one is no fault. */
static int read_parameters(input_t *in, char *scratch)
{
    int c;

    while (take(in, ';')) {
        while (take(in, ' ')) {
        }
        c = peek(in);
        if (!is_lower(c) && c != '*') {
            return 0;
        }
        while (is_lower(c) || is_digit(c) || is_one_of(c, "_-.*")) {
            in->at++;
            c = peek(in);
        }
        if (take(in, '=') && !read_bare_item(in, scratch)) {
            return 0;
        }
    }
    return 1;
}

static void skip_ows(input_t *in)
{
    while (take(in, ' ') || take(in, '\t')) {
    }
}

/* A string with its parameters, and nothing after it. */
static idem_key_result_e read_item(apr_pool_t *p, input_t *in, char *key, apr_size_t *key_len)
{
    idem_key_result_e result = read_string(in, key, key_len);
    input_t rest;

    if (result != IDEM_KEY_OK) {
        return result;
    }
    if (peek(in) == ';' && !read_parameters(in, apr_palloc(p, (apr_size_t)(in->end - in->at)))) {
        return IDEM_KEY_BAD_PARAMETER;
    }
    if (more(in)) {
        rest = *in;
        skip_ows(&rest);
        return peek(&rest) == ',' ? IDEM_KEY_LIST : IDEM_KEY_TRAILING;
    }
    return *key_len ? IDEM_KEY_OK : IDEM_KEY_EMPTY;
}

static idem_key_result_e read_bare_key(const input_t *in, idem_key_syntax_e syntax, char *key, apr_size_t *key_len)
{
    const char *at;

    for (at = in->at; at < in->end; at++) {
        if ((unsigned char)*at < 0x20 || (unsigned char)*at > 0x7e) {
            return IDEM_KEY_BAD_OCTET;
        }
        if (*at == ',') {
            return IDEM_KEY_LIST;
        }
    }
    if (syntax == IDEM_KEY_STRICT) {
        return IDEM_KEY_NOT_STRING;
    }
    *key_len = (apr_size_t)(in->end - in->at);
    memcpy(key, in->at, *key_len);
    return IDEM_KEY_OK;
}

idem_key_result_e idem_key_parse(apr_pool_t *p, const char *value, apr_size_t len, idem_key_syntax_e syntax,
                                 const char **key, apr_size_t *key_len)
{
    input_t in;
    idem_key_result_e result;
    apr_size_t n = 0;
    char *out;

    *key = NULL;
    *key_len = 0;
    if (len == 0) {
        return IDEM_KEY_EMPTY;
    }
    in.at = value;
    in.end = value + len;
    skip_ows(&in);
    while (more(&in) && is_one_of((unsigned char)in.end[-1], " \t")) {
        in.end--;
    }
    if (!more(&in)) {
        return IDEM_KEY_EMPTY;
    }
    out = apr_palloc(p, (apr_size_t)(in.end - in.at) + 1);
    result = peek(&in) == '"' ? read_item(p, &in, out, &n) : read_bare_key(&in, syntax, out, &n);
    if (result == IDEM_KEY_OK) {
        out[n] = '\0';
        *key = out;
        *key_len = n;
    }
    return result;
}

idem_key_result_e idem_key_check_length(apr_size_t key_len, apr_size_t min, apr_size_t max)
{
    if (key_len < min) {
        return IDEM_KEY_TOO_SHORT;
    }
    return key_len > max ? IDEM_KEY_TOO_LONG : IDEM_KEY_OK;
}

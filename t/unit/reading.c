#include "unit.h"

#include <stdio.h>

#include "reading.h"

typedef struct {
    apr_pool_t *pool;
    char *octets;
    apr_size_t len, room;
} sink_t;

static void collect(void *baton, const void *octets, apr_size_t len)
{
    sink_t *s = baton;

    if (s->room - s->len <= len) {
        char *old = s->octets;

        s->room = (s->len + len) * 2 + 64;
        s->octets = apr_palloc(s->pool, s->room);
        if (s->len != 0) {
            memcpy(s->octets, old, s->len);
        }
    }
    memcpy(s->octets + s->len, octets, len);
    s->len += len;
    s->octets[s->len] = '\0';
}

unsigned reading_random(unsigned *seed)
{
    /* xorshift32 */
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

unsigned reading_below(unsigned *seed, unsigned limit)
{
    return reading_random(seed) % limit;
}

int reading_of(reading_t *r, const char *body, apr_size_t len)
{
    sink_t sink = { r->pool, NULL, 0, 0 };
    idem_payload_t *payload = idem_payload_create(r->pool, r->mode, r->contract, r->boundary, collect, &sink);
    apr_status_t rv = APR_SUCCESS;
    apr_size_t at = 0;

    collect(&sink, "", 0);
    while (rv == APR_SUCCESS && at < len) {
        apr_size_t piece = r->random != 0 ? 1 + reading_below(&r->random, 40) : r->piece != 0 ? r->piece : len;
        char *copy;

        piece = piece < len - at ? piece : len - at;
        /* A piece of its own, gone after the call: nobody may keep or overread it. */
        copy = malloc(piece);
        memcpy(copy, body + at, piece);
        rv = idem_payload_feed(payload, copy, piece);
        free(copy);
        at += piece;
    }
    if (rv == APR_SUCCESS) {
        rv = idem_payload_finish(payload);
    }
    else {
        assert_int_equal(idem_payload_finish(payload), rv);
    }
    r->fault = idem_payload_fault(payload);
    r->octets = sink.octets;
    r->len = sink.len;
    if (rv == APR_SUCCESS) {
        assert_null(r->fault);
        return 1;
    }
    assert_int_equal(rv, APR_EINVAL);
    assert_non_null(r->fault);
    assert_non_null(r->fault->reason);
    assert_non_null(r->fault->detail);
    return 0;
}

static void read_both_ways(reading_t *r, const char *body)
{
    reading_t slow = *r;
    int taken = reading_of(r, body, strlen(body));

    slow.piece = 1;
    assert_int_equal(reading_of(&slow, body, strlen(body)), taken);
    if (taken) {
        assert_int_equal(slow.len, r->len);
        assert_memory_equal(slow.octets, r->octets, r->len);
    }
    else {
        assert_string_equal(slow.fault->reason, r->fault->reason);
    }
}

const char *reading_text(reading_t *r, const char *body)
{
    read_both_ways(r, body);
    if (r->fault != NULL) {
        fail_msg("refused (%s): %s", r->fault->reason, body);
    }
    return r->octets;
}

const char *reading_refusal(reading_t *r, const char *body)
{
    read_both_ways(r, body);
    return r->fault != NULL ? r->fault->reason : "taken";
}

static const char *string_json(apr_pool_t *p, const char *s, apr_size_t len)
{
    char *out = apr_palloc(p, len * 6 + 3);
    char *to = out;
    apr_size_t i;

    *to++ = '"';
    for (i = 0; i < len; i++) {
        if ((unsigned char)s[i] < 0x20 || s[i] == '"' || s[i] == '\\') {
            to += sprintf(to, "\\u%04X", s[i]);
        }
        else {
            *to++ = s[i];
        }
    }
    strcpy(to, "\"");
    return out;
}

const char *reading_json(apr_pool_t *p, const vec_t *value, int backwards)
{
    const char *out = "";
    const vec_t *child;

    switch (value->type) {
    case VEC_NULL:
        return "null";
    case VEC_BOOL:
        return value->truth ? "true" : "false";
    case VEC_NUMBER:
        return value->text;
    case VEC_STRING:
        return string_json(p, value->text, value->len);
    case VEC_ARRAY:
    case VEC_OBJECT:
        break;
    }
    for (child = value->first; child != NULL; child = child->next) {
        const char *text = reading_json(p, child, backwards);
        int object = value->type == VEC_OBJECT;

        if (object) {
            text = apr_pstrcat(p, string_json(p, child->name, strlen(child->name)), ":", text, NULL);
        }
        if (*out == '\0') {
            out = text;
        }
        else {
            out = apr_pstrcat(p, object && backwards ? text : out, ",", object && backwards ? out : text, NULL);
        }
    }
    return apr_pstrcat(p, value->type == VEC_OBJECT ? "{" : "[", out, value->type == VEC_OBJECT ? "}" : "]", NULL);
}

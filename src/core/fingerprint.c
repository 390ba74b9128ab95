#include "core/fingerprint.h"

#include <stdlib.h>
#include <string.h>

#include <apr_strings.h>

#include "core/digest.h"
#include "core/media.h"
#include "core/target.h"

#define FRAME_HEAD   9
#define GROUPS       6
#define GROUP_OCTETS 8
#define PARTS_LAYOUT 1

static const char *const group_names[GROUPS] = {"method", "target", "query", "media type", "headers", "payload"};

/* The framed octets while they grow. */
typedef struct frame_t {
    apr_pool_t *pool;
    unsigned char *octets;
    apr_size_t len;
    apr_size_t size;
} frame_t;

static void add_field(frame_t *frame, int tag, const void *octets, apr_size_t len)
{
    apr_uint64_t length = len;
    int i;

    if (frame->len + FRAME_HEAD + len > frame->size) {
        unsigned char *old = frame->octets;

        frame->size = 2 * (frame->len + FRAME_HEAD + len);
        frame->octets = apr_palloc(frame->pool, frame->size);
        if (old) {
            memcpy(frame->octets, old, frame->len);
        }
    }
    frame->octets[frame->len] = (unsigned char)tag;
    for (i = 8; i > 0; i--) {
        frame->octets[frame->len + (apr_size_t)i] = (unsigned char)length;
        length >>= 8;
    }
    if (len) {
        memcpy(frame->octets + frame->len + FRAME_HEAD, octets, len);
    }
    frame->len += FRAME_HEAD + len;
}

static void add_text(frame_t *frame, int tag, const char *text)
{
    add_field(frame, tag, text, strlen(text));
}

static char *lower(apr_pool_t *p, const char *s)
{
    char *copy = apr_pstrdup(p, s);
    char *c;

    for (c = copy; *c; c++) {
        if (*c >= 'A' && *c <= 'Z') {
            *c = (char)(*c - 'A' + 'a');
        }
    }
    return copy;
}

static void add_authority(frame_t *frame, const idem_request_t *request)
{
    const char *host = lower(frame->pool, request->host ? request->host : "");

    if (request->port) {
        host = apr_psprintf(frame->pool, "%s:%u", host, request->port);
    }
    add_text(frame, IDEM_FIELD_AUTHORITY, host);
}

static void add_target(frame_t *frame, const idem_recipe_t *recipe, const idem_request_t *request)
{
    const char *path;
    const char *query;

    idem_target_split(frame->pool, request->target, &path, &query);
    add_text(frame, IDEM_FIELD_PATH, path);
    if (recipe->query == IDEM_QUERY_NAMES) {
        query = idem_target_select(frame->pool, query, recipe->query_names);
    }
    if (query && recipe->query != IDEM_QUERY_NONE) {
        add_text(frame, IDEM_FIELD_QUERY, query);
    }
}

static void add_media(frame_t *frame, const idem_request_t *request)
{
    const char *type = request->content_type ? request->content_type : "";
    const char *normal = idem_media_normalise(frame->pool, type);

    if (normal) {
        add_text(frame, IDEM_FIELD_MEDIA_TYPE, normal);
    }
    else {
        add_text(frame, IDEM_FIELD_MEDIA_OCTETS, type);
    }
    add_text(frame, IDEM_FIELD_CODING, lower(frame->pool, request->content_coding ? request->content_coding : ""));
}

static void add_headers(frame_t *frame, const idem_recipe_t *recipe, const idem_request_t *request)
{
    int i;

    for (i = 0; recipe->headers && i < recipe->headers->nelts; i++) {
        const char *name = APR_ARRAY_IDX(recipe->headers, i, const char *);
        const char *value = request->header(request->header_baton, name);

        add_text(frame, IDEM_FIELD_HEADER_NAME, lower(frame->pool, name));
        if (value) {
            add_text(frame, IDEM_FIELD_HEADER_VALUE, value);
        }
    }
}

void idem_fingerprint_frame(apr_pool_t *p, const idem_recipe_t *recipe, const idem_request_t *request,
                            const unsigned char **framed, apr_size_t *len)
{
    frame_t frame = {p, NULL, 0, 0};

    add_text(&frame, IDEM_FIELD_CONTRACT, IDEM_CONTRACT_NAME);
    add_text(&frame, IDEM_FIELD_SCHEMA, recipe->schema ? recipe->schema : "");
    add_text(&frame, IDEM_FIELD_METHOD, request->method);
    if (recipe->host) {
        add_authority(&frame, request);
    }
    add_target(&frame, recipe, request);
    add_media(&frame, request);
    add_headers(&frame, recipe, request);
    add_text(&frame, IDEM_FIELD_PAYLOAD_MODE, idem_payload_mode_name(recipe->mode));
    add_field(&frame, IDEM_FIELD_PAYLOAD, request->payload, sizeof(request->payload));
    *framed = frame.octets;
    *len = frame.len;
}

void idem_fingerprint(apr_pool_t *p, const idem_recipe_t *recipe, const idem_request_t *request,
                      unsigned char out[IDEM_FINGERPRINT_LEN])
{
    const unsigned char *framed;
    apr_size_t len;

    idem_fingerprint_frame(p, recipe, request, &framed, &len);
    idem_sha256(framed, len, out);
}

int idem_fingerprint_next(const unsigned char **at, apr_size_t *left, int *tag, const unsigned char **octets,
                          apr_size_t *len)
{
    apr_uint64_t length = 0;
    int i;

    if (*left < FRAME_HEAD) {
        return 0;
    }
    for (i = 1; i < FRAME_HEAD; i++) {
        length = length << 8 | (*at)[i];
    }
    if (length > *left - FRAME_HEAD) {
        return 0;
    }
    *tag = (*at)[0];
    *octets = *at + FRAME_HEAD;
    *len = (apr_size_t)length;
    *at += FRAME_HEAD + *len;
    *left -= FRAME_HEAD + *len;
    return 1;
}

static int group_of(int tag)
{
    switch (tag) {
    case IDEM_FIELD_METHOD:
        return 0;
    case IDEM_FIELD_AUTHORITY:
    case IDEM_FIELD_PATH:
        return 1;
    case IDEM_FIELD_QUERY:
        return 2;
    case IDEM_FIELD_MEDIA_TYPE:
    case IDEM_FIELD_MEDIA_OCTETS:
    case IDEM_FIELD_CODING:
        return 3;
    case IDEM_FIELD_HEADER_NAME:
    case IDEM_FIELD_HEADER_VALUE:
        return 4;
    default:
        return 5;
    }
}

void idem_fingerprint_parts(apr_pool_t *p, const unsigned char *framed, apr_size_t len, const unsigned char key[32],
                            unsigned char out[IDEM_PARTS_LEN])
{
    frame_t groups[GROUPS];
    unsigned char mac[32];
    idem_hmac_t hmac;
    const unsigned char *octets;
    apr_size_t octets_len;
    int tag;
    int i;

    for (i = 0; i < GROUPS; i++) {
        groups[i] = (frame_t){p, NULL, 0, 0};
        add_text(&groups[i], 'g', group_names[i]);
    }
    while (idem_fingerprint_next(&framed, &len, &tag, &octets, &octets_len)) {
        add_field(&groups[group_of(tag)], tag, octets, octets_len);
    }
    out[0] = PARTS_LAYOUT;
    idem_hmac_begin(&hmac, key, 32);
    for (i = 0; i < GROUPS; i++) {
        idem_hmac_of(&hmac, groups[i].octets, groups[i].len, mac);
        memcpy(out + 1 + i * GROUP_OCTETS, mac, GROUP_OCTETS);
    }
    idem_hmac_end(&hmac);
}

const char *idem_fingerprint_differing(apr_pool_t *p, const unsigned char *a, apr_size_t a_len, const unsigned char *b,
                                       apr_size_t b_len)
{
    const char *names = "";
    int i;

    if (a_len != IDEM_PARTS_LEN || b_len != IDEM_PARTS_LEN || a[0] != PARTS_LAYOUT || b[0] != PARTS_LAYOUT) {
        return "";
    }
    for (i = 0; i < GROUPS; i++) {
        if (memcmp(a + 1 + i * GROUP_OCTETS, b + 1 + i * GROUP_OCTETS, GROUP_OCTETS)) {
            names = apr_pstrcat(p, names, *names ? ", " : "", group_names[i], NULL);
        }
    }
    return names;
}

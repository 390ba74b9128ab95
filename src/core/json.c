#include "core/json.h"

#include <stdlib.h>
#include <string.h>

#include <yajl/yajl_parse.h>

#include "core/utf8.h"

#define FIRST_TEXT_ROOM 4096
#define FIRST_NODE_ROOM 256

/* What the callbacks need while yajl walks the text. */
typedef struct {
    idem_json_t *json;
    idem_payload_fault_t *fault;
    apr_status_t rv;
    apr_uint32_t depth;
    const char *behind; /* no string begins between this place and the token that yajl is at */
    apr_uint32_t open[IDEM_JSON_DEPTH_LIMIT]; /* the containers around the next value */
    apr_uint32_t children[IDEM_JSON_DEPTH_LIMIT + 1]; /* nodes right inside so far, by depth; [0] is the document */
} builder_t;

static apr_status_t free_buffers(void *data)
{
    idem_json_t *json = data;

    free(json->text);
    free(json->nodes);
    json->text = NULL;
    json->nodes = NULL;
    json->len = json->text_room = 0;
    json->count = json->node_room = 0;
    return APR_SUCCESS;
}

idem_json_t *idem_json_create(apr_pool_t *p, apr_uint32_t max_depth)
{
    idem_json_t *json = apr_pcalloc(p, sizeof(*json));

    json->pool = p;
    json->max_depth = max_depth < IDEM_JSON_DEPTH_LIMIT ? max_depth : IDEM_JSON_DEPTH_LIMIT;
    apr_pool_cleanup_register(p, json, free_buffers, apr_pool_cleanup_null);
    return json;
}

void idem_json_free(idem_json_t *json)
{
    apr_pool_cleanup_run(json->pool, json, free_buffers);
}

apr_status_t idem_json_feed(idem_json_t *json, const char *data, apr_size_t len, idem_payload_fault_t *fault)
{
    if (len == 0) {
        return APR_SUCCESS;
    }
    if (len >= IDEM_JSON_MAX_TEXT - json->len) {
        return idem_fault(fault, json->pool, "too-large", NULL, "The JSON text has more than %u octets.",
                          IDEM_JSON_MAX_TEXT - 1);
    }
    if (json->text_room < json->len + len + IDEM_JSON_SLACK) {
        apr_size_t room = json->text_room != 0 ? json->text_room * 2 : FIRST_TEXT_ROOM;
        char *text;

        while (room < json->len + len + IDEM_JSON_SLACK) {
            room *= 2;
        }
        text = realloc(json->text, room);
        if (text == NULL) {
            return APR_ENOMEM;
        }
        json->text = text;
        json->text_room = room;
    }
    memcpy(json->text + json->len, data, len);
    json->len += len;
    return APR_SUCCESS;
}

static int refuse_at(builder_t *b, apr_uint32_t node, const char *reason, const char *detail)
{
    b->rv = idem_fault(b->fault, b->json->pool, reason, idem_json_pointer(b->json, node), "%s", detail);
    return 0;
}

/* At the node that was added last, or inside it when it is a container or a name. */
static int refuse(builder_t *b, const char *reason, const char *detail)
{
    return refuse_at(b, b->json->count != 0 ? b->json->count - 1 : 0, reason, detail);
}

/* Appends a node, which is closed unless the caller opens it. 0 stops yajl. */
static int add(builder_t *b, idem_json_kind_e kind, apr_size_t at, apr_size_t len)
{
    idem_json_t *json = b->json;
    idem_json_node_t *node;

    if (json->count == json->node_room) {
        apr_uint32_t room = json->node_room != 0 ? json->node_room * 2 : FIRST_NODE_ROOM;
        idem_json_node_t *nodes;

        if (json->count >= IDEM_JSON_MAX_VALUES) {
            return refuse(b, "too-many-values", "The JSON text has too many values.");
        }
        if (room > IDEM_JSON_MAX_VALUES) {
            room = IDEM_JSON_MAX_VALUES;
        }
        nodes = realloc(json->nodes, room * sizeof(*nodes));
        if (nodes == NULL) {
            b->rv = APR_ENOMEM;
            return 0;
        }
        json->nodes = nodes;
        json->node_room = room;
    }
    node = &json->nodes[json->count++];
    node->at = (apr_uint32_t)at;
    node->len = (apr_uint32_t)len & (IDEM_JSON_MAX_TEXT - 1);
    node->kind = kind;
    node->plain = 1;
    b->children[b->depth]++;
    return 1;
}

static int on_null(void *ctx)
{
    return add(ctx, IDEM_JSON_NULL, 0, 0);
}

static int on_boolean(void *ctx, int value)
{
    return add(ctx, value ? IDEM_JSON_TRUE : IDEM_JSON_FALSE, 0, 0);
}

/* Whether the octets that yajl hands out are the text's own and not those of one of its buffers. */
static int in_text(const builder_t *b, const char *octets)
{
    return (apr_uintptr_t)octets - (apr_uintptr_t)b->json->text <= b->json->len;
}

static int on_number(void *ctx, const char *octets, size_t len)
{
    builder_t *b = ctx;

    if (!in_text(b, octets)) {
        /* A number that only the text's end ends. yajl saw that end too late and gives a copy. */
        const char *last = b->json->text + b->json->len - len;

        if (len > b->json->len || memcmp(last, octets, len) != 0) {
            return refuse(b, "syntax", "A number could not be read.");
        }
        octets = last;
    }
    b->behind = octets + len;
    if (!add(b, IDEM_JSON_NUMBER, (apr_size_t)(octets - b->json->text), len)) {
        return 0;
    }
    if (len > IDEM_JSON_MAX_NUMBER) {
        return refuse(b, "number-too-long", "A number has too many octets.");
    }
    return 1;
}

/* Four hexadecimal digits, which yajl has seen to be that. */
static unsigned hex4(const char *s)
{
    unsigned value = 0;
    int i;

    for (i = 0; i < 4; i++) {
        unsigned char c = (unsigned char)s[i];

        value = value * 16 + (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return value;
}

/*
 * The end (its closing quote) of the string whose first octet is s, or NULL when it holds an escaped surrogate that
 * is not half of a pair. yajl has read it already, so the escapes are complete and the quote is there.
 */
static const char *end_of_escaped(const char *s)
{
    for (;;) {
        unsigned unit;

        while (*s != '"' && *s != '\\') {
            s++;
        }
        if (*s == '"') {
            return s;
        }
        if (s[1] != 'u') {
            s += 2;
            continue;
        }
        unit = hex4(s + 2);
        s += 6;
        if (unit >= 0xD800 && unit <= 0xDBFF) {
            if (s[0] != '\\' || s[1] != 'u' || hex4(s + 2) < 0xDC00 || hex4(s + 2) > 0xDFFF) {
                return NULL;
            }
            s += 6;
        }
        else if (unit >= 0xDC00 && unit <= 0xDFFF) {
            return NULL;
        }
    }
}

/*
 * yajl unescapes into a buffer of its own. The result is put over the escaped form, which is longer, so that all
 * strings are in the text. Where that form stands yajl does not say, but no other string is before it.
 */
static int add_string(builder_t *b, const char *octets, size_t len)
{
    const char *text = b->json->text;
    const char *start;
    const char *end;

    if (in_text(b, octets)) {
        b->behind = octets + len + 1;
        return add(b, IDEM_JSON_STRING, (apr_size_t)(octets - text), len);
    }
    start = memchr(b->behind, '"', (apr_size_t)(text + b->json->len - b->behind));
    if (start == NULL || !add(b, IDEM_JSON_STRING, (apr_size_t)(start + 1 - text), len)) {
        return 0;
    }
    end = end_of_escaped(++start);
    if (end == NULL) {
        b->json->nodes[b->json->count - 1].len = 0;
        return refuse(b, "unpaired-surrogate", "A string has an escaped surrogate without its other half.");
    }
    if ((apr_size_t)(end - start) < len) {
        return refuse(b, "syntax", "A string could not be read.");
    }
    memcpy(b->json->text + (start - text), octets, len);
    b->behind = end + 1;
    b->json->nodes[b->json->count - 1].plain = 0;
    return 1;
}

static int on_string(void *ctx, const unsigned char *octets, size_t len)
{
    return add_string(ctx, (const char *)octets, len);
}

static int on_name(void *ctx, const unsigned char *octets, size_t len)
{
    builder_t *b = ctx;

    if (!add_string(b, (const char *)octets, len)) {
        return 0;
    }
    if (len > IDEM_JSON_MAX_NAME) {
        return refuse_at(b, b->open[b->depth - 1], "name-too-long", "A member name has too many octets.");
    }
    if (b->children[b->depth] > 2 * IDEM_JSON_MAX_MEMBERS) {
        return refuse(b, "too-many-members", "An object has too many members.");
    }
    return 1;
}

static int open_container(builder_t *b, idem_json_kind_e kind)
{
    if (b->depth == b->json->max_depth) {
        return refuse(b, "depth", "Arrays and objects are nested too deeply.");
    }
    if (!add(b, kind, 0, 0)) {
        return 0;
    }
    b->open[b->depth++] = b->json->count - 1;
    b->children[b->depth] = 0;
    return 1;
}

static int on_array(void *ctx)
{
    return open_container(ctx, IDEM_JSON_ARRAY);
}

static int on_object(void *ctx)
{
    return open_container(ctx, IDEM_JSON_OBJECT);
}

static int on_close(void *ctx)
{
    builder_t *b = ctx;
    apr_uint32_t children = b->children[b->depth];
    idem_json_node_t *node = &b->json->nodes[b->open[--b->depth]];

    node->at = b->json->count;
    node->len = node->kind == IDEM_JSON_OBJECT ? children / 2 : children;
    return 1;
}

/* What yajl would let pass or would not name. */
static apr_status_t check_octets(const idem_json_t *json, idem_payload_fault_t *fault)
{
    apr_size_t valid;

    if (json->len == 0) {
        return idem_fault(fault, json->pool, "empty", "", "The body is empty where a JSON text is promised.");
    }
    if (json->len >= 3 && memcmp(json->text, "\xEF\xBB\xBF", 3) == 0) {
        return idem_fault(fault, json->pool, "byte-order-mark", "", "The JSON text begins with a byte order mark.");
    }
    valid = idem_utf8_span(json->text, json->len);
    if (valid != json->len) {
        return idem_fault(fault, json->pool, "not-utf8", NULL,
                          "The JSON text is not UTF-8: octet %" APR_SIZE_T_FMT " begins no valid character.",
                          valid + 1);
    }
    if (memchr(json->text, '\v', json->len) != NULL || memchr(json->text, '\f', json->len) != NULL) {
        return idem_fault(fault, json->pool, "syntax", NULL,
                          "The text is not JSON: it has a vertical tab or a form feed.");
    }
    return APR_SUCCESS;
}

static const char *last_place(const idem_json_t *json)
{
    return idem_json_pointer(json, json->count != 0 ? json->count - 1 : 0);
}

/* yajl stopped by itself, behind so many octets of the text, or at its end because it wants more. */
static apr_status_t syntax_fault(builder_t *b, apr_size_t behind, int at_end)
{
    const idem_json_t *json = b->json;

    if (json->count != 0 && b->depth == 0) {
        return idem_fault(b->fault, json->pool, "trailing-text", "",
                          "Something follows the JSON value near octet %" APR_SIZE_T_FMT ".", behind);
    }
    if (at_end) {
        return idem_fault(b->fault, json->pool, "truncated", last_place(json), "The JSON text ends too early.");
    }
    return idem_fault(b->fault, json->pool, "syntax", last_place(json),
                      "The text is not JSON near octet %" APR_SIZE_T_FMT ".", behind);
}

apr_status_t idem_json_finish(idem_json_t *json, idem_payload_fault_t *fault)
{
    static const yajl_callbacks callbacks = {
        .yajl_null = on_null,       .yajl_boolean = on_boolean,  .yajl_number = on_number,
        .yajl_string = on_string,   .yajl_start_map = on_object, .yajl_map_key = on_name,
        .yajl_end_map = on_close,   .yajl_start_array = on_array, .yajl_end_array = on_close,
    };
    builder_t b = { .json = json, .fault = fault, .rv = APR_SUCCESS, .behind = json->text };
    apr_status_t rv = check_octets(json, fault);
    yajl_handle yajl;
    yajl_status status;
    int at_end = 0;

    if (rv != APR_SUCCESS) {
        return rv;
    }
    yajl = yajl_alloc(&callbacks, NULL, &b);
    if (yajl == NULL) {
        return APR_ENOMEM;
    }
    /* Checked already, and more strictly. */
    yajl_config(yajl, yajl_dont_validate_strings, 1);
    status = yajl_parse(yajl, (const unsigned char *)json->text, json->len);
    if (status == yajl_status_ok) {
        /*
         * yajl waits for the end of a token that the text breaks off, and does not miss it behind the value: it would
         * take {}"abc. No token goes on behind a line feed.
         */
        status = yajl_parse(yajl, (const unsigned char *)"\n", 1);
        at_end = 1;
    }
    if (b.rv != APR_SUCCESS) {
        rv = b.rv;
    }
    else if (status != yajl_status_ok) {
        rv = syntax_fault(&b, at_end ? json->len : yajl_get_bytes_consumed(yajl), at_end);
    }
    else if (yajl_complete_parse(yajl) != yajl_status_ok) {
        rv = b.rv != APR_SUCCESS ? b.rv : syntax_fault(&b, json->len, 1);
    }
    yajl_free(yajl);
    return rv;
}

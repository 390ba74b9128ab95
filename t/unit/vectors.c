#include "vectors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <apr_file_io.h>
#include <apr_strings.h>
#include <yajl/yajl_parse.h>

#define MAX_DEPTH 64

typedef struct {
    apr_pool_t *pool;
    vec_t *root;
    vec_t *open[MAX_DEPTH]; /* the arrays and objects around the next value */
    vec_t *last[MAX_DEPTH]; /* their youngest child */
    int depth;
    const char *name; /* of the next member */
} builder_t;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "vectors: %s: %s\n", what, why);
    exit(99);
}

static vec_t *add(builder_t *b, vec_type_e type)
{
    vec_t *v = apr_pcalloc(b->pool, sizeof(*v));
    int d = b->depth - 1;

    v->type = type;
    if (d < 0) {
        b->root = v;
        return v;
    }
    v->name = b->open[d]->type == VEC_OBJECT ? b->name : NULL;
    if (b->last[d]) {
        b->last[d]->next = v;
    }
    else {
        b->open[d]->first = v;
    }
    b->last[d] = v;
    b->open[d]->count++;
    return v;
}

static int add_text(builder_t *b, vec_type_e type, const char *text, size_t len)
{
    vec_t *v = add(b, type);

    v->text = apr_pstrmemdup(b->pool, text, len);
    v->len = len;
    return 1;
}

static int on_null(void *b)
{
    add(b, VEC_NULL);
    return 1;
}

static int on_bool(void *b, int truth)
{
    add(b, VEC_BOOL)->truth = truth;
    return 1;
}

static int on_number(void *b, const char *text, size_t len)
{
    return add_text(b, VEC_NUMBER, text, len);
}

static int on_string(void *b, const unsigned char *text, size_t len)
{
    return add_text(b, VEC_STRING, (const char *)text, len);
}

static int on_name(void *b, const unsigned char *text, size_t len)
{
    ((builder_t *)b)->name = apr_pstrmemdup(((builder_t *)b)->pool, (const char *)text, len);
    return 1;
}

static int push(builder_t *b, vec_type_e type)
{
    vec_t *v = add(b, type);

    if (b->depth == MAX_DEPTH) {
        return 0;
    }
    b->open[b->depth] = v;
    b->last[b->depth] = NULL;
    b->depth++;
    return 1;
}

static int on_object(void *b)
{
    return push(b, VEC_OBJECT);
}

static int on_array(void *b)
{
    return push(b, VEC_ARRAY);
}

static int on_end(void *b)
{
    ((builder_t *)b)->depth--;
    return 1;
}

static const yajl_callbacks callbacks = {
    on_null, on_bool, NULL, NULL, on_number, on_string, on_object, on_name, on_end, on_array, on_end
};

vec_t *vec_parse(apr_pool_t *p, const char *json, apr_size_t len)
{
    builder_t b = { .pool = p };
    yajl_handle parser = yajl_alloc(&callbacks, NULL, &b);
    const unsigned char *octets = (const unsigned char *)json;

    if (yajl_parse(parser, octets, len) != yajl_status_ok || yajl_complete_parse(parser) != yajl_status_ok) {
        fail("JSON", (const char *)yajl_get_error(parser, 1, octets, len));
    }
    yajl_free(parser);
    return b.root;
}

const char *vec_file(apr_pool_t *p, const char *path, apr_size_t *len)
{
    const char *folder = getenv("IDEM_VECTORS");
    const char *full = apr_pstrcat(p, folder ? folder : "t/vectors", "/", path, NULL);
    apr_file_t *file;
    apr_finfo_t info;
    char *octets;

    if (apr_file_open(&file, full, APR_READ | APR_BINARY, APR_OS_DEFAULT, p) != APR_SUCCESS
        || apr_file_info_get(&info, APR_FINFO_SIZE, file) != APR_SUCCESS) {
        fail(full, "cannot be opened (IDEM_VECTORS names the folder)");
    }
    octets = apr_pcalloc(p, (apr_size_t)info.size + 1);
    if (info.size > 0 && apr_file_read_full(file, octets, (apr_size_t)info.size, len) != APR_SUCCESS) {
        fail(full, "cannot be read");
    }
    *len = (apr_size_t)info.size;
    apr_file_close(file);
    return octets;
}

vec_t *vec_load(apr_pool_t *p, const char *path)
{
    apr_size_t len;
    const char *json = vec_file(p, path, &len);

    return vec_parse(p, json, len);
}

const vec_t *vec_get(const vec_t *object, const char *name)
{
    const vec_t *v;

    if (object->type != VEC_OBJECT) {
        fail(name, "asked of something that is no object");
    }
    for (v = object->first; v && strcmp(v->name, name) != 0; v = v->next) {
    }
    return v;
}

const vec_t *vec_at(const vec_t *array, int index)
{
    const vec_t *v = array->first;

    if (index < 0 || index >= array->count) {
        fail("array", "has no such element");
    }
    while (index--) {
        v = v->next;
    }
    return v;
}

const char *vec_text(const vec_t *object, const char *name)
{
    const vec_t *v = vec_get(object, name);

    if (v && v->type != VEC_STRING) {
        fail(name, "is no string");
    }
    return v ? v->text : NULL;
}

int vec_is(const vec_t *object, const char *name, const char *text)
{
    const char *is = vec_text(object, name);

    return is && strcmp(is, text) == 0;
}

const char *vec_latin1(apr_pool_t *p, const vec_t *s, apr_size_t *len)
{
    char *out = apr_pcalloc(p, s->len + 1);
    apr_size_t i, n = 0;

    for (i = 0; i < s->len; i++) {
        unsigned char c = (unsigned char)s->text[i];

        if (c >= 0x80) {
            if ((c != 0xc2 && c != 0xc3) || i + 1 == s->len) {
                fail(s->text, "holds a character over U+00FF");
            }
            c = (unsigned char)(c << 6 | ((unsigned char)s->text[++i] & 0x3f));
        }
        out[n++] = (char)c;
    }
    *len = n;
    return out;
}

#include "core/media.h"

#include <stdlib.h>
#include <string.h>

#include <apr_strings.h>
#include <apr_tables.h>

typedef struct parameter_t {
    const char *name;
    const char *value;
} parameter_t;

typedef struct media_t {
    const char *type;               /* type/subtype, lower case */
    apr_array_header_t *parameters; /* of parameter_t */
} media_t;

static int is_token_octet(char c)
{
    return c > ' ' && c < 127 && !strchr("\"(),/:;<=>?@[\\]{}", c);
}

static const char *skip_space(const char *s)
{
    return s + strspn(s, " \t");
}

/* A token in lower case if fold; NULL where there is none. *s moves behind it. */
static char *read_token(apr_pool_t *p, const char **s, int fold)
{
    const char *begin = *s;
    char *token;
    char *c;

    while (is_token_octet(**s)) {
        (*s)++;
    }
    if (*s == begin) {
        return NULL;
    }
    token = apr_pstrmemdup(p, begin, (apr_size_t)(*s - begin));
    for (c = token; fold && *c; c++) {
        if (*c >= 'A' && *c <= 'Z') {
            *c = (char)(*c - 'A' + 'a');
        }
    }
    return token;
}

static char *read_quoted(apr_pool_t *p, const char **s)
{
    char *out = apr_palloc(p, strlen(*s) + 1);
    char *o = out;

    for ((*s)++; **s && **s != '"'; (*s)++) {
        if (**s == '\\' && *++*s == '\0') {
            return NULL;
        }
        *o++ = **s;
    }
    if (**s != '"') {
        return NULL;
    }
    (*s)++;
    *o = '\0';
    return out;
}

static int read_parameter(apr_pool_t *p, const char **s, parameter_t *parameter)
{
    parameter->name = read_token(p, s, 1);
    if (!parameter->name || **s != '=') {
        return 0;
    }
    (*s)++;
    parameter->value = **s == '"' ? read_quoted(p, s) : read_token(p, s, 0);
    return parameter->value != NULL;
}

static int parse(apr_pool_t *p, const char *s, media_t *media)
{
    const char *type;
    const char *subtype;

    s = skip_space(s);
    type = read_token(p, &s, 1);
    if (!type || *s++ != '/') {
        return 0;
    }
    subtype = read_token(p, &s, 1);
    if (!subtype) {
        return 0;
    }
    media->type = apr_pstrcat(p, type, "/", subtype, NULL);
    media->parameters = apr_array_make(p, 2, sizeof(parameter_t));
    for (s = skip_space(s); *s; s = skip_space(s)) {
        if (*s++ != ';') {
            return 0;
        }
        s = skip_space(s);
        if (*s && *s != ';' && !read_parameter(p, &s, &APR_ARRAY_PUSH(media->parameters, parameter_t))) {
            return 0;
        }
    }
    return 1;
}

static int by_name_then_value(const void *a, const void *b)
{
    const parameter_t *x = a;
    const parameter_t *y = b;
    int order = strcmp(x->name, y->name);

    return order ? order : strcmp(x->value, y->value);
}

static const char *quote(apr_pool_t *p, const char *value)
{
    char *out = apr_palloc(p, 2 * strlen(value) + 3);
    char *o = out;

    *o++ = '"';
    for (; *value; value++) {
        if (*value == '"' || *value == '\\') {
            *o++ = '\\';
        }
        *o++ = *value;
    }
    *o++ = '"';
    *o = '\0';
    return out;
}

const char *idem_media_normalise(apr_pool_t *p, const char *value)
{
    media_t media;
    const char *out;
    int i;

    if (!*skip_space(value)) {
        return "";
    }
    if (!parse(p, value, &media)) {
        return NULL;
    }
    if (media.parameters->nelts) {
        qsort(media.parameters->elts, (size_t)media.parameters->nelts, sizeof(parameter_t), by_name_then_value);
    }
    out = media.type;
    for (i = 0; i < media.parameters->nelts; i++) {
        const parameter_t *parameter = &APR_ARRAY_IDX(media.parameters, i, parameter_t);

        if (strcmp(parameter->name, "boundary")) {
            out = apr_pstrcat(p, out, ";", parameter->name, "=", quote(p, parameter->value), NULL);
        }
    }
    return out;
}

const char *idem_media_parameter(apr_pool_t *p, const char *value, const char *name)
{
    media_t media;
    int i;

    if (!value || !parse(p, value, &media)) {
        return NULL;
    }
    for (i = 0; i < media.parameters->nelts; i++) {
        const parameter_t *parameter = &APR_ARRAY_IDX(media.parameters, i, parameter_t);

        if (!strcmp(parameter->name, name)) {
            return parameter->value;
        }
    }
    return NULL;
}

int idem_media_is(apr_pool_t *p, const char *value, const char *type)
{
    apr_size_t len = strlen(type);
    media_t media;

    if (!value || !parse(p, value, &media)) {
        return 0;
    }
    return type[len - 1] == '/' ? !strncmp(media.type, type, len) : !strcmp(media.type, type);
}

int idem_media_is_json(apr_pool_t *p, const char *value)
{
    media_t media;
    apr_size_t len;

    if (!value || !parse(p, value, &media)) {
        return 0;
    }
    len = strlen(media.type);
    return !strcmp(media.type, "application/json") || (len > 5 && !strcmp(media.type + len - 5, "+json"));
}

#include <string.h>

#include <apr_strings.h>

#include "core/fingerprint.h"

/*
 * A recipe is one line of text: "1 MODE HOST QUERY HEADERS SCHEMA". Lists are joined by commas, their elements (and
 * the schema revision) percent-encoded wherever they hold more than letters, digits, "-", "_" and "."; "-" is empty.
 */
#define RECIPE_LAYOUT "1"
#define RECIPE_WORDS  6
#define RECIPE_MAX    16384

static int is_plain(unsigned char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

static const char *escape(apr_pool_t *p, const char *s)
{
    static const char digits[] = "0123456789ABCDEF";
    char *out = apr_palloc(p, 3 * strlen(s) + 1);
    char *o = out;

    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;

        if (is_plain(c) || (c == '-' && o > out)) {
            *o++ = (char)c;
            continue;
        }
        *o++ = '%';
        *o++ = digits[c >> 4];
        *o++ = digits[c & 15];
    }
    *o = '\0';
    return out;
}

static int unhex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static const char *unescape(apr_pool_t *p, const char *s)
{
    char *out = apr_palloc(p, strlen(s) + 1);
    char *o = out;

    while (*s) {
        if (*s != '%') {
            *o++ = *s++;
            continue;
        }
        if (unhex(s[1]) < 0 || unhex(s[2]) < 0) {
            return NULL;
        }
        *o++ = (char)(unhex(s[1]) * 16 + unhex(s[2]));
        s += 3;
    }
    *o = '\0';
    return out;
}

static const char *format_list(apr_pool_t *p, const apr_array_header_t *list)
{
    const char *out = "";
    int i;

    for (i = 0; list && i < list->nelts; i++) {
        out = apr_pstrcat(p, out, i ? "," : "", escape(p, APR_ARRAY_IDX(list, i, const char *)), NULL);
    }
    return *out ? out : "-";
}

static apr_array_header_t *parse_list(apr_pool_t *p, char *text)
{
    apr_array_header_t *list = apr_array_make(p, 4, sizeof(const char *));
    char *state = NULL;
    char *word;

    if (!strcmp(text, "-")) {
        return list;
    }
    for (word = apr_strtok(text, ",", &state); word; word = apr_strtok(NULL, ",", &state)) {
        const char *name = unescape(p, word);

        if (!name) {
            return NULL;
        }
        APR_ARRAY_PUSH(list, const char *) = name;
    }
    return list;
}

const char *idem_recipe_format(apr_pool_t *p, const idem_recipe_t *recipe)
{
    const char *query = recipe->query == IDEM_QUERY_ALL    ? "*"
                        : recipe->query == IDEM_QUERY_NONE ? "-"
                                                           : format_list(p, recipe->query_names);
    const char *schema = recipe->schema && *recipe->schema ? escape(p, recipe->schema) : "-";

    return apr_pstrcat(p, RECIPE_LAYOUT " ", idem_payload_mode_name(recipe->mode), recipe->host ? " host " : " - ", query,
                       " ", format_list(p, recipe->headers), " ", schema, NULL);
}

const idem_recipe_t *idem_recipe_parse(apr_pool_t *p, const char *text, apr_size_t len)
{
    idem_recipe_t *recipe = apr_pcalloc(p, sizeof(*recipe));
    char *words[RECIPE_WORDS];
    char *state = NULL;
    char *word;
    int count = 0;

    if (!text || len > RECIPE_MAX) {
        return NULL;
    }
    for (word = apr_strtok(apr_pstrmemdup(p, text, len), " ", &state); word; word = apr_strtok(NULL, " ", &state)) {
        if (count == RECIPE_WORDS) {
            return NULL;
        }
        words[count++] = word;
    }
    if (count != RECIPE_WORDS || strcmp(words[0], RECIPE_LAYOUT) || idem_payload_mode_parse(words[1], &recipe->mode) != APR_SUCCESS) {
        return NULL;
    }
    recipe->host = !strcmp(words[2], "host");
    recipe->query = !strcmp(words[3], "*") ? IDEM_QUERY_ALL : !strcmp(words[3], "-") ? IDEM_QUERY_NONE : IDEM_QUERY_NAMES;
    recipe->query_names = recipe->query == IDEM_QUERY_NAMES ? parse_list(p, words[3]) : NULL;
    recipe->headers = parse_list(p, words[4]);
    recipe->schema = !strcmp(words[5], "-") ? "" : unescape(p, words[5]);
    if ((recipe->query == IDEM_QUERY_NAMES && !recipe->query_names) || !recipe->headers || !recipe->schema) {
        return NULL;
    }
    return recipe;
}

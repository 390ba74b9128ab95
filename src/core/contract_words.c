#include "core/contract_compile.h"

#include <stdlib.h>
#include <string.h>

#include <apr_strings.h>

#define ANY     (~0u)
#define OBJECTS IDEM_CONTRACT_KIND(IDEM_JSON_OBJECT)
#define ARRAYS  IDEM_CONTRACT_KIND(IDEM_JSON_ARRAY)
#define STRINGS IDEM_CONTRACT_KIND(IDEM_JSON_STRING)
#define NUMBERS (IDEM_CONTRACT_KIND(IDEM_JSON_NUMBER) | IDEM_CONTRACT_INTEGER)

/* Every keyword there is, and the types of value that it says something about. */
static const struct {
    const char *name;
    unsigned types;
} keywords[IDEM_KW_COUNT] = {
    [IDEM_KW_TYPE] = { "type", ANY },
    [IDEM_KW_PROPERTIES] = { "properties", OBJECTS },
    [IDEM_KW_REQUIRED] = { "required", OBJECTS },
    [IDEM_KW_ADDITIONAL] = { "additionalProperties", OBJECTS },
    [IDEM_KW_ITEMS] = { "items", ARRAYS },
    [IDEM_KW_ENUM] = { "enum", ANY },
    [IDEM_KW_CONST] = { "const", ANY },
    [IDEM_KW_MAX_LENGTH] = { "maxLength", STRINGS },
    [IDEM_KW_PATTERN] = { "pattern", STRINGS },
    [IDEM_KW_MINIMUM] = { "minimum", NUMBERS | STRINGS }, /* strings with format: decimal only */
    [IDEM_KW_MAXIMUM] = { "maximum", NUMBERS | STRINGS },
    [IDEM_KW_FORMAT] = { "format", NUMBERS | STRINGS },
    [IDEM_KW_REVISION] = { "x-revision", ANY },
};

static const struct {
    const char *name;
    unsigned types;
} types[] = {
    { "null", IDEM_CONTRACT_KIND(IDEM_JSON_NULL) },
    { "boolean", IDEM_CONTRACT_KIND(IDEM_JSON_FALSE) | IDEM_CONTRACT_KIND(IDEM_JSON_TRUE) },
    { "number", IDEM_CONTRACT_KIND(IDEM_JSON_NUMBER) },
    { "integer", IDEM_CONTRACT_INTEGER },
    { "string", STRINGS },
    { "array", ARRAYS },
    { "object", OBJECTS },
};

int idem_contract_wrong(idem_compiler_t *c, apr_uint32_t at, const char *fmt, ...)
{
    const char *pointer = idem_json_pointer(c->json, at);
    va_list args;

    va_start(args, fmt);
    c->error = apr_psprintf(c->pool, "at \"%s\": %s", pointer, apr_pvsprintf(c->pool, fmt, args));
    va_end(args);
    return 0;
}

static int is_text(const idem_compiler_t *c, apr_uint32_t at, const char *word)
{
    return node_at(c, at)->kind == IDEM_JSON_STRING && node_at(c, at)->len == strlen(word) &&
           memcmp(text_at(c, at), word, node_at(c, at)->len) == 0;
}

int idem_contract_keywords(idem_compiler_t *c, idem_schema_t *s)
{
    apr_uint32_t left = node_at(c, s->schema)->len;
    apr_uint32_t name;

    if (node_at(c, s->schema)->kind != IDEM_JSON_OBJECT) {
        return idem_contract_wrong(c, s->schema, "a schema is an object");
    }
    for (name = s->schema + 1; left != 0; left--, name = idem_json_next(c->json, name + 1)) {
        int i = 0;

        while (i < IDEM_KW_COUNT && !is_text(c, name, keywords[i].name)) {
            i++;
        }
        if (i == IDEM_KW_COUNT) {
            return idem_contract_wrong(c, name, "a payload contract knows no such keyword");
        }
        s->at[i] = name + 1;
    }
    return 1;
}

static int add_type(idem_compiler_t *c, idem_contract_node_t *node, apr_uint32_t at)
{
    unsigned i;

    for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (is_text(c, at, types[i].name)) {
            if ((node->types & types[i].types) != 0) {
                return idem_contract_wrong(c, at, "\"type\" names \"%s\" twice", types[i].name);
            }
            node->types |= types[i].types;
            return 1;
        }
    }
    return idem_contract_wrong(c, at,
                               "\"type\" is null, boolean, number, integer, string, array, object, or a list of these");
}

static int set_type(idem_compiler_t *c, idem_contract_node_t *node, apr_uint32_t at)
{
    apr_uint32_t left = node_at(c, at)->len;

    if (node_at(c, at)->kind != IDEM_JSON_ARRAY) {
        return add_type(c, node, at);
    }
    if (left == 0) {
        return idem_contract_wrong(c, at, "\"type\" is an empty list, which no value satisfies");
    }
    for (at++; left != 0; left--, at++) {
        if (!add_type(c, node, at)) {
            return 0;
        }
    }
    return 1;
}

static int set_values(idem_compiler_t *c, idem_contract_node_t *node, const idem_schema_t *s)
{
    apr_uint32_t at = s->at[IDEM_KW_ENUM];
    apr_uint32_t i;

    if (s->at[IDEM_KW_CONST] != 0) {
        if (at != 0) {
            return idem_contract_wrong(c, at, "\"enum\" beside \"const\" says nothing more");
        }
        node->values = apr_pmemdup(c->pool, &s->at[IDEM_KW_CONST], sizeof(*node->values));
        node->value_count = 1;
        return 1;
    }
    if (node_at(c, at)->kind != IDEM_JSON_ARRAY || node_at(c, at)->len == 0) {
        return idem_contract_wrong(c, at, "\"enum\" is a list of at least one value");
    }
    node->value_count = node_at(c, at)->len;
    node->values = apr_palloc(c->pool, node->value_count * sizeof(*node->values));
    for (i = 0, at++; i < node->value_count; i++) {
        node->values[i] = at;
        at = idem_json_next(c->json, at);
    }
    return 1;
}

static int set_max_length(idem_compiler_t *c, idem_contract_node_t *node, apr_uint32_t at)
{
    char *end;
    const char *text;

    if (node_at(c, at)->kind == IDEM_JSON_NUMBER && node_at(c, at)->len < 10) {
        text = apr_pstrmemdup(c->pool, text_at(c, at), node_at(c, at)->len);
        node->max_length = strtoul(text, &end, 10);
        if (*end == '\0' && *text != '-') {
            return 1;
        }
    }
    return idem_contract_wrong(c, at, "\"maxLength\" is a number of characters, 0 or more, in plain digits");
}

static apr_status_t free_pattern(void *code)
{
    pcre2_code_free(code);
    return APR_SUCCESS;
}

static int set_pattern(idem_compiler_t *c, idem_contract_node_t *node, apr_uint32_t at)
{
    /* $ is the end as in ECMAScript, not also before a last line feed; \u0041 is read as there. */
    const uint32_t options = PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX | PCRE2_NEVER_BACKSLASH_C;
    PCRE2_SIZE offset;
    PCRE2_UCHAR message[128];
    int code;

    if (node_at(c, at)->kind != IDEM_JSON_STRING) {
        return idem_contract_wrong(c, at, "\"pattern\" is a string");
    }
    node->pattern = pcre2_compile((PCRE2_SPTR)text_at(c, at), node_at(c, at)->len, options, &code, &offset, NULL);
    if (node->pattern == NULL) {
        pcre2_get_error_message(code, message, sizeof(message));
        return idem_contract_wrong(c, at, "\"pattern\" is no regular expression: %s at character %lu",
                                   (const char *)message, (unsigned long)offset);
    }
    apr_pool_cleanup_register(c->pool, node->pattern, free_pattern, apr_pool_cleanup_null);
    return 1;
}

static int set_bound(idem_compiler_t *c, const idem_decimal_t **bound, idem_contract_keyword_e keyword, apr_uint32_t at)
{
    idem_decimal_t *decimal = apr_palloc(c->pool, sizeof(*decimal));

    if (node_at(c, at)->kind != IDEM_JSON_NUMBER ||
        idem_decimal_read(text_at(c, at), node_at(c, at)->len, decimal) != APR_SUCCESS) {
        return idem_contract_wrong(c, at, "\"%s\" is a number of at most %d octets", keywords[keyword].name,
                                   IDEM_JSON_MAX_NUMBER);
    }
    *bound = decimal;
    return 1;
}

static int set_revision(idem_compiler_t *c, apr_uint32_t schema, apr_uint32_t at)
{
    const idem_json_node_t *node = node_at(c, at);
    const char *text = text_at(c, at);
    idem_decimal_t decimal;
    apr_uint32_t i;

    if (schema != 0) {
        return idem_contract_wrong(c, at, "\"x-revision\" stands in the outermost schema only");
    }
    if (node->kind == IDEM_JSON_NUMBER) {
        if (idem_decimal_read(text, node->len, &decimal) != APR_SUCCESS || !idem_decimal_is_integer(&decimal)) {
            return idem_contract_wrong(c, at, "\"x-revision\" is a string or an integer");
        }
    }
    else if (node->kind != IDEM_JSON_STRING || node->len == 0 || node->len > IDEM_CONTRACT_MAX_REVISION) {
        return idem_contract_wrong(c, at, "\"x-revision\" is a string of 1 to %d octets or an integer",
                                   IDEM_CONTRACT_MAX_REVISION);
    }
    for (i = 0; i < node->len; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7F) {
            return idem_contract_wrong(c, at, "\"x-revision\" has a control character");
        }
    }
    c->contract->revision = apr_pstrmemdup(c->pool, text, node->len);
    return 1;
}

/* A keyword that no value of the schema's types can meet would look like a check and be none. */
static int check_keywords(idem_compiler_t *c, const idem_contract_node_t *node, const idem_schema_t *s)
{
    int i;

    for (i = 0; i < IDEM_KW_COUNT; i++) {
        unsigned applies = keywords[i].types;

        if ((i == IDEM_KW_MINIMUM || i == IDEM_KW_MAXIMUM) && !node->decimal) {
            applies = NUMBERS;
        }
        if (s->at[i] != 0 && node->types != 0 && (node->types & applies) == 0) {
            return idem_contract_wrong(c, s->at[i], "\"%s\" says nothing about values of this \"type\"",
                                       keywords[i].name);
        }
    }
    if (node->minimum != NULL && node->maximum != NULL && idem_decimal_compare(node->minimum, node->maximum) > 0) {
        return idem_contract_wrong(c, s->at[IDEM_KW_MINIMUM], "\"minimum\" is above \"maximum\"");
    }
    return 1;
}

int idem_contract_words(idem_compiler_t *c, idem_contract_node_t *node, const idem_schema_t *s)
{
    if (s->at[IDEM_KW_FORMAT] != 0) {
        if (!is_text(c, s->at[IDEM_KW_FORMAT], "decimal")) {
            return idem_contract_wrong(c, s->at[IDEM_KW_FORMAT], "the only \"format\" is \"decimal\"");
        }
        node->decimal = 1;
    }
    node->has_values = s->at[IDEM_KW_ENUM] != 0 || s->at[IDEM_KW_CONST] != 0;
    return (s->at[IDEM_KW_TYPE] == 0 || set_type(c, node, s->at[IDEM_KW_TYPE])) &&
           (!node->has_values || set_values(c, node, s)) &&
           (s->at[IDEM_KW_MAX_LENGTH] == 0 || set_max_length(c, node, s->at[IDEM_KW_MAX_LENGTH])) &&
           (s->at[IDEM_KW_PATTERN] == 0 || set_pattern(c, node, s->at[IDEM_KW_PATTERN])) &&
           (s->at[IDEM_KW_MINIMUM] == 0 || set_bound(c, &node->minimum, IDEM_KW_MINIMUM, s->at[IDEM_KW_MINIMUM])) &&
           (s->at[IDEM_KW_MAXIMUM] == 0 || set_bound(c, &node->maximum, IDEM_KW_MAXIMUM, s->at[IDEM_KW_MAXIMUM])) &&
           (s->at[IDEM_KW_REVISION] == 0 || set_revision(c, s->schema, s->at[IDEM_KW_REVISION])) &&
           check_keywords(c, node, s);
}

#include "core/contract.h"

#include <stdlib.h>
#include <string.h>

#include <apr_strings.h>

#include "core/canon.h"
#include "core/contract_compile.h"

static idem_contract_node_t *new_node(idem_compiler_t *c)
{
    idem_contract_node_t *node = apr_pcalloc(c->pool, sizeof(*node));

    node->contract = c->contract;
    node->max_length = IDEM_CONTRACT_NO_MAXIMUM;
    return node;
}

static idem_contract_node_t *compile_schema(idem_compiler_t *c, apr_uint32_t schema);

static int set_additional(idem_compiler_t *c, idem_contract_node_t *node, apr_uint32_t at)
{
    switch ((idem_json_kind_e)node_at(c, at)->kind) {
    case IDEM_JSON_FALSE:
        return 1;
    case IDEM_JSON_TRUE:
        node->additional = 1;
        return 1;
    case IDEM_JSON_OBJECT:
        node->additional = 1;
        node->additional_value = compile_schema(c, at);
        return node->additional_value != NULL;
    default:
        return idem_contract_wrong(c, at, "\"additionalProperties\" is true, false or a schema");
    }
}

static int by_name(const void *va, const void *vb)
{
    const idem_contract_member_t *a = va;
    const idem_contract_member_t *b = vb;
    int order = memcmp(a->name, b->name, a->len < b->len ? a->len : b->len);

    return order != 0 ? order : (a->len > b->len) - (a->len < b->len);
}

static int set_properties(idem_compiler_t *c, idem_contract_node_t *node, apr_uint32_t at)
{
    apr_uint32_t left = node_at(c, at)->len;
    apr_uint32_t name;

    if (node_at(c, at)->kind != IDEM_JSON_OBJECT) {
        return idem_contract_wrong(c, at, "\"properties\" is an object of schemas");
    }
    for (name = at + 1; left != 0; left--, name = idem_json_next(c->json, name + 1)) {
        idem_contract_member_t *member = &node->members[node->member_count++];

        member->name = text_at(c, name);
        member->len = node_at(c, name)->len;
        member->value = compile_schema(c, name + 1);
        if (member->value == NULL) {
            return 0;
        }
    }
    return 1;
}

/* A required name that is not among the properties becomes one, with the schema of any other additional member. */
static int set_required(idem_compiler_t *c, idem_contract_node_t *node, apr_uint32_t at)
{
    apr_uint32_t left = node_at(c, at)->len;

    if (node_at(c, at)->kind != IDEM_JSON_ARRAY) {
        return idem_contract_wrong(c, at, "\"required\" is a list of member names");
    }
    for (at++; left != 0; left--, at = idem_json_next(c->json, at)) {
        apr_uint32_t i = 0;

        if (node_at(c, at)->kind != IDEM_JSON_STRING) {
            return idem_contract_wrong(c, at, "\"required\" is a list of member names");
        }
        while (i < node->member_count && (node->members[i].len != node_at(c, at)->len ||
                                          memcmp(node->members[i].name, text_at(c, at), node->members[i].len) != 0)) {
            i++;
        }
        if (i == node->member_count) {
            if (!node->additional) {
                return idem_contract_wrong(c, at, "\"required\" names a member that is not in \"properties\"");
            }
            node->members[i].name = text_at(c, at);
            node->members[i].len = node_at(c, at)->len;
            node->members[i].value = node->additional_value;
            node->member_count++;
        }
        if (node->members[i].required) {
            return idem_contract_wrong(c, at, "\"required\" names a member twice");
        }
        node->members[i].required = 1;
        node->required_count++;
    }
    return 1;
}

static int set_members(idem_compiler_t *c, idem_contract_node_t *node, const idem_schema_t *s)
{
    apr_uint32_t room = 0;

    if (s->at[IDEM_KW_ADDITIONAL] != 0 && !set_additional(c, node, s->at[IDEM_KW_ADDITIONAL])) {
        return 0;
    }
    room += s->at[IDEM_KW_PROPERTIES] != 0 ? node_at(c, s->at[IDEM_KW_PROPERTIES])->len : 0;
    room += s->at[IDEM_KW_REQUIRED] != 0 ? node_at(c, s->at[IDEM_KW_REQUIRED])->len : 0;
    node->members = apr_pcalloc(c->pool, room * sizeof(*node->members) + 1);
    if (s->at[IDEM_KW_PROPERTIES] != 0 && !set_properties(c, node, s->at[IDEM_KW_PROPERTIES])) {
        return 0;
    }
    if (s->at[IDEM_KW_REQUIRED] != 0 && !set_required(c, node, s->at[IDEM_KW_REQUIRED])) {
        return 0;
    }
    qsort(node->members, node->member_count, sizeof(*node->members), by_name);
    return 1;
}

/* Where the schema fixes whole values, what they hold needs no schema of its own. */
static int set_items(idem_compiler_t *c, idem_contract_node_t *node, const idem_schema_t *s)
{
    if (s->at[IDEM_KW_ITEMS] != 0) {
        node->items = compile_schema(c, s->at[IDEM_KW_ITEMS]);
        return node->items != NULL;
    }
    node->items = node->has_values ? NULL : c->empty;
    return 1;
}

/* NULL with c->error set. Recursion ends at the reader's depth. */
static idem_contract_node_t *compile_schema(idem_compiler_t *c, apr_uint32_t schema)
{
    idem_schema_t s = { .schema = schema };
    idem_contract_node_t *node = new_node(c);

    if (!idem_contract_keywords(c, &s) || !idem_contract_words(c, node, &s) || !set_members(c, node, &s) ||
        !set_items(c, node, &s)) {
        return NULL;
    }
    if (node->has_values && s.at[IDEM_KW_PROPERTIES] == 0 && s.at[IDEM_KW_ADDITIONAL] == 0) {
        node->additional = 1;
    }
    return node;
}

static void no_sink(void *baton, const void *octets, apr_size_t len)
{
    (void)baton;
    (void)octets;
    (void)len;
}

static apr_status_t free_limits(void *limits)
{
    pcre2_match_context_free(limits);
    return APR_SUCCESS;
}

apr_status_t idem_contract_compile(apr_pool_t *p, const char *text, apr_size_t len, idem_contract_t **out,
                                   const char **error)
{
    idem_compiler_t c = { .pool = p, .json = idem_json_create(p, IDEM_JSON_DEPTH_LIMIT) };
    idem_payload_fault_t fault = { NULL, NULL, NULL };
    apr_status_t rv;

    *error = NULL;
    if (len > IDEM_CONTRACT_MAX_TEXT) {
        *error = apr_psprintf(p, "a payload contract has at most %u octets", IDEM_CONTRACT_MAX_TEXT);
        return APR_EINVAL;
    }
    rv = idem_json_feed(c.json, text, len, &fault);
    if (rv == APR_SUCCESS) {
        rv = idem_json_finish(c.json, &fault);
    }
    if (rv == APR_SUCCESS) {
        rv = idem_canon_write(c.json, IDEM_CANON_JSON, NULL, no_sink, NULL, &fault); /* finds duplicate names */
    }
    if (rv != APR_SUCCESS) {
        *error = fault.pointer != NULL ? apr_psprintf(p, "at \"%s\": %s", fault.pointer, fault.detail) : fault.detail;
        return rv;
    }
    c.contract = apr_pcalloc(p, sizeof(*c.contract));
    c.contract->json = c.json;
    c.contract->revision = "";
    c.contract->limits = pcre2_match_context_create(NULL);
    if (c.contract->limits == NULL) {
        return APR_ENOMEM;
    }
    apr_pool_cleanup_register(p, c.contract->limits, free_limits, apr_pool_cleanup_null);
    pcre2_set_match_limit(c.contract->limits, IDEM_CONTRACT_MATCH_LIMIT);
    pcre2_set_heap_limit(c.contract->limits, IDEM_CONTRACT_MATCH_HEAP);
    c.empty = new_node(&c);
    c.empty->items = c.empty;
    c.contract->root = compile_schema(&c, 0);
    if (c.contract->root == NULL) {
        *error = c.error;
        return APR_EINVAL;
    }
    *out = c.contract;
    return APR_SUCCESS;
}

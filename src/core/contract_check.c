#include "core/contract_check.h"

#include <string.h>

#include "core/utf8.h"

void idem_contract_run_begin(idem_contract_run_t *run, const idem_json_t *json, idem_payload_fault_t *fault)
{
    run->json = json;
    run->fault = fault;
    run->match = NULL;
    run->normal_len = 0;
}

void idem_contract_run_end(idem_contract_run_t *run)
{
    pcre2_match_data_free(run->match);
    run->match = NULL;
}

const idem_contract_node_t *idem_contract_root(const idem_contract_t *contract)
{
    return contract->root;
}

static apr_status_t refuse(idem_contract_run_t *run, apr_uint32_t at, const char *reason, const char *detail)
{
    return idem_fault(run->fault, run->json->pool, reason, idem_json_pointer(run->json, at), "%s", detail);
}

static const char *octets_of(const idem_json_t *json, const idem_json_node_t *node)
{
    return json->text + node->at;
}

static int same_text(const idem_json_t *a, const idem_json_node_t *na, const idem_json_t *b, const idem_json_node_t *nb)
{
    return na->len == nb->len && memcmp(octets_of(a, na), octets_of(b, nb), na->len) == 0;
}

static int same_number(const idem_json_t *a, const idem_json_node_t *na, const idem_json_t *b,
                       const idem_json_node_t *nb)
{
    idem_decimal_t da;
    idem_decimal_t db;

    return same_text(a, na, b, nb) || (idem_decimal_read(octets_of(a, na), na->len, &da) == APR_SUCCESS &&
                                       idem_decimal_read(octets_of(b, nb), nb->len, &db) == APR_SUCCESS &&
                                       idem_decimal_compare(&da, &db) == 0);
}

static int same_value(const idem_json_t *a, apr_uint32_t ia, const idem_json_t *b, apr_uint32_t ib);

/* b's names are unique (it is the contract's text), so as many members as there and each found are the same members. */
static int same_members(const idem_json_t *a, apr_uint32_t ia, const idem_json_t *b, apr_uint32_t ib)
{
    apr_uint32_t count = b->nodes[ib].len;
    apr_uint32_t name_b = ib + 1;
    apr_uint32_t i;

    for (i = 0; i < count; i++) {
        apr_uint32_t name_a = ia + 1;
        apr_uint32_t j = 0;

        while (j < count && !same_text(a, &a->nodes[name_a], b, &b->nodes[name_b])) {
            name_a = idem_json_next(a, name_a + 1);
            j++;
        }
        if (j == count || !same_value(a, name_a + 1, b, name_b + 1)) {
            return 0;
        }
        name_b = idem_json_next(b, name_b + 1);
    }
    return 1;
}

static int same_elements(const idem_json_t *a, apr_uint32_t ia, const idem_json_t *b, apr_uint32_t ib)
{
    apr_uint32_t count = a->nodes[ia++].len;

    for (ib++; count != 0; count--) {
        if (!same_value(a, ia, b, ib)) {
            return 0;
        }
        ia = idem_json_next(a, ia);
        ib = idem_json_next(b, ib);
    }
    return 1;
}

/* Equality of JSON Schema. `a` is a payload, `b` a contract's text, so b's size bounds the work. */
static int same_value(const idem_json_t *a, apr_uint32_t ia, const idem_json_t *b, apr_uint32_t ib)
{
    const idem_json_node_t *na = &a->nodes[ia];
    const idem_json_node_t *nb = &b->nodes[ib];

    if (na->kind != nb->kind) {
        return 0;
    }
    switch ((idem_json_kind_e)na->kind) {
    case IDEM_JSON_NUMBER:
        return same_number(a, na, b, nb);
    case IDEM_JSON_STRING:
        return same_text(a, na, b, nb);
    case IDEM_JSON_ARRAY:
        return na->len == nb->len && same_elements(a, ia, b, ib);
    case IDEM_JSON_OBJECT:
        return na->len == nb->len && same_members(a, ia, b, ib);
    case IDEM_JSON_NULL:
    case IDEM_JSON_FALSE:
    case IDEM_JSON_TRUE:
        break;
    }
    return 1;
}

static apr_status_t check_values(idem_contract_run_t *run, const idem_contract_node_t *node, apr_uint32_t at)
{
    apr_uint32_t i;

    for (i = 0; i < node->value_count; i++) {
        if (same_value(run->json, at, node->contract->json, node->values[i])) {
            return APR_SUCCESS;
        }
    }
    return refuse(run, at, "contract-value", "A value is none of those that the payload contract lists.");
}

static int plain_integer(const char *s, apr_size_t len)
{
    apr_size_t i = s[0] == '-';

    if (s[i] == '0') {
        return len == 1;
    }
    while (i < len && s[i] >= '0' && s[i] <= '9') {
        i++;
    }
    return i == len;
}

/* Bounds, and the normal form of what is a number, be it in a string. */
static apr_status_t check_number(idem_contract_run_t *run, const idem_contract_node_t *node, apr_uint32_t at,
                                 int integer_only)
{
    const idem_json_node_t *value = &run->json->nodes[at];
    const char *text = octets_of(run->json, value);
    int integer = (node->types & IDEM_CONTRACT_INTEGER) != 0 && value->kind == IDEM_JSON_NUMBER;
    idem_decimal_t decimal;

    if (node->minimum == NULL && node->maximum == NULL &&
        (!(integer || node->decimal) || (value->kind == IDEM_JSON_NUMBER && plain_integer(text, value->len)))) {
        return APR_SUCCESS;
    }
    if (idem_decimal_read(text, value->len, &decimal) != APR_SUCCESS) {
        return refuse(run, at, "contract-decimal",
                      "A value is not a decimal number, or has more digits than a payload contract compares.");
    }
    if (integer_only && !idem_decimal_is_integer(&decimal)) {
        return refuse(run, at, "contract-type", "A number has a fraction where the payload contract has an integer.");
    }
    if ((node->minimum != NULL && idem_decimal_compare(&decimal, node->minimum) < 0) ||
        (node->maximum != NULL && idem_decimal_compare(&decimal, node->maximum) > 0)) {
        return refuse(run, at, "contract-range", "A number is outside the bounds of the payload contract.");
    }
    if (node->decimal || (integer && idem_decimal_is_integer(&decimal))) {
        run->normal_len = idem_decimal_write(&decimal, run->normal);
        if (run->normal_len == 0) {
            return refuse(run, at, "contract-decimal", "A number would have too many digits without its exponent.");
        }
    }
    return APR_SUCCESS;
}

static apr_status_t check_pattern(idem_contract_run_t *run, const idem_contract_node_t *node, apr_uint32_t at)
{
    const idem_json_node_t *value = &run->json->nodes[at];
    int matched;

    if (run->match == NULL) {
        run->match = pcre2_match_data_create(1, NULL);
        if (run->match == NULL) {
            return APR_ENOMEM;
        }
    }
    matched = pcre2_match(node->pattern, (PCRE2_SPTR)octets_of(run->json, value), value->len, 0, PCRE2_NO_UTF_CHECK,
                          run->match, node->contract->limits);
    if (matched >= 0) {
        return APR_SUCCESS;
    }
    if (matched == PCRE2_ERROR_NOMEMORY) {
        return APR_ENOMEM;
    }
    if (matched == PCRE2_ERROR_NOMATCH) {
        return refuse(run, at, "contract-pattern", "A string does not match the pattern of the payload contract.");
    }
    return refuse(run, at, "contract-pattern", "A string takes too long to match the pattern of the payload contract.");
}

static apr_status_t check_string(idem_contract_run_t *run, const idem_contract_node_t *node, apr_uint32_t at)
{
    const idem_json_node_t *value = &run->json->nodes[at];

    /* The octets decide first: there are never more code points than octets. */
    if (value->len > node->max_length && idem_utf8_count(octets_of(run->json, value), value->len) > node->max_length) {
        return refuse(run, at, "contract-length", "A string is longer than the payload contract says.");
    }
    if (node->pattern != NULL) {
        apr_status_t rv = check_pattern(run, node, at);

        if (rv != APR_SUCCESS) {
            return rv;
        }
    }
    return node->decimal ? check_number(run, node, at, 0) : APR_SUCCESS;
}

apr_status_t idem_contract_value(idem_contract_run_t *run, const idem_contract_node_t *node, apr_uint32_t at)
{
    unsigned kind = run->json->nodes[at].kind;
    int integer_only = 0;

    if (node->types != 0 && (node->types & IDEM_CONTRACT_KIND(kind)) == 0) {
        if (kind != IDEM_JSON_NUMBER || (node->types & IDEM_CONTRACT_INTEGER) == 0) {
            return refuse(run, at, "contract-type", "A value has another type than the payload contract says.");
        }
        integer_only = 1;
    }
    if (node->has_values) {
        apr_status_t rv = check_values(run, node, at);

        if (rv != APR_SUCCESS) {
            return rv;
        }
    }
    switch (kind) {
    case IDEM_JSON_NUMBER:
        return check_number(run, node, at, integer_only);
    case IDEM_JSON_STRING:
        return check_string(run, node, at);
    default:
        return APR_SUCCESS;
    }
}

static int compare_name(const char *name, apr_size_t len, const idem_contract_member_t *member)
{
    int order = memcmp(name, member->name, len < member->len ? len : member->len);

    return order != 0 ? order : (len > member->len) - (len < member->len);
}

static const idem_contract_member_t *find_member(const idem_contract_node_t *node, const char *name, apr_size_t len,
                                                 idem_contract_cursor_t *cursor)
{
    apr_uint32_t low = 0;
    apr_uint32_t high = node->member_count;

    /* Both sides are sorted, so most often it is the next one. */
    if (cursor->next < high && node->members[cursor->next].len == len &&
        memcmp(node->members[cursor->next].name, name, len) == 0) {
        return &node->members[cursor->next++];
    }
    while (low < high) {
        apr_uint32_t middle = low + (high - low) / 2;
        int order = compare_name(name, len, &node->members[middle]);

        if (order == 0) {
            cursor->next = middle + 1;
            return &node->members[middle];
        }
        if (order < 0) {
            high = middle;
        }
        else {
            low = middle + 1;
        }
    }
    return NULL;
}

apr_status_t idem_contract_member(idem_contract_run_t *run, const idem_contract_node_t *node, apr_uint32_t name,
                                  idem_contract_cursor_t *cursor, const idem_contract_node_t **value)
{
    const idem_json_node_t *octets = &run->json->nodes[name];
    const idem_contract_member_t *member = find_member(node, octets_of(run->json, octets), octets->len, cursor);

    if (member != NULL) {
        cursor->required_seen += (apr_uint32_t)member->required;
        *value = member->value;
        return APR_SUCCESS;
    }
    if (!node->additional) {
        return refuse(run, name, "contract-member", "A member is outside the payload contract.");
    }
    *value = node->additional_value;
    return APR_SUCCESS;
}

apr_status_t idem_contract_members_end(idem_contract_run_t *run, const idem_contract_node_t *node,
                                       apr_uint32_t object, const idem_contract_cursor_t *cursor)
{
    const idem_json_t *json = run->json;
    apr_uint32_t i;

    if (cursor->required_seen == node->required_count) {
        return APR_SUCCESS;
    }
    for (i = 0; i < node->member_count; i++) {
        const idem_contract_member_t *member = &node->members[i];
        apr_uint32_t name = object + 1;
        apr_uint32_t left = json->nodes[object].len;

        if (!member->required) {
            continue;
        }
        while (left != 0 && compare_name(octets_of(json, &json->nodes[name]), json->nodes[name].len, member) != 0) {
            name = idem_json_next(json, name + 1);
            left--;
        }
        if (left == 0) {
            return idem_fault(run->fault, json->pool, "contract-required", idem_json_pointer(json, object),
                              "The member \"%.*s\", which the payload contract requires, is missing.",
                              (int)member->len, member->name);
        }
    }
    return refuse(run, object, "contract-required", "A member that the payload contract requires is missing.");
}

const char *idem_contract_revision(const idem_contract_t *contract)
{
    return contract->revision;
}

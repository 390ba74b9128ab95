#include "core/canon.h"

#include <stdlib.h>
#include <string.h>

#include "core/contract_check.h"
#include "core/jcs.h"

#define OUT_ROOM 4096
#define FEW_MEMBERS 16 /* up to here insertion beats qsort */

/* A member of an object that is being sorted. */
typedef struct {
    apr_uint64_t prefix; /* the first octets of the name, so that most comparisons look no further */
    const char *name;
    apr_uint32_t len;
    apr_uint32_t node; /* the name's */
} member_t;

typedef struct {
    const idem_json_t *json;
    idem_canon_form_e form;
    idem_contract_run_t run;
    idem_octets_fn sink;
    void *baton;
    idem_payload_fault_t *fault;
    member_t *members; /* those of all objects that are open, the innermost last */
    apr_uint32_t count;
    apr_uint32_t room;
    apr_uint32_t denormals;
    apr_size_t used;
    char out[OUT_ROOM];
} writer_t;

static void flush(writer_t *w)
{
    if (w->used != 0) {
        w->sink(w->baton, w->out, w->used);
        w->used = 0;
    }
}

static inline void put(writer_t *w, const char *octets, apr_size_t len)
{
    if (len > OUT_ROOM - w->used) {
        flush(w);
        if (len > OUT_ROOM) {
            w->sink(w->baton, octets, len);
            return;
        }
    }
    memcpy(w->out + w->used, octets, len);
    w->used += len;
}

static inline void put_octet(writer_t *w, char c)
{
    if (w->used == OUT_ROOM) {
        flush(w);
    }
    w->out[w->used++] = c;
}

static void put_escape(writer_t *w, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    char escape[6] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15] };
    apr_size_t len = 2;

    switch (c) {
    case '\b':
        escape[1] = 'b';
        break;
    case '\t':
        escape[1] = 't';
        break;
    case '\n':
        escape[1] = 'n';
        break;
    case '\f':
        escape[1] = 'f';
        break;
    case '\r':
        escape[1] = 'r';
        break;
    case '"':
    case '\\':
        escape[1] = (char)c;
        break;
    default:
        len = 6;
        break;
    }
    put(w, escape, len);
}

static void put_string(writer_t *w, const char *octets, apr_size_t len, int plain)
{
    apr_size_t from = 0;
    apr_size_t i;

    if (plain && len + 2 <= OUT_ROOM - w->used) {
        char *out = w->out + w->used;

        out[0] = '"';
        memcpy(out + 1, octets, len);
        out[len + 1] = '"';
        w->used += len + 2;
        return;
    }
    put_octet(w, '"');
    if (!plain) {
        for (i = 0; i < len; i++) {
            unsigned char c = (unsigned char)octets[i];

            if (c < 0x20 || c == '"' || c == '\\') {
                put(w, octets + from, i - from);
                put_escape(w, c);
                from = i + 1;
            }
        }
    }
    put(w, octets + from, len - from);
    put_octet(w, '"');
}

/*
 * The first eight octets as a number that compares as they do; what is missing counts as NUL. Reads eight octets
 * whatever the length, which the text's slack allows.
 */
static apr_uint64_t prefix_of(const char *name, apr_size_t len, idem_canon_form_e form)
{
    unsigned char o[IDEM_JSON_SLACK];
    apr_uint64_t prefix;
    int i;

    memcpy(o, name, sizeof(o));
    if (form == IDEM_CANON_JCS) {
        for (i = 0; i < 8; i++) {
            o[i] = idem_jcs_rank(o[i]);
        }
    }
    /* Spelt out, since compilers make one instruction of it. */
    prefix = (apr_uint64_t)o[0] << 56 | (apr_uint64_t)o[1] << 48 | (apr_uint64_t)o[2] << 40 |
             (apr_uint64_t)o[3] << 32 | (apr_uint64_t)o[4] << 24 | (apr_uint64_t)o[5] << 16 | (apr_uint64_t)o[6] << 8 |
             o[7];
    return len >= 8 ? prefix : prefix & ~(~APR_UINT64_C(0) >> (8 * len));
}

/* UTF-8 sorts as code points do. */
static int by_code_point(const void *va, const void *vb)
{
    const member_t *a = va;
    const member_t *b = vb;
    int order;

    if (a->prefix != b->prefix) {
        return a->prefix < b->prefix ? -1 : 1;
    }
    order = memcmp(a->name, b->name, a->len < b->len ? a->len : b->len);
    return order != 0 ? order : (a->len > b->len) - (a->len < b->len);
}

static int by_code_unit(const void *va, const void *vb)
{
    const member_t *a = va;
    const member_t *b = vb;
    apr_uint32_t shorter = a->len < b->len ? a->len : b->len;
    apr_uint32_t i;

    if (a->prefix != b->prefix) {
        return a->prefix < b->prefix ? -1 : 1;
    }
    for (i = 0; i < shorter; i++) {
        if (a->name[i] != b->name[i]) {
            return (int)idem_jcs_rank((unsigned char)a->name[i]) - (int)idem_jcs_rank((unsigned char)b->name[i]);
        }
    }
    return (a->len > b->len) - (a->len < b->len);
}

static void sort_members(member_t *members, apr_uint32_t count, idem_canon_form_e form)
{
    int (*order)(const void *, const void *) = form == IDEM_CANON_JCS ? by_code_unit : by_code_point;
    apr_uint32_t i;
    apr_uint32_t j;

    if (count > FEW_MEMBERS) {
        qsort(members, count, sizeof(*members), order);
        return;
    }
    for (i = 1; i < count; i++) {
        member_t moving = members[i];

        for (j = i; j > 0 && (moving.prefix < members[j - 1].prefix ||
                              (moving.prefix == members[j - 1].prefix && order(&moving, &members[j - 1]) < 0)); j--) {
            members[j] = members[j - 1];
        }
        members[j] = moving;
    }
}

/* Puts the object's members, sorted, on top of the stack. */
static apr_status_t push_members(writer_t *w, apr_uint32_t object)
{
    const idem_json_node_t *nodes = w->json->nodes;
    apr_uint32_t count = nodes[object].len;
    apr_uint32_t name = object + 1;
    member_t *members;
    apr_uint32_t i;

    if (count == 0) {
        return APR_SUCCESS;
    }
    if (w->room - w->count < count) {
        apr_uint32_t room = w->room * 2 < w->count + count ? w->count + count : w->room * 2;

        members = realloc(w->members, room * sizeof(*members));
        if (members == NULL) {
            return APR_ENOMEM;
        }
        w->members = members;
        w->room = room;
    }
    members = w->members + w->count;
    for (i = 0; i < count; i++) {
        members[i].name = w->json->text + nodes[name].at;
        members[i].len = nodes[name].len;
        members[i].prefix = prefix_of(members[i].name, members[i].len, w->form);
        members[i].node = name;
        name = idem_json_next(w->json, name + 1);
    }
    w->count += count;
    sort_members(members, count, w->form);
    for (i = 1; i < count; i++) {
        if (members[i].prefix == members[i - 1].prefix && members[i].len == members[i - 1].len &&
            memcmp(members[i].name, members[i - 1].name, members[i].len) == 0) {
            apr_uint32_t later = members[i].node > members[i - 1].node ? members[i].node : members[i - 1].node;

            return idem_fault(w->fault, w->json->pool, "duplicate-member", idem_json_pointer(w->json, later),
                              "An object has two members of the same name.");
        }
    }
    return APR_SUCCESS;
}

static apr_status_t put_value(writer_t *w, apr_uint32_t at, const idem_contract_node_t *contract);

static apr_status_t put_object(writer_t *w, apr_uint32_t object, const idem_contract_node_t *contract)
{
    apr_uint32_t bottom = w->count;
    apr_uint32_t count = w->json->nodes[object].len;
    idem_contract_cursor_t cursor = { 0, 0 };
    apr_status_t rv = push_members(w, object);
    apr_uint32_t i;

    put_octet(w, '{');
    for (i = 0; rv == APR_SUCCESS && i < count; i++) {
        const member_t *member = &w->members[bottom + i];
        apr_uint32_t name = member->node;
        const idem_contract_node_t *inner = NULL;

        if (contract != NULL) {
            rv = idem_contract_member(&w->run, contract, name, &cursor, &inner);
            if (rv != APR_SUCCESS) {
                break;
            }
        }
        if (i != 0) {
            put_octet(w, ',');
        }
        put_string(w, member->name, member->len, w->json->nodes[name].plain);
        put_octet(w, ':');
        rv = put_value(w, name + 1, inner);
    }
    if (rv == APR_SUCCESS && contract != NULL) {
        rv = idem_contract_members_end(&w->run, contract, object, &cursor);
    }
    put_octet(w, '}');
    w->count = bottom;
    return rv;
}

static apr_status_t put_array(writer_t *w, apr_uint32_t array, const idem_contract_node_t *contract)
{
    const idem_contract_node_t *inner = contract != NULL ? contract->items : NULL;
    apr_uint32_t at = array + 1;
    apr_uint32_t i;

    put_octet(w, '[');
    for (i = 0; i < w->json->nodes[array].len; i++) {
        apr_status_t rv;

        if (i != 0) {
            put_octet(w, ',');
        }
        rv = put_value(w, at, inner);
        if (rv != APR_SUCCESS) {
            return rv;
        }
        at = idem_json_next(w->json, at);
    }
    put_octet(w, ']');
    return APR_SUCCESS;
}

static apr_status_t put_number(writer_t *w, apr_uint32_t at)
{
    const idem_json_node_t *node = &w->json->nodes[at];
    const char *lexeme = w->json->text + node->at;
    char number[IDEM_JCS_NUMBER_ROOM];
    apr_size_t len;

    if (w->form == IDEM_CANON_JCS) {
        len = idem_jcs_number(lexeme, node->len, number, &w->denormals);
        if (w->denormals > IDEM_JCS_MAX_DENORMALS) {
            return idem_fault(w->fault, w->json->pool, "too-many-values", idem_json_pointer(w->json, at),
                              "The JSON text has too many denormal numbers.");
        }
        if (len == 0) {
            return idem_fault(w->fault, w->json->pool, "number-range", idem_json_pointer(w->json, at),
                              "A number is too large for a double.");
        }
        put(w, number, len);
    }
    else if (w->run.normal_len != 0) {
        put(w, w->run.normal, w->run.normal_len);
    }
    else {
        put(w, lexeme, node->len);
    }
    return APR_SUCCESS;
}

/* `contract` is NULL where anything may stand. Recursion ends at the reader's depth. */
static apr_status_t put_value(writer_t *w, apr_uint32_t at, const idem_contract_node_t *contract)
{
    const idem_json_node_t *node = &w->json->nodes[at];

    w->run.normal_len = 0;
    if (contract != NULL) {
        apr_status_t rv = idem_contract_value(&w->run, contract, at);

        if (rv != APR_SUCCESS) {
            return rv;
        }
    }
    switch ((idem_json_kind_e)node->kind) {
    case IDEM_JSON_NULL:
        put(w, "null", 4);
        break;
    case IDEM_JSON_FALSE:
        put(w, "false", 5);
        break;
    case IDEM_JSON_TRUE:
        put(w, "true", 4);
        break;
    case IDEM_JSON_NUMBER:
        return put_number(w, at);
    case IDEM_JSON_STRING:
        if (w->run.normal_len != 0) {
            put_string(w, w->run.normal, w->run.normal_len, 1);
        }
        else {
            put_string(w, w->json->text + node->at, node->len, node->plain);
        }
        break;
    case IDEM_JSON_ARRAY:
        return put_array(w, at, contract);
    case IDEM_JSON_OBJECT:
        return put_object(w, at, contract);
    }
    return APR_SUCCESS;
}

apr_status_t idem_canon_write(const idem_json_t *json, idem_canon_form_e form, const idem_contract_t *contract,
                              idem_octets_fn sink, void *baton, idem_payload_fault_t *fault)
{
    writer_t w = { .json = json, .form = form, .sink = sink, .baton = baton, .fault = fault };
    apr_status_t rv;

    idem_contract_run_begin(&w.run, json, fault);
    rv = put_value(&w, 0, contract != NULL ? idem_contract_root(contract) : NULL);
    if (rv == APR_SUCCESS) {
        flush(&w);
    }
    idem_contract_run_end(&w.run);
    free(w.members);
    return rv;
}

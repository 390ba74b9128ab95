/*
 * A compiled contract from inside, and its check value by value: for contract.c, which builds it, and canon.c, which
 * asks it while it writes. A node of NULL means that anything may stand there.
 *
 * Refusals (reason): contract-type, contract-member (outside the contract), contract-required, contract-value (enum,
 * const), contract-length, contract-pattern, contract-range (minimum, maximum), contract-decimal.
 */
#ifndef IDEM_CORE_CONTRACT_CHECK_H
#define IDEM_CORE_CONTRACT_CHECK_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/contract.h"
#include "core/decimal.h"
#include "core/json.h"

#define IDEM_CONTRACT_KIND(kind)   (1u << (kind)) /* of idem_json_kind_e */
#define IDEM_CONTRACT_INTEGER      (1u << 15)
#define IDEM_CONTRACT_NO_MAXIMUM   ((apr_size_t)-1)

typedef struct idem_contract_node_t idem_contract_node_t;

typedef struct {
    const char *name; /* unescaped */
    apr_size_t len;
    int required;
    const idem_contract_node_t *value;
} idem_contract_member_t;

struct idem_contract_node_t {
    const idem_contract_t *contract;
    unsigned types; /* the kinds that may stand here, and IDEM_CONTRACT_INTEGER; 0: any */
    int decimal;
    idem_contract_member_t *members; /* sorted by name */
    apr_uint32_t member_count;
    apr_uint32_t required_count;
    int additional; /* whether members outside the list may be there */
    const idem_contract_node_t *additional_value;
    const idem_contract_node_t *items;
    apr_uint32_t *values; /* enum, const: nodes of the contract's own text */
    apr_uint32_t value_count;
    int has_values;
    apr_size_t max_length;
    pcre2_code *pattern;
    const idem_decimal_t *minimum;
    const idem_decimal_t *maximum;
};

struct idem_contract_t {
    const idem_json_t *json; /* its own text */
    const char *revision;
    const idem_contract_node_t *root;
    pcre2_match_context *limits;
};

/* State of one check of one text. */
typedef struct {
    const idem_json_t *json;
    idem_payload_fault_t *fault;
    pcre2_match_data *match;
    apr_size_t normal_len;          /* after idem_contract_value(): not 0 where the value is to be written so */
    char normal[IDEM_DECIMAL_ROOM];
} idem_contract_run_t;

/* Where idem_contract_member() is in one object; begins as zeros. */
typedef struct {
    apr_uint32_t next;
    apr_uint32_t required_seen;
} idem_contract_cursor_t;

void idem_contract_run_begin(idem_contract_run_t *run, const idem_json_t *json, idem_payload_fault_t *fault);
void idem_contract_run_end(idem_contract_run_t *run);

const idem_contract_node_t *idem_contract_root(const idem_contract_t *contract);

/* Checks all but members and elements. APR_SUCCESS, APR_EINVAL with the run's fault, APR_ENOMEM. */
apr_status_t idem_contract_value(idem_contract_run_t *run, const idem_contract_node_t *node, apr_uint32_t at);

/* Checks a member by its name's node; *value is what its value has to satisfy. Names in sorted order are fastest. */
apr_status_t idem_contract_member(idem_contract_run_t *run, const idem_contract_node_t *node, apr_uint32_t name,
                                  idem_contract_cursor_t *cursor, const idem_contract_node_t **value);

/* All members were shown, none twice: are the required ones among them? */
apr_status_t idem_contract_members_end(idem_contract_run_t *run, const idem_contract_node_t *node,
                                       apr_uint32_t object, const idem_contract_cursor_t *cursor);

#endif

/*
 * How a contract is compiled, from inside: shared by contract.c (the tree of schemas) and contract_words.c (what one
 * schema says by itself).
 */
#ifndef IDEM_CORE_CONTRACT_COMPILE_H
#define IDEM_CORE_CONTRACT_COMPILE_H

#include "core/contract_check.h"

typedef enum {
    IDEM_KW_TYPE,
    IDEM_KW_PROPERTIES,
    IDEM_KW_REQUIRED,
    IDEM_KW_ADDITIONAL,
    IDEM_KW_ITEMS,
    IDEM_KW_ENUM,
    IDEM_KW_CONST,
    IDEM_KW_MAX_LENGTH,
    IDEM_KW_PATTERN,
    IDEM_KW_MINIMUM,
    IDEM_KW_MAXIMUM,
    IDEM_KW_FORMAT,
    IDEM_KW_REVISION,
    IDEM_KW_COUNT
} idem_contract_keyword_e;

typedef struct {
    apr_pool_t *pool;
    idem_json_t *json;
    idem_contract_t *contract;
    idem_contract_node_t *empty; /* the schema {} */
    const char *error;
} idem_compiler_t;

/* Where a schema says what: nodes of its keywords' values, 0 where it does not say (node 0 is the whole text). */
typedef struct {
    apr_uint32_t schema;
    apr_uint32_t at[IDEM_KW_COUNT];
} idem_schema_t;

static inline const idem_json_node_t *node_at(const idem_compiler_t *c, apr_uint32_t at)
{
    return &c->json->nodes[at];
}

static inline const char *text_at(const idem_compiler_t *c, apr_uint32_t at)
{
    return c->json->text + c->json->nodes[at].at;
}

/* Keeps the sentence as the error, with the place in front. Returns 0, as everything here does that fails. */
int idem_contract_wrong(idem_compiler_t *c, apr_uint32_t at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Finds the keywords of the schema that s->schema names; one that does not exist is an error. */
int idem_contract_keywords(idem_compiler_t *c, idem_schema_t *s);

/* Fills in everything but members and items, and checks that each keyword has something to say here. */
int idem_contract_words(idem_compiler_t *c, idem_contract_node_t *node, const idem_schema_t *s);

#endif

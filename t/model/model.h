/*
 * model.h - the world that explore.c explores: requests with one key, their owners and backends, the record, the journal.
 */
#ifndef IDEM_MODEL_H
#define IDEM_MODEL_H

#include "core/machine.h"

#define REQUESTS 3
#define OPS      4 /* 1 .. 3 */

typedef enum { MODE_EXTERNAL, MODE_MARKED, MODE_TRANSACTIONAL, MODE_PROVIDER, MODE_REPEATABLE, MODES } mode_e;

/* The rules that can be taken out. */
typedef enum {
    RULE_NONE,
    RULE_BY_OPERATION,   /* settlements are compared by operation and generation, not by scope */
    RULE_REJECT_STAYS,   /* a rejection beyond generation 1, or with attempts, leaves the record */
    RULE_LATE_OWNER,     /* UNKNOWN takes the late settlement of its own generation */
    RULE_OPEN_ATTEMPT,   /* an open attempt forbids takeover */
    RULE_QUIET,          /* "not executed" waits until the backend cannot run any more */
    RULE_LEASE_RECOVERS, /* a lapsed external execution is UNKNOWN, not free */
    RULES
} rule_e;

typedef enum { PC_START, PC_DISPATCH, PC_RUNNING, PC_RESPONSE, PC_DONE, PC_DEAD } pc_e;
typedef enum { BACK_NONE, BACK_RUNNING, BACK_PAID, BACK_ENDED } back_e;

/* One request with its owner and its backend. */
typedef struct request_t {
    unsigned char pc;
    unsigned char silent;    /* 1: its heartbeat has lapsed; 2: it came back */
    unsigned char paid;      /* its own backend had an effect */
    unsigned char op;
    unsigned char gen;
    unsigned char back;
    unsigned char outcome;   /* of the response in hand */
    unsigned char replayed;  /* the operation whose answer it gave, or 0 */
} request_t;

typedef struct journal_t {
    unsigned char op, gen, outcome;
} journal_t;

typedef struct world_t {
    unsigned char state, gen, op, owner; /* the record; owner is a request's number + 1, 0 nobody */
    unsigned char answer;                /* the operation whose response is stored */
    unsigned char attempts, attempt_open;
    unsigned char next_op;
    unsigned char effects[OPS];          /* by operation, what happened in the world */
    unsigned char handle[OPS];           /* a provider's handle is known for it */
    unsigned char resolved;              /* the operator has spoken; once is enough */
    journal_t journal;                   /* one entry at a time */
    request_t r[REQUESTS];
} world_t;

/* What this run is about; set once, by main. */
typedef struct model_t {
    mode_e mode;
    rule_e without; /* the rule that is taken out */
} model_t;

extern model_t model;

/* moves.c: reaches every state that one step leads to from here. */
void expand(const world_t *w);

/* explore.c: a state that was found, by this step of this request; -1: of nobody. */
void reach(const world_t *w, const char *step, int who);

/* promises.c: what must hold in every state, and does not in this one; or NULL. */
const char *promise_broken(const world_t *w);

#endif

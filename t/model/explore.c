/*
 * explore - every reachable state of three requests with one key, one record, and crashes at every step.
 *
 * The requests share a store and nothing else. Each has an owner that may die or fall silent at any step, and a
 * backend that goes on for as long as it likes, also when its owner is gone. What the record does is asked of the real
 * core/machine; the rules around it (what a compare-and-set compares, what blocks a takeover or an operator) are the
 * store's, and each can be taken out by its name to see that the fault it prevents comes back.
 *
 *   explore MODE [RULE]     MODE external | marked | transactional | provider | repeatable
 *                           RULE the rule to take out; exit status 1 and a trace where a promise breaks
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/machine.h"

#define REQUESTS  3
#define OPS       4 /* 1 .. 3 */
#define MOST      8000000
#define HASH_SIZE (1 << 24)

typedef enum { MODE_EXTERNAL, MODE_MARKED, MODE_TRANSACTIONAL, MODE_PROVIDER, MODE_REPEATABLE, MODES } mode_e;

static const char *const mode_names[MODES] = {"external", "marked", "transactional", "provider", "repeatable"};

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

static const char *const rule_names[RULES] = {"none",        "by-operation", "reject-stays", "late-owner",
                                              "open-attempt", "quiet",       "lease-recovers"};

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

typedef struct node_t {
    world_t world;
    int parent;
    int who;
    const char *step;
} node_t;

static node_t *nodes;
static int node_count;
static int *table;
static mode_e mode;
static rule_e without;
static int current;
static const char *broken;

static int has(rule_e rule)
{
    return without != rule;
}

static unsigned hash_of(const world_t *w)
{
    const unsigned char *octets = (const unsigned char *)w;
    unsigned hash = 2166136261u;
    size_t i;

    for (i = 0; i < sizeof(*w); i++) {
        hash = (hash ^ octets[i]) * 16777619u;
    }
    return hash & (HASH_SIZE - 1);
}

static void reach(const world_t *w, const char *step, int who)
{
    unsigned slot = hash_of(w);

    while (table[slot] >= 0) {
        if (!memcmp(&nodes[table[slot]].world, w, sizeof(*w))) {
            return;
        }
        slot = (slot + 1) & (HASH_SIZE - 1);
    }
    if (node_count == MOST) {
        fprintf(stderr, "explore: more than %d states\n", MOST);
        exit(2);
    }
    nodes[node_count].world = *w;
    nodes[node_count].parent = current;
    nodes[node_count].step = step;
    nodes[node_count].who = who;
    table[slot] = node_count++;
}

static idem_effect_e effect(void)
{
    return mode == MODE_REPEATABLE                              ? IDEM_EFFECT_REPEATABLE
           : mode == MODE_TRANSACTIONAL || mode == MODE_PROVIDER ? IDEM_EFFECT_TRANSACTIONAL
                                                                 : IDEM_EFFECT_EXTERNAL;
}

static idem_state_e first_state(void)
{
    return idem_machine_first(effect(), mode == MODE_MARKED);
}

static int is_lapsed(const world_t *w)
{
    return !w->owner || w->r[w->owner - 1].pc == PC_DEAD || w->r[w->owner - 1].silent == 1;
}

static void own(world_t *w, int i, int op, int gen)
{
    w->state = first_state();
    w->op = op;
    w->gen = gen;
    w->owner = i + 1;
    w->r[i].op = op;
    w->r[i].gen = gen;
    w->r[i].pc = w->state == IDEM_STATE_RESERVED ? PC_DISPATCH : PC_RUNNING;
    w->r[i].back = w->r[i].pc == PC_RUNNING ? BACK_RUNNING : BACK_NONE;
}

/* A request asks the store: one atomic statement, one verdict. */
static void ask(world_t w, int i)
{
    idem_facts_t facts = {0};
    idem_verdict_e verdict;

    facts.state = w.state;
    facts.record_effect = facts.route_effect = has(RULE_LEASE_RECOVERS) ? effect() : IDEM_EFFECT_REPEATABLE;
    facts.fingerprint_equal = 1;
    facts.lapsed = is_lapsed(&w);
    facts.attempt_open = w.attempt_open && has(RULE_OPEN_ATTEMPT);
    facts.response_stored = w.answer != 0;
    facts.writer_allowed = 1;
    verdict = idem_machine_verdict(&facts);
    switch (verdict) {
    case IDEM_VERDICT_RESERVE:
        if (w.next_op < OPS) {
            own(&w, i, w.next_op, 1);
            w.next_op++;
            w.attempts = w.attempt_open = w.answer = 0;
            reach(&w, "reserve", i);
        }
        return;
    case IDEM_VERDICT_TAKE_OVER:
        own(&w, i, w.op, w.gen + 1);
        reach(&w, "takeover", i);
        return;
    case IDEM_VERDICT_MARK_UNKNOWN:
        w.state = idem_machine_next(w.state, IDEM_EVENT_LAPSE);
        w.r[i].pc = PC_DONE;
        reach(&w, "mark UNKNOWN", i);
        return;
    case IDEM_VERDICT_REPLAY:
        w.r[i].replayed = w.answer;
        w.r[i].pc = PC_DONE;
        reach(&w, "replay", i);
        return;
    default:
        /* 409: the client comes back, so nothing changes */
        return;
    }
}

/* The dispatch mark, and the proof before a late dispatch that the record is still the owner's. */
static void dispatch(world_t w, int i)
{
    int mine = w.op == w.r[i].op && w.gen == w.r[i].gen && idem_machine_is_live(w.state) && w.owner == i + 1;

    if (!mine) {
        w.r[i].pc = PC_DONE;
        reach(&w, "dispatch refused", i);
        return;
    }
    if (mode == MODE_MARKED) {
        w.state = idem_machine_next(w.state, IDEM_EVENT_DISPATCH);
    }
    w.r[i].pc = PC_RUNNING;
    w.r[i].back = BACK_RUNNING;
    reach(&w, "dispatch", i);
}

/* Is the record still the one that a settlement of (op, gen) may change? */
static int fits(const world_t *w, int op, int gen)
{
    if (w->state == IDEM_STATE_NONE) {
        return 0;
    }
    return !has(RULE_BY_OPERATION) || (w->op == op && w->gen == gen);
}

/* Applies a settlement; 0 where it is refused. */
static int settle(world_t *w, int op, int gen, idem_outcome_e outcome)
{
    idem_event_e event = idem_machine_settlement(outcome);
    idem_state_e next = idem_machine_next(w->state, event);

    if (!fits(w, op, gen) || next == IDEM_STATE_COUNT || (!has(RULE_LATE_OWNER) && w->state == IDEM_STATE_UNKNOWN)) {
        return 0;
    }
    if (event == IDEM_EVENT_REJECT) {
        int goes = idem_machine_reject_removes(w->state, w->gen, w->attempts);

        if (goes || !has(RULE_REJECT_STAYS)) {
            w->state = IDEM_STATE_NONE;
            w->op = w->gen = w->owner = w->answer = 0;
            w->attempts = w->attempt_open = 0;
            return 1;
        }
        w->owner = 0;
    }
    if (event == IDEM_EVENT_RELEASE) {
        if (w->attempt_open) {
            next = IDEM_STATE_UNKNOWN;
        }
        else {
            w->owner = 0;
        }
    }
    w->state = next;
    if (idem_machine_is_final(next)) {
        w->answer = op;
    }
    return 1;
}

/* The backend of request i takes a step; it needs no owner for that. */
static void backend(world_t w, int i)
{
    request_t *r = &w.r[i];
    world_t next;

    if (r->back == BACK_RUNNING) {
        next = w;
        if (mode == MODE_TRANSACTIONAL) {
            /* its rows and idempotency_settle() are one transaction, refused where the generation has passed */
            if (w.op == r->op && w.gen == r->gen && settle(&next, r->op, r->gen, IDEM_OUTCOME_SUCCEEDED)) {
                next.effects[r->op]++;
                next.r[i].paid = 1;
            }
            next.r[i].back = BACK_ENDED;
            reach(&next, "backend commits or rolls back", i);
        }
        else if (mode == MODE_PROVIDER) {
            /* effect_begin, committed before the send; the provider is paid; effect_end and settle commit later */
            if (w.op == r->op && w.gen == r->gen && idem_machine_is_live(w.state)) {
                next.state = IDEM_STATE_EXECUTING;
                next.attempts = 1;
                next.attempt_open = !w.handle[r->op];
                if (!w.handle[r->op]) {
                    next.effects[r->op]++;
                    next.r[i].paid = 1;
                }
                next.r[i].back = BACK_PAID;
            }
            else {
                next.r[i].back = BACK_ENDED;
            }
            reach(&next, "backend begins an effect and pays", i);
        }
        else {
            next.effects[r->op]++;
            next.r[i].paid = 1;
            next.r[i].back = BACK_PAID;
            reach(&next, "backend commits", i);
        }
        next = w;
        next.r[i].back = BACK_ENDED;
        reach(&next, "backend ends without an effect", i);
    }
    if (r->back == BACK_PAID) {
        next = w;
        if (mode == MODE_PROVIDER && w.op == r->op && w.attempt_open) {
            next.attempt_open = 0;
            next.handle[r->op] = 1;
            reach(&next, "backend ends the effect", i);
        }
        if (mode != MODE_PROVIDER || !w.attempt_open) {
            next = w;
            if (mode == MODE_PROVIDER) {
                settle(&next, r->op, r->gen, IDEM_OUTCOME_SUCCEEDED);
            }
            next.r[i].back = BACK_ENDED;
            reach(&next, "backend answers", i);
        }
    }
}

/* What response can the owner of request i get now? */
static void respond(world_t w, int i)
{
    request_t *r = &w.r[i];
    world_t next = w;

    next.r[i].pc = PC_RESPONSE;
    if (r->back == BACK_ENDED) {
        if (w.effects[r->op]) {
            next.r[i].outcome = IDEM_OUTCOME_SUCCEEDED;
            reach(&next, "response 201", i);
        }
        if (!r->paid) {
            /* true as far as this backend knows; what an earlier generation did it cannot know */
            next.r[i].outcome = IDEM_OUTCOME_REJECTED;
            reach(&next, "response 429", i);
        }
        next.r[i].outcome = effect() == IDEM_EFFECT_EXTERNAL ? IDEM_OUTCOME_UNKNOWN : IDEM_OUTCOME_RELEASED;
        reach(&next, "response 500", i);
    }
    /* a proxy gives up while the backend goes on */
    next.r[i].outcome = IDEM_OUTCOME_UNKNOWN;
    reach(&next, "response 504", i);
}

static void finish(world_t w, int i)
{
    request_t *r = &w.r[i];
    world_t next = w;

    next.r[i].pc = PC_DONE;
    if (!settle(&next, r->op, r->gen, r->outcome) && idem_machine_is_final(w.state) && w.op == r->op && w.gen == r->gen) {
        next.answer = r->op; /* rule 3: the backend settled, the response is added */
    }
    reach(&next, "settle", i);
    if (!w.journal.op) {
        /* the store did not take it, or took it and its answer was lost */
        world_t lost = w;

        lost.r[i].pc = PC_DONE;
        lost.journal = (journal_t){r->op, r->gen, r->outcome};
        reach(&lost, "settle into the journal", i);
        next.journal = lost.journal;
        reach(&next, "settle, answer lost, journal too", i);
    }
}

static int somebody_may_pay(const world_t *w, int op)
{
    int i;

    for (i = 0; i < REQUESTS; i++) {
        int owner_may = w->r[i].op == op && (w->r[i].pc == PC_DISPATCH || w->r[i].pc == PC_RUNNING);

        if (w->r[i].op == op && (w->r[i].back == BACK_RUNNING || owner_may)) {
            return 1;
        }
    }
    return 0;
}

/* The operator looks at the business: what is there is true, what is not there may still come. */
static void resolve(world_t w)
{
    if (w.state != IDEM_STATE_UNKNOWN || w.resolved) {
        return;
    }
    w.resolved = 1;
    if (w.effects[w.op]) {
        w.state = idem_machine_next(w.state, IDEM_EVENT_RESOLVE_SUCCEEDED);
        w.answer = w.op;
        reach(&w, "operator: succeeded", -1);
    }
    else if (!has(RULE_QUIET) || !somebody_may_pay(&w, w.op)) {
        w.state = idem_machine_next(w.state, IDEM_EVENT_RESOLVE_NOT_EXECUTED);
        w.gen++;
        w.owner = 0;
        w.attempt_open = 0;
        reach(&w, "operator: not executed", -1);
    }
}

static void apply_journal(world_t w)
{
    journal_t entry = w.journal;

    if (entry.op) {
        settle(&w, entry.op, entry.gen, entry.outcome);
        w.journal = (journal_t){0};
        reach(&w, "journal applied", -1);
    }
}

static void expand(const world_t *w)
{
    int i;

    for (i = 0; i < REQUESTS; i++) {
        const request_t *r = &w->r[i];
        world_t next = *w;

        backend(*w, i);
        switch (r->pc) {
        case PC_START:
            /* requests are alike, so they may as well come in their order */
            if (!i || w->r[i - 1].pc != PC_START) {
                ask(*w, i);
            }
            continue;
        case PC_DISPATCH:
            dispatch(*w, i);
            break;
        case PC_RUNNING:
            respond(*w, i);
            break;
        case PC_RESPONSE:
            finish(*w, i);
            break;
        default:
            continue;
        }
        next.r[i].pc = PC_DEAD;
        reach(&next, "crash", i);
        next = *w;
        if (r->silent < 2) {
            next.r[i].silent++;
            reach(&next, r->silent ? "heartbeat again" : "heartbeat lost", i);
        }
    }
    resolve(*w);
    apply_journal(*w);
}

/* Nothing is on its way any more: no owner at work, no backend, no journal. */
static int is_at_rest(const world_t *w)
{
    int i;

    for (i = 0; i < REQUESTS; i++) {
        if (w->r[i].pc == PC_DISPATCH || w->r[i].pc == PC_RUNNING || w->r[i].pc == PC_RESPONSE ||
            w->r[i].back == BACK_RUNNING || w->r[i].back == BACK_PAID) {
            return 0;
        }
    }
    return !w->journal.op;
}

/* Did the owner of the record's own generation say that it succeeded, with nobody to contradict? */
static int was_said_to_succeed(const world_t *w)
{
    int i;

    for (i = 0; i < REQUESTS; i++) {
        if (w->r[i].pc == PC_DONE && w->r[i].op == w->op && w->r[i].gen == w->gen && w->op &&
            w->r[i].outcome == IDEM_OUTCOME_SUCCEEDED) {
            return 1;
        }
    }
    return 0;
}

static const char *promise_broken(const world_t *w)
{
    int effects = 0;
    int op;
    int i;

    for (op = 1; op < OPS; op++) {
        effects += w->effects[op];
    }
    if (mode != MODE_REPEATABLE && effects > 1) {
        return "two effects";
    }
    if (mode == MODE_TRANSACTIONAL && effects && !idem_machine_is_final(w->state)) {
        return "a committed effect without SUCCEEDED";
    }
    for (i = 0; i < REQUESTS; i++) {
        if (w->r[i].replayed && !w->effects[w->r[i].replayed]) {
            return "a replay of what never happened";
        }
        if (w->r[i].replayed && w->r[i].replayed != w->op) {
            return "the answer of another operation";
        }
    }
    if (idem_machine_is_final(w->state) && !w->effects[w->op] && w->answer) {
        return "a success that another operation had";
    }
    if (is_at_rest(w) && was_said_to_succeed(w) && !w->resolved && !idem_machine_is_final(w->state)) {
        return "a settlement is lost";
    }
    return NULL;
}

static void print_trace(int node)
{
    if (node < 0) {
        return;
    }
    print_trace(nodes[node].parent);
    printf("    request %d: %s (record %s, generation %d, operation %d)\n", nodes[node].who + 1, nodes[node].step,
           idem_state_name(nodes[node].world.state), nodes[node].world.gen, nodes[node].world.op);
}

static int index_of(const char *const *names, int count, const char *name)
{
    int i;

    for (i = 0; i < count; i++) {
        if (!strcmp(names[i], name)) {
            return i;
        }
    }
    fprintf(stderr, "explore: there is no '%s'\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    world_t start;

    if (argc < 2) {
        fprintf(stderr, "usage: explore MODE [RULE TO TAKE OUT]\n");
        return 2;
    }
    mode = (mode_e)index_of(mode_names, MODES, argv[1]);
    without = argc > 2 ? (rule_e)index_of(rule_names, RULES, argv[2]) : RULE_NONE;
    nodes = malloc(sizeof(*nodes) * MOST);
    table = malloc(sizeof(*table) * HASH_SIZE);
    if (!nodes || !table) {
        return 2;
    }
    memset(table, -1, sizeof(*table) * HASH_SIZE);
    memset(&start, 0, sizeof(start));
    start.next_op = 1;
    current = -1;
    reach(&start, "nothing yet", -1);
    for (current = 0; current < node_count && !broken; current++) {
        world_t world = nodes[current].world;

        broken = promise_broken(&world);
        if (broken) {
            break;
        }
        expand(&world);
    }
    if (broken) {
        printf("%s without %s: %s\n", mode_names[mode], rule_names[without], broken);
        print_trace(current);
        return 1;
    }
    printf("%s: %d states, every promise kept\n", mode_names[mode], node_count);
    return 0;
}

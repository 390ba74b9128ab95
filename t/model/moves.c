/*
 * What may happen next: each step of a request, its owner, its backend, the operator and the journal. What the record does
 * is asked of the real core/machine; the rules around it are the store's.
 */
#include "model.h"

static int has(rule_e rule)
{
    return model.without != rule;
}

static idem_effect_e effect(void)
{
    return model.mode == MODE_REPEATABLE                              ? IDEM_EFFECT_REPEATABLE
           : model.mode == MODE_TRANSACTIONAL || model.mode == MODE_PROVIDER ? IDEM_EFFECT_TRANSACTIONAL
                                                                 : IDEM_EFFECT_EXTERNAL;
}

static idem_state_e first_state(void)
{
    return idem_machine_first(effect(), model.mode == MODE_MARKED);
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
    if (model.mode == MODE_MARKED) {
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
        if (model.mode == MODE_TRANSACTIONAL) {
            /* its rows and idempotency_settle() are one transaction, refused where the generation has passed */
            if (w.op == r->op && w.gen == r->gen && settle(&next, r->op, r->gen, IDEM_OUTCOME_SUCCEEDED)) {
                next.effects[r->op]++;
                next.r[i].paid = 1;
            }
            next.r[i].back = BACK_ENDED;
            reach(&next, "backend commits or rolls back", i);
        }
        else if (model.mode == MODE_PROVIDER) {
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
        if (model.mode == MODE_PROVIDER && w.op == r->op && w.attempt_open) {
            next.attempt_open = 0;
            next.handle[r->op] = 1;
            reach(&next, "backend ends the effect", i);
        }
        if (model.mode != MODE_PROVIDER || !w.attempt_open) {
            next = w;
            if (model.mode == MODE_PROVIDER) {
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

void expand(const world_t *w)
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

/* What must hold in every state. */
#include <stddef.h>

#include "model.h"

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

const char *promise_broken(const world_t *w)
{
    int effects = 0;
    int op;
    int i;

    for (op = 1; op < OPS; op++) {
        effects += w->effects[op];
    }
    if (model.mode != MODE_REPEATABLE && effects > 1) {
        return "two effects";
    }
    if (model.mode == MODE_TRANSACTIONAL && effects && !idem_machine_is_final(w->state)) {
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

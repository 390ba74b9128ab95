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

#include "model.h"

#define MOST      8000000
#define HASH_SIZE (1 << 24)

static const char *const mode_names[MODES] = {"external", "marked", "transactional", "provider", "repeatable"};

static const char *const rule_names[RULES] = {"none",        "by-operation", "reject-stays", "late-owner",
                                              "open-attempt", "quiet",       "lease-recovers"};

typedef struct node_t {
    world_t world;
    int parent;
    int who;
    const char *step;
} node_t;

model_t model;

static node_t *nodes;
static int node_count;
static int *table;
static int current;

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

void reach(const world_t *w, const char *step, int who)
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
    const char *broken = NULL;
    world_t start;

    if (argc < 2) {
        fprintf(stderr, "usage: explore MODE [RULE TO TAKE OUT]\n");
        return 2;
    }
    model.mode = (mode_e)index_of(mode_names, MODES, argv[1]);
    model.without = argc > 2 ? (rule_e)index_of(rule_names, RULES, argv[2]) : RULE_NONE;
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
        printf("%s without %s: %s\n", mode_names[model.mode], rule_names[model.without], broken);
        print_trace(current);
        return 1;
    }
    printf("%s: %d states, every promise kept\n", mode_names[model.mode], node_count);
    return 0;
}

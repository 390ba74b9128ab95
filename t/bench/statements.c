/*
 * statements.c - the module's own statements as scripts for pgbench: what PostgreSQL alone needs for them.
 *
 *   bench-statements fresh    reserve and settlement of a fresh request, one row each. Keys and ids are made from a random
 *                             number, everything else is as a request has it; pgbench is told -D alias=VERSION, as the
 *                             control row has it
 *   bench-statements replay   one record read by its whole scope, of the 64 that the requests with known keys have
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/machine.h"
#include "store/pgsql_sql.h"

#define OPERATION "md5(:key::text)::uuid"
#define OCTETS32  "decode(repeat('ab', 32), 'hex')"

/* $1 upwards */
static const char *const reserve_values[] = {
    "'v1'", "'bench'", "'nobody'", "'bench.pgbench'", "'1'", "'u:'", "'key-' || :key::text", "'http.idempotency.v1'",
    OCTETS32, "decode(repeat('61', 60), 'hex')", "decode(repeat('cd', 48), 'hex')", OPERATION, OPERATION,
    "'00000000-0000-7000-8000-000000000001'::uuid", "1", "interval '60 s'", "interval '1 h'", "interval '24 h'",
    "interval '30 d'", "false", "1048576::bigint", NULL /* the state */, "'external'", ":alias",
    "interval '5 min'",
};
static const char *const settle_values[] = {
    "'bench'", OPERATION, "1", NULL /* the sources */, NULL /* the state */, "'succeeded'", "200",
    "decode(repeat('61', 40), 'hex')", "decode(repeat('7b', 93), 'hex')", OCTETS32,
};

/* As make bench configures the route. */
static const char *const find_values[] = {
    "'v1'", "'localhost'", "'bench'", "'bench'", "'1'", "'u:'", "'known-' || :key::text",
};

static void print_sources(idem_event_e event)
{
    const char *const *state;

    fputs("array[", stdout);
    for (state = idem_machine_sources(event); *state; state++) {
        printf("%s'%s'", state == idem_machine_sources(event) ? "" : ",", *state);
    }
    putchar(']');
}

/* The statement with a value in the place of each parameter, on one line. */
static void print_statement(const idem_pg_statement_t *statement, const char *const *values, int count)
{
    const char *at;

    for (at = statement->sql; *at; at++) {
        int number;

        if (*at != '$' || !isdigit((unsigned char)at[1])) {
            putchar(*at);
            continue;
        }
        number = (int)strtol(at + 1, NULL, 10);
        while (isdigit((unsigned char)at[1])) {
            at++;
        }
        if (number > count || count != (int)strlen(statement->types)) {
            fprintf(stderr, "%s has other parameters than this program knows\n", statement->name);
            exit(1);
        }
        if (values[number - 1]) {
            fputs(values[number - 1], stdout);
        }
        else if (statement->types[number - 1] == 'T') {
            print_sources(IDEM_EVENT_SUCCEED);
        }
        else {
            printf("'%s'", idem_state_name(statement == &idem_pg_reserve
                                               ? idem_machine_first(IDEM_EFFECT_EXTERNAL, 0)
                                               : idem_machine_next(IDEM_STATE_EXECUTING, IDEM_EVENT_SUCCEED)));
        }
    }
    puts(";");
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "fresh")) {
        puts("\\set key random(1, 9223372036854775807)");
        print_statement(&idem_pg_reserve, reserve_values, (int)(sizeof(reserve_values) / sizeof(*reserve_values)));
        print_statement(&idem_pg_settle, settle_values, (int)(sizeof(settle_values) / sizeof(*settle_values)));
        return 0;
    }
    if (argc == 2 && !strcmp(argv[1], "replay")) {
        puts("\\set key random(0, 63)");
        print_statement(&idem_pg_find, find_values, (int)(sizeof(find_values) / sizeof(*find_values)));
        return 0;
    }
    fputs("bench-statements fresh|replay\n", stderr);
    return 2;
}

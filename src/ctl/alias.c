/* idempotencyctl alias: who has become whom. CONTRACT section 8 "Aliases". */
#include <stdio.h>
#include <string.h>

#include <apr_strings.h>

#include "core/alias.h"
#include "core/scope.h"
#include "ctl/ctl.h"
#include "store/admin_alias.h"

/* So long a backend's transaction may keep us from the records, in seconds; in tries of a fifth of a second, with
 * pauses in which writers that have queued up behind us go on. */
#define LOCK_PATIENCE 30
#define LOCK_ROUNDS   (LOCK_PATIENCE * 2)

/* One alias as the options name it. */
typedef struct wanted_t {
    idem_alias_t alias;
    const char *until;
    const char *reason;
} wanted_t;

/* Reads the aliases that there are. NULL after a line on stderr. */
static idem_alias_book_t *read_book(idem_ctl_t *ctl)
{
    PGresult *rows = idem_ctl_query(ctl, idem_admin_alias_book, 0, NULL);
    idem_alias_book_t *book = idem_alias_book_create(ctl->p);
    int i;

    if (!rows) {
        return NULL;
    }
    for (i = 0; i < PQntuples(rows); i++) {
        idem_alias_t alias = {{PQgetvalue(rows, i, 0), PQgetvalue(rows, i, 1)}, {PQgetvalue(rows, i, 2), PQgetvalue(rows, i, 3)}};
        idem_alias_result_e fault = idem_alias_book_add(book, &alias);

        if (fault != IDEM_ALIAS_OK) {
            idem_ctl_fail(IDEM_CTL_REFUSED, "idempotency_aliases holds what it must not: %s", idem_alias_result_text(fault));
            book = NULL;
            break;
        }
    }
    PQclear(rows);
    return book;
}

int idem_ctl_lock_records(idem_ctl_t *ctl)
{
    int round;

    for (round = 0; round < LOCK_ROUNDS; round++) {
        PGresult *result;
        int locked;

        if (!idem_ctl_execute(ctl, idem_admin_lock_try)) {
            return 0;
        }
        result = PQexec(ctl->native, idem_admin_lock);
        locked = PQresultStatus(result) == PGRES_COMMAND_OK;
        if (!locked && (!PQresultErrorField(result, PG_DIAG_SQLSTATE) || strcmp(PQresultErrorField(result, PG_DIAG_SQLSTATE), "55P03"))) {
            idem_ctl_fail(IDEM_CTL_STORE, "the records cannot be locked: %s", PQerrorMessage(ctl->native));
            PQclear(result);
            return 0;
        }
        PQclear(result);
        if (locked) {
            return 1;
        }
        if (!idem_ctl_execute(ctl, idem_admin_lock_pause)) {
            return 0;
        }
    }
    idem_ctl_fail(IDEM_CTL_STORE, "a transaction has written records for longer than %d s; nothing was changed", LOCK_PATIENCE);
    return 0;
}

/* One change of the aliases at a time; the records are locked last and briefly. */
static int begin(idem_ctl_t *ctl)
{
    return idem_ctl_execute(ctl, idem_admin_alias_begin);
}

static idem_ctl_exit_e commit(idem_ctl_t *ctl)
{
    return idem_ctl_execute(ctl, idem_admin_alias_commit) ? IDEM_CTL_DONE : IDEM_CTL_STORE;
}

static idem_ctl_exit_e give_up(idem_ctl_t *ctl, idem_ctl_exit_e status)
{
    idem_ctl_execute(ctl, "ROLLBACK");
    return status;
}

static idem_ctl_exit_e add(idem_ctl_t *ctl, const wanted_t *wanted)
{
    const char *values[] = {wanted->alias.from.tenant, wanted->alias.from.principal, wanted->alias.to.tenant,
                            wanted->alias.to.principal, wanted->until, wanted->reason};
    idem_alias_book_t *book;
    idem_alias_result_e fault;
    PGresult *row;

    if (!begin(ctl)) {
        return IDEM_CTL_STORE;
    }
    book = read_book(ctl);
    if (!book) {
        return give_up(ctl, IDEM_CTL_STORE);
    }
    fault = idem_alias_book_add(book, &wanted->alias);
    if (fault != IDEM_ALIAS_OK) {
        return give_up(ctl, idem_ctl_fail(IDEM_CTL_REFUSED, "%s", idem_alias_result_text(fault)));
    }
    row = idem_ctl_query(ctl, idem_admin_alias_add, 6, values);
    if (!row) {
        return give_up(ctl, IDEM_CTL_STORE);
    }
    if (!PQntuples(row)) {
        PQclear(row);
        return give_up(ctl, idem_ctl_fail(IDEM_CTL_REFUSED, "--until: the date has passed"));
    }
    PQclear(row);
    if (!idem_ctl_lock_records(ctl)) {
        return give_up(ctl, IDEM_CTL_STORE);
    }
    return commit(ctl);
}

/* How many records are still remembered under an identity and those before it; -1 after a line on stderr. */
static int count_behind(idem_ctl_t *ctl, const idem_alias_book_t *book, const idem_identity_t *identity)
{
    idem_identity_t members[IDEM_ALIAS_MAX_MEMBERS];
    int count = idem_alias_book_before(book, identity, members);
    int behind = 0;
    int i;

    for (i = 0; i < count; i++) {
        const char *values[] = {members[i].tenant, members[i].principal};
        PGresult *row = idem_ctl_query(ctl, idem_admin_alias_behind, 2, values);

        if (!row) {
            return -1;
        }
        behind += (int)apr_atoi64(PQgetvalue(row, 0, 0));
        PQclear(row);
    }
    return behind;
}

static idem_ctl_exit_e take_away(idem_ctl_t *ctl, const wanted_t *wanted)
{
    const char *values[] = {wanted->alias.from.tenant, wanted->alias.from.principal};
    idem_alias_book_t *book;
    PGresult *row;
    int behind;

    if (!begin(ctl)) {
        return IDEM_CTL_STORE;
    }
    book = read_book(ctl);
    if (!book) {
        return give_up(ctl, IDEM_CTL_STORE);
    }
    row = idem_ctl_query(ctl, idem_admin_alias_remove, 2, values);
    if (!row || !PQntuples(row)) {
        PQclear(row);
        return give_up(ctl, row ? idem_ctl_fail(IDEM_CTL_REFUSED, "there is no such alias") : IDEM_CTL_STORE);
    }
    PQclear(row);
    if (!idem_ctl_lock_records(ctl)) {
        return give_up(ctl, IDEM_CTL_STORE);
    }
    behind = count_behind(ctl, book, &wanted->alias.from);
    if (behind) {
        return give_up(ctl, behind < 0 ? IDEM_CTL_STORE
                                       : idem_ctl_fail(IDEM_CTL_REFUSED, "%d or more records of the old identity are still "
                                                                         "remembered: without the alias their retries would "
                                                                         "run again", behind));
    }
    return commit(ctl);
}

static idem_ctl_exit_e list(idem_ctl_t *ctl)
{
    PGresult *rows = idem_ctl_query(ctl, idem_admin_aliases, 0, NULL);
    static const char *const names[] = {"from_tenant", "from_principal", "to_tenant", "to_principal", "until", "actor", "reason"};
    int i;
    int column;

    if (!rows) {
        return IDEM_CTL_STORE;
    }
    for (i = 0; i < PQntuples(rows); i++) {
        for (column = 0; ctl->json && column < 7; column++) {
            printf("%s\"%s\": %s", column ? ", " : "{", names[column], idem_ctl_json(ctl->p, PQgetvalue(rows, i, column)));
        }
        if (ctl->json) {
            printf("}\n");
            continue;
        }
        printf("%s %s -> %s %s until %s%s (%s: %s)\n", idem_ctl_printable(ctl->p, PQgetvalue(rows, i, 0)),
               idem_ctl_printable(ctl->p, PQgetvalue(rows, i, 1)), idem_ctl_printable(ctl->p, PQgetvalue(rows, i, 2)),
               idem_ctl_printable(ctl->p, PQgetvalue(rows, i, 3)), PQgetvalue(rows, i, 4),
               *PQgetvalue(rows, i, 7) == 't' ? ", which has passed" : "", idem_ctl_printable(ctl->p, PQgetvalue(rows, i, 5)),
               idem_ctl_printable(ctl->p, PQgetvalue(rows, i, 6)));
    }
    PQclear(rows);
    return IDEM_CTL_DONE;
}

idem_ctl_exit_e idem_ctl_check_identity(idem_ctl_t *ctl, const char *option, const char *value)
{
    idem_scope_result_e result = value ? idem_scope_check_part(IDEM_SCOPE_IN_PRINCIPAL, value) : IDEM_SCOPE_OK;

    return result == IDEM_SCOPE_OK ? IDEM_CTL_DONE
                                   : idem_ctl_fail(IDEM_CTL_USAGE, "--%s: %s", option,
                                                   idem_scope_result_text(ctl->p, IDEM_SCOPE_FAULT(result)));
}

static idem_ctl_exit_e run(idem_ctl_t *ctl, int argc, const char *const *argv)
{
    wanted_t wanted = {{{NULL, NULL}, {NULL, NULL}}, NULL, NULL};
    const idem_ctl_option_t options[] = {
        {"from-tenant", &wanted.alias.from.tenant, NULL}, {"from-principal", &wanted.alias.from.principal, NULL},
        {"to-tenant", &wanted.alias.to.tenant, NULL}, {"to-principal", &wanted.alias.to.principal, NULL},
        {"until", &wanted.until, NULL}, {"reason", &wanted.reason, NULL}, {NULL, NULL, NULL}};
    const char *action = "";
    const idem_alias_t *alias = &wanted.alias;
    idem_ctl_exit_e status = IDEM_CTL_DONE;
    int from;
    int to;
    int i;

    if (idem_ctl_options(argc, argv, options, &action, 1) < 0) {
        return IDEM_CTL_USAGE;
    }
    for (i = 0; i < 4 && status == IDEM_CTL_DONE; i++) {
        status = idem_ctl_check_identity(ctl, options[i].name, *options[i].value);
    }
    if (status != IDEM_CTL_DONE) {
        return status;
    }
    from = alias->from.tenant && alias->from.principal;
    to = alias->to.tenant && alias->to.principal;
    if (!strcmp(action, "add") ? !(from && to && wanted.until && wanted.reason)
                               : !strcmp(action, "remove") ? !from : strcmp(action, "list")) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "alias %s", idem_ctl_alias.usage);
    }
    status = idem_ctl_connect(ctl);
    if (status != IDEM_CTL_DONE) {
        return status;
    }
    return !strcmp(action, "add") ? add(ctl, &wanted) : !strcmp(action, "remove") ? take_away(ctl, &wanted) : list(ctl);
}

const idem_ctl_command_t idem_ctl_alias = {
    "alias",
    "list | add --from-tenant T --from-principal P --to-tenant T --to-principal P --until DATE --reason TEXT |"
    " remove --from-tenant T --from-principal P",
    "says that an identity has become another one: its operations are then found by both; a principal or tenant of"
    " several parts is given by repeating the option",
    run};

/* idempotencyctl: looks after the registry from the command line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <apr_general.h>

#include "core/version.h"
#include "ctl/ctl.h"

static const idem_ctl_command_t *const commands[] = {
    &idem_ctl_migrate, &idem_ctl_status, &idem_ctl_list, &idem_ctl_show, &idem_ctl_resolve, &idem_ctl_reconcile, &idem_ctl_cancel,
    &idem_ctl_sweep, &idem_ctl_verify, &idem_ctl_shadow,
    &idem_ctl_epoch, &idem_ctl_fingerprint, &idem_ctl_explain, &idem_ctl_journal,
    &idem_ctl_alias, &idem_ctl_scope_version, &idem_ctl_erase, NULL,
};

static void print_help(void)
{
    int i;

    printf("usage: idempotencyctl [--store URL] [--json] COMMAND ...\n\n"
           "Looks after the registry of mod_idempotency. Without --store the connection is made as by every client of\n"
           "PostgreSQL: PGSERVICE, PGHOST, PGDATABASE, PGUSER, and the password file (PGPASSFILE).\n\n");
    for (i = 0; commands[i]; i++) {
        printf("  %s %s\n      %s\n", commands[i]->name, commands[i]->usage, commands[i]->summary);
    }
    printf("\nExit status: 0 done, 1 refused by the state of the registry, 2 wrong usage, 3 the store failed.\n");
}

static const idem_ctl_command_t *find_command(const char *name)
{
    int i;

    for (i = 0; commands[i]; i++) {
        if (!strcmp(commands[i]->name, name)) {
            return commands[i];
        }
    }
    return NULL;
}

static int is_help(const char *word)
{
    return !strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help");
}

/* Takes the options that every command has out of argv, wherever they stand. The number of words left, or -1. */
static int take_common_options(idem_ctl_t *ctl, int argc, const char *const *argv, const char **left)
{
    int count = 0;
    int i;

    for (i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json")) {
            ctl->json = 1;
        }
        else if (!strncmp(argv[i], "--store=", 8)) {
            ctl->store = argv[i] + 8;
        }
        else if (!strcmp(argv[i], "--store")) {
            if (++i == argc) {
                return -1;
            }
            ctl->store = argv[i];
        }
        else {
            left[count++] = argv[i];
        }
    }
    return count;
}

static int is_version(const char *word)
{
    return !strcmp(word, "--version") || !strcmp(word, "version");
}

static idem_ctl_exit_e run(idem_ctl_t *ctl, int argc, const char *const *argv)
{
    const char **words = apr_pcalloc(ctl->p, (argc + 1) * sizeof(*words));
    int count = take_common_options(ctl, argc, argv, words);
    const idem_ctl_command_t *command;

    if (count < 0) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "--store: URL is missing");
    }
    if (count == 0) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "no command; idempotencyctl --help lists them");
    }
    if (is_help(words[0])) {
        print_help();
        return IDEM_CTL_DONE;
    }
    if (is_version(words[0])) {
        printf("idempotencyctl %s\n", idem_version());
        return IDEM_CTL_DONE;
    }
    command = find_command(words[0]);
    if (!command) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "%s: no such command; idempotencyctl --help lists them",
                             idem_ctl_printable(ctl->p, words[0]));
    }
    if (count > 1 && is_help(words[1])) {
        printf("usage: idempotencyctl %s %s\n%s\n", command->name, command->usage, command->summary);
        return IDEM_CTL_DONE;
    }
    return command->run(ctl, count - 1, words + 1);
}

int main(int argc, const char *const *argv, const char *const *env)
{
    idem_ctl_t ctl = {0};
    idem_ctl_exit_e status;

    if (apr_app_initialize(&argc, &argv, &env) != APR_SUCCESS || apr_pool_create(&ctl.p, NULL) != APR_SUCCESS) {
        fputs("idempotencyctl: cannot start: out of memory\n", stderr);
        return IDEM_CTL_STORE;
    }
    status = run(&ctl, argc, argv);
    status = status == IDEM_CTL_STORE && ctl.bad_value ? IDEM_CTL_USAGE : status;
    PQfinish(ctl.native);
    if (fflush(stdout) || ferror(stdout)) {
        fputs("idempotencyctl: cannot write the output\n", stderr);
        status = status == IDEM_CTL_DONE ? IDEM_CTL_STORE : status;
    }
    apr_terminate();
    return status;
}

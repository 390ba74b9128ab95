/*
 * ctl.h - what the commands of idempotencyctl share: options, the connection, output. CONTRACT section 10.
 */
#ifndef IDEM_CTL_H
#define IDEM_CTL_H

#include <libpq-fe.h>

#include <apr_pools.h>
#include <apr_tables.h>

/* Exit status, the same for every command. */
typedef enum {
    IDEM_CTL_DONE = 0,
    IDEM_CTL_REFUSED = 1, /* the state of the registry forbids it, or there is nothing such */
    IDEM_CTL_USAGE = 2,
    IDEM_CTL_STORE = 3    /* no connection, or the store refused a statement */
} idem_ctl_exit_e;

typedef struct idem_ctl_t {
    apr_pool_t *p;
    const char *store;  /* --store, or NULL: libpq's environment */
    int json;           /* --json */
    PGconn *native;     /* after idem_ctl_connect */
    int bad_value;      /* the store refused a value of the command line, and nothing else: that is wrong usage */
} idem_ctl_t;

/* One command: its options are what idem_ctl_option lets through, the rest of argv are its arguments. */
typedef struct idem_ctl_command_t {
    const char *name;
    const char *usage;   /* options and arguments, one line */
    const char *summary; /* one line */
    idem_ctl_exit_e (*run)(idem_ctl_t *ctl, int argc, const char *const *argv);
} idem_ctl_command_t;

extern const idem_ctl_command_t idem_ctl_alias;
extern const idem_ctl_command_t idem_ctl_erase;
extern const idem_ctl_command_t idem_ctl_cancel;
extern const idem_ctl_command_t idem_ctl_epoch;
extern const idem_ctl_command_t idem_ctl_explain;
extern const idem_ctl_command_t idem_ctl_fingerprint;
extern const idem_ctl_command_t idem_ctl_list;
extern const idem_ctl_command_t idem_ctl_journal;
extern const idem_ctl_command_t idem_ctl_migrate;
extern const idem_ctl_command_t idem_ctl_reconcile;
extern const idem_ctl_command_t idem_ctl_resolve;
extern const idem_ctl_command_t idem_ctl_shadow;
extern const idem_ctl_command_t idem_ctl_show;
extern const idem_ctl_command_t idem_ctl_scope_version;
extern const idem_ctl_command_t idem_ctl_status;
extern const idem_ctl_command_t idem_ctl_sweep;
extern const idem_ctl_command_t idem_ctl_verify;

/* One option that a command knows. --name VALUE and --name=VALUE, or --name for a flag. */
typedef struct idem_ctl_option_t {
    const char *name;   /* without -- */
    const char **value; /* or NULL: a flag */
    int *flag;
} idem_ctl_option_t;

/*
 * Reads options (ended by a NULL name) and the arguments between them into args, at most max. 0, or says on stderr
 * what is wrong and returns -1. Returns the number of arguments. A tenant or principal may be given part by part, by
 * repeating its option; any other option only once.
 */
int idem_ctl_options(int argc, const char *const *argv, const idem_ctl_option_t *options, const char **args, int max);

/*
 * Is this a tenant or principal in its stored form? NULL is none, and no fault. DONE, or USAGE after a line on stderr
 * that names the option. (alias.c)
 */
idem_ctl_exit_e idem_ctl_check_identity(idem_ctl_t *ctl, const char *option, const char *value);

/* A line on stderr, "idempotencyctl: ...". Returns status. */
idem_ctl_exit_e idem_ctl_fail(idem_ctl_exit_e status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Connects, or says why not. DONE, USAGE or STORE. */
idem_ctl_exit_e idem_ctl_connect(idem_ctl_t *ctl);

/*
 * Runs one statement with text parameters (NULL-terminated list of values by count). NULL: it failed and the reason is
 * on stderr. The caller clears the result.
 */
PGresult *idem_ctl_query(idem_ctl_t *ctl, const char *sql, int count, const char *const *values);

/* Like it, for several statements without parameters or rows. 1 or 0. */
int idem_ctl_execute(idem_ctl_t *ctl, const char *sql);

/*
 * Waits until no reserve is in flight, and keeps new ones out until the transaction ends: what was reserved before is
 * then seen by everybody who knows the new version, and whoever does not know it cannot reserve. In short tries, as
 * writers queue up behind a lock that is waited for. 1, or 0 after a line on stderr. (alias.c)
 */
int idem_ctl_lock_records(idem_ctl_t *ctl);

/* A value for a terminal or a JSON text: control octets and what is not UTF-8 never reach a terminal as they are. */
const char *idem_ctl_printable(apr_pool_t *p, const char *text);
const char *idem_ctl_json(apr_pool_t *p, const char *text); /* with its quotes; NULL: null */

/* Roles and grants on what the schema has, in the open transaction. 1 or 0. */
int idem_ctl_grant(idem_ctl_t *ctl);

#endif

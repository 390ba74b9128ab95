/*
 * operations.h - what the commands about operations share.
 */
#ifndef IDEM_CTL_OPERATIONS_H
#define IDEM_CTL_OPERATIONS_H

#include "core/machine.h"
#include "ctl/ctl.h"

/* Rows as lines of columns, or as a JSON array of objects; names has one word a column. */
void idem_ctl_print_rows(idem_ctl_t *ctl, PGresult *rows, const char *const *names);

/* One value as JSON: numbers and truths as such, nothing as null. */
const char *idem_ctl_json_value(idem_ctl_t *ctl, PGresult *rows, int row, int column);

/* Shows on a terminal how far a long command is; all 0: nobody knows. */
void idem_ctl_progress(const idem_ctl_t *ctl, apr_int64_t done, apr_int64_t all);

/* "ctl:USER", for events. */
const char *idem_ctl_actor(idem_ctl_t *ctl);

/* The states from which an event is legal, as an array of PostgreSQL. */
const char *idem_ctl_sources(apr_pool_t *p, idem_event_e event);

/* Those that core/machine says this of, as an array of PostgreSQL. */
const char *idem_ctl_states(apr_pool_t *p, int (*is_one)(idem_state_e));

/* 1 where text is an operation id; else says so and is 0. */
int idem_ctl_is_operation(const char *text);

/* What every generation of an operation hands on to others (core/uuid). */
const char *idem_ctl_downstream(apr_pool_t *p, const char *operation);

/* Says what state an operation is in now, and returns REFUSED; or that there is none such. */
idem_ctl_exit_e idem_ctl_refuse_state(idem_ctl_t *ctl, const char *operation, const char *wanted);

/* A verdict on an operation of unknown outcome. */
typedef struct idem_ctl_verdict_t {
    idem_event_e event;       /* IDEM_EVENT_RESOLVE_...; IDEM_EVENT_COUNT: as answered */
    const char *reason;
    int code;                 /* 0: no response is given */
    const apr_table_t *headers;
    const char *body;         /* NULL: none is given */
    apr_size_t body_len;
    int owner_is_dead;
    const char *quiet;        /* an interval; NULL: as each record says (IdempotencyQuiet) */
} idem_ctl_verdict_t;

/* Applies it by compare-and-set. DONE, REFUSED (said), STORE. */
idem_ctl_exit_e idem_ctl_apply(idem_ctl_t *ctl, const char *operation, const idem_ctl_verdict_t *verdict);

#endif

/*
 * admin.h - the statements of idempotencyctl, which waits and shows; the web server has its own (pgsql_sql.h).
 *
 * Parameters and results are text. States and events are given as parameters, by core/machine's names.
 */
#ifndef IDEM_ADMIN_H
#define IDEM_ADMIN_H

/* $1 state or null, $2 tenant, $3 principal, $4 key, $5 route, each or null, $6 at most so many, newest first; $7 't' where
 * that is the state of what nobody knows, which has an index. */
extern const char idem_admin_list[];
/* The same of one tenant, or of one tenant's principal: read by a prefix of the primary key. */
extern const char idem_admin_list_tenant[];
extern const char idem_admin_list_principal[];

/* $1 operation. One row: the record, its owner, whether it lapsed. */
extern const char idem_admin_show[];
/* $1 operation. Its effect attempts, and its events, in their order. */
extern const char idem_admin_attempts[];
extern const char idem_admin_events[];

/*
 * $1 operation, $2 states it may be in (array), $3 new state, $4 outcome, $5 code or null, $6 headers (bytea),
 * $7 body (bytea or null), $8 digest, $9 actor, $10 reason, $11 only if a whole response is kept and so becomes the
 * answer ('t' or 'f'; the response parameters are ignored then). One row where it was done.
 */
extern const char idem_admin_resolve[];
/* $1 operation, $2 states, $3 new state, $4 actor, $5 reason, $6 the owner must have been unseen for so long (interval; null:
 * as the record says),
 * $7 't' where the owner is known to be dead. One row where it was done. */
extern const char idem_admin_not_executed[];
/* $1 operation, $2 states, $3 name of no state, $4 actor. One row where it was done. */
extern const char idem_admin_cancel[];

/* $1 state, $2 route, $3 before (timestamptz or null), $4 code or null, $5 at most. Operations, oldest first. */
extern const char idem_admin_select[];

/* $1 since (timestamptz or null). What Shadow mode has counted, a row a route; see src/ctl/shadow.c. */
extern const char idem_admin_shadow[];

/* What the registry is: versions and the number of owners, one row. And what it holds: state, records, whether that is an
 * estimate. */
extern const char idem_admin_status[];
extern const char idem_admin_states[];

/* $1 operation. Its fingerprint, recipe and parts, the registry's digest key, and whether its contract is this build's. */
extern const char idem_admin_fingerprint[];

/* The epoch; and raise it to $1. */
extern const char idem_admin_epoch[];
extern const char idem_admin_epoch_raise[];
/* The transactions that write records at this moment (array); and how many of those ($1) still do. A statement takes its
 * lock before it looks at the control row, so whoever began after a raise was committed has seen it. */
extern const char idem_admin_writing[];
extern const char idem_admin_still_writing[];
/* $1 live states (array). The operations that older writers may be at work on (array); none is added after a raise. */
extern const char idem_admin_epoch_old[];
/* $1 live states, $2 operations. How many of them are left. */
extern const char idem_admin_epoch_left[];
/* $1 live states, $2 new state, $3 outcome, $4 actor. Those become UNKNOWN; one row each. */
extern const char idem_admin_quarantine[];

#endif

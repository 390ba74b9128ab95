/*
 * admin_verify.h - the statements of idempotencyctl verify; see admin.h for their form.
 */
#ifndef IDEM_ADMIN_VERIFY_H
#define IDEM_ADMIN_VERIFY_H

/*
 * $1 operations above this one, $2 at most so many, $3 final states, $4 live states, $5 UNKNOWN, $6 EXPIRED (arrays, each),
 * $7 legal transitions ("FROM>TO", array). One row: how many were read, the last of them, and the faults as a JSON
 * array of {operation, fault}.
 */
extern const char idem_admin_verify[];
/* Operations of one key on both sides of an alias: operation, fault. */
extern const char idem_admin_verify_aliases[];
/* $1 the time of a backup, $2 live states (array). What was under way then: operation, fault. */
extern const char idem_admin_verify_restored[];

#endif

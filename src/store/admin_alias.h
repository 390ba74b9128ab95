/*
 * admin_alias.h - the statements of idempotencyctl alias and scope-version; see admin.h for their form.
 */
#ifndef IDEM_ADMIN_ALIAS_H
#define IDEM_ADMIN_ALIAS_H

/* Begins a transaction that no other change of aliases or scope version is in; and ends it, with another alias version. */
extern const char idem_admin_alias_begin[];
extern const char idem_admin_alias_commit[];

/* In that transaction: try for a fifth of a second to keep writers from the records; where that failed, a pause. */
extern const char idem_admin_lock_try[];
extern const char idem_admin_lock[];
extern const char idem_admin_lock_pause[];

/* All aliases, the newest first: old tenant and principal, new ones. And for showing, the oldest first: these, until, actor,
 * reason, whether its date has passed. */
extern const char idem_admin_alias_book[];
extern const char idem_admin_aliases[];
/* $1 to $4 old and new, $5 until, $6 reason. A row where the date has not passed. */
extern const char idem_admin_alias_add[];
/* $1, $2 the old identity. A row where there was one. */
extern const char idem_admin_alias_remove[];
/* $1, $2 an identity. How many of its records are remembered, at most 1000 counted. */
extern const char idem_admin_alias_behind[];

/* The version that is written; and another one, $1, with another alias version. */
extern const char idem_admin_scope_version[];
extern const char idem_admin_scope_version_set[];

#endif

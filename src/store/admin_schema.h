/*
 * admin_schema.h - the statements of idempotencyctl migrate, beside the schema's own (schema.h).
 *
 * Roles belong to the whole server, so a migration of another database may be making them at this moment: whoever
 * comes second finds them made. All names are unqualified; search_path is the migration's.
 */
#ifndef IDEM_ADMIN_SCHEMA_H
#define IDEM_ADMIN_SCHEMA_H

#include <apr_pools.h>

/* Begins a transaction that no other migration of this database is in. */
extern const char idem_admin_schema_begin[];
/* One value each: the server's encoding, the first schema of search_path, 1 where the registry is in it, its version. */
extern const char idem_admin_encoding[];
extern const char idem_admin_schema_name[];
extern const char idem_admin_schema_is_there[];
extern const char idem_admin_schema_version[];
/* What makes roles and grants, one after the other; NULL-terminated. */
extern const char *const idem_admin_grants[];

/* Texts in p. schema is a quoted identifier. */
const char *idem_admin_schema_create(apr_pool_t *p, const char *schema); /* a transaction of its own */
const char *idem_admin_schema_path(apr_pool_t *p, const char *schema);   /* of this transaction */
const char *idem_admin_schema_reached(apr_pool_t *p, int version);

#endif

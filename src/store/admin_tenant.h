/*
 * admin_tenant.h - the statements of idempotencyctl erase; see admin.h for their form.
 */
#ifndef IDEM_ADMIN_TENANT_H
#define IDEM_ADMIN_TENANT_H

/* The scope versions that there are records of: a column. */
extern const char idem_admin_scope_versions[];
/* $1 tenant, $2 't' for all that is not at work, $3 scope version. Removes a batch of records and what names their
 * operations. One row: how many records. */
extern const char idem_admin_tenant_erase[];
/* $1 tenant. Each removes a batch of rows whose operations have no record: how many. NULL-terminated. */
extern const char *const idem_admin_tenant_rest[];
/* $1 tenant. What is not final: operation, state; at most 1000. And how many records there are, at most 100000 counted. */
extern const char idem_admin_tenant_unfinished[];
extern const char idem_admin_tenant_left[];

#endif

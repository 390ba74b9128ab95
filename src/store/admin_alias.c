#include "store/admin_alias.h"

const char idem_admin_alias_begin[] =
    "BEGIN ISOLATION LEVEL READ COMMITTED; LOCK TABLE idempotency_aliases IN SHARE ROW EXCLUSIVE MODE";
const char idem_admin_alias_commit[] = "UPDATE idempotency_control SET alias_version = alias_version + 1; COMMIT";

const char idem_admin_lock_try[] = "SAVEPOINT before_lock; SET LOCAL lock_timeout = '200ms'";
const char idem_admin_lock[] = "LOCK TABLE idempotency_records IN SHARE ROW EXCLUSIVE MODE";
const char idem_admin_lock_pause[] = "ROLLBACK TO SAVEPOINT before_lock; SELECT pg_sleep(0.3)";

const char idem_admin_alias_book[] =
    "SELECT old_tenant, old_principal, new_tenant, new_principal FROM idempotency_aliases ORDER BY created_at DESC";
const char idem_admin_aliases[] =
    "SELECT old_tenant, old_principal, new_tenant, new_principal, until, actor, reason, until <= now()"
    " FROM idempotency_aliases ORDER BY created_at";

const char idem_admin_alias_add[] =
    "INSERT INTO idempotency_aliases (old_tenant, old_principal, new_tenant, new_principal, until, actor, reason)"
    " SELECT $1, $2, $3, $4, $5::timestamptz, 'ctl:' || session_user, $6 WHERE $5::timestamptz > now() RETURNING until";
const char idem_admin_alias_remove[] =
    "DELETE FROM idempotency_aliases WHERE old_tenant = $1 AND old_principal = $2 RETURNING 1";
const char idem_admin_alias_behind[] =
    "SELECT count(*) FROM (SELECT FROM idempotency_records WHERE tenant_id = $1 AND principal_id = $2"
    " AND (tombstone_until IS NULL OR tombstone_until > now()) LIMIT 1000) AS few";

const char idem_admin_scope_version[] = "SELECT scope_version FROM idempotency_control";
const char idem_admin_scope_version_set[] =
    "UPDATE idempotency_control SET scope_version = $1, alias_version = alias_version + 1";

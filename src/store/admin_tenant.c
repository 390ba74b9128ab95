#include "store/admin_tenant.h"

#include <stddef.h>

/* So many records a transaction: locks and log stay small, and writers get their turn. */
#define BATCH "500"

/* What is at work now: its owner lives. */
#define RUNNING                                                                                                        \
    "r.settled_at IS NULL AND EXISTS (SELECT 1 FROM idempotency_owners o WHERE o.owner = r.owner"                      \
    " AND o.seen_at + r.lease > now())"

/* What may go: finals whose retention is over; with --now everything that is not at work. */
#define MAY_GO "r.tenant_id = $1 AND (r.expires_at <= now() OR ($2::boolean AND NOT (" RUNNING ")))"

/*
 * By prefix of the primary key, one scope version at a time. SKIP LOCKED: a record that is being written is met again.
 * What else names an operation goes in the same transaction as its record.
 */
const char idem_admin_tenant_erase[] =
    "WITH gone AS (DELETE FROM idempotency_records d USING (SELECT r.ctid AS place FROM idempotency_records r"
    " WHERE r.scope_version = $3 AND " MAY_GO " ORDER BY r.scope_version, r.tenant_id LIMIT " BATCH
    " FOR UPDATE SKIP LOCKED) AS few WHERE d.ctid = few.place RETURNING d.operation_id),"
    " events AS (DELETE FROM idempotency_events e USING gone WHERE e.operation_id = gone.operation_id AND e.tenant_id = $1),"
    " effects AS (DELETE FROM idempotency_effects f USING gone WHERE f.operation_id = gone.operation_id AND f.tenant_id = $1),"
    " outbox AS (DELETE FROM idempotency_outbox o USING gone WHERE o.operation_id = gone.operation_id AND o.tenant_id = $1)"
    " SELECT count(*) FROM gone";

/* Versions that the tenant has records of: a loose scan, as the version leads the primary key. */
const char idem_admin_scope_versions[] =
    "WITH RECURSIVE v(version) AS (SELECT min(scope_version) FROM idempotency_records UNION ALL"
    " SELECT (SELECT min(r.scope_version) FROM idempotency_records r WHERE r.scope_version > v.version) FROM v"
    " WHERE v.version IS NOT NULL) SELECT version FROM v WHERE version IS NOT NULL";

#define REST(table)                                                                                                    \
    "WITH gone AS (DELETE FROM " table " WHERE ctid = ANY (ARRAY(SELECT x.ctid FROM " table " x WHERE x.tenant_id = $1" \
    " AND NOT EXISTS (SELECT 1 FROM idempotency_records r WHERE r.operation_id = x.operation_id) LIMIT " BATCH         \
    ")) RETURNING 1) SELECT count(*) FROM gone"

const char *const idem_admin_tenant_rest[] = {REST("idempotency_events"), REST("idempotency_effects"), REST("idempotency_outbox"),
                                              NULL};

const char idem_admin_tenant_unfinished[] =
    "SELECT operation_id, status FROM idempotency_records WHERE tenant_id = $1 AND expires_at IS NULL ORDER BY created_at"
    " LIMIT 1000";

const char idem_admin_tenant_left[] =
    "SELECT count(*) FROM (SELECT FROM idempotency_records WHERE tenant_id = $1 LIMIT 100000) AS few";

/* Statements that look at several scopes at once: identities that changed, revisions that a route still accepts. */
#include "store/pgsql_sql.h"

/*
 * The records of several scopes, in their order. The arrays are versions, tenants, principals and revisions; route,
 * namespace and key are those of the first. A record of another scope than the first whose key may be used again
 * counts as none: what comes next is written under the first. LATERAL and LIMIT: one look-up by the whole key for each scope.
 * Without the limit the planner makes a join of it, and while the table is small one that reads the index from end to
 * end; a prepared statement keeps its plan while the table grows.
 */
#define RECORDS_OF(versions, tenants, principals, revisions, route, ns, key)                                           \
    "SELECT s.place, found.* FROM unnest(" versions "::text[], " tenants "::text[], " principals "::text[], "          \
    revisions "::text[]) WITH ORDINALITY AS s (version, tenant, principal, revision, place)"                           \
    " CROSS JOIN LATERAL (SELECT " IDEM_SQL_RECORD_COLUMNS " FROM idempotency_records r"                               \
    " WHERE r.scope_version = s.version AND r.tenant_id = s.tenant AND r.principal_id = s.principal"                   \
    " AND r.route = " route " AND r.api_revision = s.revision AND r.ns = " ns " AND r.idem_key = " key                 \
    " LIMIT 1) AS found"                                                                                               \
    " WHERE s.place = 1 OR NOT (found.reuse_allowed AND coalesce(found.tombstone_over, false))"

/* Scopes made with other aliases than there are now would show, or hide, what they must not. */
#define ALIASES_ARE(version)                                                                                           \
    "EXISTS (SELECT 1 FROM idempotency_control c WHERE c.the_only_row AND c.alias_version = " version ")"

/* As idem_pg_reserve; $25 to $28 are the scopes, the first of them that of $1 to $7. */
const idem_pg_statement_t idem_pg_reserve_chain = {
    "idem_reserve_chain", "ttttttttbbbuuuivvvvolttiTTTT",
    "WITH old AS MATERIALIZED (" RECORDS_OF("$25", "$26", "$27", "$28", "$4", "$6", "$7") "),"
    " ins AS (INSERT INTO idempotency_records (scope_version, tenant_id, principal_id, route, api_revision, ns, idem_key,"
    " contract, fingerprint, recipe, fingerprint_parts, operation_id, owner_token, owner, writer_epoch, lease, max_run,"
    " retention, tombstone, reuse_allowed, body_limit, status, effect_mode, owner_generation, owned_at, created_at,"
    " sweep_at)"
    " SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23,"
    " 1, now(), now(), " IDEM_SQL_SWEEP_AT("$18", "$16")
    " WHERE NOT EXISTS (SELECT 1 FROM old) AND " IDEM_SQL_UNFENCED("$15", "$24") " AND " IDEM_SQL_PRESENT("$14", "$16")
    " AND " IDEM_SQL_DURABLE
    " ON CONFLICT (scope_version, tenant_id, principal_id, route, api_revision, ns, idem_key) DO NOTHING RETURNING true)"
    " SELECT (SELECT true FROM ins) AS fresh, " ALIASES_ARE("$24") ", old.* FROM (SELECT) AS one"
    " LEFT JOIN old ON true ORDER BY old.place",
    1};

/* $1 to $4 the scopes, $5 route, $6 namespace, $7 key, $8 alias version. */
const idem_pg_statement_t idem_pg_find_chain = {
    "idem_find_chain", "TTTTttti",
    "SELECT " ALIASES_ARE("$8") ", old.* FROM (SELECT) AS one LEFT JOIN (" RECORDS_OF("$1", "$2", "$3", "$4", "$5", "$6", "$7")
    ") AS old ON true ORDER BY old.place",
    1};

/* One snapshot: the aliases are those of the version. None where that is $1, the one that is known. */
const idem_pg_statement_t idem_pg_aliases = {
    "idem_aliases", "i",
    "SELECT c.alias_version, c.scope_version, a.old_tenant, a.old_principal, a.new_tenant, a.new_principal"
    " FROM idempotency_control c LEFT JOIN idempotency_aliases a ON c.alias_version <> $1 WHERE c.the_only_row"
    " ORDER BY a.created_at DESC, a.old_tenant, a.old_principal",
    1};

#define COUNT(condition)                                                                                               \
    "(SELECT count(*)::int FROM (SELECT FROM idempotency_records r WHERE r.scope_version = $3 AND r.tenant_id = s.tenant" \
    " AND r.principal_id = s.principal AND " condition " LIMIT $4) AS counted)"

/* $1 tenants, $2 principals, $3 scope version, $4 the most that is counted. Two ranges of the primary key each. */
const idem_pg_statement_t idem_pg_count = {
    "idem_count", "TTtl",
    "SELECT " COUNT("(r.expires_at IS NULL OR r.expires_at > now())") ", " COUNT("r.settled_at IS NULL")
    " FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS s (tenant, principal, place) ORDER BY s.place",
    1};

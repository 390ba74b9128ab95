/* Statements that look at several scopes at once: identities that changed, revisions that a route still accepts. */
#include "store/pgsql_sql.h"

/*
 * The records of several scopes. Version, tenant, principal and revision of each are one text of `scopes` (see
 * pgsql_chain.c), the first scope's the first; route, namespace and key are those of the first. A record of another scope
 * than the first whose key may be used again counts as none: what comes next is written under the first.
 *
 * The inner query gives the places of the rows, one look-up by the whole key for each scope. A join of scopes and
 * records would let the planner choose, while the table is small, to read the index from end to end, and a prepared
 * statement keeps its plan while the table grows; and it would make the statement dearer to begin, which is most of its
 * price.
 */
#define PART(number) "split_part(s.scope, E'\\x1f', " #number ")"
#define RECORDS_OF(scopes, route, ns, key)                                                                             \
    "SELECT " IDEM_SQL_RECORD_COLUMNS " FROM idempotency_records r WHERE r.ctid = ANY (ARRAY("                         \
    "SELECT (SELECT x.ctid FROM idempotency_records x WHERE x.scope_version = " PART(1)                                \
    " AND x.tenant_id = " PART(2) " AND x.principal_id = " PART(3) " AND x.route = " route                             \
    " AND x.api_revision = " PART(4) " AND x.ns = " ns " AND x.idem_key = " key                                        \
    " AND (NOT (x.reuse_allowed AND coalesce(x.tombstone_until <= now(), false)) OR s.scope = (" scopes ")[1]))"       \
    " FROM (SELECT unnest(" scopes "::text[]) AS scope) AS s))"

/* Scopes made with other aliases than there are now would show, or hide, what they must not: each row begins with that. */
#define ALIASES_ARE(version) "c.alias_version = " version
#define WITH_ALIASES(records) " FROM idempotency_control c LEFT JOIN " records " ON true WHERE c.the_only_row"

/* As idem_pg_reserve; $26 are the scopes, the first of them that of $1 to $7. */
const idem_pg_statement_t idem_pg_reserve_chain = {
    "idem_reserve_chain", "ttttttttbbbuuuivvvvolttivT",
    "WITH old AS MATERIALIZED (" RECORDS_OF("$26", "$4", "$6", "$7") "),"
    " ins AS (INSERT INTO idempotency_records (scope_version, tenant_id, principal_id, route, api_revision, ns, idem_key,"
    " contract, fingerprint, recipe, fingerprint_parts, operation_id, owner_token, owner, writer_epoch, lease, max_run,"
    " retention, tombstone, reuse_allowed, body_limit, status, effect_mode, quiet, owner_generation, owned_at,"
    " created_at, sweep_at)"
    " SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23,"
    " $25, 1, now(), now(), " IDEM_SQL_SWEEP_AT("$18", "$16")
    " WHERE NOT EXISTS (SELECT 1 FROM old) AND " IDEM_SQL_UNFENCED("$15", "$24") " AND " IDEM_SQL_PRESENT("$14", "$16")
    " AND " IDEM_SQL_DURABLE
    " ON CONFLICT (scope_version, tenant_id, principal_id, route, api_revision, ns, idem_key) DO NOTHING RETURNING true)"
    " SELECT (SELECT true FROM ins) AS fresh, " ALIASES_ARE("$24") ", old.*" WITH_ALIASES("old"),
    1};

/* $1 the scopes, $2 route, $3 namespace, $4 key, $5 alias version. */
const idem_pg_statement_t idem_pg_find_chain = {
    "idem_find_chain", "Tttti",
    "SELECT " ALIASES_ARE("$5") ", old.*" WITH_ALIASES("(" RECORDS_OF("$1", "$2", "$3", "$4") ") AS old"),
    1};

/* One snapshot: the aliases are those of the version. None where that is $1, the one that is known. */
const idem_pg_statement_t idem_pg_aliases = {
    "idem_aliases", "i",
    "SELECT c.alias_version, c.scope_version, EXISTS (SELECT 1 FROM idempotency_aliases d WHERE d.until <= now()),"
    " a.old_tenant, a.old_principal, a.new_tenant, a.new_principal"
    " FROM idempotency_control c LEFT JOIN idempotency_aliases a ON c.alias_version <> $1 WHERE c.the_only_row"
    " ORDER BY a.created_at DESC, a.old_tenant, a.old_principal",
    1};

/* $1 so many at most. The function waits for a lock, briefly, where there is one to end: see 005-alias-end.sql. */
const idem_pg_statement_t idem_pg_end_aliases = {
    "idem_end_aliases", "i",
    "SELECT idempotency_end_aliases($1) WHERE " IDEM_SQL_DURABLE,
    0};

#define COUNT(condition)                                                                                               \
    "(SELECT count(*)::int FROM (SELECT FROM idempotency_records r WHERE r.scope_version = $3 AND r.tenant_id = s.tenant" \
    " AND r.principal_id = s.principal AND " condition " LIMIT $4) AS counted)"

/* $1 tenants, $2 principals, $3 scope version, $4 the most that is counted. Two ranges of the primary key each. */
const idem_pg_statement_t idem_pg_count = {
    "idem_count", "TTtl",
    "SELECT " COUNT("(r.expires_at IS NULL OR r.expires_at > now())") ", " COUNT("r.settled_at IS NULL")
    " FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS s (tenant, principal, place) ORDER BY s.place",
    1};

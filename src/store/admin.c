#include "store/admin.h"

#include "core/scope.h"
#include "store/pgsql_sql.h"

#define EVENT "INSERT INTO idempotency_events (tenant_id, operation_id, generation, from_status, to_status, actor, reason)"

#define STAMP(column) "to_char(" column " AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"

#define LIST_COLUMNS                                                                                                   \
    "r.operation_id, r.status, r.owner_generation, r.tenant_id, r.principal_id, r.route, r.api_revision,"              \
    " r.ns || r.idem_key, r.response_code, " STAMP("r.created_at") ", coalesce(" STAMP("r.settled_at") ", ''), " IDEM_SQL_LAPSED
#define LIST_FILTERS                                                                                                   \
    "($1::text IS NULL OR r.status = $1) AND ($4::text IS NULL OR r.idem_key = $4) AND ($5::text IS NULL OR r.route = $5)" \
    " AND (NOT $7::boolean OR r.sweep_at = " IDEM_SQL_SWEEP_UNKNOWN ") AND r.scope_version <> '" IDEM_SCOPE_VERSION_SHADOW "'"
#define LIST_ORDER " ORDER BY r.operation_id DESC LIMIT $6::bigint"

const char idem_admin_list[] =
    "SELECT " LIST_COLUMNS " FROM idempotency_records r WHERE ($2::text IS NULL OR r.tenant_id = $2)"
    " AND ($3::text IS NULL OR r.principal_id = $3) AND " LIST_FILTERS LIST_ORDER;

/* A prefix of the primary key for each version. The version that leads it is found by a loose scan; OFFSET 0 keeps what
 * is read apart from its order, which another index has. */
#define LIST_PREFIX(principal)                                                                                         \
    "WITH RECURSIVE v (version) AS (SELECT min(m.scope_version) FROM idempotency_records m UNION ALL"                  \
    " SELECT (SELECT min(m.scope_version) FROM idempotency_records m WHERE m.scope_version > v.version) FROM v"        \
    " WHERE v.version IS NOT NULL) SELECT " LIST_COLUMNS " FROM v CROSS JOIN LATERAL (SELECT * FROM idempotency_records p" \
    " WHERE p.scope_version = v.version AND p.tenant_id = $2::text" principal " OFFSET 0) AS r WHERE " LIST_FILTERS LIST_ORDER

const char idem_admin_list_tenant[] = LIST_PREFIX(" AND $3::text IS NULL");
const char idem_admin_list_principal[] = LIST_PREFIX(" AND p.principal_id = $3::text");

const char idem_admin_show[] =
    "SELECT r.operation_id, r.status, coalesce(r.outcome, ''), r.owner_generation, r.effect_mode, r.scope_version, r.tenant_id,"
    " r.principal_id, r.route, r.api_revision, r.ns, r.idem_key, " STAMP("r.created_at") ", " STAMP("r.owned_at")
    ", coalesce(" STAMP("r.settled_at") ", ''), coalesce(" STAMP("r.expires_at") ", ''), r.response_code,"
    " octet_length(r.response_body), coalesce(r.owner::text, ''), coalesce(o.host, ''), o.pid, coalesce(" STAMP("o.seen_at") ", ''), " IDEM_SQL_LAPSED ", r.attempts, r.attempts_open,"
    " r.writer_epoch"
    " FROM idempotency_records r LEFT JOIN idempotency_owners o ON o.owner = r.owner WHERE r.operation_id = $1::uuid";

const char idem_admin_attempts[] =
    "SELECT e.effect, e.provider, e.generation, e.downstream_key, e.replayable, coalesce(e.handle, ''),"
    " coalesce(e.outcome, ''), " STAMP("e.begun_at") ", coalesce(" STAMP("e.ended_at") ", '')"
    " FROM idempotency_effects e WHERE e.operation_id = $1::uuid ORDER BY e.effect_id";

const char idem_admin_events[] =
    "SELECT " STAMP("e.at") ", e.generation, e.from_status, e.to_status, e.actor, coalesce(e.reason, '')"
    " FROM idempotency_events e WHERE e.operation_id = $1::uuid ORDER BY e.event_id";

const char idem_admin_resolve[] =
    "WITH old AS MATERIALIZED (SELECT r.tenant_id, r.operation_id, r.owner_generation, r.status FROM idempotency_records r"
    " WHERE r.operation_id = $1::uuid AND r.status = ANY ($2::text[]) AND (NOT $11::boolean OR r.response_digest IS NOT NULL)"
    " FOR UPDATE),"
    " upd AS (UPDATE idempotency_records r SET status = $3, outcome = $4,"
    " response_code = CASE WHEN $11::boolean THEN r.response_code ELSE $5::integer END,"
    " response_headers = CASE WHEN $11::boolean THEN r.response_headers ELSE $6::bytea END,"
    " response_body = CASE WHEN $11::boolean THEN r.response_body ELSE $7::bytea END,"
    " response_digest = CASE WHEN $11::boolean THEN r.response_digest ELSE $8::bytea END,"
    " settled_at = now(), expires_at = now() + r.retention, tombstone_until = CASE WHEN r.reuse_allowed"
    " THEN now() + r.retention + r.tombstone ELSE 'infinity' END, attempts_open = 0, sweep_at = now() + r.retention"
    " FROM old WHERE r.operation_id = old.operation_id AND r.tenant_id = old.tenant_id RETURNING r.response_code),"
    " eff AS (UPDATE idempotency_effects e SET ended_at = now(), outcome = $4 FROM old"
    " WHERE e.operation_id = old.operation_id AND e.tenant_id = old.tenant_id AND e.ended_at IS NULL),"
    " ev AS (" EVENT " SELECT old.tenant_id, old.operation_id, old.owner_generation, old.status, $3, $9, $10 FROM old, upd)"
    " SELECT old.operation_id, upd.response_code FROM old, upd";

const char idem_admin_not_executed[] =
    "WITH old AS MATERIALIZED (SELECT r.tenant_id, r.operation_id, r.owner_generation, r.status FROM idempotency_records r"
    " LEFT JOIN idempotency_owners o ON o.owner = r.owner WHERE r.operation_id = $1::uuid AND r.status = ANY ($2::text[])"
    " AND ($7::boolean OR coalesce(o.seen_at, r.settled_at) < now() - coalesce($6::interval, r.quiet)) FOR UPDATE OF r),"
    " upd AS (UPDATE idempotency_records r SET status = $3, outcome = NULL, owner = NULL,"
    " owner_generation = r.owner_generation + 1, owned_at = now(), settled_at = NULL, response_code = NULL,"
    " response_headers = NULL, response_body = NULL, response_digest = NULL, attempts_open = 0,"
    " sweep_at = " IDEM_SQL_SWEEP_AT("r.retention", "r.lease")
    " FROM old WHERE r.operation_id = old.operation_id AND r.tenant_id = old.tenant_id RETURNING r.owner_generation),"
    " eff AS (UPDATE idempotency_effects e SET ended_at = now(), outcome = 'rejected' FROM old"
    " WHERE e.operation_id = old.operation_id AND e.tenant_id = old.tenant_id AND e.ended_at IS NULL),"
    " ev AS (" EVENT " SELECT old.tenant_id, old.operation_id, upd.owner_generation, old.status, $3, $4, $5 FROM old, upd)"
    " SELECT old.operation_id, upd.owner_generation FROM old, upd";

const char idem_admin_cancel[] =
    "WITH old AS MATERIALIZED (SELECT r.tenant_id, r.operation_id, r.owner_generation, r.status, " IDEM_SQL_PRUNE_AT " AS prune_at"
    " FROM idempotency_records r"
    " WHERE r.operation_id = $1::uuid AND r.status = ANY ($2::text[]) AND r.owner_generation = 1 AND r.attempts = 0 FOR UPDATE),"
    " del AS (DELETE FROM idempotency_records r USING old WHERE r.operation_id = old.operation_id"
    " AND r.tenant_id = old.tenant_id RETURNING true),"
    " ev AS (INSERT INTO idempotency_events (tenant_id, operation_id, generation, from_status, to_status, actor, reason, prune_at)"
    " SELECT old.tenant_id, old.operation_id, old.owner_generation, old.status, $3, $4, 'cancelled', old.prune_at FROM old, del)"
    " SELECT old.operation_id FROM old, del";

const char idem_admin_select[] =
    "SELECT r.operation_id, r.route, " STAMP("r.created_at") ", coalesce(r.response_code::text, '') FROM idempotency_records r"
    " WHERE r.status = $1 AND r.sweep_at = " IDEM_SQL_SWEEP_UNKNOWN " AND ($2::text IS NULL OR r.route = $2)"
    " AND ($3::timestamptz IS NULL OR r.created_at < $3) AND ($4::integer IS NULL OR r.response_code = $4)"
    " ORDER BY r.operation_id LIMIT $5::bigint";

#define SHADOW_OF(kinds) "coalesce(sum(s.count) FILTER (WHERE s.kind = ANY ('{" kinds "}')), 0)::bigint"

const char idem_admin_shadow[] =
    "SELECT s.route, sum(s.count)::bigint,"
    " coalesce(sum(s.count) FILTER (WHERE s.kind <> ALL ('{unkeyed,key-missing}')), 0)::bigint,"
    " " SHADOW_OF("executed") ", " SHADOW_OF("replayed") ", " SHADOW_OF("in-progress") ", " SHADOW_OF("outcome-unknown") ","
    " " SHADOW_OF("key-reused") ", " SHADOW_OF("key-expired") ", " SHADOW_OF("key-missing") ", " SHADOW_OF("key-malformed") ","
    " " SHADOW_OF("identity-missing") ", " SHADOW_OF("payload-rejected") ", " SHADOW_OF("payload-too-large") ","
    " " SHADOW_OF("body-not-read,dropped,store-unavailable,writer-fenced,route-unresolved") ","
    " coalesce((SELECT string_agg(g.groups || ': ' || g.n, '; ' ORDER BY g.n DESC, g.groups) FROM (SELECT t.groups, sum(t.count) AS n"
    " FROM idempotency_shadow t WHERE t.route = s.route AND t.kind = 'key-reused' AND ($1::timestamptz IS NULL OR t.hour >="
    " date_trunc('hour', $1::timestamptz)) GROUP BY t.groups) g), '')"
    " FROM idempotency_shadow s WHERE $1::timestamptz IS NULL OR s.hour >= date_trunc('hour', $1::timestamptz)"
    " GROUP BY s.route ORDER BY s.route";

const char idem_admin_epoch[] = "SELECT c.writer_epoch FROM idempotency_control c WHERE c.the_only_row";

const char idem_admin_epoch_raise[] =
    "UPDATE idempotency_control SET writer_epoch = $1::integer WHERE the_only_row AND writer_epoch < $1::integer"
    " RETURNING writer_epoch";

#define WRITES_RECORDS                                                                                                \
    "l.locktype = 'relation' AND l.relation = 'idempotency_records'::regclass AND l.mode = 'RowExclusiveLock'"         \
    " AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())"                         \
    " AND l.pid <> pg_backend_pid()"

const char idem_admin_writing[] =
    "SELECT coalesce(array_agg(DISTINCT l.virtualtransaction), '{}') FROM pg_locks l WHERE " WRITES_RECORDS;
const char idem_admin_still_writing[] =
    "SELECT count(*) FROM pg_locks l WHERE " WRITES_RECORDS " AND l.virtualtransaction = ANY ($1::text[])";

#define OF_OLD_WRITERS                                                                                                \
    "r.status = ANY ($1::text[]) AND r.settled_at IS NULL AND r.owner IS NOT NULL AND r.writer_epoch <"                \
    " (SELECT c.writer_epoch FROM idempotency_control c WHERE c.the_only_row)"

const char idem_admin_epoch_old[] =
    "SELECT coalesce(array_agg(r.operation_id), '{}') FROM idempotency_records r WHERE " OF_OLD_WRITERS;
const char idem_admin_epoch_left[] =
    "SELECT count(*) FROM idempotency_records r WHERE " OF_OLD_WRITERS " AND r.operation_id = ANY ($2::uuid[])";

const char idem_admin_quarantine[] =
    "WITH old AS MATERIALIZED (SELECT r.tenant_id, r.operation_id, r.owner_generation, r.status FROM idempotency_records r"
    " WHERE " OF_OLD_WRITERS " FOR UPDATE SKIP LOCKED),"
    " upd AS (UPDATE idempotency_records r SET status = $2, outcome = $3, settled_at = now(), sweep_at = "
    IDEM_SQL_SWEEP_UNKNOWN " FROM old WHERE r.operation_id = old.operation_id AND r.tenant_id = old.tenant_id"
    " RETURNING r.operation_id),"
    " ev AS (" EVENT " SELECT old.tenant_id, old.operation_id, old.owner_generation, old.status, $2, $4,"
    " 'quarantined: its writer has passed' FROM old)"
    " SELECT operation_id FROM upd";

/* Up to so many records are counted, more are estimated from a sample of about as many. */
#define STATES_COUNTED "200000"

/* No index knows the state (a settlement would have to keep it), so counting reads the table; but what nobody knows is
 * found by an index, and is never estimated. */
const char idem_admin_states[] =
    "WITH size AS (SELECT greatest(reltuples, 0)::bigint AS rows FROM pg_class WHERE oid = 'idempotency_records'::regclass)"
    " SELECT status, count(*), false FROM idempotency_records WHERE (SELECT rows FROM size) <= " STATES_COUNTED
    " AND sweep_at > '-infinity' GROUP BY status"
    " UNION ALL SELECT status, count(*) * (SELECT rows FROM size) / " STATES_COUNTED ", true FROM idempotency_records"
    " TABLESAMPLE SYSTEM ((SELECT least(100, 100.0 * " STATES_COUNTED " / greatest(rows, 1)) FROM size))"
    " WHERE (SELECT rows FROM size) > " STATES_COUNTED " AND sweep_at > '-infinity' GROUP BY status"
    " UNION ALL SELECT status, count(*), false FROM idempotency_records WHERE sweep_at = '-infinity' GROUP BY status"
    " ORDER BY 1";

const char idem_admin_status[] =
    "SELECT schema_version, writer_epoch, alias_version, scope_version, (SELECT count(*) FROM idempotency_owners)"
    " FROM idempotency_control";

const char idem_admin_fingerprint[] =
    "SELECT r.fingerprint, r.recipe, r.fingerprint_parts, c.digest_key, r.contract = '" IDEM_CONTRACT_NAME "'"
    " FROM idempotency_records r, idempotency_control c WHERE r.operation_id = $1::uuid";

#include "store/pgsql_sql.h"

/*
 * The shape of every compare-and-set:
 *
 *   old   finds the row by its address and condition, and locks it unless somebody else has (SKIP LOCKED);
 *   upd   changes the row that old has locked;
 *   ev    appends the event, where the transition makes one.
 *
 * One snapshot, one commit, no wait. What old did not find is explained afterwards, from the same statement where
 * that is cheap, by a second one where the first is frequent.
 */
/* The collation chooses the index; see 001-registry.sql. */
#define OPERATION_OF(P) "r.operation_id = " P(2) " AND r.tenant_id = " P(1) " COLLATE \"POSIX\""
#define RECORD_OF(P) OPERATION_OF(P) " AND r.owner_generation = " P(3)
#define OPERATION OPERATION_OF(IDEM_SQL_ONE)
#define RECORD RECORD_OF(IDEM_SQL_ONE)
#define LOCK " FOR UPDATE OF r SKIP LOCKED"
#define EVENT "INSERT INTO idempotency_events (tenant_id, operation_id, generation, from_status, to_status, actor, reason)"
/* The last event of an operation whose record is gone with it. */
#define LAST_EVENT "INSERT INTO idempotency_events (tenant_id, operation_id, generation, from_status, to_status, actor, reason, prune_at)"

/* ---------------------------------------------------------------- connections */

/*
 * One connection, one kind of work: look-ups by key, planned once. A plan made while a table was small would read it
 * from end to end, and be kept while the table grows.
 */
const idem_pg_statement_t idem_pg_settings = {
    "idem_settings", "tt",
    "SELECT set_config('statement_timeout', $1, false), set_config('lock_timeout', $2, false),"
    " set_config('client_encoding', 'UTF8', false), set_config('default_transaction_isolation', 'read committed', false),"
    " set_config('idle_in_transaction_session_timeout', $1, false),"
    " set_config('plan_cache_mode', 'force_generic_plan', false), set_config('enable_seqscan', 'off', false),"
    " set_config('jit', 'off', false)",
    1};

const idem_pg_statement_t idem_pg_names = {
    "idem_names", "", "SELECT name FROM pg_prepared_statements WHERE name LIKE 'idem\\_%' AND NOT from_sql", 1};

const idem_pg_statement_t idem_pg_server = {
    "idem_server", "",
    "SELECT pg_is_in_recovery(), current_setting('fsync') = 'on', current_setting('server_encoding') = 'UTF8',"
    " current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int",
    1};

const idem_pg_statement_t idem_pg_control = {
    "idem_control", "",
    "SELECT c.schema_version, c.digest_key FROM idempotency_control c WHERE c.the_only_row",
    1};

/* ---------------------------------------------------------------- reserve */

#define RESERVE_INTO                                                                                                   \
    "INSERT INTO idempotency_records (scope_version, tenant_id, principal_id, route, api_revision, ns, idem_key,"      \
    " contract, fingerprint, recipe, fingerprint_parts, operation_id, owner_token, owner, writer_epoch, lease, max_run," \
    " retention, tombstone, reuse_allowed, body_limit, status, effect_mode, quiet, owner_generation, owned_at,"          \
    " created_at, sweep_at)"
#define RESERVE_VALUES(P)                                                                                              \
    P(1) ", " P(2) ", " P(3) ", " P(4) ", " P(5) ", " P(6) ", " P(7) ", " P(8) ", " P(9) ", " P(10) ", " P(11) ", "    \
    P(12) ", " P(13) ", $14, $15, " P(16) ", " P(17) ", " P(18) ", " P(19) ", " P(20) ", " P(21) ", "      \
    P(22) ", " P(23) ", " P(25) ", 1, now(), now(), " IDEM_SQL_SWEEP_AT(P(18), P(16))
#define RESERVE_ALLOWED(P)                                                                                             \
    IDEM_SQL_UNFENCED("$15", P(24)) " AND " IDEM_SQL_PRESENT("$14", P(16)) " AND " IDEM_SQL_DURABLE
#define RESERVE_ONCE                                                                                                   \
    " ON CONFLICT (scope_version, tenant_id, principal_id, route, api_revision, ns, idem_key) DO NOTHING"

/* Fresh or found, in one round trip; neither: somebody was faster, or the writer is fenced, or not present. */
const idem_pg_statement_t idem_pg_reserve = {
    "idem_reserve", "ttttttttbbbuuuivvvvolttiv",
    "WITH old AS MATERIALIZED (SELECT " IDEM_SQL_RECORD_COLUMNS " FROM idempotency_records r WHERE " IDEM_SQL_SCOPE "),"
    " ins AS (" RESERVE_INTO " SELECT " RESERVE_VALUES(IDEM_SQL_ONE)
    " WHERE NOT EXISTS (SELECT 1 FROM old) AND " RESERVE_ALLOWED(IDEM_SQL_ONE) RESERVE_ONCE " RETURNING true)"
    " SELECT (SELECT true FROM ins) AS fresh, old.* FROM (SELECT) AS one LEFT JOIN old ON true",
    1};

/*
 * The same for many rows of one writer, but that it does not look first: most are fresh, and those that are not are looked
 * up by idem_pg_find_many. Its name is not the one that other releases have for another text: behind a pooler that keeps
 * what is prepared, both may meet. Rows are inserted in the order they were given in. Gives the tokens of the fresh ones.
 */
#define RESERVE_MANY_TYPES "TTTTTTTTBBBUUuiVVVVOLTTIV"
#define RESERVE_MANY                                                                                                   \
    RESERVE_INTO " SELECT " RESERVE_VALUES(IDEM_SQL_EACH) " FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,"  \
    " $12, $13, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25) WITH ORDINALITY AS q(p1, p2, p3, p4, p5, p6, p7, p8," \
    " p9, p10, p11, p12, p13, p16, p17, p18, p19, p20, p21, p22, p23, p24, p25, n) WHERE "                             \
    RESERVE_ALLOWED(IDEM_SQL_EACH) " ORDER BY q.n" RESERVE_ONCE " RETURNING owner_token"

const idem_pg_statement_t idem_pg_reserve_many = {
    "idem_insert_many", RESERVE_MANY_TYPES, RESERVE_MANY, 1};

/* The numbers of those that are there, and their records. LIMIT keeps the planner at one look-up in the index for each,
 * however small the table was when it planned. */
const idem_pg_statement_t idem_pg_find_many = {
    "idem_find_many", "TTTTTTT",
    "SELECT q.n::int, one.* FROM unnest($1, $2, $3, $4, $5, $6, $7) WITH ORDINALITY AS q(p1, p2, p3, p4, p5, p6, p7, n)"
    " CROSS JOIN LATERAL (SELECT " IDEM_SQL_RECORD_COLUMNS " FROM idempotency_records r WHERE "
    IDEM_SQL_SCOPE_OF(IDEM_SQL_EACH) " LIMIT 1) AS one",
    1};

const idem_pg_statement_t idem_pg_reserve_why = {
    "idem_reserve_why", "tttttttiiuv",
    "SELECT " IDEM_SQL_UNFENCED("$8", "$9") ", " IDEM_SQL_PRESENT("$10", "$11") ", " IDEM_SQL_RECORD_COLUMNS
    " FROM (SELECT) AS one LEFT JOIN idempotency_records r ON " IDEM_SQL_SCOPE,
    1};

/* ---------------------------------------------------------------- settlement */

/* A live record that nobody has given up; in doubt, nobody can have. */
#define NOT_GIVEN_UP "(r.owner IS NOT NULL OR r.settled_at IS NOT NULL)"

/*
 * A live record to a final state, the frequent case: $4 sources, $5 status, $6 outcome, $7 code, $8 headers, $9 body,
 * $10 digest. A record that the backend settled by itself to the same state, leaving no response, gets this one and
 * keeps its times (section 4, settlement rule 3).
 */
#define SETTLE_SET(P)                                                                                                  \
    "status = " P(5) ", outcome = " P(6) ", response_code = " P(7) ", response_headers = " P(8) ", response_body = "   \
    P(9) ", response_digest = " P(10) ", settled_at = coalesce(r.settled_at, now()),"                                  \
    " expires_at = coalesce(r.expires_at, now() + r.retention), tombstone_until = coalesce(r.tombstone_until,"         \
    " CASE WHEN r.reuse_allowed THEN now() + r.retention + r.tombstone ELSE 'infinity' END)"
#define SETTLE_FITS(P, sources)                                                                                        \
    RECORD_OF(P) " AND (r.settled_at IS NULL AND r.owner IS NOT NULL AND r.status = ANY (" sources ") OR r.expires_at IS NOT NULL" \
    " AND r.status = " P(5) " AND r.response_headers IS NULL AND r.response_body IS NULL)"                             \
    " AND " IDEM_SQL_DURABLE LOCK

const idem_pg_statement_t idem_pg_settle = {
    "idem_settle", "tuiTttibbb",
    "UPDATE idempotency_records r SET " SETTLE_SET(IDEM_SQL_ONE)
    " WHERE r.ctid = (SELECT r.ctid FROM idempotency_records r WHERE " SETTLE_FITS(IDEM_SQL_ONE, "$4") ") RETURNING true",
    1};

/* The same for many; nothing waits for a lock, so their order does not matter. Gives the numbers of those that fitted,
 * behind the place of a token. */
#define SETTLE_MANY_TYPES "TUITTTIBBB"
#define SETTLE_EACH(number) "w.p" #number
#define SETTLE_MANY_FIT(arrays, sources)                                                                               \
    "fit AS MATERIALIZED (SELECT w.*, one.here FROM unnest(" arrays ") WITH ORDINALITY AS w(p1, p2, p3, p5, p6, p7, p8," \
    " p9, p10, n) CROSS JOIN LATERAL (SELECT r.ctid AS here FROM idempotency_records r WHERE "                         \
    SETTLE_FITS(SETTLE_EACH, sources) ") AS one)"
#define SETTLE_MANY                                                                                                    \
    "UPDATE idempotency_records r SET " SETTLE_SET(SETTLE_EACH) " FROM fit AS w WHERE r.ctid = w.here"

const idem_pg_statement_t idem_pg_settle_many = {
    "idem_update_many", SETTLE_MANY_TYPES,
    "WITH " SETTLE_MANY_FIT("$1, $2, $3, $5, $6, $7, $8, $9, $10", "$4") " " SETTLE_MANY " RETURNING NULL::uuid, w.n::int", 1};

/* Both in one, with one commit. No row is of both: nobody settles what is not reserved yet. Gives a token or a number. */
const idem_pg_statement_t idem_pg_write_many = {
    "idem_write_many", RESERVE_MANY_TYPES SETTLE_MANY_TYPES,
    "WITH ins AS (" RESERVE_MANY "), " SETTLE_MANY_FIT("$26, $27, $28, $30, $31, $32, $33, $34, $35", "$29")
    ", upd AS (" SETTLE_MANY " RETURNING w.n::int)"
    " SELECT ins.owner_token, NULL::int FROM ins UNION ALL SELECT NULL, upd.n FROM upd",
    1};

/*
 * Into doubt or out of it: parameters as above, $11 is the state final, $12 actor, $13 reason. A doubt that brings no
 * response leaves the one there is.
 */
const idem_pg_statement_t idem_pg_settle_late = {
    "idem_settle_late", "tuiTttibbbott",
    "WITH old AS MATERIALIZED (SELECT r.status, r.settled_at IS NOT NULL AS late FROM idempotency_records r"
    " WHERE " RECORD " AND r.status = ANY ($4) AND " NOT_GIVEN_UP " AND " IDEM_SQL_DURABLE LOCK "),"
    " upd AS (UPDATE idempotency_records r SET status = $5, outcome = $6,"
    " response_code = CASE WHEN $11 OR $10 IS NOT NULL THEN $7 ELSE r.response_code END,"
    " response_headers = CASE WHEN $11 OR $10 IS NOT NULL THEN $8 ELSE r.response_headers END,"
    " response_body = CASE WHEN $11 OR $10 IS NOT NULL THEN $9 ELSE r.response_body END,"
    " response_digest = CASE WHEN $11 OR $10 IS NOT NULL THEN $10 ELSE r.response_digest END,"
    " settled_at = now(), expires_at = CASE WHEN $11 THEN now() + r.retention END,"
    " tombstone_until = CASE WHEN NOT $11 THEN NULL WHEN r.reuse_allowed THEN now() + r.retention + r.tombstone"
    " ELSE 'infinity' END,"
    " sweep_at = CASE WHEN $11 THEN " IDEM_SQL_SWEEP_AT("r.retention", "r.lease") " ELSE " IDEM_SQL_SWEEP_UNKNOWN " END"
    " FROM old WHERE " RECORD " RETURNING true),"
    " ev AS (" EVENT " SELECT $1, $2, $3, old.status, $5, $12, $13 FROM old, upd WHERE old.late AND old.status <> $5)"
    " SELECT true FROM upd",
    1};

/* $4 sources, $5 states that may go, $6 status where it stays, $7 outcome, $8 name of no state, $9 actor, $10 reason. */
const idem_pg_statement_t idem_pg_settle_reject = {
    "idem_settle_reject", "tuiTTttttt",
    "WITH old AS MATERIALIZED (SELECT r.status, r.status = ANY ($5) AND r.attempts = 0 AS goes, " IDEM_SQL_PRUNE_AT " AS prune_at"
    " FROM idempotency_records r WHERE " RECORD " AND r.status = ANY ($4) AND " NOT_GIVEN_UP
    " AND " IDEM_SQL_DURABLE LOCK "),"
    " del AS (DELETE FROM idempotency_records r USING old WHERE " RECORD " AND old.goes RETURNING true),"
    " upd AS (UPDATE idempotency_records r SET status = $6, outcome = $7, owner = NULL, settled_at = NULL,"
    " response_code = NULL, response_headers = NULL, response_body = NULL, response_digest = NULL,"
    " sweep_at = CASE WHEN r.settled_at IS NULL THEN r.sweep_at"
    " ELSE " IDEM_SQL_SWEEP_AT("r.retention", "r.lease") " END"
    " FROM old WHERE " RECORD " AND NOT old.goes RETURNING true),"
    " ev AS (" LAST_EVENT " SELECT $1, $2, $3, old.status, CASE WHEN old.goes THEN $8 ELSE $6 END, $9, $10,"
    " CASE WHEN old.goes THEN old.prune_at END FROM old)"
    " SELECT old.goes FROM old WHERE EXISTS (SELECT 1 FROM del) OR EXISTS (SELECT 1 FROM upd)",
    1};

/* $4 sources, $5 status and $6 outcome where an attempt is open, $7 outcome, $8 actor, $9 reason. */
const idem_pg_statement_t idem_pg_settle_release = {
    "idem_settle_release", "tuiTttttt",
    "WITH old AS MATERIALIZED (SELECT r.status, r.attempts_open > 0 AS doubtful"
    " FROM idempotency_records r WHERE " RECORD " AND r.status = ANY ($4) AND " NOT_GIVEN_UP
    " AND " IDEM_SQL_DURABLE LOCK "),"
    " upd AS (UPDATE idempotency_records r SET owner = CASE WHEN old.doubtful THEN r.owner END,"
    " status = CASE WHEN old.doubtful THEN $5 ELSE r.status END,"
    " outcome = CASE WHEN old.doubtful THEN $6 ELSE $7 END,"
    " settled_at = CASE WHEN old.doubtful THEN now() END,"
    " sweep_at = CASE WHEN old.doubtful THEN " IDEM_SQL_SWEEP_UNKNOWN " ELSE r.sweep_at END FROM old WHERE " RECORD " RETURNING r.status),"
    " ev AS (" EVENT " SELECT $1, $2, $3, old.status, upd.status, $8, $9 FROM old, upd)"
    " SELECT upd.status FROM upd",
    1};

/* What a settlement met that it did not fit: status, generation, the same response ($3 digest, $4 code), given up,
 * without a response. */
const idem_pg_statement_t idem_pg_settle_why = {
    "idem_settle_why", "tubi",
    "SELECT r.status, r.owner_generation,"
    " r.response_digest IS NOT DISTINCT FROM $3 AND r.response_code IS NOT DISTINCT FROM $4,"
    " NOT " NOT_GIVEN_UP ", r.response_headers IS NULL AND r.response_body IS NULL"
    " FROM idempotency_records r WHERE " OPERATION,
    1};

/* ---------------------------------------------------------------- other transitions */

/*
 * Each answers with one row: done by this statement, done by an earlier sending of it, and for what was not done
 * whether the record still fits (then only a lock was in the way).
 */
#define STILL_OWNED RECORD " AND r.owner IS NOT DISTINCT FROM $4 AND r.status = ANY ($5)"
#define TAKEABLE STILL_OWNED " AND r.attempts_open = 0 AND " IDEM_SQL_LAPSED

/* $4 the owner that was seen, $5 sources, $6 status, $7 owner, $8 token, $9 lease, $10 max_run, $11 effect, $12 epoch,
 * $13 alias version, $14 actor, $15 quiet. */
const idem_pg_statement_t idem_pg_take_over = {
    "idem_take_over", "tuiuTtuuvvtiitv",
    "WITH old AS MATERIALIZED (SELECT r.status FROM idempotency_records r WHERE " TAKEABLE
    " AND " IDEM_SQL_UNFENCED("$12", "$13") " AND " IDEM_SQL_PRESENT("$7", "$9") " AND " IDEM_SQL_DURABLE LOCK "),"
    " upd AS (UPDATE idempotency_records r SET status = $6, outcome = NULL, owner_generation = r.owner_generation + 1,"
    " owner = $7, owner_token = $8, owned_at = now(), lease = $9, max_run = $10, effect_mode = $11, writer_epoch = $12, quiet = $15"
    " FROM old WHERE " RECORD " RETURNING true),"
    " ev AS (" EVENT " SELECT $1, $2, $3 + 1, old.status, $6, $14, 'taken over' FROM old, upd)"
    " SELECT EXISTS (SELECT 1 FROM upd),"
    " EXISTS (SELECT 1 FROM idempotency_records r WHERE " OPERATION " AND r.owner_generation = $3 + 1 AND r.owner_token = $8 AND r.settled_at IS NULL),"
    " EXISTS (SELECT 1 FROM idempotency_records r WHERE " TAKEABLE "),"
    " " IDEM_SQL_UNFENCED("$12", "$13") ", " IDEM_SQL_PRESENT("$7", "$9"),
    1};

#define REUSABLE                                                                                                       \
    RECORD " AND r.status = ANY ($4) AND r.reuse_allowed AND r.expires_at <= now() AND r.tombstone_until <= now()"

/* $4 sources, $5 status, $6 owner, $7 token, $8 lease, $9 max_run, $10 effect, $11 epoch, $12 alias version, $13 actor,
 * $14 new operation, $15 contract, $16 fingerprint, $17 recipe, $18 parts, $19 retention, $20 tombstone, $21 reuse,
 * $22 body limit, $23 quiet. The events of the new operation begin with its reserve, so the old one gets this event. */
const idem_pg_statement_t idem_pg_reuse = {
    "idem_reuse", "tuiTtuuvvtiitutbbbvvolv",
    "WITH old AS MATERIALIZED (SELECT r.status, " IDEM_SQL_PRUNE_AT " AS prune_at FROM idempotency_records r WHERE " REUSABLE
    " AND " IDEM_SQL_UNFENCED("$11", "$12") " AND " IDEM_SQL_PRESENT("$6", "$8") " AND " IDEM_SQL_DURABLE LOCK "),"
    " upd AS (UPDATE idempotency_records r SET operation_id = $14, contract = $15, fingerprint = $16, recipe = $17,"
    " fingerprint_parts = $18, owner_generation = r.owner_generation + 1, owner = $6, owner_token = $7, owned_at = now(),"
    " lease = $8, max_run = $9, writer_epoch = $11, effect_mode = $10, retention = $19, tombstone = $20,"
    " reuse_allowed = $21, body_limit = $22, quiet = $23, attempts = 0, attempts_open = 0, status = $5, outcome = NULL,"
    " response_code = NULL, response_headers = NULL, response_body = NULL, response_digest = NULL, created_at = now(),"
    " settled_at = NULL, expires_at = NULL, tombstone_until = NULL, sweep_at = " IDEM_SQL_SWEEP_AT("$19", "$8")
    " FROM old WHERE " RECORD " RETURNING true),"
    " ev AS (" LAST_EVENT " SELECT $1, $2, $3 + 1, old.status, $5, $13, 'key used again by operation ' || $14::text,"
    " old.prune_at FROM old, upd)"
    " SELECT EXISTS (SELECT 1 FROM upd),"
    " EXISTS (SELECT 1 FROM idempotency_records r WHERE r.operation_id = $14 AND r.tenant_id = $1 COLLATE \"POSIX\""
    " AND r.owner_generation = $3 + 1 AND r.owner_token = $7 AND r.settled_at IS NULL),"
    " EXISTS (SELECT 1 FROM idempotency_records r WHERE " REUSABLE "),"
    " " IDEM_SQL_UNFENCED("$11", "$12") ", " IDEM_SQL_PRESENT("$6", "$8"),
    1};

/* $4 owner, $5 sources, $6 status, $7 only prove that the record is ours, $8 actor. */
const idem_pg_statement_t idem_pg_dispatch = {
    "idem_dispatch", "tuiuTtot",
    "WITH old AS MATERIALIZED (SELECT r.status FROM idempotency_records r WHERE " STILL_OWNED
    " AND " IDEM_SQL_DURABLE LOCK "),"
    " upd AS (UPDATE idempotency_records r SET status = CASE WHEN $7 THEN r.status ELSE $6 END"
    " FROM old WHERE " RECORD " RETURNING r.status),"
    " ev AS (" EVENT " SELECT $1, $2, $3, old.status, upd.status, $8, 'dispatched' FROM old, upd"
    " WHERE old.status <> upd.status)"
    " SELECT EXISTS (SELECT 1 FROM upd), false, EXISTS (SELECT 1 FROM idempotency_records r WHERE " STILL_OWNED ")",
    1};

/* $4 the owner that was seen, $5 sources, $6 status, $7 outcome, $8 actor, $9 reason. */
const idem_pg_statement_t idem_pg_mark_unknown = {
    "idem_mark_unknown", "tuiuTtttt",
    "WITH old AS MATERIALIZED (SELECT r.status FROM idempotency_records r WHERE " STILL_OWNED
    " AND " IDEM_SQL_LAPSED " AND " IDEM_SQL_DURABLE LOCK "),"
    " upd AS (UPDATE idempotency_records r SET status = $6, outcome = $7, settled_at = now(),"
    " sweep_at = " IDEM_SQL_SWEEP_UNKNOWN " FROM old WHERE " RECORD " RETURNING true),"
    " ev AS (" EVENT " SELECT $1, $2, $3, old.status, $6, $8, $9 FROM old, upd)"
    " SELECT EXISTS (SELECT 1 FROM upd),"
    " EXISTS (SELECT 1 FROM idempotency_records r WHERE " RECORD " AND r.status = $6),"
    " EXISTS (SELECT 1 FROM idempotency_records r WHERE " STILL_OWNED " AND " IDEM_SQL_LAPSED ")",
    1};

/* $4 token, $5 states that may go, $6 name of no state, $7 actor, $8 sources, $9 status where it stays, in the effect
 * mode $10 or, if that is null, in all; else it keeps the one it has. What may not go loses its owner. */
#define OWN_TOKEN RECORD " AND r.owner_token = $4 AND r.status = ANY ($8)"

const idem_pg_statement_t idem_pg_withdraw = {
    "idem_withdraw", "tuiuTttTtt",
    "WITH old AS MATERIALIZED (SELECT r.status, r.status = ANY ($5) AND r.attempts = 0 AS goes,"
    " CASE WHEN $10 IS NULL OR r.effect_mode = $10 THEN $9 ELSE r.status END AS stays, " IDEM_SQL_PRUNE_AT " AS prune_at"
    " FROM idempotency_records r WHERE " OWN_TOKEN " AND " IDEM_SQL_DURABLE LOCK "),"
    " del AS (DELETE FROM idempotency_records r USING old WHERE " RECORD " AND old.goes RETURNING true),"
    " upd AS (UPDATE idempotency_records r SET owner = NULL, status = old.stays, outcome = NULL,"
    " settled_at = NULL, sweep_at = CASE WHEN r.settled_at IS NULL THEN r.sweep_at"
    " ELSE " IDEM_SQL_SWEEP_AT("r.retention", "r.lease") " END FROM old WHERE " RECORD " AND NOT old.goes RETURNING true),"
    " ev AS (" LAST_EVENT " SELECT $1, $2, $3, old.status, CASE WHEN old.goes THEN $6 ELSE old.stays END, $7,"
    " 'withdrawn: its reserve had no answer', CASE WHEN old.goes THEN old.prune_at END FROM old)"
    " SELECT EXISTS (SELECT 1 FROM del) OR EXISTS (SELECT 1 FROM upd), false,"
    " EXISTS (SELECT 1 FROM idempotency_records r WHERE " OWN_TOKEN ")",
    1};

/* $4 sources, $5 name of no state, $6 actor. */
#define CANCELLABLE RECORD " AND r.status = ANY ($4) AND r.attempts = 0"

const idem_pg_statement_t idem_pg_cancel = {
    "idem_cancel", "tuiTtt",
    "WITH old AS MATERIALIZED (SELECT r.status, " IDEM_SQL_PRUNE_AT " AS prune_at FROM idempotency_records r WHERE " CANCELLABLE " AND " IDEM_SQL_DURABLE LOCK
    "),"
    " del AS (DELETE FROM idempotency_records r USING old WHERE " RECORD " RETURNING true),"
    " ev AS (" LAST_EVENT " SELECT $1, $2, $3, old.status, $5, $6, 'cancelled', old.prune_at FROM old, del)"
    " SELECT EXISTS (SELECT 1 FROM del), false, EXISTS (SELECT 1 FROM idempotency_records r WHERE " CANCELLABLE ")",
    0};

/* ---------------------------------------------------------------- looking, and being seen */

const idem_pg_statement_t idem_pg_find = {
    "idem_find", "ttttttt",
    "SELECT " IDEM_SQL_RECORD_COLUMNS " FROM idempotency_records r WHERE " IDEM_SQL_SCOPE,
    1};

const idem_pg_statement_t idem_pg_find_operation = {
    "idem_find_operation", "ut",
    "SELECT " IDEM_SQL_RECORD_COLUMNS " FROM idempotency_records r"
    " WHERE r.operation_id = $1 AND ($2 IS NULL OR r.tenant_id = $2) ORDER BY r.tenant_id LIMIT 1",
    1};

/*
 * One range of the sweep's index holds them all; operation ids are in the order of time. They are found first, up to a
 * bound, and read then: a plan that went along the operations would read all records to find a handful.
 */
const idem_pg_statement_t idem_pg_unknown = {
    "idem_unknown", "i",
    "WITH doubt AS MATERIALIZED (SELECT r.operation_id, r.tenant_id FROM idempotency_records r"
    " WHERE r.sweep_at = " IDEM_SQL_SWEEP_UNKNOWN " LIMIT 5000),"
    " oldest AS MATERIALIZED (SELECT d.operation_id, d.tenant_id FROM doubt d ORDER BY d.operation_id LIMIT $1)"
    " SELECT " IDEM_SQL_RECORD_COLUMNS " FROM oldest d, idempotency_records r WHERE r.operation_id = d.operation_id"
    " AND r.tenant_id = d.tenant_id COLLATE \"POSIX\" ORDER BY r.operation_id",
    1};

/*
 * Of several children that come at once, the one that changes the row is told. $1 server, $2 route, $3 revision,
 * $4 sources, $5 at most so many records are counted: only where something has changed, as no index knows routes.
 */
const idem_pg_statement_t idem_pg_announce = {
    "idem_announce", "tttti",
    "WITH old AS MATERIALIZED (SELECT o.sources FROM idempotency_routes o WHERE o.server = $1 AND o.route = $2"
    " AND o.api_revision = $3),"
    " put AS (INSERT INTO idempotency_routes (server, route, api_revision, sources, changed_at)"
    " VALUES ($1, $2, $3, $4, now()) ON CONFLICT (server, route, api_revision) DO UPDATE SET sources = $4,"
    " changed_at = now() WHERE idempotency_routes.sources <> $4 RETURNING true)"
    " SELECT old.sources, (SELECT count(*)::integer FROM (SELECT 1 FROM idempotency_records r WHERE r.route = $2"
    " AND r.api_revision = $3 AND (r.expires_at IS NULL OR r.expires_at > now()) LIMIT $5) AS kept)"
    " FROM old, put WHERE old.sources <> $4",
    0};

const idem_pg_statement_t idem_pg_heartbeat = {
    "idem_heartbeat", "uti",
    "INSERT INTO idempotency_owners (owner, host, pid, started_at, seen_at)"
    " SELECT $1, $2, $3, now(), now() WHERE " IDEM_SQL_DURABLE
    " ON CONFLICT (owner) DO UPDATE SET seen_at = now()",
    1};

const idem_pg_statement_t idem_pg_farewell = {
    "idem_farewell", "u",
    "DELETE FROM idempotency_owners WHERE owner = $1 AND " IDEM_SQL_DURABLE,
    1};

const idem_pg_statement_t *const idem_pg_frequent[] = {
    &idem_pg_reserve, &idem_pg_settle, &idem_pg_reserve_many, &idem_pg_settle_many, &idem_pg_write_many,
    &idem_pg_find_many, &idem_pg_reserve_chain,
    &idem_pg_find, &idem_pg_settle_reject, &idem_pg_dispatch, &idem_pg_reserve_why,
    &idem_pg_heartbeat, NULL};

/*
 * pgsql_sql.h - the statements of the registry, each in one place. CONTRACT sections 4, 7 and 8.
 *
 * No statement names a state: states come as parameters from core/machine, and what is live, final or in doubt is
 * asked from the times (see the constraints of idempotency_records). In every text `r` is idempotency_records.
 */
#ifndef IDEM_PGSQL_SQL_H
#define IDEM_PGSQL_SQL_H

#include "core/fingerprint.h"
#include "store/pgsql_exec.h"

/*
 * The rule of lapsing, and its only place. A record's owner holds it until it was silent for the lease or has run for
 * max_run, by the store's clock; an owner whose row is gone, or nobody, has held it for ever too long.
 */
#define IDEM_SQL_HELD_UNTIL                                                                                            \
    "least(coalesce((SELECT o.seen_at + r.lease FROM idempotency_owners o WHERE o.owner = r.owner), '-infinity'),"     \
    " r.owned_at + r.max_run)"
#define IDEM_SQL_LAPSED "(r.settled_at IS NULL AND " IDEM_SQL_HELD_UNTIL " <= now())"

/* What a writer needs beside a free scope: $epoch and $alias version not passed, and its own heartbeat seen in time. A
 * row that names an owner whom nobody has seen would count as lapsed from its first moment. What is looked up depends on
 * the writer alone, so that a statement for many rows looks once. */
#define IDEM_SQL_UNFENCED(epoch, alias)                                                                                \
    "coalesce((SELECT c.alias_version FROM idempotency_control c WHERE c.the_only_row AND c.writer_epoch <= " epoch    \
    ") = " alias ", false)"
#define IDEM_SQL_PRESENT(owner, lease)                                                                                 \
    "coalesce((SELECT o.seen_at FROM idempotency_owners o WHERE o.owner = " owner ") + " lease " > now(), false)"

/*
 * True. Has the effect that this statement's commit is durable, whatever role, database or pooler have set; a
 * stronger setting stays. A condition that every writing statement has.
 */
#define IDEM_SQL_DURABLE                                                                                               \
    "CASE current_setting('synchronous_commit') WHEN 'on' THEN true WHEN 'remote_apply' THEN true"                     \
    " ELSE set_config('synchronous_commit', 'on', true) IS NOT NULL END"

/* When the sweep is to look at a record: $retention and $lease from now; and never by time, while it is UNKNOWN. */
#define IDEM_SQL_SWEEP_AT(retention, lease) "now() + " retention " + " lease
#define IDEM_SQL_SWEEP_UNKNOWN "'-infinity'"

/* When the story of an operation whose record goes now is to follow it: where no tombstone is left to take it along. */
#define IDEM_SQL_PRUNE_AT "now() + r.retention + r.tombstone"

/* What pgsql_record.c reads, in its order. */
#define IDEM_SQL_RECORD_COLUMNS                                                                                        \
    "r.scope_version, r.tenant_id, r.principal_id, r.route, r.api_revision, r.ns, r.idem_key,"                         \
    " r.operation_id, r.owner_generation, r.owner, r.owner_token, r.status, r.outcome, r.effect_mode,"                 \
    " r.fingerprint, r.recipe, r.fingerprint_parts,"                                                                   \
    " r.expires_at <= now() AS expired, r.tombstone_until <= now() AS tombstone_over, r.reuse_allowed,"                \
    " now() - r.owned_at AS age, r.settled_at IS NULL AS live,"                                                        \
    /* of no interest once a final has all it will have, which is the frequent case */                                 \
    " CASE WHEN r.expires_at IS NULL OR r.response_digest IS NULL"                                                     \
    " THEN greatest(" IDEM_SQL_HELD_UNTIL ", now()) - now() END AS lease_left,"                                        \
    " r.attempts, r.attempts_open > 0 AS attempt_open,"                                                                \
    " r.response_code, r.response_headers, r.response_body, r.response_digest,"                                        \
    " r.created_at, r.settled_at, r.expires_at, r.contract = '" IDEM_CONTRACT_NAME "' AS known_contract"

/* How a text names its parameters: of one row, or of each row q of a batch. */
#define IDEM_SQL_ONE(number)  "$" #number
#define IDEM_SQL_EACH(number) "q.p" #number

#define IDEM_SQL_SCOPE_OF(P)                                                                                           \
    "r.scope_version = " P(1) " AND r.tenant_id = " P(2) " AND r.principal_id = " P(3) " AND r.route = " P(4)          \
    " AND r.api_revision = " P(5) " AND r.ns = " P(6) " AND r.idem_key = " P(7)
#define IDEM_SQL_SCOPE IDEM_SQL_SCOPE_OF(IDEM_SQL_ONE)

extern const idem_pg_statement_t idem_pg_settings;
extern const idem_pg_statement_t idem_pg_names; /* what is prepared on a connection */
extern const idem_pg_statement_t idem_pg_server;
extern const idem_pg_statement_t idem_pg_control;

extern const idem_pg_statement_t idem_pg_reserve;
extern const idem_pg_statement_t idem_pg_reserve_chain;
extern const idem_pg_statement_t idem_pg_reserve_many; /* parameters: arrays of those of idem_pg_reserve, but for $14 and $15 */
extern const idem_pg_statement_t idem_pg_find_many;    /* parameters: arrays of those of idem_pg_find */
extern const idem_pg_statement_t idem_pg_reserve_why;
extern const idem_pg_statement_t idem_pg_settle;
extern const idem_pg_statement_t idem_pg_settle_many; /* parameters: arrays of those of idem_pg_settle, but for $4 */
extern const idem_pg_statement_t idem_pg_write_many;  /* parameters: those of idem_pg_reserve_many, then of idem_pg_settle_many */
extern const idem_pg_statement_t idem_pg_settle_late;
extern const idem_pg_statement_t idem_pg_settle_reject;
extern const idem_pg_statement_t idem_pg_settle_release;
extern const idem_pg_statement_t idem_pg_settle_why;
extern const idem_pg_statement_t idem_pg_take_over;
extern const idem_pg_statement_t idem_pg_reuse;
extern const idem_pg_statement_t idem_pg_dispatch;
extern const idem_pg_statement_t idem_pg_mark_unknown;
extern const idem_pg_statement_t idem_pg_withdraw;
extern const idem_pg_statement_t idem_pg_cancel;
extern const idem_pg_statement_t idem_pg_find;
extern const idem_pg_statement_t idem_pg_find_chain;
extern const idem_pg_statement_t idem_pg_aliases;
extern const idem_pg_statement_t idem_pg_end_aliases;
extern const idem_pg_statement_t idem_pg_count;
extern const idem_pg_statement_t idem_pg_find_operation;
extern const idem_pg_statement_t idem_pg_unknown;
extern const idem_pg_statement_t idem_pg_announce;
extern const idem_pg_statement_t idem_pg_heartbeat;
extern const idem_pg_statement_t idem_pg_farewell;

/* The statements of every request; prepared on every connection. NULL-terminated. */
extern const idem_pg_statement_t *const idem_pg_frequent[];

#endif

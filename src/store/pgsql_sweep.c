#include "store/sweep.h"

#include <string.h>

#include <apr_strings.h>

#include "core/uuid.h"
#include "store/pgsql_call.h"

#define SLOW apr_time_from_msec(20)
#define FAST apr_time_from_msec(8)
#define SHARE 3                              /* of the requests, where the sweep has 1 */
#define SHORTEST_REST apr_time_from_msec(5)
#define LONGEST_REST apr_time_from_sec(1)
/* Operation ids carry the time of the host that made them, owners the store's. */
#define CLOCK_SKEW apr_time_from_sec(600)
#define FORGET_AFTER apr_time_from_sec(3600) /* an owner's row: until then an operator may want to know who it was */

#define EVENT "INSERT INTO idempotency_events (tenant_id, operation_id, generation, from_status, to_status, actor, reason)"

/* True for one worker at a time, until the end of its statement; a writer whose epoch has passed keeps out. */
#define ALONE(epoch)                                                                                                   \
    "alone AS MATERIALIZED (SELECT EXISTS (SELECT 1 FROM idempotency_control c WHERE c.the_only_row AND c.writer_epoch <= " epoch \
    ") AND pg_try_advisory_xact_lock(1768187245, 'idempotency_records'::regclass::oid::int) AND " IDEM_SQL_DURABLE " AS ours)"

/* A lapsed record that may have had an effect: $states of a lapse, $executing, $external. The rule of core/machine. */
#define DOUBTFUL(sources, executing, external)                                                                         \
    "(r.status = ANY (" sources ") AND (r.attempts_open > 0 OR r.status = " executing " AND r.effect_mode = " external "))"

/* Since when nobody has held it; an owner whose row is gone can have held it for its lease at least. */
#define LAPSED_SINCE                                                                                                   \
    "greatest(r.owned_at + r.lease, CASE WHEN " IDEM_SQL_HELD_UNTIL " > '-infinity' THEN " IDEM_SQL_HELD_UNTIL " END)"

/*
 * $1 epoch, $2 most, $3 tombstone, $4 final states, $5 states that may lapse, $6 executing, $7 external, $8 reserved,
 * $9 unknown, $10 its outcome, $11 outcome of what never began, $12 actor.
 *
 * What becomes of a row: gone, buried (expired, or never begun), doubtful, or it is looked at later. And of a story whose
 * record is gone long since: it follows.
 */
static const idem_pg_statement_t sweep_statement = {
    "idem_sweep", "iitTTttttttt",
    "WITH " ALONE("$1") ", due AS MATERIALIZED (SELECT r.tenant_id, r.operation_id, r.owner_generation, r.status,"
    " r.settled_at IS NULL AS live, CASE"
    "  WHEN r.reuse_allowed AND r.tombstone_until <= now() THEN 'gone'"
    "  WHEN r.status = $3 THEN 'later'"
    "  WHEN r.status = ANY ($4) THEN CASE WHEN r.expires_at <= now() THEN 'buried' ELSE 'later' END"
    "  WHEN NOT " IDEM_SQL_LAPSED " THEN 'later'"
    "  WHEN " DOUBTFUL("$5", "$6", "$7") " THEN 'doubtful'"
    "  WHEN r.status <> $8 OR " LAPSED_SINCE " + r.retention > now() THEN 'later'"
    "  WHEN r.owner_generation = 1 AND r.attempts = 0 THEN 'gone' ELSE 'buried' END AS fate,"
    " CASE WHEN r.status = $3 THEN CASE WHEN r.reuse_allowed THEN r.tombstone_until ELSE 'infinity' END"
    "  WHEN r.status = ANY ($4) THEN r.expires_at"
    "  WHEN r.settled_at IS NOT NULL THEN " IDEM_SQL_SWEEP_UNKNOWN
    "  WHEN r.status = $8 AND " IDEM_SQL_LAPSED " THEN " LAPSED_SINCE " + r.retention"
    "  WHEN " IDEM_SQL_LAPSED " THEN now() + r.retention + r.lease"
    "  ELSE now() + r.lease END AS later"
    " FROM idempotency_records r WHERE (SELECT ours FROM alone) AND r.sweep_at > " IDEM_SQL_SWEEP_UNKNOWN
    " AND r.sweep_at <= now() ORDER BY r.sweep_at LIMIT $2 FOR UPDATE OF r SKIP LOCKED),"
    " upd AS (UPDATE idempotency_records r SET"
    "  status = CASE due.fate WHEN 'buried' THEN $3 WHEN 'doubtful' THEN $9 ELSE r.status END,"
    "  outcome = CASE WHEN due.fate = 'doubtful' THEN $10 WHEN due.fate = 'buried' AND due.live THEN $11 ELSE r.outcome END,"
    "  owner = CASE WHEN due.fate = 'buried' THEN NULL ELSE r.owner END,"
    "  response_headers = CASE WHEN due.fate = 'buried' THEN NULL ELSE r.response_headers END,"
    "  response_body = CASE WHEN due.fate = 'buried' THEN NULL ELSE r.response_body END,"
    "  settled_at = CASE WHEN due.live AND due.fate <> 'later' THEN now() ELSE r.settled_at END,"
    "  expires_at = CASE WHEN due.live AND due.fate = 'buried' THEN now() ELSE r.expires_at END,"
    "  tombstone_until = CASE WHEN due.live AND due.fate = 'buried' THEN"
    "   CASE WHEN r.reuse_allowed THEN now() + r.tombstone ELSE 'infinity' END ELSE r.tombstone_until END,"
    "  sweep_at = CASE due.fate WHEN 'doubtful' THEN " IDEM_SQL_SWEEP_UNKNOWN
    "   WHEN 'buried' THEN CASE WHEN NOT r.reuse_allowed THEN 'infinity' WHEN due.live THEN now() + r.tombstone"
    "    ELSE r.tombstone_until END ELSE due.later END"
    "  FROM due WHERE r.operation_id = due.operation_id AND r.tenant_id = due.tenant_id COLLATE \"POSIX\""
    "  AND due.fate <> 'gone' RETURNING due.fate),"
    " del AS (DELETE FROM idempotency_records r USING due WHERE r.operation_id = due.operation_id"
    "  AND r.tenant_id = due.tenant_id COLLATE \"POSIX\" AND due.fate = 'gone' RETURNING true),"
    " eff AS (DELETE FROM idempotency_effects e USING due WHERE e.operation_id = due.operation_id"
    "  AND e.tenant_id = due.tenant_id AND due.fate = 'gone'),"
    " old AS (DELETE FROM idempotency_events e USING due WHERE e.operation_id = due.operation_id"
    "  AND e.tenant_id = due.tenant_id AND due.fate = 'gone'),"
    " told AS MATERIALIZED (SELECT e.tenant_id, e.operation_id FROM idempotency_events e WHERE (SELECT ours FROM alone)"
    "  AND e.prune_at <= now() ORDER BY e.prune_at LIMIT $2),"
    " past AS (DELETE FROM idempotency_events e USING told WHERE e.operation_id = told.operation_id"
    "  AND e.tenant_id = told.tenant_id),"
    " pef AS (DELETE FROM idempotency_effects e USING told WHERE e.operation_id = told.operation_id"
    "  AND e.tenant_id = told.tenant_id),"
    " ev AS (" EVENT " SELECT due.tenant_id, due.operation_id, due.owner_generation, due.status,"
    "  CASE due.fate WHEN 'buried' THEN $3 ELSE $9 END, $12, CASE WHEN due.fate = 'doubtful' THEN 'owner lapsed'"
    "  WHEN due.live THEN 'nobody came back for it' ELSE 'retention is over' END FROM due"
    "  WHERE due.fate IN ('buried', 'doubtful'))"
    " SELECT (SELECT ours FROM alone), (SELECT count(*)::int FROM due) + (SELECT count(*)::int FROM told),"
    " (SELECT count(*)::int FROM upd WHERE fate = 'buried'), (SELECT count(*)::int FROM del),"
    " (SELECT count(*)::int FROM upd WHERE fate = 'doubtful')",
    1};

/* $1 silence, $2 owners that are done with. The one that died first, and when, in ms. */
static const idem_pg_statement_t silent_statement = {
    "idem_silent", "vT",
    "SELECT o.owner::text, (extract(epoch FROM o.seen_at) * 1000)::bigint::text FROM idempotency_owners o"
    " WHERE o.seen_at < now() - $1 AND o.owner::text <> ALL ($2) ORDER BY o.seen_at LIMIT 1",
    1};

/* $1 epoch, $2 most, $3 owner, $4 lowest operation, $5 before this one, $6 states that may lapse, $7 executing,
 * $8 external, $9 unknown, $10 its outcome, $11 actor. The newest first. */
static const idem_pg_statement_t recover_statement = {
    "idem_recover", "iiuuuTttttt",
    "WITH " ALONE("$1") ", span AS MATERIALIZED (SELECT r.tenant_id, r.operation_id, r.settled_at IS NULL AND r.owner = $3 AS his,"
    " r.settled_at IS NULL AND r.owner = $3 AND " IDEM_SQL_LAPSED " AS lapsed FROM idempotency_records r"
    " WHERE (SELECT ours FROM alone) AND r.operation_id >= $4 AND r.operation_id < $5 ORDER BY r.operation_id DESC LIMIT $2),"
    " old AS MATERIALIZED (SELECT r.tenant_id, r.operation_id, r.owner_generation, r.status FROM span, idempotency_records r"
    " WHERE span.lapsed AND r.operation_id = span.operation_id AND r.tenant_id = span.tenant_id COLLATE \"POSIX\""
    " AND r.owner = $3 AND " IDEM_SQL_LAPSED " AND " DOUBTFUL("$6", "$7", "$8") " FOR UPDATE OF r SKIP LOCKED),"
    " upd AS (UPDATE idempotency_records r SET status = $9, outcome = $10, settled_at = now(),"
    " sweep_at = " IDEM_SQL_SWEEP_UNKNOWN " FROM old WHERE r.operation_id = old.operation_id"
    " AND r.tenant_id = old.tenant_id COLLATE \"POSIX\" RETURNING true),"
    " ev AS (" EVENT " SELECT old.tenant_id, old.operation_id, old.owner_generation, old.status, $9, $11,"
    " 'its owner is gone' FROM old, (SELECT count(*) FROM upd) AS done)"
    " SELECT (SELECT ours FROM alone), (SELECT count(*)::int FROM span), (SELECT count(*)::int FROM upd),"
    " (SELECT count(*)::int FROM span WHERE his AND NOT lapsed), (SELECT operation_id FROM span ORDER BY operation_id LIMIT 1)",
    1};

/* $1 owner, $2 silence. */
static const idem_pg_statement_t forget_statement = {
    "idem_forget", "uv",
    "DELETE FROM idempotency_owners o WHERE o.owner = $1 AND o.seen_at < now() - $2 AND " IDEM_SQL_DURABLE,
    1};

int idem_sweep_next(int most, apr_interval_time_t took)
{
    int next = took > SLOW ? most / 2 : took < FAST ? most * 2 : most;

    return next < 10 ? 10 : next > IDEM_SWEEP_MOST ? IDEM_SWEEP_MOST : next;
}

apr_interval_time_t idem_sweep_rest(apr_interval_time_t took)
{
    apr_interval_time_t rest = SHARE * took;

    return rest < SHORTEST_REST ? SHORTEST_REST : rest > LONGEST_REST ? LONGEST_REST : rest;
}

/* $states that may lapse, executing, external; and what they become: unknown, outcome. */
static void add_lapse(idem_pg_params_t *params)
{
    idem_pg_add_texts(params, idem_machine_sources(IDEM_EVENT_LAPSE));
    idem_pg_add_text(params, idem_state_name(IDEM_STATE_EXECUTING));
    idem_pg_add_text(params, idem_effect_name(IDEM_EFFECT_EXTERNAL));
}

static void add_unknown(idem_pg_params_t *params)
{
    idem_pg_add_text(params, idem_state_name(idem_machine_next(IDEM_STATE_EXECUTING, IDEM_EVENT_LAPSE)));
    idem_pg_add_text(params, idem_outcome_name(IDEM_OUTCOME_UNKNOWN));
}

/* One statement, one connection. */
idem_store_result_e idem_pgsql_sweep(idem_store_t *store, idem_sweep_t *sweep, apr_time_t deadline, apr_pool_t *p)
{
    const char *finals[3] = {idem_state_name(IDEM_STATE_SUCCEEDED), idem_state_name(IDEM_STATE_FAILED_FINAL), NULL};
    idem_pg_params_t params;
    PGresult *rows;
    idem_store_result_e result;

    idem_pg_params_begin(&params, p);
    idem_pg_add_int(&params, store->writer_epoch);
    idem_pg_add_int(&params, sweep->most);
    idem_pg_add_text(&params, idem_state_name(idem_machine_next(IDEM_STATE_SUCCEEDED, IDEM_EVENT_EXPIRE)));
    idem_pg_add_texts(&params, finals);
    add_lapse(&params);
    idem_pg_add_text(&params, idem_state_name(IDEM_STATE_RESERVED));
    add_unknown(&params);
    idem_pg_add_text(&params, idem_outcome_name(IDEM_OUTCOME_REJECTED));
    idem_pg_add_text(&params, sweep->actor);
    result = idem_pg_call_once(store, &sweep_statement, &params, &rows, deadline, p);
    if (result == IDEM_STORE_OK) {
        sweep->busy = !idem_pg_get_bool(rows, 0, 0);
        sweep->looked = idem_pg_get_int(rows, 0, 1);
        sweep->expired = idem_pg_get_int(rows, 0, 2);
        sweep->removed = idem_pg_get_int(rows, 0, 3);
        sweep->doubtful = idem_pg_get_int(rows, 0, 4);
        PQclear(rows);
    }
    return result;
}

/* A bound of operation ids by time: all that are made at that moment are above it. */
static void bound(apr_time_t when, unsigned char uuid[IDEM_UUID_LEN])
{
    apr_int64_t ms = when > 0 ? when / 1000 : 0;
    int i;

    memset(uuid, 0, IDEM_UUID_LEN);
    for (i = 5; i >= 0; i--) {
        uuid[i] = (unsigned char)(ms & 0xff);
        ms >>= 8;
    }
}

/* Finds the next owner that died. NOT_FOUND: there is none. */
static idem_store_result_e find_silent(idem_store_t *store, idem_recovery_t *recovery, apr_time_t deadline, apr_pool_t *p)
{
    const char **done = apr_pcalloc(p, (recovery->done->nelts + 1) * sizeof(*done));
    idem_pg_params_t params;
    PGresult *rows;
    idem_store_result_e result;
    int i;

    for (i = 0; i < recovery->done->nelts; i++) {
        done[i] = APR_ARRAY_IDX(recovery->done, i, const char *);
    }
    idem_pg_params_begin(&params, p);
    idem_pg_add_interval(&params, recovery->silence);
    idem_pg_add_texts(&params, done);
    result = idem_pg_call_once(store, &silent_statement, &params, &rows, deadline, p);
    if (result != IDEM_STORE_OK) {
        return result;
    }
    if (!PQntuples(rows)) {
        PQclear(rows);
        return IDEM_STORE_NOT_FOUND;
    }
    {
        apr_time_t seen = apr_atoi64(idem_pg_get_text(rows, 0, 1, p)) * 1000;

        apr_cpystrn(recovery->owner, idem_pg_get_text(rows, 0, 0, p), sizeof(recovery->owner));
        bound(seen - IDEM_SWEEP_SPAN - CLOCK_SKEW, recovery->lowest);
        bound(seen + CLOCK_SKEW, recovery->before);
        recovery->waiting = 0;
    }
    PQclear(rows);
    return IDEM_STORE_OK;
}

static idem_store_result_e forget(idem_store_t *store, const unsigned char *owner, apr_time_t deadline, apr_pool_t *p)
{
    idem_pg_params_t params;

    idem_pg_params_begin(&params, p);
    idem_pg_add_uuid(&params, owner);
    idem_pg_add_interval(&params, FORGET_AFTER);
    return idem_pg_call_once(store, &forget_statement, &params, NULL, deadline, p);
}

idem_store_result_e idem_pgsql_recover(idem_store_t *store, idem_recovery_t *recovery, apr_time_t deadline, apr_pool_t *p)
{
    unsigned char owner[IDEM_UUID_LEN];
    idem_pg_params_t params;
    PGresult *rows;
    idem_store_result_e result;

    recovery->busy = recovery->looked = recovery->doubtful = recovery->finished = 0;
    result = *recovery->owner ? IDEM_STORE_OK : find_silent(store, recovery, deadline, p);
    if (result != IDEM_STORE_OK || idem_uuid_parse(recovery->owner, owner) != APR_SUCCESS) {
        return result;
    }
    idem_pg_params_begin(&params, p);
    idem_pg_add_int(&params, store->writer_epoch);
    idem_pg_add_int(&params, recovery->most);
    idem_pg_add_uuid(&params, owner);
    idem_pg_add_uuid(&params, recovery->lowest);
    idem_pg_add_uuid(&params, recovery->before);
    add_lapse(&params);
    add_unknown(&params);
    idem_pg_add_text(&params, recovery->actor);
    result = idem_pg_call_once(store, &recover_statement, &params, &rows, deadline, p);
    if (result != IDEM_STORE_OK) {
        return result;
    }
    recovery->busy = !idem_pg_get_bool(rows, 0, 0);
    recovery->looked = idem_pg_get_int(rows, 0, 1);
    recovery->doubtful = idem_pg_get_int(rows, 0, 2);
    recovery->waiting += idem_pg_get_int(rows, 0, 3);
    recovery->finished = !recovery->busy && recovery->looked < recovery->most;
    if (!recovery->busy && recovery->looked) {
        idem_pg_get_fixed(rows, 0, 4, recovery->before, IDEM_UUID_LEN);
    }
    PQclear(rows);
    return recovery->finished && !recovery->waiting ? forget(store, owner, deadline, p) : IDEM_STORE_OK;
}

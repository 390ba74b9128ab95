#include "store/admin_verify.h"

#define FAULT(condition, words) " UNION ALL SELECT s.operation_id, '" words "' FROM span s WHERE " condition

const char idem_admin_verify[] =
    "WITH span AS MATERIALIZED (SELECT r.*, r.status = ANY ($3::text[]) AS final, r.status = ANY ($4::text[]) AS live,"
    " r.status = ANY ($5::text[]) AS unknown, r.status = ANY ($6::text[]) AS expired FROM idempotency_records r"
    " WHERE r.operation_id > $1::uuid ORDER BY r.operation_id LIMIT $2::bigint),"
    " faults (operation, fault) AS (SELECT s.operation_id, 'generation below 1' FROM span s WHERE s.owner_generation < 1"
    FAULT("s.final AND s.settled_at IS NULL", "final, and not settled")
    FAULT("(s.final OR s.expired) AND (s.expires_at IS NULL OR s.tombstone_until IS NULL)", "final, and will never expire")
    FAULT("s.live AND s.settled_at IS NOT NULL", "live, and settled")
    FAULT("(s.live OR s.unknown) AND s.expires_at IS NOT NULL", "not final, and will expire")
    FAULT("s.unknown AND s.settled_at IS NULL", "UNKNOWN, and no time since when")
    FAULT("s.unknown AND s.sweep_at <> '-infinity'", "UNKNOWN, and aging")
    FAULT("s.expired AND (s.response_body IS NOT NULL OR s.response_headers IS NOT NULL)", "expired, and the answer is still there")
    FAULT("s.response_body IS NOT NULL AND s.response_digest IS NULL", "a body without a digest")
    FAULT("s.response_body IS NOT NULL AND s.response_digest <> sha256(s.response_body)", "the digest does not fit the body")
    FAULT("s.attempts_open > s.attempts OR s.attempts_open < 0", "more open attempts than attempts")
    FAULT("octet_length(s.fingerprint) <> 32", "no fingerprint")
    " UNION ALL SELECT s.operation_id, 'more attempts than are counted' FROM span s WHERE s.attempts <"
    " (SELECT count(*) FROM idempotency_effects e WHERE e.operation_id = s.operation_id AND e.tenant_id = s.tenant_id)"
    " UNION ALL SELECT s.operation_id, 'an event of a transition that does not exist: ' || e.from_status || ' to ' || e.to_status"
    " FROM span s JOIN idempotency_events e ON e.operation_id = s.operation_id AND e.tenant_id = s.tenant_id"
    " WHERE e.from_status || '>' || e.to_status <> ALL ($7::text[])"
    " UNION ALL SELECT s.operation_id, 'an event of a generation to come' FROM span s JOIN idempotency_events e"
    " ON e.operation_id = s.operation_id AND e.tenant_id = s.tenant_id WHERE e.generation > s.owner_generation)"
    " SELECT (SELECT count(*) FROM span), (SELECT s.operation_id FROM span s ORDER BY s.operation_id DESC LIMIT 1),"
    " f.operation, f.fault FROM (SELECT) AS one LEFT JOIN faults f ON true";

const char idem_admin_verify_aliases[] =
    "SELECT r.operation_id, 'the same key is ' || n.operation_id || ' under the identity that this one has become'"
    " FROM idempotency_aliases a JOIN idempotency_records r ON r.tenant_id = a.old_tenant AND r.principal_id = a.old_principal"
    " JOIN idempotency_records n ON n.scope_version = r.scope_version AND n.tenant_id = a.new_tenant"
    " AND n.principal_id = a.new_principal AND n.route = r.route AND n.api_revision = r.api_revision AND n.ns = r.ns"
    " AND n.idem_key = r.idem_key WHERE a.until > now() ORDER BY 1";

const char idem_admin_verify_restored[] =
    "SELECT r.operation_id, 'was under way at the time of the backup' FROM idempotency_records r"
    " WHERE r.status = ANY ($2::text[]) AND r.created_at <= $1::timestamptz ORDER BY 1";

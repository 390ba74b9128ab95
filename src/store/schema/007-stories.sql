-- The story of an operation goes with its record. Of one whose record is gone before that (rejected, cancelled, withdrawn, or
-- its key used again) the last event says when: as long after it as a record with an answer would have been remembered.
ALTER TABLE idempotency_events ADD COLUMN prune_at timestamptz;
UPDATE idempotency_events SET prune_at = at + interval '31 days' WHERE to_status = 'NONE' OR reason LIKE 'key used again by operation %';
CREATE INDEX idempotency_events_prune ON idempotency_events (prune_at) WHERE prune_at IS NOT NULL;

CREATE OR REPLACE FUNCTION idempotency_event(r idempotency_records, to_status text, reason text) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
    INSERT INTO idempotency_events (tenant_id, operation_id, generation, from_status, to_status, actor, reason, prune_at)
    VALUES (r.tenant_id, r.operation_id, r.owner_generation, r.status, $2, 'backend:' || session_user, $3,
            CASE WHEN $2 = 'NONE' THEN pg_catalog.now() + r.retention + r.tombstone END)
$$;

-- What a backend calls inside its own transaction: CONTRACT sections 4, 6 and 7.
--
-- Every one locks the record of its operation first, so until the caller's transaction ends nobody takes it over: who
-- tries meets the lock and answers in-progress. Errors:
--
--   IDEM1   the generation is no longer the caller's: somebody has taken over; roll back
--   IDEM2   no such operation, or no such attempt
--   IDEM3   the record's state forbids it: it is settled already, or nobody knows and nobody may begin
--   IDEM4   larger than the record allows
--   IDEM5   an argument is wrong
--
-- SECURITY DEFINER, with the search_path of the migration. Functions are called by their full name and domains taken
-- as text, so that nothing which others may have made in that schema is a better fit.

-- The locked record of an operation that is still this generation's.
CREATE FUNCTION idempotency_lock(operation uuid, generation integer) RETURNS idempotency_records
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    r idempotency_records;
BEGIN
    SELECT * INTO r FROM idempotency_records x WHERE x.operation_id = $1 ORDER BY x.tenant_id LIMIT 1 FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'operation % is not known', $1 USING ERRCODE = 'IDEM2',
            HINT = 'It was rejected or removed, or its key was used again by another operation.';
    END IF;
    IF $2 IS DISTINCT FROM r.owner_generation THEN
        RAISE EXCEPTION 'generation % of operation % has passed, it is at %', $2, $1, r.owner_generation
            USING ERRCODE = 'IDEM1', HINT = 'Somebody else has taken over; roll back.';
    END IF;
    RETURN r;
END $$;

CREATE FUNCTION idempotency_event(r idempotency_records, to_status text, reason text) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
    INSERT INTO idempotency_events (tenant_id, operation_id, generation, from_status, to_status, actor, reason)
    VALUES (r.tenant_id, r.operation_id, r.owner_generation, r.status, $2, 'backend:' || session_user, $3)
$$;

-- {"Name": "value", "Name": ["value", "value"]} as core/snapshot lays fields out (version 1).
CREATE FUNCTION idempotency_snapshot_headers(headers jsonb) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
    fields bytea := '';
    fields_count integer := 0;
    name text;
    value text;
BEGIN
    IF pg_catalog.jsonb_typeof(headers) <> 'object' THEN
        RAISE EXCEPTION 'headers is not a JSON object' USING ERRCODE = 'IDEM5';
    END IF;
    FOR name, value IN
        SELECT h.key, v.item #>> '{}'
        FROM pg_catalog.jsonb_each(headers) AS h,
             pg_catalog.jsonb_array_elements(CASE pg_catalog.jsonb_typeof(h.value)
                 WHEN 'array' THEN h.value ELSE pg_catalog.jsonb_build_array(h.value) END) AS v (item)
    LOOP
        IF name !~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]+$' OR value IS NULL OR value ~ '[\u0001-\u0008\u000A-\u001F\u007F]' THEN
            RAISE EXCEPTION 'headers has a name or value that cannot be a field' USING ERRCODE = 'IDEM5';
        END IF;
        fields := fields || pg_catalog.int4send(pg_catalog.octet_length(name)) || pg_catalog.convert_to(name, 'UTF8')
                         || pg_catalog.int4send(pg_catalog.octet_length(value)) || pg_catalog.convert_to(value, 'UTF8');
        fields_count := fields_count + 1;
    END LOOP;
    IF fields_count > 256 OR pg_catalog.octet_length(fields) > 262000 THEN
        RAISE EXCEPTION 'headers has more than 256 fields or 262000 octets' USING ERRCODE = 'IDEM4';
    END IF;
    RETURN '\x01'::bytea || pg_catalog.int4send(0) || pg_catalog.int4send(fields_count) || fields;
END $$;

-- The key that goes to a provider: of the operation, as in IDEMPOTENCY_DOWNSTREAM_KEY (core/uuid), or of one effect of it.
CREATE FUNCTION idempotency_downstream_key(operation uuid, effect bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
    key bytea := pg_catalog.substring(pg_catalog.sha256('mod_idempotency downstream key'::bytea
                     || pg_catalog.uuid_send(operation) || effect), 1, 16);
BEGIN
    key := pg_catalog.set_byte(key, 6, 128 | (pg_catalog.get_byte(key, 6) & 15));
    key := pg_catalog.set_byte(key, 8, 128 | (pg_catalog.get_byte(key, 8) & 63));
    RETURN (pg_catalog.encode(key, 'hex')::uuid)::text;
END $$;

-- What became of the operation, in the transaction that has done it. Without code, headers and body the response that
-- the web server sees becomes the snapshot, if it fits the outcome.
CREATE FUNCTION idempotency_settle(operation uuid, generation integer, outcome text, code integer DEFAULT NULL,
                                   headers jsonb DEFAULT NULL, body bytea DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    r idempotency_records;
    said text := pg_catalog.lower($3);
    to_status text := CASE said WHEN 'succeeded' THEN 'SUCCEEDED' WHEN 'failed' THEN 'FAILED_FINAL'
                                WHEN 'unknown' THEN 'UNKNOWN' WHEN 'rejected' THEN 'RESERVED' END;
    final boolean := said IN ('succeeded', 'failed');
    head bytea;
BEGIN
    IF to_status IS NULL THEN
        RAISE EXCEPTION 'outcome is none of succeeded, failed, rejected, unknown' USING ERRCODE = 'IDEM5';
    END IF;
    IF $4 NOT BETWEEN 200 AND 599 OR ($4 IS NULL AND ($5 IS NOT NULL OR $6 IS NOT NULL)) THEN
        RAISE EXCEPTION 'code is not the status of a response, from 200 to 599' USING ERRCODE = 'IDEM5';
    END IF;
    IF $5 IS NOT NULL OR $6 IS NOT NULL THEN
        head := idempotency_snapshot_headers(coalesce($5, '{}'));
    END IF;

    r := idempotency_lock($1, $2);
    IF r.expires_at IS NOT NULL THEN
        RAISE EXCEPTION 'operation % is % already', $1, r.status USING ERRCODE = 'IDEM3';
    END IF;
    IF pg_catalog.octet_length($6) > r.body_limit THEN
        RAISE EXCEPTION 'body has % octets, this operation keeps %', pg_catalog.octet_length($6), r.body_limit
            USING ERRCODE = 'IDEM4';
    END IF;

    IF said = 'rejected' AND r.owner_generation = 1 AND r.settled_at IS NULL AND r.attempts = 0 THEN
        DELETE FROM idempotency_records x WHERE x.operation_id = r.operation_id AND x.tenant_id = r.tenant_id;
        PERFORM idempotency_event(r, 'NONE', 'rejected by the backend');
        RETURN;
    END IF;
    UPDATE idempotency_records x SET
        status = to_status, outcome = said,
        owner = CASE WHEN said <> 'rejected' THEN x.owner END,
        response_code = CASE WHEN said <> 'rejected' THEN $4 END,
        -- where it was UNKNOWN the web server has answered already: no response is on its way any more
        response_headers = CASE WHEN said <> 'rejected' THEN
            CASE WHEN final AND head IS NULL AND x.settled_at IS NOT NULL THEN idempotency_snapshot_headers('{}')
                 ELSE head END END,
        response_body = CASE WHEN said <> 'rejected' THEN $6 END,
        response_digest = CASE WHEN said <> 'rejected' THEN pg_catalog.sha256($6) END,
        settled_at = CASE WHEN said <> 'rejected' THEN pg_catalog.now() END,
        expires_at = CASE WHEN final THEN pg_catalog.now() + x.retention END,
        tombstone_until = CASE WHEN NOT final THEN NULL
                               WHEN x.reuse_allowed THEN pg_catalog.now() + x.retention + x.tombstone
                               ELSE 'infinity' END,
        sweep_at = CASE WHEN said = 'unknown' THEN '-infinity'
                        WHEN x.settled_at IS NULL THEN x.sweep_at
                        ELSE pg_catalog.now() + x.retention + x.lease END
    WHERE x.operation_id = r.operation_id AND x.tenant_id = r.tenant_id;
    IF r.status::text <> to_status AND (r.settled_at IS NOT NULL OR said = 'rejected') THEN
        PERFORM idempotency_event(r, to_status, said || ', says the backend');
    END IF;
END $$;

-- A message that is sent exactly if this transaction commits and this generation is the one that counts.
CREATE FUNCTION idempotency_outbox_put(operation uuid, generation integer, topic text, payload bytea) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    r idempotency_records;
    id bigint;
BEGIN
    IF $3 IS NULL OR pg_catalog.octet_length($3) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'topic is empty or longer than 255 octets' USING ERRCODE = 'IDEM5';
    END IF;
    IF $4 IS NULL THEN
        RAISE EXCEPTION 'payload is null' USING ERRCODE = 'IDEM5';
    END IF;
    IF pg_catalog.octet_length($4) > 16777216 THEN
        RAISE EXCEPTION 'payload has more than 16 MiB' USING ERRCODE = 'IDEM4';
    END IF;
    r := idempotency_lock($1, $2);
    IF r.expires_at IS NOT NULL THEN
        RAISE EXCEPTION 'operation % is % already', $1, r.status
            USING ERRCODE = 'IDEM3', HINT = 'Put messages before idempotency_settle.';
    END IF;
    INSERT INTO idempotency_outbox (tenant_id, operation_id, generation, topic, payload, created_at)
        VALUES (r.tenant_id, r.operation_id, r.owner_generation, $3, $4, pg_catalog.now()) RETURNING message_id INTO id;
    RETURN id;
END $$;

-- An effect somewhere else is about to be asked for: call, commit, send. The operation's first effect has the
-- operation's own downstream key, each further one a key of its own; a later generation gets what the earlier one had,
-- and with it the provider's handle and how the attempt ended, where that is known. One that succeeded is not begun
-- again. replayable: the provider deduplicates by that key, so an attempt that nobody ended may simply be made again.
CREATE FUNCTION idempotency_effect_begin(operation uuid, generation integer, effect text, provider text,
                                         replayable boolean DEFAULT false)
RETURNS TABLE (effect_id bigint, downstream_key text, handle text, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    r idempotency_records;
    e idempotency_effects;
    attempts_more integer := 0;
    open_before integer := 0;
    open_after integer;
BEGIN
    IF $3 IS NULL OR $4 IS NULL OR pg_catalog.octet_length($3) NOT BETWEEN 1 AND 255
       OR pg_catalog.octet_length($4) NOT BETWEEN 1 AND 255 OR $5 IS NULL THEN
        RAISE EXCEPTION 'effect or provider is empty or longer than 255 octets, or replayable is null'
            USING ERRCODE = 'IDEM5';
    END IF;
    r := idempotency_lock($1, $2);
    IF r.settled_at IS NOT NULL THEN
        RAISE EXCEPTION 'operation % is %, nothing may begin', $1, r.status USING ERRCODE = 'IDEM3';
    END IF;
    SELECT * INTO e FROM idempotency_effects x WHERE x.operation_id = r.operation_id AND x.tenant_id = r.tenant_id
        AND x.effect = $3 AND x.provider = $4;
    effect_id := e.effect_id;
    handle := e.handle;
    outcome := e.outcome;
    IF e.effect_id IS NULL THEN
        INSERT INTO idempotency_effects (tenant_id, operation_id, generation, effect, provider, downstream_key,
                                         replayable, begun_at)
            VALUES (r.tenant_id, r.operation_id, r.owner_generation, $3, $4, idempotency_downstream_key(r.operation_id,
                    CASE WHEN r.attempts = 0 THEN ''::bytea
                         ELSE pg_catalog.convert_to($3, 'UTF8') || '\x00'::bytea || pg_catalog.convert_to($4, 'UTF8') END),
                    $5, pg_catalog.now())
            RETURNING * INTO e;
        attempts_more := 1;
    ELSE
        open_before := CASE WHEN e.ended_at IS NULL AND NOT e.replayable THEN 1 ELSE 0 END;
        UPDATE idempotency_effects x SET generation = r.owner_generation, replayable = x.replayable AND $5,
                ended_at = CASE WHEN x.outcome::text = 'succeeded' THEN x.ended_at END,
                outcome = CASE WHEN x.outcome::text = 'succeeded' THEN x.outcome END
            WHERE x.effect_id = e.effect_id RETURNING * INTO e;
    END IF;
    open_after := CASE WHEN e.ended_at IS NULL AND NOT e.replayable THEN 1 ELSE 0 END;
    UPDATE idempotency_records x SET status = 'EXECUTING', attempts = x.attempts + attempts_more,
            attempts_open = x.attempts_open + open_after - open_before
        WHERE x.operation_id = r.operation_id AND x.tenant_id = r.tenant_id;
    IF r.status::text <> 'EXECUTING' THEN
        PERFORM idempotency_event(r, 'EXECUTING', 'an effect begins');
    END IF;
    effect_id := e.effect_id;
    downstream_key := e.downstream_key;
    RETURN NEXT;
END $$;

-- The locked record of an attempt that is still its generation's.
CREATE FUNCTION idempotency_lock_effect(effect_id bigint) RETURNS idempotency_records
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    e idempotency_effects;
BEGIN
    SELECT * INTO e FROM idempotency_effects x WHERE x.effect_id = $1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt % is not known', $1 USING ERRCODE = 'IDEM2';
    END IF;
    RETURN idempotency_lock(e.operation_id, e.generation);
END $$;

-- The provider's own name for what was asked, as soon as it is known.
CREATE FUNCTION idempotency_effect_bind(effect_id bigint, handle text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF $2 IS NULL OR pg_catalog.octet_length($2) NOT BETWEEN 1 AND 4096 THEN
        RAISE EXCEPTION 'handle is empty or longer than 4096 octets' USING ERRCODE = 'IDEM5';
    END IF;
    PERFORM idempotency_lock_effect($1);
    UPDATE idempotency_effects x SET handle = $2, bound_at = pg_catalog.now() WHERE x.effect_id = $1;
END $$;

-- How the attempt ended. One whose outcome is unknown has not ended: it goes on to make the record's lapse a doubt.
CREATE FUNCTION idempotency_effect_end(effect_id bigint, outcome text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    r idempotency_records;
    e idempotency_effects;
    said text := pg_catalog.lower($2);
    ends boolean := said <> 'unknown';
BEGIN
    IF said IS NULL OR said NOT IN ('succeeded', 'failed', 'rejected', 'unknown') THEN
        RAISE EXCEPTION 'outcome is none of succeeded, failed, rejected, unknown' USING ERRCODE = 'IDEM5';
    END IF;
    r := idempotency_lock_effect($1);
    SELECT * INTO e FROM idempotency_effects x WHERE x.effect_id = $1;
    IF e.ended_at IS NOT NULL AND e.outcome::text <> said THEN
        RAISE EXCEPTION 'attempt % has ended as % already', $1, e.outcome USING ERRCODE = 'IDEM3';
    END IF;
    IF e.ended_at IS NOT NULL THEN
        RETURN;
    END IF;
    UPDATE idempotency_effects x SET outcome = said, ended_at = CASE WHEN ends THEN pg_catalog.now() END
        WHERE x.effect_id = $1;
    IF ends AND NOT e.replayable THEN
        UPDATE idempotency_records x SET attempts_open = x.attempts_open - 1
            WHERE x.operation_id = r.operation_id AND x.tenant_id = r.tenant_id;
    END IF;
END $$;

-- Nobody may call anything until it is granted: functions are everybody's by default.
REVOKE ALL ON FUNCTION
    idempotency_lock(uuid, integer), idempotency_event(idempotency_records, text, text),
    idempotency_snapshot_headers(jsonb), idempotency_downstream_key(uuid, bytea), idempotency_lock_effect(bigint),
    idempotency_settle(uuid, integer, text, integer, jsonb, bytea), idempotency_outbox_put(uuid, integer, text, bytea),
    idempotency_effect_begin(uuid, integer, text, text, boolean), idempotency_effect_bind(bigint, text),
    idempotency_effect_end(bigint, text)
FROM PUBLIC;

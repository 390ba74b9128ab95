-- The end of an alias: its date has passed, and nothing is remembered under the old identity, or under one that became it
-- before, that a retry could still look for. Called by the web servers now and then; nobody waits for it longer than a
-- fifth of a second.

CREATE INDEX idempotency_aliases_until ON idempotency_aliases (until);

-- Is a record that is not final, or whose tombstone runs, under this identity or one before it?
CREATE FUNCTION idempotency_remembers(tenant text, principal text) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    WITH RECURSIVE who(tenant, principal) AS (
            SELECT $1 COLLATE "C", $2 COLLATE "C"
        UNION
            SELECT a.old_tenant, a.old_principal FROM who JOIN idempotency_aliases a
            ON a.new_tenant = who.tenant AND a.new_principal = who.principal),
        written(version) AS (
            SELECT min(r.scope_version) FROM idempotency_records r
        UNION ALL
            SELECT (SELECT min(r.scope_version) FROM idempotency_records r WHERE r.scope_version > w.version)
            FROM written w WHERE w.version IS NOT NULL)
    SELECT EXISTS (SELECT 1 FROM written w CROSS JOIN who CROSS JOIN LATERAL (SELECT 1 FROM idempotency_records r
        WHERE r.scope_version = w.version AND r.tenant_id = who.tenant AND r.principal_id = who.principal
        AND (r.tombstone_until IS NULL OR r.tombstone_until > pg_catalog.now()) LIMIT 1) AS found)
$$;

-- Ends up to `most` aliases and says how many it has. A reserve in flight that still knows an alias is waited for: the
-- lock comes behind it, and the second look sees what it has written; those that come later find another version.
CREATE FUNCTION idempotency_end_aliases(most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '200ms' AS $$
DECLARE
    a record;
    ended integer := 0;
    locked boolean := false;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM idempotency_aliases x WHERE x.until <= pg_catalog.now()) THEN
        RETURN 0;
    END IF;
    LOCK TABLE idempotency_aliases IN SHARE ROW EXCLUSIVE MODE NOWAIT;
    -- in no order, so that those that have to stay do not keep others from their turn
    FOR a IN SELECT x.old_tenant, x.old_principal FROM idempotency_aliases x WHERE x.until <= pg_catalog.now()
             ORDER BY pg_catalog.random() LIMIT $1 LOOP
        CONTINUE WHEN idempotency_remembers(a.old_tenant, a.old_principal);
        IF NOT locked THEN
            LOCK TABLE idempotency_records IN SHARE ROW EXCLUSIVE MODE;
            locked := true;
        END IF;
        CONTINUE WHEN idempotency_remembers(a.old_tenant, a.old_principal);
        DELETE FROM idempotency_aliases x WHERE x.old_tenant = a.old_tenant AND x.old_principal = a.old_principal;
        ended := ended + 1;
    END LOOP;
    IF ended > 0 THEN
        UPDATE idempotency_control SET alias_version = alias_version + 1;
    END IF;
    RETURN ended;
EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
END
$$;

REVOKE ALL ON FUNCTION idempotency_remembers(text, text), idempotency_end_aliases(integer) FROM PUBLIC;

-- The registry: CONTRACT section 7. Names are unqualified; the tool that applies this sets search_path.
-- Roles and grants are not here: the tool sets them anew after every step, or not at all (--no-roles).

-- Names that core/machine knows. Domains and not CHECK constraints: a server takes every CHECK of a table apart again
-- for every statement, and two dozen of them made reserve and settlement nearly twice as dear. What cannot be said for
-- nothing is therefore kept by the statements: the row is live while settled_at is null, UNKNOWN where it is settled
-- without expires_at, and final or a tombstone where expires_at and tombstone_until are set.
CREATE DOMAIN idempotency_status AS text COLLATE "C" CHECK
    (VALUE IN ('RESERVED', 'EXECUTING', 'SUCCEEDED', 'FAILED_FINAL', 'UNKNOWN', 'EXPIRED'));
CREATE DOMAIN idempotency_outcome AS text COLLATE "C" CHECK
    (VALUE IN ('succeeded', 'failed', 'rejected', 'unknown', 'released'));
CREATE DOMAIN idempotency_effect_mode AS text COLLATE "C" CHECK
    (VALUE IN ('external', 'transactional', 'repeatable'));

-- One row an accepted operation; the scope is its identity, column by column.
--
-- Settlement is an UPDATE of a row that was inserted a moment ago. It touches no indexed column and finds room in the
-- row's page (fillfactor), so it is a heap-only update: no index grows by it, and vacuum has little to do. That is why
-- no index, not even by its predicate, knows status, settled_at, expires_at or tombstone_until. In their place:
--
--   sweep_at      the time at which the sweep is to look at the row (next): set at reserve, moved by the sweep;
--                 '-infinity' while the row is UNKNOWN, so that all of these are found at once; no settlement from
--                 RESERVED or EXECUTING to a final state moves it
--   operation_id  a UUIDv7, its first 48 bits are milliseconds: what began in a span of time is a range of the index
CREATE TABLE idempotency_records (
    scope_version     text COLLATE "C" NOT NULL,
    tenant_id         text COLLATE "C" NOT NULL,
    principal_id      text COLLATE "C" NOT NULL,
    route             text COLLATE "C" NOT NULL,
    api_revision      text COLLATE "C" NOT NULL,
    ns                text COLLATE "C" NOT NULL,
    idem_key          text COLLATE "C" NOT NULL,

    contract          text COLLATE "C" NOT NULL,
    fingerprint       bytea NOT NULL,
    recipe            bytea NOT NULL,
    fingerprint_parts bytea NOT NULL,

    operation_id      uuid NOT NULL,
    owner_generation  integer NOT NULL,
    owner             uuid,                 -- null: nobody, the lease is over
    owner_token       uuid NOT NULL,        -- fresh for every reserve: a writer recognises its row by it
    owned_at          timestamptz NOT NULL, -- when this generation began
    lease             interval NOT NULL,
    max_run           interval NOT NULL,
    writer_epoch      integer NOT NULL,
    effect_mode       idempotency_effect_mode NOT NULL,

    -- The rules this record was made with; functions, journal and tool need no configuration of httpd.
    retention         interval NOT NULL,
    tombstone         interval NOT NULL,
    reuse_allowed     boolean NOT NULL,
    body_limit        bigint NOT NULL,

    -- Effect attempts of this operation, and those neither ended nor replayable. Kept here, under the row's lock, so
    -- that no reader has to look elsewhere and no statement decides on attempts that it cannot see yet.
    attempts          integer NOT NULL DEFAULT 0,
    attempts_open     integer NOT NULL DEFAULT 0,

    status            idempotency_status NOT NULL,
    outcome           idempotency_outcome,
    response_code     integer,
    response_headers  bytea,
    response_body     bytea,                -- null: not stored; empty: empty
    response_digest   bytea,

    created_at        timestamptz NOT NULL,
    settled_at        timestamptz,
    expires_at        timestamptz,
    tombstone_until   timestamptz,
    sweep_at          timestamptz NOT NULL,

    PRIMARY KEY (scope_version, tenant_id, principal_id, route, api_revision, ns, idem_key)
) WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- operation_id leads, so this also is the index for a look-up by operation alone. The collation is another name for
-- the same order, and there for the planner: statements that look for a scope compare in "C", those that look for an
-- operation in "POSIX", so neither can take the other's index for its tenant_id. On a small table both look equally
-- cheap, and a prepared statement keeps its plan while the table grows.
CREATE UNIQUE INDEX idempotency_records_operation ON idempotency_records (operation_id, tenant_id COLLATE "POSIX");
CREATE INDEX idempotency_records_sweep ON idempotency_records (sweep_at);

-- One row a living httpd child; its heartbeat moves seen_at. Few rows, changed all the time.
CREATE TABLE idempotency_owners (
    owner      uuid PRIMARY KEY,
    host       text NOT NULL,
    pid        integer NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Effect attempts: written by a backend before it asks somebody else to do something.
CREATE TABLE idempotency_effects (
    effect_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id      text COLLATE "C" NOT NULL,
    operation_id   uuid NOT NULL,
    generation     integer NOT NULL,        -- that began it
    effect         text COLLATE "C" NOT NULL CHECK (octet_length(effect) BETWEEN 1 AND 255),
    provider       text COLLATE "C" NOT NULL CHECK (octet_length(provider) BETWEEN 1 AND 255),
    downstream_key text COLLATE "C" NOT NULL,
    replayable     boolean NOT NULL,        -- the provider deduplicates by the downstream key
    handle         text CHECK (octet_length(handle) <= 4096), -- the provider's name for it
    outcome        idempotency_outcome,
    begun_at       timestamptz NOT NULL,
    bound_at       timestamptz,
    ended_at       timestamptz,
    UNIQUE (operation_id, tenant_id, effect, provider)
);

-- Messages that belong to an operation's transaction; whoever sends them deletes them.
CREATE TABLE idempotency_outbox (
    message_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id    text COLLATE "C" NOT NULL,
    operation_id uuid NOT NULL,
    generation   integer NOT NULL,
    topic        text NOT NULL CHECK (octet_length(topic) BETWEEN 1 AND 255),
    payload      bytea NOT NULL,
    created_at   timestamptz NOT NULL
);
CREATE INDEX idempotency_outbox_operation ON idempotency_outbox (operation_id);

-- An identity that changed: one successor each, until a date.
CREATE TABLE idempotency_aliases (
    old_tenant    text COLLATE "C" NOT NULL CHECK (octet_length(old_tenant) BETWEEN 1 AND 800),
    old_principal text COLLATE "C" NOT NULL CHECK (octet_length(old_principal) BETWEEN 1 AND 800),
    new_tenant    text COLLATE "C" NOT NULL CHECK (octet_length(new_tenant) BETWEEN 1 AND 800),
    new_principal text COLLATE "C" NOT NULL CHECK (octet_length(new_principal) BETWEEN 1 AND 800),
    until         timestamptz NOT NULL,
    actor         text NOT NULL,
    reason        text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (old_tenant, old_principal),
    CHECK ((old_tenant, old_principal) <> (new_tenant, new_principal))
);
CREATE INDEX idempotency_aliases_successor ON idempotency_aliases (new_tenant, new_principal);

-- Exactly one row.
CREATE TABLE idempotency_control (
    the_only_row   boolean PRIMARY KEY DEFAULT true CHECK (the_only_row),
    schema_version integer NOT NULL,
    writer_epoch   integer NOT NULL CHECK (writer_epoch >= 1),
    alias_version  integer NOT NULL CHECK (alias_version >= 0),
    scope_version  text COLLATE "C" NOT NULL,
    digest_key     bytea NOT NULL CHECK (octet_length(digest_key) = 32) -- for digests in logs, never for records
);
INSERT INTO idempotency_control (schema_version, writer_epoch, alias_version, scope_version, digest_key)
    VALUES (1, 1, 0, 'v1', sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));

-- Append-only: every transition but reserve and first settlement, whose times are in the record.
CREATE TABLE idempotency_events (
    event_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id    text COLLATE "C" NOT NULL,
    operation_id uuid NOT NULL,
    generation   integer NOT NULL,          -- after the transition
    from_status  text COLLATE "C" NOT NULL,
    to_status    text COLLATE "C" NOT NULL, -- NONE: the record is gone
    actor        text NOT NULL,
    reason       text,
    at           timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX idempotency_events_operation ON idempotency_events (operation_id);

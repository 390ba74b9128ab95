-- What Enforce would have answered on routes in IdempotencyMode Shadow: how often, by the hour. `kind` is a word of
-- %{idempotency-outcome}n, or one that only shadow has; `groups` says where a request differed from the first one.
CREATE TABLE idempotency_shadow (
    route  text COLLATE "C" NOT NULL,
    hour   timestamptz NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    groups text COLLATE "C" NOT NULL,
    count  bigint NOT NULL,
    PRIMARY KEY (route, hour, kind, groups)
);

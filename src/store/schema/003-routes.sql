-- What the routes of the web servers were made of when a server last started: a change of the sources of tenant or
-- principal gives every caller another scope, and a retry of an old operation a second effect. Servers warn of it.
CREATE TABLE idempotency_routes (
    server       text COLLATE "C" NOT NULL, -- ServerName: servers may share a registry and name routes alike
    route        text COLLATE "C" NOT NULL,
    api_revision text COLLATE "C" NOT NULL,
    sources      text NOT NULL,
    changed_at   timestamptz NOT NULL,
    PRIMARY KEY (server, route, api_revision)
);

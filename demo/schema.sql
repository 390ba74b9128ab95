-- The order application's own tables. They know nothing of idempotency keys.
CREATE ROLE shop LOGIN;
CREATE TABLE orders (
    id       int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    merchant text NOT NULL,
    item     text NOT NULL,
    quantity int  NOT NULL
);
CREATE TABLE refunds (
    id       int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    merchant text NOT NULL,
    "order"  int  NOT NULL
);
GRANT SELECT, INSERT ON orders, refunds TO shop;

-- Whom the web server connects as; idempotencyctl migrate made the role idempotency_writer.
CREATE ROLE web LOGIN IN ROLE idempotency_writer;

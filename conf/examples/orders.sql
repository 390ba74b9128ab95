-- The shop's own table for orders.php and orders.cgi, in the registry's database. A login of its own:
--   CREATE ROLE shop LOGIN; GRANT idempotency_backend TO shop; GRANT INSERT, SELECT ON orders TO shop;
CREATE TABLE orders (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    operation uuid NOT NULL UNIQUE, -- where an operator looks when an outcome is not known
    customer  text NOT NULL,
    item      text NOT NULL,
    quantity  integer NOT NULL CHECK (quantity BETWEEN 1 AND 1000)
);

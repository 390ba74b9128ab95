#include "store/admin_schema.h"

#include <apr_strings.h>

/* Two migrations of one database are one after the other; the number is this tool's and means nothing. */
#define LOCK_KEY "4993446653023372364"

const char idem_admin_schema_begin[] =
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = on; SELECT pg_advisory_xact_lock(" LOCK_KEY ")";
const char idem_admin_encoding[] = "SELECT current_setting('server_encoding')";
const char idem_admin_schema_name[] = "SELECT current_schema()";
const char idem_admin_schema_is_there[] =
    "SELECT 1 FROM pg_class WHERE relname = 'idempotency_control'"
    " AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())";
const char idem_admin_schema_version[] = "SELECT schema_version FROM idempotency_control";

const char *idem_admin_schema_create(apr_pool_t *p, const char *schema)
{
    return apr_psprintf(p, "BEGIN; SELECT pg_advisory_xact_lock(" LOCK_KEY "); CREATE SCHEMA IF NOT EXISTS %s; COMMIT", schema);
}

const char *idem_admin_schema_path(apr_pool_t *p, const char *schema)
{
    return apr_psprintf(p, "SET LOCAL search_path = %s, pg_temp", schema);
}

const char *idem_admin_schema_reached(apr_pool_t *p, int version)
{
    return apr_psprintf(p, "UPDATE idempotency_control SET schema_version = %d", version);
}

#define TABLES                                                                                                         \
    "idempotency_records, idempotency_owners, idempotency_effects, idempotency_outbox, idempotency_aliases,"           \
    " idempotency_control, idempotency_events, idempotency_routes, idempotency_shadow"

const char *const idem_admin_grants[] = {
    "DO $$"
    " DECLARE wanted text;"
    " BEGIN"
    "  FOREACH wanted IN ARRAY ARRAY['idempotency_writer', 'idempotency_backend', 'idempotency_admin'] LOOP"
    "   IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = wanted) THEN"
    "    BEGIN"
    "     EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);"
    "    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;"
    "    END;"
    "   END IF;"
    "  END LOOP;"
    " END $$",

    /* Works for who logs in as this role itself; the module says the same on its connections. No loss where another
     * migration or a lack of rights prevents it. */
    "DO $$"
    " BEGIN"
    "  IF NOT EXISTS (SELECT 1 FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole"
    "                 WHERE r.rolname = 'idempotency_writer' AND s.setdatabase = 0"
    "                 AND 'default_transaction_isolation=read committed' = ANY (s.setconfig)) THEN"
    "   ALTER ROLE idempotency_writer SET default_transaction_isolation = 'read committed';"
    "  END IF;"
    " EXCEPTION WHEN insufficient_privilege OR internal_error OR unique_violation THEN NULL;"
    " END $$",

    "DO $$"
    " BEGIN"
    "  EXECUTE format('GRANT USAGE ON SCHEMA %I TO idempotency_writer, idempotency_backend, idempotency_admin',"
    "                 current_schema());"
    " END $$",

    "REVOKE ALL ON " TABLES " FROM PUBLIC, idempotency_writer, idempotency_backend, idempotency_admin",

    /* The web server. Events are appended, never changed, and go with their record. */
    "GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_records, idempotency_owners TO idempotency_writer",
    "GRANT SELECT, DELETE ON idempotency_effects TO idempotency_writer",
    "GRANT SELECT, INSERT, DELETE ON idempotency_events TO idempotency_writer",
    "GRANT SELECT, INSERT, UPDATE ON idempotency_routes TO idempotency_writer",
    "GRANT SELECT ON idempotency_routes TO idempotency_admin",
    "GRANT SELECT ON idempotency_control, idempotency_aliases TO idempotency_writer",

    "GRANT EXECUTE ON FUNCTION idempotency_end_aliases(integer) TO idempotency_writer, idempotency_admin",
    "GRANT SELECT, INSERT, UPDATE ON idempotency_shadow TO idempotency_writer",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_shadow TO idempotency_admin",

    /* Operators and their tool. */
    "GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_records, idempotency_owners, idempotency_effects,"
    " idempotency_outbox, idempotency_aliases TO idempotency_admin",
    "GRANT SELECT, INSERT, DELETE ON idempotency_events TO idempotency_admin",
    "GRANT SELECT ON idempotency_control TO idempotency_admin",
    "GRANT UPDATE (writer_epoch, alias_version, scope_version) ON idempotency_control TO idempotency_admin",

    /* Backends: the functions and nothing else. */
    "GRANT EXECUTE ON FUNCTION idempotency_settle(uuid, integer, text, integer, jsonb, bytea),"
    " idempotency_outbox_put(uuid, integer, text, bytea),"
    " idempotency_effect_begin(uuid, integer, text, text, boolean), idempotency_effect_bind(bigint, text),"
    " idempotency_effect_end(bigint, text) TO idempotency_backend, idempotency_admin",

    NULL,
};

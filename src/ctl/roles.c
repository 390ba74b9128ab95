/*
 * Roles and grants, set anew at every migration. CONTRACT section 7.
 *
 * Roles belong to the whole server, so a migration of another database may be making them at this moment: whoever
 * comes second finds them made. All names are unqualified; search_path is the migration's.
 */
#include "ctl/ctl.h"

#define TABLES                                                                                                         \
    "idempotency_records, idempotency_owners, idempotency_effects, idempotency_outbox, idempotency_aliases,"           \
    " idempotency_control, idempotency_events, idempotency_routes, idempotency_shadow"

static const char *const statements[] = {
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

int idem_ctl_grant(idem_ctl_t *ctl)
{
    int i;

    for (i = 0; statements[i]; i++) {
        if (!idem_ctl_execute(ctl, statements[i])) {
            return 0;
        }
    }
    return 1;
}

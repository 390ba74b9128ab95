#include "httpd/setup/sizing.h"

#include <apr_atomic.h>
#include <apr_shm.h>
#include <ap_mpm.h>
#include <http_config.h>
#include <http_core.h>
#include <http_log.h>

#include "httpd/setup/config.h"
#include "httpd/logging.h"
#include "store/pgsql.h"

APLOG_USE_MODULE(idempotency);

/* The first server that has this registry speaks for all. */
static int speaks(const server_rec *main_server, const server_rec *s)
{
    const server_rec *other;

    for (other = main_server; other != s; other = other->next) {
        const idem_server_t *conf = idem_config_server(other);

        if (conf->has_routes && conf->registry == idem_config_server(s)->registry) {
            return 0;
        }
    }
    return 1;
}

static void warn_of_dbd(server_rec *s, const idem_dbd_t *dbd)
{
    if (!idem_pgsql_connect_is_bounded(dbd->params)) {
        ap_log_error(APLOG_MARK, APLOG_STARTUP | APLOG_WARNING, 0, s,
                     IDEM_LOG("1202") "DBDParams have no connect_timeout: say connect_timeout=2, that nothing waits for "
                     "long for a server that does not answer");
    }
    if (dbd->min > 0) {
        ap_log_error(APLOG_MARK, APLOG_STARTUP | APLOG_INFO, 0, s,
                     IDEM_LOG("1203") "DBDMin %d: every child begins with a wait for as many connections; DBDMin 0 lets "
                     "it begin without the registry", dbd->min);
    }
}

void idem_sizing_warn(server_rec *main_server)
{
    server_rec *s;

    for (s = main_server; s; s = s->next) {
        const idem_server_t *conf = idem_config_server(s);

        if (!conf->has_routes || !conf->registry) {
            continue;
        }
        if (speaks(main_server, s)) {
            warn_of_dbd(conf->registry, &conf->dbd);
        }
        if (conf->store_failure == IDEM_FAILURE_OPEN) {
            ap_log_error(APLOG_MARK, APLOG_STARTUP | APLOG_WARNING, 0, s,
                         IDEM_LOG("1204") "IdempotencyStoreFailure Open: while the registry is away, requests with a key "
                         "run without protection and leave no record");
        }
    }
}

int idem_sizing_start(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp, server_rec *main_server)
{
    apr_shm_t *shm;
    apr_uint32_t *warned = NULL;
    server_rec *s;

    (void)plog;
    (void)ptemp;
    if (ap_state_query(AP_SQ_MAIN_STATE) == AP_SQ_MS_CREATE_PRE_CONFIG) {
        return OK; /* the configuration is read once more */
    }
    idem_sizing_warn(main_server);
    if (apr_shm_create(&shm, sizeof(*warned), NULL, pconf) == APR_SUCCESS) {
        warned = apr_shm_baseaddr_get(shm);
        apr_atomic_set32(warned, 0);
    }
    /* without it every child warns for itself */
    for (s = main_server; s; s = s->next) {
        idem_config_server(s)->sizing_warned = warned;
    }
    return OK;
}

void idem_sizing_check(const idem_server_t *conf, int max_connections)
{
    int children = 0;

    if (max_connections <= 0 || ap_mpm_query(AP_MPMQ_MAX_DAEMONS, &children) != APR_SUCCESS ||
        (apr_int64_t)children * conf->dbd.max <= max_connections) {
        return;
    }
    if (conf->sizing_warned && apr_atomic_cas32(conf->sizing_warned, 1, 0) != 0) {
        return;
    }
    ap_log_error(APLOG_MARK, APLOG_WARNING, 0, conf->registry,
                 IDEM_LOG("1201") "%d children x DBDMax %d = %d connections (twice that in a graceful restart), and the "
                 "registry's server has %d: see conf/examples/sizing.conf",
                 children, conf->dbd.max, children * conf->dbd.max, max_connections);
}

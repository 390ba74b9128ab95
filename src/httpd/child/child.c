#include "httpd/child/child.h"

#include <fcntl.h>
#include <unistd.h>

#include <apr_atomic.h>
#include <ap_mpm.h>
#include <httpd.h>
#include <http_log.h>

#include "core/uuid.h"
#include "httpd/child/child_thread.h"
#include "httpd/child/chores.h"
#include "httpd/child/conns.h"
#include "httpd/child/counters.h"
#include "httpd/child/journaling.h"
#include "httpd/logging.h"
#include "httpd/child/pools.h"
#include "httpd/child/shadow_queue.h"
#include "httpd/child/sweeping.h"
#include "httpd/setup/sizing.h"
#include "store/combine.h"
#include "store/pgsql.h"

APLOG_USE_MODULE(idempotency);

#define DEFAULT_LEASE      apr_time_from_sec(60)
#define LONGEST_HEARTBEAT  apr_time_from_sec(15)

idem_store_t *idem_child_store(idem_child_store_t *child)
{
    return &child->store;
}

void idem_child_running(idem_child_store_t *child, int change)
{
    if (change > 0) {
        apr_atomic_inc32(&child->running);
    }
    else {
        apr_atomic_dec32(&child->running);
    }
}

idem_aliases_t *idem_child_aliases(idem_child_store_t *child)
{
    return child->aliases;
}

idem_quotas_t *idem_child_quotas(idem_child_store_t *child)
{
    return child->quotas;
}

struct idem_shadow_queue_t *idem_child_shadow(idem_child_store_t *child)
{
    return child ? child->shadow : NULL;
}

int idem_child_first_bypass(idem_child_store_t *child)
{
    return child && apr_atomic_cas32(&child->bypassed, 1, 0) == 0;
}

static void wake(void *baton)
{
    idem_child_store_t *child = baton;
    ssize_t written = write(child->wake[1], "", 1);

    (void)written; /* a full pipe wakes as well */
}

void idem_child_wake(idem_child_store_t *child)
{
    wake(child);
}

void idem_child_withdraw(idem_child_store_t *child, const char *tenant, const unsigned char *operation,
                         const unsigned char *owner_token, int generation)
{
    idem_chore_t chore = {.kind = IDEM_CHORE_WITHDRAW, .generation = generation};

    memcpy(chore.operation, operation, IDEM_UUID_LEN);
    memcpy(chore.owner_token, owner_token, IDEM_UUID_LEN);
    if (!idem_chores_add(child->chores, &chore, tenant)) {
        ap_log_error(APLOG_MARK, APLOG_ERR, 0, child->registry,
                     IDEM_LOG("1001") "too many reserves without an answer: this one is left to lapse");
    }
    wake(child);
}

void idem_child_settle_later(idem_child_store_t *child, const char *tenant, const unsigned char *operation,
                             int generation, idem_outcome_e outcome, int backend_first)
{
    idem_chore_t chore = {.kind = IDEM_CHORE_SETTLE, .generation = generation, .outcome = outcome,
                          .backend_first = backend_first};

    memcpy(chore.operation, operation, IDEM_UUID_LEN);
    if (!idem_chores_add(child->chores, &chore, tenant)) {
        ap_log_error(APLOG_MARK, APLOG_ERR, 0, child->registry,
                     IDEM_LOG("1002") "too many operations ended without a response: this one is left to lapse");
    }
    wake(child);
}

static void log_for_store(void *baton, int level, const char *message)
{
    idem_child_store_t *child = baton;

    ap_log_error(APLOG_MARK, level, 0, child->registry, IDEM_LOG("1003") "registry: %s", message);
}

/* While the breaker is open or about to, what the thread tries in vain is no news. */
static void log_for_thread(void *baton, int level, const char *message)
{
    idem_child_store_t *child = baton;

    log_for_store(baton, idem_conns_want_proof(child->conns) ? APLOG_DEBUG : level, message);
}

static int open_pipe(int fds[2])
{
    return pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0;
}

/* By default no more than there are connections for them. */
static int writers_of(const idem_server_t *conf)
{
    if (conf->store_writers != IDEM_UNSET) {
        return conf->store_writers;
    }
    return IDEM_COMBINE_WRITERS < conf->dbd.most ? IDEM_COMBINE_WRITERS : conf->dbd.most;
}

static void fill_store(idem_child_store_t *child, const idem_server_t *conf, apr_pool_t *pchild)
{
    idem_store_t *store = &child->store;

    store->provider = &idem_store_pgsql;
    store->source = idem_conns_source(child->conns);
    store->host = child->registry->server_hostname;
    store->writer_epoch = conf->writer_epoch == IDEM_UNSET ? 1 : conf->writer_epoch;
    store->use_prepared = conf->store_prepare != 0;
    store->timeout = idem_config_timeout(conf);
    store->log = log_for_store;
    store->log_baton = child;
    child->own = *store;
    child->own.source = idem_conns_own_source(child->conns);
    child->own.log = log_for_thread;
    /* last: the thread's own calls go alone */
    idem_combine_install(store, writers_of(conf), pchild);
}

/* All threads of this child but an eighth, which an outage of the registry leaves to other requests. */
static int most_busy(void)
{
    int threads = 0;

    if (ap_mpm_query(AP_MPMQ_MAX_THREADS, &threads) != APR_SUCCESS || threads < 2) {
        return 0;
    }
    return threads - (threads < 8 ? 1 : threads / 8);
}

/* The shortest lease of all servers that share a registry. */
static apr_interval_time_t shortest_lease(server_rec *s, const server_rec *registry)
{
    apr_interval_time_t shortest = 0;

    for (; s; s = s->next) {
        const idem_server_t *conf = idem_config_server(s);

        if (conf->registry == registry && conf->shortest_lease && (!shortest || conf->shortest_lease < shortest)) {
            shortest = conf->shortest_lease;
        }
    }
    return shortest;
}

static idem_child_store_t *make(apr_pool_t *pchild, const idem_server_t *conf, server_rec *main_server)
{
    apr_interval_time_t lease = shortest_lease(main_server, conf->registry);
    idem_child_store_t *child = apr_pcalloc(pchild, sizeof(*child));
    idem_chores_t *chores = idem_chores_create(pchild);

    child->registry = conf->registry;
    child->conf = conf;
    child->lease = lease ? lease : DEFAULT_LEASE;
    child->interval = child->lease / 4;
    child->interval = child->interval > LONGEST_HEARTBEAT ? LONGEST_HEARTBEAT : child->interval;
    child->chores = chores;
    child->aliases = idem_aliases_create(pchild);
    child->quotas = idem_quotas_create(pchild, wake, child);
    child->conns = idem_conns_create(pchild, conf->registry, conf->dbd.params, conf->dbd.most, most_busy(),
                                     idem_config_timeout(conf), wake, child);
    if (!child->conns || !chores || !child->aliases || !child->quotas || !open_pipe(child->wake) || !open_pipe(child->done) ||
        idem_uuid_v7(child->store.owner, apr_time_now()) != APR_SUCCESS) {
        return NULL;
    }
    fill_store(child, conf, pchild);
    child->shadow = idem_shadow_queue_create(pchild);
    child->sweeping = idem_sweeping_create(pchild, child->lease, conf->counters);
    child->journals = idem_journaling_open(pchild, main_server, child->registry);
    return idem_child_thread_start(child, pchild) == APR_SUCCESS ? child : NULL;
}

void idem_child_init(apr_pool_t *pchild, server_rec *main_server)
{
    idem_child_store_t *first = NULL;
    server_rec *s;

    for (s = main_server; s; s = s->next) {
        idem_server_t *conf = idem_config_server(s);
        idem_child_store_t *child = first;

        if (!conf->has_routes || !conf->registry) {
            continue;
        }
        while (child && child->registry != conf->registry) {
            child = child->next;
        }
        if (!child) {
            child = idem_pools_share(pchild) == APR_SUCCESS ? make(pchild, conf, main_server) : NULL;
            if (!child) {
                ap_log_error(APLOG_MARK, APLOG_CRIT, 0, s,
                             IDEM_LOG("1004") "no thread for the registry: keyed requests get 503 from this child");
                continue;
            }
            child->next = first;
            first = child;
            apr_pool_pre_cleanup_register(pchild, child, idem_child_thread_stop);
        }
        conf->store = child;
    }
}

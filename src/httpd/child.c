#include "httpd/child.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <apr_atomic.h>
#include <apr_thread_proc.h>
#include <ap_mpm.h>
#include <httpd.h>
#include <http_log.h>
#include <http_main.h>

#include "core/uuid.h"
#include "httpd/announce.h"
#include "httpd/chores.h"
#include "httpd/conns.h"
#include "httpd/counters.h"
#include "httpd/journaling.h"
#include "httpd/logging.h"
#include "httpd/pools.h"
#include "httpd/sizing.h"
#include "store/pgsql.h"

APLOG_USE_MODULE(idempotency);

#define DEFAULT_LEASE      apr_time_from_sec(60)
#define LONGEST_HEARTBEAT  apr_time_from_sec(15)
#define SHORTEST_HEARTBEAT apr_time_from_msec(200)
#define SHOW_INTERVAL      apr_time_from_sec(5)
#define GOODBYE_MARGIN     apr_time_from_sec(2) /* beyond the two store calls that a goodbye makes at most */

struct idem_child_store_t {
    server_rec *registry;
    const idem_server_t *conf;    /* of a server that uses it */
    idem_store_t store;      /* as request threads use it */
    idem_store_t own;        /* the same, with connections that need no fresh heartbeat: for the thread */
    idem_conns_t *conns;
    idem_chores_t *chores;
    apr_array_header_t *journals; /* of idem_journaling_t *, one for each folder */
    idem_aliases_t *aliases;
    idem_quotas_t *quotas;
    apr_interval_time_t lease;    /* the shortest of all routes that use this store */
    apr_interval_time_t interval; /* between heartbeats */
    apr_time_t next_heartbeat;
    apr_time_t next_proof;        /* not before then out of turn */
    int size_checked;
    int announced;
    apr_thread_t *thread;
    int wake[2];             /* a pipe: waking is safe even from a signal handler, where prefork destroys its pools */
    int done[2];             /* readable once the thread has ended */
    volatile apr_uint32_t stop;
    volatile apr_uint32_t running;
    volatile apr_uint32_t bypassed;
    idem_child_store_t *next;
};

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

/* Sends the heartbeat where it is due. Request threads may reserve for half a lease after the last good one. */
static void beat(idem_child_store_t *child, apr_pool_t *p)
{
    apr_time_t begun = apr_time_now();
    int out_of_turn = idem_conns_want_proof(child->conns) && begun >= child->next_proof;
    idem_store_result_e result;

    if ((begun < child->next_heartbeat && !out_of_turn) || !idem_conns_have(child->conns)) {
        return;
    }
    result = child->own.provider->heartbeat(&child->own, begun + child->store.timeout, p);
    if (result == IDEM_STORE_OK) {
        idem_conns_proved(child->conns, begun + child->lease / 2);
        child->next_heartbeat = begun + child->interval;
        idem_aliases_read(child->aliases, &child->own, p);
    }
    else {
        idem_conns_unproved(child->conns, begun);
        child->next_heartbeat = apr_time_now() + SHORTEST_HEARTBEAT;
    }
    child->next_proof = apr_time_now() + SHORTEST_HEARTBEAT;
}

/* When the next heartbeat is due, as far as that is known now. */
static apr_time_t next_beat(const idem_child_store_t *child)
{
    int out_of_turn = idem_conns_want_proof(child->conns) && child->next_proof < child->next_heartbeat;

    return out_of_turn ? child->next_proof : child->next_heartbeat;
}

/* Behind a pooler the server's limit is not what the children meet. */
/* Once: tells the registry what the routes of this server are made of. */
static void announce_routes(idem_child_store_t *child, apr_pool_t *p)
{
    server_rec *s;

    if (child->announced || !idem_conns_have(child->conns)) {
        return;
    }
    child->announced = 1;
    for (s = ap_server_conf; s; s = s->next) {
        const idem_server_t *conf = idem_config_server(s);

        if (conf->registry == child->registry) {
            idem_announce(&child->own, conf->announced, s, p);
        }
    }
}

static void check_size(idem_child_store_t *child)
{
    if (!child->size_checked && child->store.digest_key_known) {
        child->size_checked = 1;
        idem_sizing_check(child->conf, child->store.use_prepared ? child->store.max_connections : 0);
    }
}

static void wait_until(idem_child_store_t *child, apr_time_t when)
{
    struct pollfd fd = {child->wake[0], POLLIN, 0};
    apr_interval_time_t left = when - apr_time_now();
    char drain[64];

    if (left > 0) {
        poll(&fd, 1, (int)apr_time_as_msec(left) + 1);
    }
    while (read(child->wake[0], drain, sizeof(drain)) > 0) {
    }
}

/* Lets the status page see this child. */
static void show_view(idem_child_store_t *child)
{
    idem_child_view_t view = {0};
    int open;
    int idle;
    int away;

    idem_conns_count(child->conns, &open, &idle, &away);
    view.pid = (apr_int32_t)getpid();
    view.open = open;
    view.idle = idle;
    view.away = away;
    view.running = (apr_int32_t)apr_atomic_read32(&child->running);
    view.chores = idem_chores_left(child->chores);
    view.seen = apr_time_now();
    idem_counters_child(child->conf->counters, &view);
}

static void say_goodbye(idem_child_store_t *child, apr_pool_t *p)
{
    idem_chores_work(child->chores, &child->own, p, 1);
    /* with operations left the row stays: it tells until when they may still be at work */
    if (!apr_atomic_read32(&child->running) && !idem_chores_left(child->chores) && idem_conns_have(child->conns)) {
        child->own.provider->farewell(&child->own, apr_time_now() + child->store.timeout, p);
    }
    idem_conns_close(child->conns);
}

/* What the store did not take before, now that it can be reached. Returns when there is more to do. */
static apr_time_t catch_up(idem_child_store_t *child, apr_pool_t *p)
{
    apr_time_t again = idem_chores_work(child->chores, &child->own, p, 0);
    apr_time_t count = idem_quotas_count(child->quotas, &child->own, p);
    int i;

    again = count < again ? count : again;

    if (!child->own.digest_key_known && child->store.digest_key_known) {
        memcpy(child->own.digest_key, child->store.digest_key, sizeof(child->own.digest_key));
        child->own.digest_key_known = 1;
    }
    for (i = 0; i < child->journals->nelts; i++) {
        apr_time_t due = idem_journaling_work(APR_ARRAY_IDX(child->journals, i, idem_journaling_t *), &child->own, p);

        again = due < again ? due : again;
    }
    return again;
}

static void *APR_THREAD_FUNC tend(apr_thread_t *thread, void *data)
{
    idem_child_store_t *child = data;
    apr_pool_t *p;
    ssize_t written;

    apr_pool_create(&p, apr_thread_pool_get(thread));
    while (!apr_atomic_read32(&child->stop)) {
        /* whose backend runs must be seen alive, and what was left undone is to be done, whether requests come or not */
        int needed = apr_atomic_read32(&child->running) || idem_chores_any(child->chores);
        apr_time_t again = idem_conns_tend(child->conns, &child->store, needed);

        beat(child, p);
        check_size(child);
        announce_routes(child, p);
        if (idem_conns_have(child->conns)) {
            apr_time_t more = catch_up(child, p);

            again = more < again ? more : again;
            again = next_beat(child) < again ? next_beat(child) : again;
        }
        apr_pool_clear(p);
        show_view(child);
        again = apr_time_now() + SHOW_INTERVAL < again ? apr_time_now() + SHOW_INTERVAL : again;
        wait_until(child, again);
    }
    say_goodbye(child, p);
    idem_counters_child_gone(child->conf->counters, (apr_int32_t)getpid());
    written = write(child->done[1], "", 1);
    (void)written;
    return NULL;
}

/*
 * The end of a child. A prefork child runs this in its signal handler, maybe while its own main thread holds a lock
 * of ours: so the thread is told by a pipe, and waited for with patience that ends.
 */
static apr_status_t stop_thread(void *data)
{
    idem_child_store_t *child = data;
    apr_time_t deadline = apr_time_now() + 2 * child->store.timeout + GOODBYE_MARGIN;
    struct pollfd fd = {child->done[0], POLLIN, 0};
    apr_interval_time_t left;
    apr_status_t rv;
    int ended = 0;

    apr_atomic_set32(&child->stop, 1);
    wake(child);
    /* a child that ends gets signals more than once */
    while (ended != 1 && (left = deadline - apr_time_now()) > 0) {
        ended = poll(&fd, 1, (int)apr_time_as_msec(left) + 1);
    }
    if (ended != 1) {
        /* its connections are in use: mod_dbd's own cleanup would abort the process on them */
        _exit(0);
    }
    apr_thread_join(&rv, child->thread);
    return APR_SUCCESS;
}

static int open_pipe(int fds[2])
{
    return pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0;
}

static apr_status_t start_thread(idem_child_store_t *child, apr_pool_t *pchild)
{
    sigset_t all;
    sigset_t before;
    apr_status_t rv;

    /* signals are for the child's own threads: a handler of theirs must not run in ours */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rv = apr_thread_create(&child->thread, NULL, tend, child, pchild);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rv;
}

static void fill_store(idem_child_store_t *child, const idem_server_t *conf)
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
    fill_store(child, conf);
    child->journals = idem_journaling_open(pchild, main_server, child->registry);
    return start_thread(child, pchild) == APR_SUCCESS ? child : NULL;
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
            apr_pool_pre_cleanup_register(pchild, child, stop_thread);
        }
        conf->store = child;
    }
}

#include "httpd/child/child_thread.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <apr_atomic.h>
#include <ap_mpm.h>
#include <httpd.h>
#include <http_log.h>
#include <http_main.h>

#include "httpd/setup/announce.h"
#include "httpd/child/counters.h"
#include "httpd/child/journaling.h"
#include "httpd/logging.h"
#include "httpd/child/pools.h"
#include "httpd/setup/sizing.h"
#include "httpd/child/shadow_queue.h"
#include "httpd/child/sweeping.h"

APLOG_USE_MODULE(idempotency);

#define SHORTEST_HEARTBEAT apr_time_from_msec(200)
#define SHOW_INTERVAL      apr_time_from_sec(5)
#define GOODBYE_MARGIN     apr_time_from_sec(2) /* beyond the two store calls that a goodbye makes at most */

static void end_aliases(idem_child_store_t *child, apr_pool_t *p)
{
    int ended = idem_aliases_end(child->aliases, &child->own, p);

    if (ended) {
        ap_log_error(APLOG_MARK, APLOG_NOTICE, 0, child->registry, IDEM_LOG("2002") "%d %s ended: the date has passed, and nothing "
                     "is remembered of the old identity", ended, ended == 1 ? "alias has" : "aliases have");
    }
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
        end_aliases(child, p);
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
    apr_time_t count = idem_quotas_count(child->quotas, &child->own, idem_aliases_writes(child->aliases, p), p);
    apr_time_t sweep = idem_sweeping_work(child->sweeping, &child->own, p);
    apr_time_t shadow = idem_shadow_queue_work(child->shadow, &child->own, child->aliases, child->registry, p);
    int i;

    again = shadow < again ? shadow : again;
    again = count < again ? count : again;
    again = sweep < again ? sweep : again;
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
        int needed = apr_atomic_read32(&child->running) || idem_chores_any(child->chores) ||
                     idem_shadow_queue_any(child->shadow) ||
                     (!child->announced && idem_announce_needed(child->conf->announced));
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
apr_status_t idem_child_thread_stop(void *data)
{
    idem_child_store_t *child = data;
    apr_time_t deadline = apr_time_now() + 2 * child->store.timeout + GOODBYE_MARGIN;
    struct pollfd fd = {child->done[0], POLLIN, 0};
    apr_interval_time_t left;
    apr_status_t rv;
    int ended = 0;

    apr_atomic_set32(&child->stop, 1);
    idem_child_wake(child);
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

apr_status_t idem_child_thread_start(idem_child_store_t *child, apr_pool_t *pchild)
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

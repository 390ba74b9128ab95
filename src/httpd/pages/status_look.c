/* Where the numbers of the status page come from. */
#include <apr_strings.h>
#include <http_core.h>
#include <http_main.h>

#include "httpd/child/child.h"
#include "httpd/request/context.h"
#include "httpd/setup/sections.h"
#include "httpd/pages/status_page.h"

#define MOST_ROUTES 500

static const char *const modes[] = {"Off", "Enforce", "ReadOnly", "Shadow"};

/* Any server's counters: they are the same for all that have routes, and the page may stand in one that has none. */
static const idem_server_t *counting_server(request_rec *r)
{
    const idem_server_t *conf = idem_config_server(r->server);
    server_rec *s;

    for (s = ap_server_conf; !conf->counters && s; s = s->next) {
        conf = idem_config_server(s);
    }
    return conf;
}

static void add_routes(request_rec *r, server_rec *s, idem_status_t *status)
{
    const idem_server_t *server = idem_config_server(s);
    const apr_array_header_t *sections = idem_sections_of(r->pool, s);
    int i;

    for (i = 0; i < sections->nelts && status->routes->nelts < MOST_ROUTES; i++) {
        const idem_section_t *section = &APR_ARRAY_IDX(sections, i, idem_section_t);
        const idem_dir_t *conf;
        idem_status_route_t *route;

        if (!section->conf->route || section->conf->route->kind == IDEM_ROUTE_NONE) {
            continue;
        }
        conf = idem_sections_resolve(r->pool, sections, section);
        route = apr_array_push(status->routes);
        route->server = s->server_hostname ? s->server_hostname : "";
        route->path = section->shown;
        route->route = conf->route->name;
        route->revision = conf->route->revision;
        route->mode = modes[conf->mode];
        route->effect = idem_effect_name((idem_effect_e)conf->effect);
        route->writer_epoch = server->writer_epoch == IDEM_UNSET ? 1 : server->writer_epoch;
        route->budget = conf->latency_budget;
        route->objective = conf->recovery_objective;
        status->objective = !status->objective || route->objective < status->objective ? route->objective : status->objective;
        status->budget = !status->budget || route->budget < status->budget ? route->budget : status->budget;
    }
}

static void look_at_configuration(request_rec *r, idem_status_t *status)
{
    server_rec *s;

    status->routes = apr_array_make(r->pool, 8, sizeof(idem_status_route_t));
    for (s = ap_server_conf; s; s = s->next) {
        if (idem_config_server(s)->has_routes) {
            add_routes(r, s, status);
        }
    }
}

/* Folders that several servers name are one folder. */
static int counted_before(server_rec *s, const char *folder)
{
    const server_rec *other;

    for (other = ap_server_conf; other != s; other = other->next) {
        const char *named = idem_config_server(other)->journal;

        if (named && idem_config_server(other)->has_routes && !strcmp(named, folder)) {
            return 1;
        }
    }
    return 0;
}

static void look_at_journals(request_rec *r, idem_status_t *status)
{
    server_rec *s;

    for (s = ap_server_conf; s; s = s->next) {
        const idem_server_t *conf = idem_config_server(s);
        idem_journal_depth_t depth;

        if (!conf->journal || !conf->has_routes || counted_before(s, conf->journal)) {
            continue;
        }
        status->has_journal = 1;
        if (!idem_journal_depth(conf->journal, &depth, r->pool)) {
            status->journal.waiting = -1;
            return;
        }
        status->journal.waiting += depth.waiting;
        status->journal.aside += depth.aside;
        if (depth.oldest && (!status->journal.oldest || depth.oldest < status->journal.oldest)) {
            status->journal.oldest = depth.oldest;
        }
    }
}

apr_time_t idem_status_doubt_since(const idem_record_t *record)
{
    return record->settled_at ? record->settled_at : record->created_at;
}

/* A record whose route is not known by that name (auto, captures, another server's) is measured by the tightest. */
static apr_interval_time_t objective_of(const idem_status_t *status, const char *route)
{
    int i;

    for (i = 0; i < status->routes->nelts; i++) {
        const idem_status_route_t *known = &APR_ARRAY_IDX(status->routes, i, idem_status_route_t);

        if (!strcmp(known->route, route)) {
            return known->objective;
        }
    }
    return status->objective;
}

static void look_at_store(request_rec *r, const idem_server_t *conf, idem_status_t *status)
{
    idem_store_t *store = conf->store ? idem_child_store(conf->store) : NULL;
    int i;

    status->unknown = apr_array_make(r->pool, 1, sizeof(const idem_record_t *));
    status->store_answers =
        store && store->provider->overview(store, &status->registry, apr_time_now() + store->timeout, r->pool) == IDEM_STORE_OK &&
        store->provider->unknown(store, IDEM_STATUS_MOST, &status->unknown, apr_time_now() + store->timeout, r->pool) == IDEM_STORE_OK;
    status->writer_epoch = store ? store->writer_epoch : 0;
    for (i = 0; i < status->unknown->nelts; i++) {
        const idem_record_t *record = APR_ARRAY_IDX(status->unknown, i, const idem_record_t *);

        status->unknown_late += apr_time_now() - idem_status_doubt_since(record) > objective_of(status, record->scope.route);
    }
}

double idem_status_budget_share(const idem_status_t *status)
{
    apr_interval_time_t p99 = idem_counters_percentile(&status->counters, IDEM_TIMED_RESERVE, 0.99);

    return status->budget ? 100.0 * (double)p99 / (double)status->budget : 0;
}

idem_status_t *idem_status_look(request_rec *r)
{
    const idem_server_t *conf = counting_server(r);
    idem_status_t *status = apr_pcalloc(r->pool, sizeof(*status));

    idem_counters_read(conf->counters, &status->counters);
    status->running = idem_inflight_read(idem_counters_inflight(conf->counters), IDEM_STATUS_MOST, &status->running_count, r->pool);
    look_at_configuration(r, status);
    look_at_journals(r, status);
    look_at_store(r, conf, status);
    return status;
}

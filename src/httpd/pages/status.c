#include "httpd/pages/status.h"

#include <apr_strings.h>
#include <http_core.h>
#include <http_main.h>
#include <http_protocol.h>

#include "httpd/pages/page.h"
#include "httpd/pages/status_page.h"

#define HANDLER "idempotency-status"

void idem_status_open(server_rec *main_server)
{
    idem_counters_t *counters = NULL;
    server_rec *s;

    for (s = main_server; s; s = s->next) {
        idem_server_t *conf = idem_config_server(s);

        if (conf->has_routes) {
            counters = counters ? counters : idem_counters_open(main_server);
            conf->counters = counters;
        }
    }
}

static void put_text(yajl_gen gen, const char *name, const char *value)
{
    idem_page_string(gen, name);
    idem_page_string(gen, value);
}

static void put_number(yajl_gen gen, const char *name, apr_int64_t value)
{
    idem_page_string(gen, name);
    yajl_gen_integer(gen, value);
}

static void put_requests(yajl_gen gen, const idem_status_t *status)
{
    int i;

    idem_page_string(gen, "requests");
    yajl_gen_map_open(gen);
    for (i = 0; i < IDEM_COUNTED; i++) {
        put_number(gen, idem_counters_word(i), (apr_int64_t)status->counters.totals[i]);
    }
    yajl_gen_map_close(gen);
    idem_page_string(gen, "store_microseconds");
    yajl_gen_map_open(gen);
    for (i = 0; i < IDEM_STATUS_TIMES; i++) {
        put_number(gen, idem_status_times[i].name, idem_counters_percentile(&status->counters, idem_status_times[i].call,
                                                                           idem_status_times[i].share));
    }
    yajl_gen_map_close(gen);
    put_number(gen, "latency_budget_microseconds", status->budget);
    idem_page_string(gen, "reserve_p99_share_of_budget");
    yajl_gen_double(gen, idem_status_budget_share(status) / 100);
}

static void put_children(yajl_gen gen, const idem_status_t *status)
{
    int i;

    idem_page_string(gen, "children");
    yajl_gen_array_open(gen);
    for (i = 0; i < status->counters.child_count; i++) {
        const idem_child_view_t *child = &status->counters.children[i];

        yajl_gen_map_open(gen);
        put_number(gen, "pid", child->pid);
        put_number(gen, "connections", child->open);
        put_number(gen, "idle", child->idle);
        put_text(gen, "breaker", child->away ? "open" : "closed");
        put_number(gen, "running", child->running);
        put_number(gen, "waiting_writes", child->chores);
        yajl_gen_map_close(gen);
    }
    yajl_gen_array_close(gen);
}

static void put_operations(yajl_gen gen, const idem_status_t *status, apr_pool_t *p)
{
    int i;

    put_number(gen, "running_count", status->running_count);
    idem_page_string(gen, "running");
    yajl_gen_array_open(gen);
    for (i = 0; i < status->running->nelts; i++) {
        const idem_running_t *running = &APR_ARRAY_IDX(status->running, i, idem_running_t);

        yajl_gen_map_open(gen);
        put_text(gen, "operation", idem_uuid_text(p, running->operation));
        put_text(gen, "route", running->route);
        put_text(gen, "since", idem_page_time(p, running->since));
        put_number(gen, "pid", running->pid);
        yajl_gen_map_close(gen);
    }
    yajl_gen_array_close(gen);
    put_number(gen, "unknown_count", status->registry.unknown);
    put_number(gen, "unknown_past_objective", status->unknown_late);
    idem_page_string(gen, "unknown");
    yajl_gen_array_open(gen);
    for (i = 0; i < status->unknown->nelts; i++) {
        const idem_record_t *record = APR_ARRAY_IDX(status->unknown, i, const idem_record_t *);

        yajl_gen_map_open(gen);
        put_text(gen, "operation", idem_uuid_text(p, record->operation));
        put_text(gen, "route", record->scope.route);
        put_text(gen, "created", idem_page_time(p, record->created_at));
        put_text(gen, "since", idem_page_time(p, idem_status_doubt_since(record)));
        yajl_gen_map_close(gen);
    }
    yajl_gen_array_close(gen);
}

static void put_sweep(yajl_gen gen, const idem_status_t *status, apr_pool_t *p)
{
    const idem_swept_t *swept = &status->counters.swept;

    idem_page_string(gen, "sweep");
    yajl_gen_map_open(gen);
    put_number(gen, "due", status->registry.due);
    put_number(gen, "behind_seconds", apr_time_sec(status->registry.behind));
    put_number(gen, "batches", (apr_int64_t)swept->batches);
    put_number(gen, "looked_at", (apr_int64_t)swept->looked);
    put_number(gen, "expired", (apr_int64_t)swept->expired);
    put_number(gen, "removed", (apr_int64_t)swept->removed);
    put_number(gen, "unknown", (apr_int64_t)swept->unknown);
    put_number(gen, "longest_batch_microseconds", swept->longest);
    put_text(gen, "last", swept->last ? idem_page_time(p, swept->last) : NULL);
    yajl_gen_map_close(gen);
}

static void put_journal(yajl_gen gen, const idem_status_t *status, apr_pool_t *p)
{
    idem_page_string(gen, "journal");
    if (!status->has_journal) {
        yajl_gen_null(gen);
        return;
    }
    yajl_gen_map_open(gen);
    put_text(gen, "readable", status->journal.waiting < 0 ? "no" : "yes");
    put_number(gen, "waiting", status->journal.waiting < 0 ? 0 : status->journal.waiting);
    put_text(gen, "oldest", status->journal.oldest ? idem_page_time(p, status->journal.oldest) : NULL);
    put_number(gen, "aside", status->journal.aside);
    yajl_gen_map_close(gen);
}

static void put_routes(yajl_gen gen, const idem_status_t *status)
{
    int i;

    idem_page_string(gen, "routes");
    yajl_gen_array_open(gen);
    for (i = 0; i < status->routes->nelts; i++) {
        const idem_status_route_t *route = &APR_ARRAY_IDX(status->routes, i, idem_status_route_t);

        yajl_gen_map_open(gen);
        put_text(gen, "server", route->server);
        put_text(gen, "path", route->path);
        put_text(gen, "route", route->route);
        put_text(gen, "revision", route->revision);
        put_text(gen, "mode", route->mode);
        put_text(gen, "effect", route->effect);
        put_number(gen, "writer_epoch", route->writer_epoch);
        put_number(gen, "latency_budget_microseconds", route->budget);
        put_number(gen, "recovery_objective_seconds", apr_time_sec(route->objective));
        yajl_gen_map_close(gen);
    }
    yajl_gen_array_close(gen);
}

static int send_json(request_rec *r, const idem_status_t *status)
{
    yajl_gen gen = yajl_gen_alloc(NULL);

    yajl_gen_map_open(gen);
    put_text(gen, "since", idem_page_time(r->pool, status->counters.since));
    put_text(gen, "store", status->store_answers ? "answers" : "away");
    put_number(gen, "writer_epoch", status->writer_epoch);
    put_number(gen, "registry_epoch", status->registry.writer_epoch);
    put_number(gen, "records", status->registry.records);
    put_requests(gen, status);
    put_children(gen, status);
    put_operations(gen, status, r->pool);
    put_sweep(gen, status, r->pool);
    put_journal(gen, status, r->pool);
    put_routes(gen, status);
    yajl_gen_map_close(gen);
    return idem_page_send_json(r, gen, HTTP_OK);
}

int idem_status_handler(request_rec *r)
{
    const idem_status_t *status;
    int begun = idem_page_begin(r, HANDLER, AP_METHOD_BIT << M_GET);

    if (begun != OK) {
        return begun;
    }
    status = idem_status_look(r);
    if (r->args && strstr(r->args, "format=metrics")) {
        const char *text = idem_status_metrics(r->pool, status);

        return idem_page_send(r, "application/openmetrics-text; version=1.0.0; charset=utf-8", text, strlen(text));
    }
    if (idem_page_wants_json(r)) {
        return send_json(r, status);
    }
    {
        const char *page = idem_status_html(r, status);

        return idem_page_send(r, "text/html; charset=utf-8", page, strlen(page));
    }
}

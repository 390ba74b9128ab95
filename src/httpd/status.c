#include "httpd/status.h"

#include <apr_strings.h>
#include <http_core.h>
#include <http_main.h>
#include <http_protocol.h>

#include "httpd/child.h"
#include "httpd/context.h"
#include "httpd/page.h"
#include "httpd/status_page.h"

#define HANDLER      "idempotency-status"
#define MOST_UNKNOWN 50

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

static void look_at_store(request_rec *r, const idem_server_t *conf, idem_status_t *status)
{
    idem_store_t *store = conf->store ? idem_child_store(conf->store) : NULL;

    status->unknown = apr_array_make(r->pool, 1, sizeof(const idem_record_t *));
    status->store_answers = store && store->provider->unknown(store, MOST_UNKNOWN, &status->unknown,
                                                              apr_time_now() + store->timeout, r->pool) == IDEM_STORE_OK;
    status->writer_epoch = store ? store->writer_epoch : 0;
}

static int send_json(request_rec *r, const idem_status_t *status)
{
    yajl_gen gen = yajl_gen_alloc(NULL);
    int i;

    yajl_gen_map_open(gen);
    idem_page_string(gen, "since");
    idem_page_string(gen, idem_page_time(r->pool, status->counters.since));
    idem_page_string(gen, "store");
    idem_page_string(gen, status->store_answers ? "answers" : "away");
    idem_page_string(gen, "writer_epoch");
    yajl_gen_integer(gen, status->writer_epoch);
    idem_page_string(gen, "requests");
    yajl_gen_map_open(gen);
    for (i = 0; i < IDEM_COUNTED; i++) {
        idem_page_string(gen, idem_counters_word(i));
        yajl_gen_integer(gen, (long long)status->counters.totals[i]);
    }
    yajl_gen_map_close(gen);
    idem_page_string(gen, "store_microseconds");
    yajl_gen_map_open(gen);
    for (i = 0; i < IDEM_STATUS_TIMES; i++) {
        idem_page_string(gen, idem_status_times[i].name);
        yajl_gen_integer(gen, idem_counters_percentile(&status->counters, idem_status_times[i].call,
                                                       idem_status_times[i].share));
    }
    yajl_gen_map_close(gen);
    idem_page_string(gen, "children");
    yajl_gen_array_open(gen);
    for (i = 0; i < status->counters.child_count; i++) {
        const idem_child_view_t *child = &status->counters.children[i];

        yajl_gen_map_open(gen);
        idem_page_string(gen, "pid");
        yajl_gen_integer(gen, child->pid);
        idem_page_string(gen, "connections");
        yajl_gen_integer(gen, child->open);
        idem_page_string(gen, "idle");
        yajl_gen_integer(gen, child->idle);
        idem_page_string(gen, "breaker");
        idem_page_string(gen, child->away ? "open" : "closed");
        idem_page_string(gen, "running");
        yajl_gen_integer(gen, child->running);
        idem_page_string(gen, "waiting_writes");
        yajl_gen_integer(gen, child->chores);
        yajl_gen_map_close(gen);
    }
    yajl_gen_array_close(gen);
    idem_page_string(gen, "unknown");
    yajl_gen_array_open(gen);
    for (i = 0; i < status->unknown->nelts; i++) {
        const idem_record_t *record = APR_ARRAY_IDX(status->unknown, i, const idem_record_t *);

        yajl_gen_map_open(gen);
        idem_page_string(gen, "operation");
        idem_page_string(gen, idem_uuid_text(r->pool, record->operation));
        idem_page_string(gen, "route");
        idem_page_string(gen, record->scope.route);
        idem_page_string(gen, "created");
        idem_page_string(gen, idem_page_time(r->pool, record->created_at));
        yajl_gen_map_close(gen);
    }
    yajl_gen_array_close(gen);
    yajl_gen_map_close(gen);
    return idem_page_send_json(r, gen, HTTP_OK);
}

int idem_status_handler(request_rec *r)
{
    const idem_server_t *conf;
    idem_status_t *status;

    if (!r->handler || strcmp(r->handler, HANDLER)) {
        return DECLINED;
    }
    r->allowed |= AP_METHOD_BIT << M_GET;
    if (r->method_number != M_GET) {
        return HTTP_METHOD_NOT_ALLOWED;
    }
    conf = counting_server(r);
    status = apr_pcalloc(r->pool, sizeof(*status));
    idem_counters_read(conf->counters, &status->counters);
    look_at_store(r, conf, status);
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

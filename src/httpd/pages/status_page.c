#include "httpd/pages/status_page.h"

#include <apr_strings.h>
#include <http_protocol.h>

#include "httpd/pages/page.h"

#define CHART_WIDTH  600
#define CHART_HEIGHT 120

const struct idem_status_time_t idem_status_times[IDEM_STATUS_TIMES] = {
    {"reserve_p50", IDEM_TIMED_RESERVE, 0.50}, {"reserve_p95", IDEM_TIMED_RESERVE, 0.95},
    {"reserve_p99", IDEM_TIMED_RESERVE, 0.99}, {"settle_p50", IDEM_TIMED_SETTLE, 0.50},
    {"settle_p95", IDEM_TIMED_SETTLE, 0.95},   {"settle_p99", IDEM_TIMED_SETTLE, 0.99},
};

static const char style[] =
    "body{font:1rem/1.5 system-ui,sans-serif;max-width:60rem;margin:1rem auto;padding:0 1rem;color:#222;background:#fff}"
    "table{border-collapse:collapse;width:100%;margin:0 0 1rem}th,td{text-align:left;padding:.2rem .5rem;"
    "border-bottom:1px solid #ddd;overflow-wrap:anywhere}td.n{text-align:right;font-variant-numeric:tabular-nums}"
    "svg{width:100%;height:auto;background:#f7f7f7}h2{margin:1.5rem 0 .5rem;font-size:1.1rem}"
    ".bad{color:#a00;font-weight:600}code{background:#f2f2f2;padding:0 .2rem}";

/* What a chart shows: outcomes from `first` to `last`. */
typedef struct chart_t {
    const char *title;
    int first;
    int last;
    const char *colour;
} chart_t;

static const chart_t charts[] = {
    {"executed", IDEM_COUNT_EXECUTED, IDEM_COUNT_EXECUTED, "#2a6fb0"},
    {"replayed", IDEM_COUNT_REPLAYED, IDEM_COUNT_REPLAYED, "#3a8f4d"},
    {"of unknown outcome", IDEM_COUNT_UNKNOWN, IDEM_COUNT_UNKNOWN, "#b05a00"},
    {"answered by a problem", IDEM_COUNT_PROBLEMS, IDEM_COUNTED - 1, "#a03050"},
};

static apr_uint32_t minute_sum(const idem_status_t *status, const chart_t *chart, int minute)
{
    apr_uint32_t sum = 0;
    int i;

    for (i = chart->first; i <= chart->last; i++) {
        sum += status->counters.minutes[minute][i];
    }
    return sum;
}

/* One bar a minute, the last hour from left to right. */
static const char *draw(apr_pool_t *p, const idem_status_t *status, const chart_t *chart)
{
    apr_array_header_t *bars = apr_array_make(p, IDEM_COUNT_MINUTES + 2, sizeof(const char *));
    apr_uint32_t most = 1;
    apr_uint64_t all = 0;
    int i;

    for (i = 0; i < IDEM_COUNT_MINUTES; i++) {
        apr_uint32_t sum = minute_sum(status, chart, i);

        most = sum > most ? sum : most;
        all += sum;
    }
    APR_ARRAY_PUSH(bars, const char *) =
        apr_psprintf(p, "<h2>%s: %" APR_UINT64_T_FMT " in the last hour, at most %u a minute</h2>\n"
                     "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s by the minute\">",
                     chart->title, all, all ? most : 0, CHART_WIDTH, CHART_HEIGHT, chart->title);
    for (i = 0; i < IDEM_COUNT_MINUTES; i++) {
        apr_uint32_t sum = minute_sum(status, chart, i);
        int height = (int)((apr_uint64_t)sum * (CHART_HEIGHT - 4) / most);

        if (sum) {
            APR_ARRAY_PUSH(bars, const char *) =
                apr_psprintf(p, "<rect x=\"%d\" y=\"%d\" width=\"8\" height=\"%d\" fill=\"%s\"/>", i * 10 + 1,
                             CHART_HEIGHT - height, height ? height : 1, chart->colour);
        }
    }
    APR_ARRAY_PUSH(bars, const char *) = "</svg>\n";
    return apr_array_pstrcat(p, bars, 0);
}

static const char *totals(apr_pool_t *p, const idem_status_t *status)
{
    const char *out = "<h2>Since the counters began</h2>\n<table>";
    int i;

    for (i = 0; i < IDEM_COUNTED; i++) {
        if (status->counters.totals[i] || i < IDEM_COUNT_UNPROTECTED) {
            out = apr_psprintf(p, "%s<tr><td>%s</td><td class=\"n\">%" APR_UINT64_T_FMT "</td></tr>\n", out,
                               idem_counters_word(i), status->counters.totals[i]);
        }
    }
    return apr_pstrcat(p, out, "</table>\n", NULL);
}

static const char *store(apr_pool_t *p, const idem_status_t *status)
{
    const char *out = apr_psprintf(p, "<h2>Registry</h2>\n<p>The registry %s. Writer epoch of this server: %d%s. A reserve takes "
                                   "%.1f %% of the tightest budget, %.0f ms (99th percentile).</p>\n<table>",
                                   status->store_answers ? "answers" : "<span class=\"bad\">does not answer</span>",
                                   status->writer_epoch,
                                   status->store_answers ? apr_psprintf(p, ", of the registry: %d", status->registry.writer_epoch) : "",
                                   idem_status_budget_share(status), (double)status->budget / 1000.0);
    int i;

    for (i = 0; i < IDEM_STATUS_TIMES; i++) {
        out = apr_psprintf(p, "%s<tr><td>%s</td><td class=\"n\">below %.1f ms</td></tr>\n", out, idem_status_times[i].name,
                           (double)idem_counters_percentile(&status->counters, idem_status_times[i].call,
                                                            idem_status_times[i].share) / 1000.0);
    }
    out = apr_pstrcat(p, out, "</table>\n<table><tr><th>child</th><th>connections</th><th>idle</th><th>breaker</th>"
                              "<th>running</th><th>waiting writes</th></tr>\n", NULL);
    for (i = 0; i < status->counters.child_count; i++) {
        const idem_child_view_t *child = &status->counters.children[i];

        out = apr_psprintf(p, "%s<tr><td>%d</td><td>%d</td><td>%d</td><td%s</td><td>%d</td><td>%d</td></tr>\n", out,
                           child->pid, child->open, child->idle, child->away ? " class=\"bad\">open" : ">closed",
                           child->running, child->chores);
    }
    return apr_pstrcat(p, out, "</table>\n", NULL);
}

static const char *age(apr_pool_t *p, apr_time_t since)
{
    apr_int64_t seconds = since ? apr_time_sec(apr_time_now() - since) : 0;

    return seconds < 120     ? apr_psprintf(p, "%" APR_INT64_T_FMT " s", seconds)
           : seconds < 7200  ? apr_psprintf(p, "%" APR_INT64_T_FMT " min", seconds / 60)
           : seconds < 172800 ? apr_psprintf(p, "%" APR_INT64_T_FMT " h", seconds / 3600)
                             : apr_psprintf(p, "%" APR_INT64_T_FMT " d", seconds / 86400);
}

static const char *doubts(apr_pool_t *p, const idem_status_t *status)
{
    const char *out = apr_psprintf(p, "<h2>Unknown outcomes, oldest first%s</h2>\n",
                                   status->registry.unknown > IDEM_STATUS_MOST
                                       ? apr_psprintf(p, ": %d of %d%s", IDEM_STATUS_MOST, status->registry.unknown,
                                                      status->registry.unknown == IDEM_OVERVIEW_MOST ? " or more" : "")
                                       : "");
    int i;

    if (!status->unknown->nelts) {
        return apr_pstrcat(p, out, status->store_answers ? "<p>None.</p>\n" : "<p>Not known now.</p>\n", NULL);
    }
    out = apr_pstrcat(p, out, "<p>Look at the business, then say what happened: <code>idempotencyctl resolve OPERATION "
                              "--succeeded|--failed|--not-executed --reason TEXT</code></p>\n", NULL);
    if (status->unknown_late) {
        out = apr_psprintf(p, "%s<p class=\"bad\">%d of them past the recovery objective of their route.</p>\n", out,
                           status->unknown_late);
    }
    out = apr_pstrcat(p, out, "<table><tr><th>operation</th><th>route</th><th>age</th></tr>\n", NULL);
    for (i = 0; i < status->unknown->nelts; i++) {
        const idem_record_t *record = APR_ARRAY_IDX(status->unknown, i, const idem_record_t *);

        out = apr_pstrcat(p, out, "<tr><td>", idem_uuid_text(p, record->operation), "</td><td>",
                          ap_escape_html(p, record->scope.route), "</td><td>", age(p, record->created_at), "</td></tr>\n",
                          NULL);
    }
    return apr_pstrcat(p, out, "</table>\n", NULL);
}

static const char *running(apr_pool_t *p, const idem_status_t *status)
{
    const char *out = apr_psprintf(p, "<h2>Executed now, oldest first: %d</h2>\n", status->running_count);
    int i;

    if (!status->running->nelts) {
        return apr_pstrcat(p, out, "<p>None on this server.</p>\n", NULL);
    }
    out = apr_pstrcat(p, out, "<table><tr><th>operation</th><th>route</th><th>for</th><th>child</th></tr>\n", NULL);
    for (i = 0; i < status->running->nelts; i++) {
        const idem_running_t *one = &APR_ARRAY_IDX(status->running, i, idem_running_t);

        out = apr_psprintf(p, "%s<tr><td>%s</td><td>%s</td><td>%s</td><td>%u</td></tr>\n", out,
                           idem_uuid_text(p, one->operation), ap_escape_html(p, one->route), age(p, one->since), one->pid);
    }
    return apr_pstrcat(p, out, "</table>\n", NULL);
}

/* One row of a table of two columns. */
static const char *line(apr_pool_t *p, const char *name, const char *value, int bad)
{
    return apr_pstrcat(p, "<tr><td>", name, "</td><td class=\"n", bad ? " bad" : "", "\">", value, "</td></tr>\n", NULL);
}

static const char *to_bound(apr_pool_t *p, int count)
{
    return apr_psprintf(p, "%d%s", count, count == IDEM_OVERVIEW_MOST ? " or more" : "");
}

static const char *housekeeping(apr_pool_t *p, const idem_status_t *status)
{
    const idem_swept_t *swept = &status->counters.swept;
    const idem_journal_depth_t *journal = &status->journal;
    const char *out = "<h2>Sweep and journal</h2>\n<table>";

    if (status->store_answers) {
        out = apr_pstrcat(p, out, line(p, "records, about", apr_itoa(p, status->registry.records), 0),
                          line(p, "due for the sweep", to_bound(p, status->registry.due), 0),
                          line(p, "the first of them since", age(p, apr_time_now() - status->registry.behind), 0), NULL);
    }
    out = apr_pstrcat(p, out, line(p, "swept by this server", apr_psprintf(p, "%" APR_UINT64_T_FMT " in %" APR_UINT64_T_FMT
                                                                           " batches", swept->looked, swept->batches), 0),
                      line(p, "expired, removed, unknown", apr_psprintf(p, "%" APR_UINT64_T_FMT ", %" APR_UINT64_T_FMT ", %"
                                                                        APR_UINT64_T_FMT, swept->expired, swept->removed,
                                                                        swept->unknown), 0),
                      line(p, "longest batch", apr_psprintf(p, "%.1f ms", (double)swept->longest / 1000.0), 0),
                      line(p, "last batch", swept->last ? apr_pstrcat(p, age(p, swept->last), " ago", NULL) : "none yet", 0), NULL);
    if (!status->has_journal) {
        return apr_pstrcat(p, out, line(p, "journal", "none (IdempotencyJournal)", 0), "</table>\n", NULL);
    }
    return apr_pstrcat(p, out, line(p, "in the journal", journal->waiting < 0 ? "its folder cannot be read" : apr_itoa(p, journal->waiting),
                                    journal->waiting != 0),
                       journal->oldest ? line(p, "the oldest of them since", age(p, journal->oldest), 1) : "",
                       line(p, "put aside", apr_itoa(p, journal->aside), journal->aside > 0), "</table>\n", NULL);
}

static const char *routes(apr_pool_t *p, const idem_status_t *status)
{
    const char *out = "<h2>Routes</h2>\n<table><tr><th>route</th><th>place</th><th>mode</th><th>epoch</th></tr>\n";
    int i;

    for (i = 0; i < status->routes->nelts; i++) {
        const idem_status_route_t *route = &APR_ARRAY_IDX(status->routes, i, idem_status_route_t);
        int fenced = status->store_answers && route->writer_epoch < status->registry.writer_epoch;

        out = apr_psprintf(p, "%s<tr><td>%s</td><td>%s %s</td><td>%s</td><td%s>%d%s</td></tr>\n", out,
                           ap_escape_html(p, route->route), ap_escape_html(p, route->server), ap_escape_html(p, route->path),
                           route->mode, fenced ? " class=\"bad\"" : "", route->writer_epoch, fenced ? ", only replays" : "");
    }
    return apr_pstrcat(p, out, "</table>\n", NULL);
}

const char *idem_status_html(request_rec *r, const idem_status_t *status)
{
    apr_pool_t *p = r->pool;
    const char *out = apr_pstrcat(p, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                                     "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
                                     "<link rel=\"icon\" href=\"data:,\"><title>Idempotency: status</title><style>", style,
                                  "</style></head><body>\n<h1>Idempotency</h1>\n<p>Counted since ",
                                  idem_page_time(p, status->counters.since), ". The same as <a href=\"?format=json\">JSON</a> "
                                  "and <a href=\"?format=metrics\">OpenMetrics</a>.</p>\n", NULL);
    size_t i;

    for (i = 0; i < sizeof(charts) / sizeof(charts[0]); i++) {
        out = apr_pstrcat(p, out, draw(p, status, &charts[i]), NULL);
    }
    return apr_pstrcat(p, out, doubts(p, status), running(p, status), routes(p, status), store(p, status), housekeeping(p, status),
                       totals(p, status), "</body></html>\n", NULL);
}

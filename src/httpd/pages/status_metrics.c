/* The status page's numbers as OpenMetrics. */
#include <apr_strings.h>

#include "httpd/pages/status_page.h"

/* A family of one sample. */
static const char *gauge(apr_pool_t *p, const char *name, const char *help, double value)
{
    return apr_psprintf(p, "# HELP idempotency_%s %s\n# TYPE idempotency_%s gauge\nidempotency_%s %.10g\n", name, help, name, name,
                        value);
}

/* A label's value: the format escapes these three. */
static const char *label(apr_pool_t *p, const char *text)
{
    char *escaped = apr_palloc(p, 2 * strlen(text) + 1);
    char *to = escaped;

    for (; *text; text++) {
        if (*text == '\\' || *text == '"' || *text == '\n') {
            *to++ = '\\';
        }
        *to++ = *text == '\n' ? 'n' : *text;
    }
    *to = '\0';
    return escaped;
}

static const char *requests(apr_pool_t *p, const idem_status_t *status)
{
    const char *out = "# HELP idempotency_requests Keyed requests by what became of them.\n"
                      "# TYPE idempotency_requests counter\n";
    int i;

    for (i = 0; i < IDEM_COUNTED; i++) {
        out = apr_psprintf(p, "%sidempotency_requests_total{outcome=\"%s\"} %" APR_UINT64_T_FMT "\n", out,
                           idem_counters_word(i), status->counters.totals[i]);
    }
    return out;
}

static const char *times(apr_pool_t *p, const idem_status_t *status)
{
    static const char *const calls[IDEM_TIMED] = {"reserve", "settle"};
    const char *out = "# HELP idempotency_store_seconds Time of calls to the registry.\n"
                      "# TYPE idempotency_store_seconds histogram\n# UNIT idempotency_store_seconds seconds\n";
    int call;
    int i;

    for (call = 0; call < IDEM_TIMED; call++) {
        apr_uint64_t below = 0;

        for (i = 0; i < IDEM_TIME_BUCKETS - 1; i++) {
            below += status->counters.times[call][i];
            if (i % IDEM_TIME_STEPS == 0) {
                out = apr_psprintf(p, "%sidempotency_store_seconds_bucket{call=\"%s\",le=\"%.6f\"} %" APR_UINT64_T_FMT "\n", out,
                                   calls[call], (double)idem_counters_bound(i) / 1e6, below);
            }
        }
        below += status->counters.times[call][i];
        out = apr_psprintf(p, "%sidempotency_store_seconds_bucket{call=\"%s\",le=\"+Inf\"} %" APR_UINT64_T_FMT "\n"
                           "idempotency_store_seconds_count{call=\"%s\"} %" APR_UINT64_T_FMT "\n", out, calls[call], below,
                           calls[call], below);
    }
    return out;
}

static const char *operations(apr_pool_t *p, const idem_status_t *status)
{
    const idem_running_t *oldest = status->running->nelts ? &APR_ARRAY_IDX(status->running, 0, idem_running_t) : NULL;
    const idem_record_t *doubt = status->unknown->nelts ? APR_ARRAY_IDX(status->unknown, 0, const idem_record_t *) : NULL;
    apr_time_t now = apr_time_now();
    int running = 0;
    int i;

    for (i = 0; i < status->counters.child_count; i++) {
        running += status->counters.children[i].running;
    }
    return apr_pstrcat(p, gauge(p, "running", "Operations that are executed now.", running),
                       gauge(p, "running_oldest_seconds", "How long the oldest of them has run.",
                             oldest ? (double)(now - oldest->since) / 1e6 : 0),
                       gauge(p, "unknown", "Operations of unknown outcome, at most 1000.",
                             status->store_answers ? status->registry.unknown : 0),
                       gauge(p, "unknown_oldest_seconds", "How long the oldest of them has been unknown.",
                             doubt ? (double)(now - idem_status_doubt_since(doubt)) / 1e6 : 0),
                       gauge(p, "unknown_past_objective", "Operations that are unknown for longer than IdempotencyRecoveryObjective, at most 50.",
                             status->unknown_late),
                       gauge(p, "store_up", "Whether the registry answered just now.", status->store_answers),
                       gauge(p, "latency_budget_seconds", "The tightest IdempotencyLatencyBudget.", (double)status->budget / 1e6), NULL);
}

static const char *housekeeping(apr_pool_t *p, const idem_status_t *status)
{
    const idem_swept_t *swept = &status->counters.swept;
    const idem_journal_depth_t *journal = &status->journal;

    return apr_pstrcat(
        p, gauge(p, "records", "Records in the registry, about.", status->registry.records),
        gauge(p, "sweep_due", "Records that the sweep has yet to look at, at most 1000.", status->registry.due),
        gauge(p, "sweep_behind_seconds", "Since when the first of them is due.", (double)status->registry.behind / 1e6),
        apr_psprintf(p, "# HELP idempotency_swept Records that this server's sweep has looked at, and what became of them.\n"
                        "# TYPE idempotency_swept counter\nidempotency_swept_total{fate=\"expired\"} %" APR_UINT64_T_FMT "\n"
                        "idempotency_swept_total{fate=\"removed\"} %" APR_UINT64_T_FMT "\n"
                        "idempotency_swept_total{fate=\"unknown\"} %" APR_UINT64_T_FMT "\n"
                        "idempotency_swept_total{fate=\"looked_at\"} %" APR_UINT64_T_FMT "\n"
                        "# HELP idempotency_sweep_batches Batches of this server's sweep.\n"
                        "# TYPE idempotency_sweep_batches counter\nidempotency_sweep_batches_total %" APR_UINT64_T_FMT "\n",
                     swept->expired, swept->removed, swept->unknown, swept->looked, swept->batches),
        gauge(p, "sweep_longest_batch_seconds", "The longest of them.", (double)swept->longest / 1e6),
        gauge(p, "journal_readable", "Whether the journal's folder can be read; 1 without a journal.", journal->waiting >= 0),
        gauge(p, "journal_entries", "Settlements in the journal that wait for the registry.", journal->waiting < 0 ? 0 : journal->waiting),
        gauge(p, "journal_oldest_seconds", "How long the oldest of them has waited.",
              journal->oldest ? (double)(apr_time_now() - journal->oldest) / 1e6 : 0),
        gauge(p, "journal_aside", "Settlements that were put aside, with a reason.", journal->aside), NULL);
}

static const char *routes(apr_pool_t *p, const idem_status_t *status)
{
    const char *out = apr_pstrcat(p, gauge(p, "registry_epoch", "The registry's writer epoch.", status->registry.writer_epoch),
                                  "# HELP idempotency_route_writer_epoch The writer epoch of a route's server, with the route's mode.\n"
                                  "# TYPE idempotency_route_writer_epoch gauge\n", NULL);
    int i;

    for (i = 0; i < status->routes->nelts; i++) {
        const idem_status_route_t *route = &APR_ARRAY_IDX(status->routes, i, idem_status_route_t);

        /* the number tells apart what is alike: two places may have one path */
        out = apr_psprintf(p, "%sidempotency_route_writer_epoch{place=\"%d\",server=\"%s\",path=\"%s\",route=\"%s\",mode=\"%s\"} %d\n",
                           out, i, label(p, route->server), label(p, route->path), label(p, route->route), route->mode,
                           route->writer_epoch);
    }
    return out;
}

const char *idem_status_metrics(apr_pool_t *p, const idem_status_t *status)
{
    return apr_pstrcat(p, requests(p, status), times(p, status), operations(p, status), housekeeping(p, status), routes(p, status),
                       "# EOF\n", NULL);
}

/*
 * status_page.h - the numbers of the status page, and its three forms: they all show the same ones.
 */
#ifndef IDEM_HTTPD_STATUS_PAGE_H
#define IDEM_HTTPD_STATUS_PAGE_H

#include <httpd.h>

#include "core/uuid.h"
#include "httpd/setup/config.h"
#include "httpd/child/counters.h"
#include "httpd/child/inflight.h"
#include "store/journal.h"
#include "store/store.h"

#define IDEM_STATUS_MOST 50 /* operations in a list */

/* One route as it stands in one place of one server. */
typedef struct idem_status_route_t {
    const char *server;
    const char *path;
    const char *route;
    const char *revision;
    const char *mode;   /* as the directive has it */
    const char *effect;
    int writer_epoch;   /* of its server */
    apr_interval_time_t budget;
    apr_interval_time_t objective;
} idem_status_route_t;

typedef struct idem_status_t {
    idem_counters_view_t counters;
    int store_answers;
    int writer_epoch;            /* of this server */
    idem_overview_t registry;    /* with store_answers */
    apr_array_header_t *unknown; /* of const idem_record_t *, oldest first */
    int unknown_late;            /* of those listed: past their route's objective */
    apr_array_header_t *running; /* of idem_running_t, oldest first */
    int running_count;
    apr_array_header_t *routes;  /* of idem_status_route_t */
    apr_interval_time_t budget;  /* the tightest of them; 0: there is no route */
    apr_interval_time_t objective; /* likewise */
    int has_journal;
    idem_journal_depth_t journal;/* of all folders together */
} idem_status_t;

/* Which percentiles are shown, and under which names. */
#define IDEM_STATUS_TIMES 6
extern const struct idem_status_time_t {
    const char *name;
    idem_timed_e call;
    double share;
} idem_status_times[IDEM_STATUS_TIMES];

/* Gathers all of it: shared memory, the configuration, the journal's folder, and two bounded calls to the registry. */
idem_status_t *idem_status_look(request_rec *r);

/* How large a share of the tightest budget a reserve takes, 99th percentile, in percent. */
double idem_status_budget_share(const idem_status_t *status);

/* Since when an operation is in doubt. */
apr_time_t idem_status_doubt_since(const idem_record_t *record);

const char *idem_status_html(request_rec *r, const idem_status_t *status);
const char *idem_status_metrics(apr_pool_t *p, const idem_status_t *status);

#endif

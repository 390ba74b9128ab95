/*
 * status_page.h - the status page as HTML and as OpenMetrics, from one set of numbers.
 */
#ifndef IDEM_HTTPD_STATUS_PAGE_H
#define IDEM_HTTPD_STATUS_PAGE_H

#include <httpd.h>

#include "core/uuid.h"
#include "httpd/counters.h"
#include "store/store.h"

typedef struct idem_status_t {
    idem_counters_view_t counters;
    apr_array_header_t *unknown; /* of const idem_record_t *, oldest first */
    int store_answers;
    int writer_epoch;
} idem_status_t;

/* Which percentiles are shown, and under which names. */
#define IDEM_STATUS_TIMES 6
extern const struct idem_status_time_t {
    const char *name;
    idem_timed_e call;
    double share;
} idem_status_times[IDEM_STATUS_TIMES];

const char *idem_status_html(request_rec *r, const idem_status_t *status);
const char *idem_status_metrics(apr_pool_t *p, const idem_status_t *status);

#endif

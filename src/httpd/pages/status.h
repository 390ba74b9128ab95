/*
 * status.h - `SetHandler idempotency-status`: where things stand, for the operator. CONTRACT section 10.
 *
 * HTML with charts, JSON with ?format=json, OpenMetrics with ?format=metrics, all from the same numbers. It only looks:
 * what can be done about an operation it names by its command.
 */
#ifndef IDEM_HTTPD_STATUS_H
#define IDEM_HTTPD_STATUS_H

#include <httpd.h>

/* Hook post_config: gives every server its counters. */
void idem_status_open(server_rec *main_server);

int idem_status_handler(request_rec *r);

#endif

/*
 * policy.h - `SetHandler idempotency-policy`: what a client has to know, made from the running configuration.
 * CONTRACT section 5 "Discovery".
 */
#ifndef IDEM_HTTPD_POLICY_H
#define IDEM_HTTPD_POLICY_H

#include <httpd.h>

/* HTML for people, JSON for machines (?format=json, or Accept). Problem types link to its anchors. */
int idem_policy_handler(request_rec *r);

#endif

/*
 * run.h - the backend runs, once, and the module learns how it went. CONTRACT section 4, rules 1 and 2.
 */
#ifndef IDEM_HTTPD_RUN_H
#define IDEM_HTTPD_RUN_H

#include <httpd.h>
#include <http_core.h>

#include "httpd/request/context.h"

/*
 * Hook handler, REALLY_FIRST, decided by the context alone: mod_dir, mod_rewrite and SetHandler all rewrite
 * r->handler. Reserves, and then lets httpd look for the real handler below itself, so that it sees what that
 * handler returns, whether or not the response ever came through the filters.
 */
int idem_run(request_rec *r);

/* Hook error_log: httpd's own lines say whether a request was ever sent to a backend. */
void idem_run_watch_log(const ap_errorlog_info *info, const char *message);

/* Hook log_transaction: notes for the access log, and the last resort for what was never settled. */
int idem_run_finish(request_rec *r);

#endif

/*
 * taken.h - what another module takes of the request body before we read it: a token looked for in a form, a rule.
 *
 * Whoever reads a body through r->input_filters before fixups reads it through a filter of ours, which keeps what passes,
 * within the limits of the route and in the same kind of spool as a body of our own. So the fingerprint is over all of
 * the body, and the handler finds all of it. Nothing is kept, nor any filter put in, for a request that has no key.
 */
#ifndef IDEM_HTTPD_TAKEN_H
#define IDEM_HTTPD_TAKEN_H

#include "httpd/request/context.h"
#include "httpd/request/spool.h"

/* What had happened to the body before we came. */
typedef enum {
    IDEM_TAKEN_NOTHING,
    IDEM_TAKEN_KEPT,      /* its beginning, or all of it, is in the spool */
    IDEM_TAKEN_TOO_LARGE, /* more than the route takes */
    IDEM_TAKEN_LOST       /* read where we could not see it, or what was read cannot be had again */
} idem_taken_e;

/*
 * Hook post_read_request, for every request in a server with routes that may have a key: sees whether anybody reads the body at all. A length
 * tells that for most requests, but not for a chunked one that was read to its end.
 */
void idem_taken_watch(request_rec *r, idem_ctx_t *ctx);

/* Hook header_parser: the sections are merged and nobody has been authenticated. Begins to keep, for a keyed request. */
int idem_taken_begin(request_rec *r);

/* Ends both; to be called in fixups, before anything is decided. */
void idem_taken_end(const idem_ctx_t *ctx);

/* What it was, after that end. KEPT: *spool is the context's, and *ended tells whether it has the whole body. */
idem_taken_e idem_taken_what(const request_rec *r, const idem_ctx_t *ctx, idem_spool_t **spool, int *ended);

/*
 * Hook insert_filter, last: mod_auth_openidc gives back a form that it has read by a filter of its own, which appends it
 * to what comes from below. From us it comes whole, so that filter is taken out.
 */
void idem_taken_insert(request_rec *r);

/* Registers the filters. */
void idem_taken_register(void);

#endif

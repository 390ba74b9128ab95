/*
 * spool.h - a request body that is kept: in memory while it is small, else in a temporary file that has no name, so
 * that a killed process leaves no payload behind.
 */
#ifndef IDEM_HTTPD_SPOOL_H
#define IDEM_HTTPD_SPOOL_H

#include <apr_buckets.h>
#include <apr_file_io.h>

#include "httpd/request/pile.h"

typedef struct idem_spool_t {
    idem_pile_t memory; /* all of it, while there is no file */
    apr_file_t *file;   /* all of it, once there was more than fits */
    apr_off_t length;
    apr_off_t most;     /* octets in memory */
} idem_spool_t;

/* An empty one in p, which keeps at most so many octets in memory. */
void idem_spool_begin(idem_spool_t *spool, apr_pool_t *p, apr_off_t most);

/* Adds a piece. APR_SUCCESS, or why it cannot be kept: no disk, no memory. */
apr_status_t idem_spool_add(idem_spool_t *spool, const char *octets, apr_size_t len);

/* Reads all of it from the start, piece by piece; ends at the first piece that is not taken and returns its answer. */
typedef apr_status_t idem_spool_reader_fn(void *baton, const void *octets, apr_size_t len);
apr_status_t idem_spool_read(idem_spool_t *spool, idem_spool_reader_fn *reader, void *baton);

/* Appends all of it to bb, as buckets that are good while the spool's pool is. */
void idem_spool_append_to(const idem_spool_t *spool, apr_bucket_brigade *bb);

/* Forgets all of it and gives memory and file back. */
void idem_spool_drop(idem_spool_t *spool);

#endif

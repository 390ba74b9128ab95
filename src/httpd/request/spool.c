#include "httpd/request/spool.h"

#include <string.h>

#include <apr_strings.h>

#define READ_SIZE 32768

void idem_spool_begin(idem_spool_t *spool, apr_pool_t *p, apr_off_t most)
{
    memset(spool, 0, sizeof(*spool));
    idem_pile_begin(&spool->memory, p);
    spool->most = most;
}

static apr_status_t open_file(idem_spool_t *spool)
{
    apr_pool_t *p = spool->memory.pool;
    const char *dir;
    char *name;
    apr_status_t rv = apr_temp_dir_get(&dir, p);

    if (rv != APR_SUCCESS) {
        return rv;
    }
    name = apr_pstrcat(p, dir, "/idempotency.XXXXXX", NULL);
    rv = apr_file_mktemp(&spool->file, name,
                         APR_FOPEN_CREATE | APR_FOPEN_READ | APR_FOPEN_WRITE | APR_FOPEN_EXCL | APR_FOPEN_BINARY, p);
    return rv == APR_SUCCESS ? apr_file_remove(name, p) : rv;
}

/* Moves what is in memory to a file. */
static apr_status_t spill(idem_spool_t *spool)
{
    apr_status_t rv = open_file(spool);

    if (rv == APR_SUCCESS) {
        rv = apr_file_write_full(spool->file, spool->memory.octets, spool->memory.len, NULL);
    }
    idem_pile_drop(&spool->memory);
    return rv;
}

apr_status_t idem_spool_add(idem_spool_t *spool, const char *octets, apr_size_t len)
{
    apr_status_t rv = APR_SUCCESS;

    if (!spool->file && spool->length + (apr_off_t)len > spool->most) {
        rv = spill(spool);
    }
    if (rv == APR_SUCCESS) {
        rv = spool->file ? apr_file_write_full(spool->file, octets, len, NULL)
                         : idem_pile_add(&spool->memory, octets, len);
    }
    spool->length += (apr_off_t)len;
    return rv;
}

static apr_status_t read_file(idem_spool_t *spool, idem_spool_reader_fn *reader, void *baton)
{
    char *buffer = apr_palloc(spool->memory.pool, READ_SIZE);
    apr_off_t at = 0;
    apr_status_t rv = apr_file_seek(spool->file, APR_SET, &at);

    while (rv == APR_SUCCESS) {
        apr_size_t len = READ_SIZE;

        rv = apr_file_read(spool->file, buffer, &len);
        if (rv == APR_SUCCESS) {
            rv = reader(baton, buffer, len);
        }
        else if (APR_STATUS_IS_EOF(rv)) {
            return APR_SUCCESS;
        }
    }
    return rv;
}

apr_status_t idem_spool_read(idem_spool_t *spool, idem_spool_reader_fn *reader, void *baton)
{
    if (spool->file) {
        return read_file(spool, reader, baton);
    }
    return spool->memory.len ? reader(baton, spool->memory.octets, spool->memory.len) : APR_SUCCESS;
}

void idem_spool_append_to(const idem_spool_t *spool, apr_bucket_brigade *bb)
{
    if (spool->file) {
        apr_brigade_insert_file(bb, spool->file, 0, spool->length, spool->memory.pool);
    }
    else if (spool->memory.len) {
        APR_BRIGADE_INSERT_TAIL(bb, apr_bucket_immortal_create(spool->memory.octets, spool->memory.len, bb->bucket_alloc));
    }
}

void idem_spool_drop(idem_spool_t *spool)
{
    if (spool->file) {
        apr_file_close(spool->file);
    }
    idem_pile_drop(&spool->memory);
    idem_spool_begin(spool, spool->memory.pool, spool->most);
}

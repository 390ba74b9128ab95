#include <string.h>

#include "core/large.h"
#include "store/pgsql_exec.h"

void idem_pg_params_begin(idem_pg_params_t *params, apr_pool_t *p)
{
    params->p = p;
    params->count = 0;
}

static void add(idem_pg_params_t *params, const void *value, apr_size_t len)
{
    /* every caller is a fixed list in this room; a list that is too long is a fault of the build, not of the input */
    if (params->count < IDEM_PG_MAX_PARAMS) {
        params->values[params->count] = value;
        params->lengths[params->count] = (int)len;
        params->count++;
    }
}

static unsigned char *put_big_endian(unsigned char *to, apr_uint64_t value, int octets)
{
    int i;

    for (i = octets - 1; i >= 0; i--) {
        to[i] = (unsigned char)(value & 0xff);
        value >>= 8;
    }
    return to + octets;
}

static void add_number(idem_pg_params_t *params, apr_int64_t value, int octets)
{
    unsigned char *to = apr_palloc(params->p, octets);

    put_big_endian(to, (apr_uint64_t)value, octets);
    add(params, to, octets);
}

void idem_pg_add_text(idem_pg_params_t *params, const char *text)
{
    add(params, text, text ? strlen(text) : 0);
}

/* The head of an array in the server's binary form, which the elements follow: each its length, then its octets. */
#define ARRAY_HEAD 20

static unsigned char *put_array_head(unsigned char *to, Oid type, int has_null, int count)
{
    to = put_big_endian(to, 1, 4); /* dimensions */
    to = put_big_endian(to, (apr_uint64_t)has_null, 4);
    to = put_big_endian(to, type, 4);
    to = put_big_endian(to, (apr_uint64_t)count, 4);
    return put_big_endian(to, 1, 4); /* first subscript */
}

static unsigned char *put_element(unsigned char *to, const void *value, apr_size_t len)
{
    if (!value) {
        return put_big_endian(to, APR_UINT32_MAX, 4);
    }
    to = put_big_endian(to, len, 4);
    memcpy(to, value, len);
    return to + len;
}

void idem_pg_add_texts(idem_pg_params_t *params, const char *const *texts)
{
    apr_size_t size = ARRAY_HEAD;
    int count = 0;
    unsigned char *array;
    unsigned char *to;
    int i;

    for (count = 0; texts[count]; count++) {
        size += 4 + strlen(texts[count]);
    }
    array = apr_palloc(params->p, size);
    to = put_array_head(array, idem_pg_type('t'), 0, count);
    for (i = 0; i < count; i++) {
        to = put_element(to, texts[i], strlen(texts[i]));
    }
    add(params, array, size);
}

static void add_column(idem_pg_params_t *params, Oid type, const idem_pg_params_t *rows, int n, int column)
{
    apr_size_t size = ARRAY_HEAD;
    int has_null = 0;
    unsigned char *array;
    unsigned char *to;
    int i;

    for (i = 0; i < n; i++) {
        size += 4 + (apr_size_t)rows[i].lengths[column];
        has_null |= !rows[i].values[column];
    }
    array = idem_large_alloc(params->p, size);
    array = array ? array : apr_palloc(params->p, size);
    to = put_array_head(array, type, has_null, n);
    for (i = 0; i < n; i++) {
        to = put_element(to, rows[i].values[column], (apr_size_t)rows[i].lengths[column]);
    }
    add(params, array, (apr_size_t)(to - array));
}

void idem_pg_add_columns(idem_pg_params_t *params, const char *one, const char *many, const idem_pg_params_t *rows, int n)
{
    int column;

    for (column = 0; one[column]; column++) {
        if (one[column] == many[column]) {
            add(params, rows[0].values[column], (apr_size_t)rows[0].lengths[column]);
        }
        else {
            add_column(params, idem_pg_type(one[column]), rows, n, column);
        }
    }
}

void idem_pg_add_octets(idem_pg_params_t *params, const idem_octets_t *octets)
{
    add(params, octets->octets, octets->octets ? octets->len : 0);
}

void idem_pg_add_present(idem_pg_params_t *params, const idem_octets_t *octets)
{
    add(params, octets->octets ? (const void *)octets->octets : "", octets->octets ? octets->len : 0);
}

void idem_pg_add_digest(idem_pg_params_t *params, const unsigned char *octets, apr_size_t len)
{
    add(params, octets, len);
}

void idem_pg_add_uuid(idem_pg_params_t *params, const unsigned char *uuid)
{
    static const unsigned char nobody[IDEM_UUID_LEN];

    add(params, uuid && memcmp(uuid, nobody, IDEM_UUID_LEN) ? uuid : NULL, IDEM_UUID_LEN);
}

void idem_pg_add_int(idem_pg_params_t *params, int value)
{
    add_number(params, value, 4);
}

void idem_pg_add_int_or_null(idem_pg_params_t *params, int value)
{
    if (value) {
        add_number(params, value, 4);
    }
    else {
        add(params, NULL, 0);
    }
}

void idem_pg_add_long(idem_pg_params_t *params, apr_int64_t value)
{
    add_number(params, value, 8);
}

void idem_pg_add_bool(idem_pg_params_t *params, int value)
{
    add_number(params, value ? 1 : 0, 1);
}

void idem_pg_add_interval(idem_pg_params_t *params, apr_interval_time_t value)
{
    /* Microseconds only. A day of the interval type has 23 or 25 hours in some time zones, and these are durations. */
    unsigned char *to = apr_pcalloc(params->p, 16);

    put_big_endian(to, (apr_uint64_t)value, 8);
    add(params, to, 16);
}

void idem_pg_add_scope(idem_pg_params_t *params, const idem_scope_t *scope)
{
    idem_pg_add_text(params, scope->version);
    idem_pg_add_text(params, scope->tenant);
    idem_pg_add_text(params, scope->principal);
    idem_pg_add_text(params, scope->route);
    idem_pg_add_text(params, scope->revision);
    idem_pg_add_text(params, scope->ns);
    idem_pg_add_text(params, scope->key);
}

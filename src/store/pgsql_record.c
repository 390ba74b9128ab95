#include <string.h>

#include <apr_strings.h>

#include "core/large.h"
#include "store/pgsql_call.h"

/* The store's epoch is 2000-01-01, APR's is 1970-01-01. */
#define EPOCH_DIFFERENCE (APR_INT64_C(946684800) * APR_USEC_PER_SEC)
#define DAY (APR_INT64_C(86400) * APR_USEC_PER_SEC)

static apr_int64_t get_big_endian(const char *from, int octets)
{
    const unsigned char *octet = (const unsigned char *)from;
    apr_uint64_t value = 0;
    int i;

    for (i = 0; i < octets; i++) {
        value = value << 8 | octet[i];
    }
    return octets == 4 ? (apr_int32_t)value : (apr_int64_t)value;
}

static int has(const PGresult *rows, int row, int column, int octets)
{
    return !PQgetisnull(rows, row, column) && PQgetlength(rows, row, column) == octets;
}

int idem_pg_get_bool(const PGresult *rows, int row, int column)
{
    return has(rows, row, column, 1) && *PQgetvalue(rows, row, column) != 0;
}

int idem_pg_get_int(const PGresult *rows, int row, int column)
{
    return has(rows, row, column, 4) ? (int)get_big_endian(PQgetvalue(rows, row, column), 4) : 0;
}

apr_interval_time_t idem_pg_get_interval(const PGresult *rows, int row, int column)
{
    const char *value = PQgetvalue(rows, row, column);

    if (!has(rows, row, column, 16)) {
        return 0;
    }
    /* a difference of two times has no months, and its days have 24 hours */
    return get_big_endian(value, 8) + get_big_endian(value + 8, 4) * DAY;
}

apr_time_t idem_pg_get_time(const PGresult *rows, int row, int column)
{
    apr_int64_t value;

    if (!has(rows, row, column, 8)) {
        return 0;
    }
    value = get_big_endian(PQgetvalue(rows, row, column), 8);
    return value == APR_INT64_MAX || value == APR_INT64_MIN ? value : value + EPOCH_DIFFERENCE;
}

char *idem_pg_get_text(const PGresult *rows, int row, int column, apr_pool_t *p)
{
    if (PQgetisnull(rows, row, column)) {
        return NULL;
    }
    return apr_pstrmemdup(p, PQgetvalue(rows, row, column), PQgetlength(rows, row, column));
}

void idem_pg_get_octets(const PGresult *rows, int row, int column, idem_octets_t *octets, apr_pool_t *p)
{
    unsigned char *to;

    octets->octets = NULL;
    octets->len = 0;
    if (!PQgetisnull(rows, row, column)) {
        octets->len = PQgetlength(rows, row, column);
        /* one more, as nothing of length 0 must look like NULL */
        to = idem_large_alloc(p, octets->len + 1);
        to = to ? to : apr_palloc(p, octets->len + 1);
        memcpy(to, PQgetvalue(rows, row, column), octets->len);
        octets->octets = to;
    }
}

void idem_pg_get_fixed(const PGresult *rows, int row, int column, unsigned char *to, apr_size_t len)
{
    if (has(rows, row, column, (int)len)) {
        memcpy(to, PQgetvalue(rows, row, column), len);
    }
    else {
        memset(to, 0, len);
    }
}

static const char *word(const PGresult *rows, int row, int column, char *buffer, apr_size_t size)
{
    apr_cpystrn(buffer, PQgetvalue(rows, row, column), size);
    return buffer;
}

idem_record_t *idem_pg_get_record(const PGresult *rows, int row, int column, apr_pool_t *p)
{
    idem_record_t *record;
    char name[32];
    int live;

    if (PQgetisnull(rows, row, column)) {
        return NULL;
    }
    record = apr_pcalloc(p, sizeof(*record));
    record->scope.version = idem_pg_get_text(rows, row, column++, p);
    record->scope.tenant = idem_pg_get_text(rows, row, column++, p);
    record->scope.principal = idem_pg_get_text(rows, row, column++, p);
    record->scope.route = idem_pg_get_text(rows, row, column++, p);
    record->scope.revision = idem_pg_get_text(rows, row, column++, p);
    record->scope.ns = idem_pg_get_text(rows, row, column++, p);
    record->scope.key = idem_pg_get_text(rows, row, column++, p);
    idem_pg_get_fixed(rows, row, column++, record->operation, IDEM_UUID_LEN);
    record->generation = idem_pg_get_int(rows, row, column++);
    idem_pg_get_fixed(rows, row, column++, record->owner, IDEM_UUID_LEN);
    idem_pg_get_fixed(rows, row, column++, record->owner_token, IDEM_UUID_LEN);
    record->state = idem_state_parse(word(rows, row, column++, name, sizeof(name)));
    record->outcome = PQgetisnull(rows, row, column) ? IDEM_OUTCOME_NONE
                                                     : idem_outcome_parse(word(rows, row, column, name, sizeof(name)));
    column++;
    record->effect = idem_effect_parse(word(rows, row, column++, name, sizeof(name)));
    idem_pg_get_fixed(rows, row, column++, record->fingerprint, IDEM_FINGERPRINT_LEN);
    idem_pg_get_octets(rows, row, column++, &record->recipe, p);
    idem_pg_get_octets(rows, row, column++, &record->fingerprint_parts, p);
    record->expired = idem_pg_get_bool(rows, row, column++);
    record->tombstone_over = idem_pg_get_bool(rows, row, column++);
    record->reuse_allowed = idem_pg_get_bool(rows, row, column++);
    record->age = idem_pg_get_interval(rows, row, column++);
    live = idem_pg_get_bool(rows, row, column++);
    record->lease_left = idem_pg_get_interval(rows, row, column++);
    record->owner_alive = record->lease_left > 0;
    record->lapsed = live && !record->owner_alive;
    record->attempts = idem_pg_get_int(rows, row, column++);
    record->attempt_open = idem_pg_get_bool(rows, row, column++);
    record->response_code = idem_pg_get_int(rows, row, column++);
    idem_pg_get_octets(rows, row, column++, &record->response_headers, p);
    idem_pg_get_octets(rows, row, column++, &record->response_body, p);
    idem_pg_get_octets(rows, row, column++, &record->response_digest, p);
    record->created_at = idem_pg_get_time(rows, row, column++);
    record->settled_at = idem_pg_get_time(rows, row, column++);
    record->expires_at = idem_pg_get_time(rows, row, column++);
    record->known_contract = idem_pg_get_bool(rows, row, column++);
    return record;
}

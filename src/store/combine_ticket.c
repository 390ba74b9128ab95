#include "store/combine_ticket.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include <apr_strings.h>

#define ROW_OVERHEAD 300 /* octets: ids, times, lengths */

static apr_size_t length_of(const char *text)
{
    return text ? strlen(text) : 0;
}

apr_size_t idem_row_octets(idem_kind_e kind, idem_row_t row)
{
    const idem_scope_t *scope;

    if (kind == IDEM_KIND_SETTLE) {
        return ROW_OVERHEAD + length_of(row.settle->tenant) + row.settle->response_headers.len +
               row.settle->response_body.len;
    }
    scope = &row.reserve->scope;
    return ROW_OVERHEAD + length_of(scope->tenant) + length_of(scope->principal) + length_of(scope->route) +
           length_of(scope->revision) + length_of(scope->key) + row.reserve->recipe.len +
           row.reserve->fingerprint_parts.len;
}

static void copy_octets(apr_pool_t *p, idem_octets_t *octets)
{
    if (octets->octets) {
        /* pstrmemdup: nothing of length 0 must look like NULL */
        octets->octets = (const unsigned char *)apr_pstrmemdup(p, (const char *)octets->octets, octets->len);
    }
}

static idem_reserve_t *copy_reserve(apr_pool_t *p, const idem_reserve_t *from)
{
    idem_reserve_t *copy = apr_pmemdup(p, from, sizeof(*copy));

    copy->scope = idem_scope_copy(p, &from->scope);
    copy->contract = apr_pstrdup(p, from->contract);
    copy_octets(p, &copy->recipe);
    copy_octets(p, &copy->fingerprint_parts);
    copy->pool = p;
    return copy;
}

static idem_settle_t *copy_settle(apr_pool_t *p, const idem_settle_t *from)
{
    idem_settle_t *copy = apr_pmemdup(p, from, sizeof(*copy));

    copy->tenant = apr_pstrdup(p, from->tenant);
    copy->actor = apr_pstrdup(p, from->actor);
    copy->reason = apr_pstrdup(p, from->reason);
    copy_octets(p, &copy->response_headers);
    copy_octets(p, &copy->response_body);
    copy_octets(p, &copy->response_digest);
    return copy;
}

idem_ticket_t *idem_ticket_create(idem_kind_e kind, idem_row_t row, apr_time_t deadline)
{
    idem_ticket_t *ticket;
    apr_pool_t *p;

    apr_pool_create(&p, NULL);
    ticket = apr_pcalloc(p, sizeof(*ticket));
    ticket->pool = p;
    atomic_init(&ticket->references, 2);
    ticket->kind = kind;
    ticket->until = idem_pg_moment_of(deadline);
    ticket->octets = idem_row_octets(kind, row);
    if (kind == IDEM_KIND_SETTLE) {
        ticket->row.settle = copy_settle(p, row.settle);
    }
    else {
        ticket->row.reserve = copy_reserve(p, row.reserve);
    }
    sem_init(&ticket->told, 0, 0);
    return ticket;
}

void idem_ticket_release(idem_ticket_t *ticket)
{
    if (atomic_fetch_sub(&ticket->references, 1) == 1) {
        sem_destroy(&ticket->told);
        apr_pool_destroy(ticket->pool);
    }
}

void idem_ticket_tell(idem_ticket_t *ticket)
{
    sem_post(&ticket->told); /* the caller's reference keeps it alive until here */
}

void idem_ticket_call(idem_ticket_t *ticket)
{
    if (ticket) {
        idem_ticket_tell(ticket);
        idem_ticket_release(ticket);
    }
}

int idem_ticket_wait(idem_ticket_t *ticket, apr_interval_time_t patience)
{
    idem_pg_moment_t end = idem_pg_moment() + patience;
    struct timespec until;
    int rc;

    end = ticket->until < end ? ticket->until : end;
    until.tv_sec = (time_t)(end / APR_USEC_PER_SEC);
    until.tv_nsec = (long)(end % APR_USEC_PER_SEC) * 1000;
    do {
        rc = sem_clockwait(&ticket->told, CLOCK_MONOTONIC, &until);
    } while (rc && errno == EINTR);
    return !rc;
}

static apr_status_t release_with_pool(void *data)
{
    idem_ticket_release(data);
    return APR_SUCCESS;
}

void idem_ticket_hand_over(idem_ticket_t *ticket, idem_row_t row, apr_pool_t *p)
{
    if (ticket->kind == IDEM_KIND_SETTLE) {
        row.settle->result = ticket->row.settle->result;
        row.settle->state = ticket->row.settle->state;
    }
    else {
        row.reserve->result = ticket->row.reserve->result;
        row.reserve->found = ticket->row.reserve->found;
        row.reserve->found_count = 0;
        row.reserve->maybe_written = ticket->row.reserve->maybe_written;
        if (row.reserve->found) {
            apr_pool_cleanup_register(p, ticket, release_with_pool, apr_pool_cleanup_null);
            return;
        }
    }
    idem_ticket_release(ticket);
}

void idem_row_set_unavailable(idem_kind_e kind, idem_row_t row)
{
    if (kind == IDEM_KIND_SETTLE) {
        row.settle->result = IDEM_STORE_UNAVAILABLE;
        row.settle->state = IDEM_STATE_NONE;
    }
    else {
        row.reserve->result = IDEM_STORE_UNAVAILABLE;
        row.reserve->found = NULL;
        row.reserve->found_count = 0;
        row.reserve->maybe_written = 0;
    }
}

void idem_row_set_ambiguous(idem_kind_e kind, idem_row_t row)
{
    idem_row_set_unavailable(kind, row);
    if (kind == IDEM_KIND_SETTLE) {
        row.settle->result = IDEM_STORE_AMBIGUOUS;
    }
    else {
        row.reserve->result = IDEM_STORE_AMBIGUOUS;
        row.reserve->maybe_written = 1;
    }
}

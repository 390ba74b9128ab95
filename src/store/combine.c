#include "store/combine.h"

#include <string.h>

#include <apr_atomic.h>

#include "store/combine_lead.h"

/* A look at whether waiting makes sense is due so often. */
#define LOOK apr_time_from_msec(15)

static int may_queue(const idem_store_t *store, int change)
{
    return !store->source->queue || store->source->queue(store->source->baton, change);
}

/* How it went on with a ticket in the queue: LEADS, DONE; at the deadline SENT; or QUEUED: it left, never sent. */
static idem_ticket_stage_e wait_in_queue(idem_store_t *store, idem_ticket_t *ticket)
{
    idem_combine_t *combine = store->combine;
    idem_ticket_stage_e stage = IDEM_TICKET_QUEUED;
    int leave;

    do {
        idem_ticket_t *leader = NULL;

        if (idem_ticket_wait(ticket, LOOK)) {
            stage = ticket->stage; /* the last that was done to it, before it was told */
            break;
        }
        leave = idem_pg_moment() >= ticket->until || (stage == IDEM_TICKET_QUEUED && !may_queue(store, 0));
        pthread_mutex_lock(&combine->lock);
        stage = ticket->stage;
        if (leave && stage == IDEM_TICKET_QUEUED) {
            idem_queue_take_out(combine, ticket);
        }
        else {
            leader = idem_queue_call_leader(combine);
        }
        pthread_mutex_unlock(&combine->lock);
        idem_ticket_call(leader);
        /* what has been sent is waited for */
    } while (!(leave && (stage == IDEM_TICKET_QUEUED || idem_pg_moment() >= ticket->until)));
    may_queue(store, -1);
    if (stage == IDEM_TICKET_QUEUED) {
        idem_ticket_release(ticket);
    }
    return stage;
}

/* 1: a place as a writer is the caller's; 0: *ticket stands in the queue, or is NULL: it may not wait. */
static int enter(const idem_store_t *store, idem_kind_e kind, idem_row_t row, apr_time_t deadline, idem_ticket_t **ticket)
{
    idem_combine_t *combine = store->combine;
    idem_ticket_t *leader;
    int free_place;

    *ticket = NULL;
    pthread_mutex_lock(&combine->lock);
    free_place = idem_queue_take_place(combine);
    pthread_mutex_unlock(&combine->lock);
    if (free_place) {
        return 1;
    }
    if (!may_queue(store, 1)) {
        return 0;
    }
    *ticket = idem_ticket_create(kind, row, deadline); /* a copy: not under the lock */
    pthread_mutex_lock(&combine->lock);
    idem_queue_append(combine, *ticket);
    leader = idem_queue_call_leader(combine); /* maybe this very one, as its owner will see */
    pthread_mutex_unlock(&combine->lock);
    idem_ticket_call(leader);
    return 0;
}

/* One row, in company where there is any. Its result may be BUSY. */
static void run(idem_store_t *store, idem_kind_e kind, idem_row_t row, apr_time_t deadline, apr_pool_t *p)
{
    idem_ticket_t *ticket;

    if (enter(store, kind, row, deadline, &ticket)) {
        idem_lead_alone(store, kind, row, deadline, p);
        return;
    }
    if (!ticket) {
        idem_row_set_unavailable(kind, row);
        return;
    }
    switch (wait_in_queue(store, ticket)) {
    case IDEM_TICKET_LEADS:
        idem_lead(store, ticket, row, deadline, p);
        break;
    case IDEM_TICKET_DONE:
        idem_ticket_hand_over(ticket, row, p);
        return;
    case IDEM_TICKET_SENT:
        idem_row_set_ambiguous(kind, row);
        break;
    default:
        idem_row_set_unavailable(kind, row);
        break;
    }
    idem_ticket_release(ticket);
}

static void reserve_one(idem_store_t *store, idem_reserve_t *wanted, apr_time_t deadline, apr_pool_t *p)
{
    idem_row_t row = {wanted, NULL};
    int maybe_written;

    if (!wanted->may_write || wanted->older_count || idem_row_octets(IDEM_KIND_RESERVE, row) >= IDEM_COMBINE_LARGE_ROW) {
        store->combine->next->reserve(store, &wanted, 1, deadline, p);
        return;
    }
    wanted->pool = p;
    run(store, IDEM_KIND_RESERVE, row, deadline, p);
    if (wanted->result != IDEM_STORE_BUSY) {
        return;
    }
    apr_atomic_inc32(&store->combine->alone);
    maybe_written = wanted->maybe_written;
    store->combine->next->reserve(store, &wanted, 1, deadline, p);
    if (maybe_written && wanted->result == IDEM_STORE_UNAVAILABLE) {
        wanted->result = IDEM_STORE_AMBIGUOUS;
    }
    wanted->maybe_written |= maybe_written;
}

static void settle_one(idem_store_t *store, idem_settle_t *settle, apr_time_t deadline, apr_pool_t *p)
{
    idem_event_e event = idem_machine_settlement(settle->outcome);
    idem_row_t row = {NULL, settle};

    if ((event == IDEM_EVENT_SUCCEED || event == IDEM_EVENT_FAIL) &&
        idem_row_octets(IDEM_KIND_SETTLE, row) < IDEM_COMBINE_LARGE_ROW) {
        run(store, IDEM_KIND_SETTLE, row, deadline, p);
        if (settle->result != IDEM_STORE_BUSY) {
            return;
        }
        apr_atomic_inc32(&store->combine->alone);
    }
    store->combine->next->settle(store, &settle, 1, deadline, p);
}

static void reserve(idem_store_t *store, idem_reserve_t *const *wanted, int n, apr_time_t deadline, apr_pool_t *p)
{
    int i;

    for (i = 0; i < n; i++) {
        reserve_one(store, wanted[i], deadline, p);
    }
}

static void settle_all(idem_store_t *store, idem_settle_t *const *settles, int n, apr_time_t deadline, apr_pool_t *p)
{
    int i;

    for (i = 0; i < n; i++) {
        settle_one(store, settles[i], deadline, p);
    }
}

int idem_combine_install(idem_store_t *store, int writers, apr_pool_t *p)
{
    idem_combine_t *combine = apr_pcalloc(p, sizeof(*combine));

    if (pthread_mutex_init(&combine->lock, NULL)) {
        return 0;
    }
    combine->next = store->provider;
    combine->face = *store->provider;
    combine->face.reserve = reserve;
    combine->face.settle = settle_all;
    combine->writers = writers;
    combine->begun = apr_pcalloc(p, (apr_size_t)writers * sizeof(*combine->begun));
    combine->store = store;
    store->combine = combine;
    store->provider = &combine->face;
    return 1;
}

void idem_combine_count(const idem_store_t *store, idem_combine_counts_t *counts)
{
    idem_combine_t *combine = store->combine;

    memset(counts, 0, sizeof(*counts));
    if (combine) {
        counts->statements = apr_atomic_read32(&combine->statements);
        counts->rows = apr_atomic_read32(&combine->rows);
        counts->alone = apr_atomic_read32(&combine->alone);
        pthread_mutex_lock(&combine->lock);
        counts->writing = (apr_uint32_t)combine->leaders;
        counts->waiting = (apr_uint32_t)combine->queued;
        pthread_mutex_unlock(&combine->lock);
    }
}

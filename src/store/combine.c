#include "store/combine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <apr_atomic.h>

#include "store/combine_ticket.h"

struct idem_combine_t {
    pthread_mutex_t lock;                 /* of the queue and of all stages */
    idem_store_provider_t face;           /* the next one's calls but for two */
    const idem_store_provider_t *next;
    const idem_store_t *store;            /* it is installed in */
    int writers;
    int leaders;                          /* at work, those who have just been told to included */
    idem_ticket_t *first;
    idem_ticket_t *last;
    volatile apr_uint32_t statements;
    volatile apr_uint32_t rows;
    volatile apr_uint32_t alone;
};

/* ---------------------------------------------------------------- the queue, under the lock */

static void append(idem_combine_t *combine, idem_ticket_t *ticket)
{
    ticket->before = combine->last;
    *(combine->last ? &combine->last->after : &combine->first) = ticket;
    combine->last = ticket;
}

static void take_out(idem_combine_t *combine, idem_ticket_t *ticket)
{
    *(ticket->before ? &ticket->before->after : &combine->first) = ticket->after;
    *(ticket->after ? &ticket->after->before : &combine->last) = ticket->before;
    ticket->before = ticket->after = NULL;
}

/* All that wait and go with the leader's. The queue's reference becomes the leader's. */
static int take_batch(idem_combine_t *combine, const idem_ticket_t *own, idem_ticket_t **batch)
{
    apr_size_t octets = own->octets;
    idem_ticket_t *ticket;
    idem_ticket_t *after;
    int n = 0;

    for (ticket = combine->first; ticket && n < IDEM_COMBINE_MOST_ROWS - 1; ticket = after) {
        after = ticket->after;
        if (ticket->kind == own->kind && octets + ticket->octets <= IDEM_COMBINE_MOST_OCTETS) {
            take_out(combine, ticket);
            ticket->stage = IDEM_TICKET_SENT;
            octets += ticket->octets;
            batch[n++] = ticket;
        }
    }
    return n;
}

/*
 * A writer's place is free: the oldest is to have it, for the statement ends with its leader's deadline; of those that
 * have half of their time left, if there is one, else the youngest. Its ticket, to be told once the lock is free.
 */
static idem_ticket_t *choose_leader(idem_combine_t *combine)
{
    idem_ticket_t *ticket = combine->first;

    combine->leaders--;
    if (ticket) {
        idem_pg_moment_t enough = idem_pg_moment() + combine->store->timeout / 2;

        while (ticket->until < enough && ticket->after) {
            ticket = ticket->after;
        }
        take_out(combine, ticket);
        ticket->stage = IDEM_TICKET_LEADS;
        combine->leaders++;
    }
    return ticket;
}

/* ---------------------------------------------------------------- leading */

/* A source that lends a connection which its owner has in hand already; then it is the real one. */
typedef struct lent_t {
    idem_conn_source_t face;
    const idem_conn_source_t *real;
    idem_conn_t *conn;
} lent_t;

static apr_status_t lent_borrow(void *baton, apr_time_t deadline, idem_conn_t **conn)
{
    lent_t *lent = baton;

    if (!lent->conn) {
        return lent->real->borrow(lent->real->baton, deadline, conn);
    }
    *conn = lent->conn;
    lent->conn = NULL;
    return APR_SUCCESS;
}

static void lent_give_back(void *baton, idem_conn_t *conn)
{
    const lent_t *lent = baton;

    lent->real->give_back(lent->real->baton, conn);
}

static void lent_broken(void *baton, idem_conn_t *conn, const char *reason)
{
    const lent_t *lent = baton;

    lent->real->broken(lent->real->baton, conn, reason);
}

static void give_up_place(idem_combine_t *combine)
{
    idem_ticket_t *leader;

    pthread_mutex_lock(&combine->lock);
    leader = choose_leader(combine);
    pthread_mutex_unlock(&combine->lock);
    if (leader) {
        idem_ticket_tell(leader);
        idem_ticket_release(leader);
    }
}

static int by_key(const void *a, const void *b)
{
    return idem_scope_compare(&(*(idem_reserve_t *const *)a)->scope, &(*(idem_reserve_t *const *)b)->scope);
}

/* One statement for the caller's own row and those of the batch. */
static void send_batch(const idem_store_t *with, idem_row_t own, idem_ticket_t *const *batch, int n, idem_kind_e kind,
                       apr_time_t deadline, apr_pool_t *p)
{
    idem_reserve_t *reserves[IDEM_COMBINE_MOST_ROWS];
    idem_settle_t *settles[IDEM_COMBINE_MOST_ROWS];
    idem_store_t store = *with;
    int i;

    if (kind == IDEM_KIND_SETTLE) {
        settles[0] = own.settle;
        for (i = 0; i < n; i++) {
            settles[i + 1] = batch[i]->row.settle;
        }
        store.provider->settle(&store, settles, n + 1, deadline, p);
        return;
    }
    reserves[0] = own.reserve;
    for (i = 0; i < n; i++) {
        reserves[i + 1] = batch[i]->row.reserve;
    }
    qsort(reserves, (size_t)n + 1, sizeof(*reserves), by_key);
    store.provider->reserve(&store, reserves, n + 1, deadline, p);
}

/*
 * The caller has a writer's place and may have company. row is its own; its result is set as the statement has it.
 * The place is given up.
 */
static void lead(idem_store_t *store, const idem_ticket_t *own, idem_row_t row, apr_time_t deadline, apr_pool_t *p)
{
    idem_combine_t *combine = store->combine;
    lent_t lent = {{&lent, lent_borrow, lent_give_back, lent_broken, NULL}, store->source, NULL};
    idem_ticket_t *batch[IDEM_COMBINE_MOST_ROWS];
    idem_store_t with = *store;
    apr_pool_t *scratch;
    int n;
    int i;

    with.provider = combine->next;
    with.source = &lent.face;
    with.once = 1;
    /* first the connection, then the batch: whoever comes or leaves meanwhile can still do so */
    if (apr_time_now() >= deadline ||
        store->source->borrow(store->source->baton, deadline, &lent.conn) != APR_SUCCESS) {
        idem_row_set_unavailable(own->kind, row);
        give_up_place(combine);
        return;
    }
    pthread_mutex_lock(&combine->lock);
    n = take_batch(combine, own, batch);
    pthread_mutex_unlock(&combine->lock);
    if (n) {
        apr_atomic_inc32(&combine->statements);
        apr_atomic_add32(&combine->rows, (apr_uint32_t)n + 1);
    }
    apr_pool_create(&scratch, p);
    send_batch(&with, row, batch, n, own->kind, deadline, scratch);
    apr_pool_destroy(scratch);
    if (lent.conn) {
        store->source->give_back(store->source->baton, lent.conn); /* there was no time left for it */
    }
    pthread_mutex_lock(&combine->lock);
    for (i = 0; i < n; i++) {
        batch[i]->stage = IDEM_TICKET_DONE;
    }
    pthread_mutex_unlock(&combine->lock);
    give_up_place(combine); /* before the others are told: the next statement is what they may be waiting for */
    for (i = 0; i < n; i++) {
        idem_ticket_tell(batch[i]);
        idem_ticket_release(batch[i]);
    }
}

/* ---------------------------------------------------------------- waiting */

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
        if (idem_ticket_wait(ticket, LOOK)) {
            stage = ticket->stage; /* the last that was done to it, before it was told */
            break;
        }
        leave = idem_pg_moment() >= ticket->until || (stage == IDEM_TICKET_QUEUED && !may_queue(store, 0));
        pthread_mutex_lock(&combine->lock);
        stage = ticket->stage;
        if (leave && stage == IDEM_TICKET_QUEUED) {
            take_out(combine, ticket);
        }
        pthread_mutex_unlock(&combine->lock);
        /* what has been sent is waited for */
    } while (!(leave && (stage == IDEM_TICKET_QUEUED || idem_pg_moment() >= ticket->until)));
    may_queue(store, -1);
    if (stage == IDEM_TICKET_QUEUED) {
        idem_ticket_release(ticket);
    }
    return stage;
}

/* 1: a place as a writer is the caller's; 0: all are taken, *ticket stands in the queue, or is NULL: it may not wait. */
static int enter(const idem_store_t *store, idem_kind_e kind, idem_row_t row, apr_time_t deadline, idem_ticket_t **ticket)
{
    idem_combine_t *combine = store->combine;
    int free_place;

    *ticket = NULL;
    pthread_mutex_lock(&combine->lock);
    free_place = combine->leaders < combine->writers;
    if (free_place) {
        combine->leaders++;
    }
    pthread_mutex_unlock(&combine->lock);
    if (free_place) {
        return 1;
    }
    if (!may_queue(store, 1)) {
        return 0;
    }
    *ticket = idem_ticket_create(kind, row, deadline); /* a copy: not under the lock */
    pthread_mutex_lock(&combine->lock);
    free_place = combine->leaders < combine->writers;
    if (free_place) {
        combine->leaders++;
    }
    else {
        append(combine, *ticket);
    }
    pthread_mutex_unlock(&combine->lock);
    if (free_place) {
        may_queue(store, -1);
        idem_ticket_release(*ticket);
        idem_ticket_release(*ticket);
        *ticket = NULL;
    }
    return free_place;
}

/* One row, in company where there is any. Its result may be BUSY. */
static void run(idem_store_t *store, idem_kind_e kind, idem_row_t row, apr_time_t deadline, apr_pool_t *p)
{
    idem_combine_t *combine = store->combine;
    idem_ticket_t *ticket;

    if (enter(store, kind, row, deadline, &ticket)) {
        idem_store_t alone = *store;

        alone.provider = combine->next;
        alone.once = 1;
        send_batch(&alone, row, NULL, 0, kind, deadline, p);
        give_up_place(combine);
        return;
    }
    if (!ticket) {
        idem_row_set_unavailable(kind, row);
        return;
    }
    switch (wait_in_queue(store, ticket)) {
    case IDEM_TICKET_LEADS:
        lead(store, ticket, row, deadline, p);
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
    combine->store = store;
    store->combine = combine;
    store->provider = &combine->face;
    return 1;
}

void idem_combine_count(const idem_store_t *store, idem_combine_counts_t *counts)
{
    idem_combine_t *combine = store->combine;
    const idem_ticket_t *ticket;

    memset(counts, 0, sizeof(*counts));
    if (combine) {
        counts->statements = apr_atomic_read32(&combine->statements);
        counts->rows = apr_atomic_read32(&combine->rows);
        counts->alone = apr_atomic_read32(&combine->alone);
        pthread_mutex_lock(&combine->lock);
        counts->writing = (apr_uint32_t)combine->leaders;
        for (ticket = combine->first; ticket; ticket = ticket->after) {
            counts->waiting++;
        }
        pthread_mutex_unlock(&combine->lock);
    }
}

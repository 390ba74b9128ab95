#include "store/combine_lead.h"

#include <stdlib.h>

#include <apr_atomic.h>

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

/* Has the store decided anything, be it that it cannot? */
static int has_answered(idem_kind_e kind, idem_row_t row)
{
    idem_store_result_e result = kind == IDEM_KIND_SETTLE ? row.settle->result : row.reserve->result;

    return result != IDEM_STORE_UNAVAILABLE && result != IDEM_STORE_AMBIGUOUS;
}

static void give_up_place(idem_combine_t *combine, int place, int answered)
{
    idem_ticket_t *leader;

    pthread_mutex_lock(&combine->lock);
    leader = idem_queue_give_place(combine, place, answered);
    pthread_mutex_unlock(&combine->lock);
    idem_ticket_call(leader);
}

static int by_key(const void *a, const void *b)
{
    return idem_scope_compare(&(*(idem_reserve_t *const *)a)->scope, &(*(idem_reserve_t *const *)b)->scope);
}

typedef struct batch_t {
    idem_reserve_t *reserves[IDEM_COMBINE_MOST_ROWS];
    idem_settle_t *settles[IDEM_COMBINE_MOST_ROWS];
    int reserve_count;
    int settle_count;
} batch_t;

static void add(batch_t *batch, idem_kind_e kind, idem_row_t row)
{
    if (kind == IDEM_KIND_SETTLE) {
        batch->settles[batch->settle_count++] = row.settle;
    }
    else {
        batch->reserves[batch->reserve_count++] = row.reserve;
    }
}

/* One statement for the caller's own row and those of the batch. */
static void send_batch(const idem_store_t *with, idem_kind_e kind, idem_row_t own, idem_ticket_t *const *tickets, int n,
                       apr_time_t deadline, apr_pool_t *p)
{
    const idem_store_provider_t *provider = with->provider;
    idem_store_t store = *with;
    batch_t batch;
    int i;

    batch.reserve_count = batch.settle_count = 0;
    add(&batch, kind, own);
    for (i = 0; i < n; i++) {
        add(&batch, tickets[i]->kind, tickets[i]->row);
    }
    qsort(batch.reserves, (size_t)batch.reserve_count, sizeof(*batch.reserves), by_key);
    if (!batch.settle_count) {
        provider->reserve(&store, batch.reserves, batch.reserve_count, deadline, p);
    }
    else if (!batch.reserve_count) {
        provider->settle(&store, batch.settles, batch.settle_count, deadline, p);
    }
    else {
        provider->write(&store, batch.reserves, batch.reserve_count, batch.settles, batch.settle_count, deadline, p);
    }
}

void idem_lead_alone(idem_store_t *store, idem_kind_e kind, idem_row_t row, apr_time_t deadline, apr_pool_t *p)
{
    idem_store_t alone = *store;

    alone.provider = store->combine->next;
    alone.once = 1;
    send_batch(&alone, kind, row, NULL, 0, deadline, p);
    give_up_place(store->combine, 0, has_answered(kind, row));
}

void idem_lead(idem_store_t *store, const idem_ticket_t *own, idem_row_t row, apr_time_t deadline, apr_pool_t *p)
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
        give_up_place(combine, own->place, 0);
        return;
    }
    pthread_mutex_lock(&combine->lock);
    n = idem_queue_take_batch(combine, own, batch);
    pthread_mutex_unlock(&combine->lock);
    if (n) {
        apr_atomic_inc32(&combine->statements);
        apr_atomic_add32(&combine->rows, (apr_uint32_t)n + 1);
    }
    apr_pool_create(&scratch, p);
    send_batch(&with, own->kind, row, batch, n, deadline, scratch);
    apr_pool_destroy(scratch);
    if (lent.conn) {
        store->source->give_back(store->source->baton, lent.conn); /* there was no time left for it */
    }
    pthread_mutex_lock(&combine->lock);
    for (i = 0; i < n; i++) {
        batch[i]->stage = IDEM_TICKET_DONE;
    }
    pthread_mutex_unlock(&combine->lock);
    /* before the others are told: the next statement is what they may be waiting for */
    give_up_place(combine, own->place, has_answered(own->kind, row));
    for (i = 0; i < n; i++) {
        idem_ticket_call(batch[i]);
    }
}

/*
 * combine_queue.h - who waits, who writes, and whether one writer more would help. See combine.h. Internal to combining.
 */
#ifndef IDEM_COMBINE_QUEUE_H
#define IDEM_COMBINE_QUEUE_H

#include <pthread.h>

#include "store/combine.h"
#include "store/combine_ticket.h"

struct idem_combine_t {
    pthread_mutex_t lock;                 /* of all down to last, and of the stages of the tickets in there */
    int leaders;                          /* at work, those who have just been told to included */
    idem_pg_moment_t *begun;              /* for each place, when it was given; 0: it is free */
    idem_pg_moment_t answered;            /* when the store has last answered */
    int queued;
    apr_size_t octets;                    /* of those */
    idem_ticket_t *first;
    idem_ticket_t *last;

    int writers;                          /* set once */
    const idem_store_t *store;            /* it is installed in */
    const idem_store_provider_t *next;
    idem_store_provider_t face;           /* next's calls but for two */

    volatile apr_uint32_t statements;
    volatile apr_uint32_t rows;
    volatile apr_uint32_t alone;
};

/* Everything here is called under the lock. */

void idem_queue_append(idem_combine_t *combine, idem_ticket_t *ticket);
/* Its stage is the caller's to set; so is its reference. */
void idem_queue_take_out(idem_combine_t *combine, idem_ticket_t *ticket);

/* 1: nobody is at work, and the first writer's place, 0, is the caller's. */
int idem_queue_take_place(idem_combine_t *combine);

/*
 * Gives a place to one of those that wait, where there is one for him. Beside a writer that is at work there is only where
 * a batch is full, or where the store is slow to answer: two would share the same rows, and pay for two statements and two
 * commits. Its ticket, out of the queue, with the queue's reference, its stage and place set; to be told by
 * idem_ticket_call once the lock is free. NULL: nobody.
 */
idem_ticket_t *idem_queue_call_leader(idem_combine_t *combine);

/* A place is given back, with the store's answer (1) or without (0); and then the same. */
idem_ticket_t *idem_queue_give_place(idem_combine_t *combine, int place, int answered);

/* All that wait and go with the leader's: to batch, with the queue's references; how many, less than
 * IDEM_COMBINE_MOST_ROWS. None where the store has not answered for a while. */
int idem_queue_take_batch(idem_combine_t *combine, const idem_ticket_t *own, idem_ticket_t **batch);

#endif

/*
 * combine_ticket.h - one waiting row: a copy of it, where it stands, and how its owner is told. See combine.h.
 *
 * A ticket has two references, of the caller that waits and of the queue; the queue's goes to the leader that takes it.
 * It dies with the last one, and its pool with it.
 */
#ifndef IDEM_COMBINE_TICKET_H
#define IDEM_COMBINE_TICKET_H

#include <semaphore.h>
#include <stdatomic.h>

#include "store/pgsql_exec.h"

typedef struct idem_combine_t idem_combine_t;

typedef enum { IDEM_KIND_RESERVE, IDEM_KIND_SETTLE } idem_kind_e;

/* One of the two, by the kind. */
typedef struct idem_row_t {
    idem_reserve_t *reserve;
    idem_settle_t *settle;
} idem_row_t;

typedef enum {
    IDEM_TICKET_QUEUED,
    IDEM_TICKET_LEADS, /* out of the queue: its owner is to lead */
    IDEM_TICKET_SENT,  /* out of the queue: a leader has it, and may have sent it */
    IDEM_TICKET_DONE   /* the copy has the result */
} idem_ticket_stage_e;

typedef struct idem_ticket_t {
    apr_pool_t *pool;
    atomic_int references;
    idem_kind_e kind;
    idem_row_t row;             /* the copy; everything that it points at is in pool */
    apr_size_t octets;
    idem_pg_moment_t until;
    int place;                  /* of a writer, with LEADS; under the queue's lock, like the next three */
    struct idem_ticket_t *before;
    struct idem_ticket_t *after;
    _Atomic idem_ticket_stage_e stage; /* set last: its owner, once told, reads it without the lock, and then what it stands for */
    sem_t told;                 /* a semaphore and no condition: its owner wakes up without a lock to take and give back */
} idem_ticket_t;

/* A copy of the row, with two references. */
idem_ticket_t *idem_ticket_create(idem_kind_e kind, idem_row_t row, apr_time_t deadline);
void idem_ticket_release(idem_ticket_t *ticket);

/* Its owner is to look at the stage. Not under the queue's lock. */
void idem_ticket_tell(idem_ticket_t *ticket);
/* The same, and uses up the caller's reference. NULL: nothing. */
void idem_ticket_call(idem_ticket_t *ticket);
/* 1 when that has happened, 0 where it had not by its deadline, or within `patience`. */
int idem_ticket_wait(idem_ticket_t *ticket, apr_interval_time_t patience);

/* The result of a ticket that is DONE, for its owner's row. A found record lives in the ticket, which p then holds; the
 * caller's reference is used up. */
void idem_ticket_hand_over(idem_ticket_t *ticket, idem_row_t row, apr_pool_t *p);

/* What a row weighs in a statement, roughly. */
apr_size_t idem_row_octets(idem_kind_e kind, idem_row_t row);

/* Never sent; sent, and its owner did not wait for the answer. */
void idem_row_set_unavailable(idem_kind_e kind, idem_row_t row);
void idem_row_set_ambiguous(idem_kind_e kind, idem_row_t row);

#endif

/*
 * chores.h - writes that no request thread may wait for, in a queue that the child's thread works off.
 */
#ifndef IDEM_HTTPD_CHORES_H
#define IDEM_HTTPD_CHORES_H

#include <apr_pools.h>

#include "store/store.h"

typedef enum {
    IDEM_CHORE_WITHDRAW, /* a reserve or takeover without an answer: take it back, now or when it shows */
    IDEM_CHORE_SETTLE    /* an outcome without a response */
} idem_chore_e;

typedef struct idem_chore_t {
    idem_chore_e kind;
    int generation;
    idem_outcome_e outcome;  /* SETTLE: UNKNOWN, REJECTED or RELEASED */
    int backend_first;       /* SETTLE: as in idem_settlement_t */
    unsigned char operation[IDEM_UUID_LEN];
    unsigned char owner_token[IDEM_UUID_LEN];
} idem_chore_t;

typedef struct idem_chores_t idem_chores_t;

/* NULL where there is no lock to be had. */
idem_chores_t *idem_chores_create(apr_pool_t *pchild);

/* Copies a chore into the queue. 0 where the queue is full. */
int idem_chores_add(idem_chores_t *chores, const idem_chore_t *chore, const char *tenant);

/*
 * By the child's thread: does what is due (all: everything), each within the store's timeout, and stops at the first
 * that the store cannot take. Returns when the next is due.
 */
apr_time_t idem_chores_work(idem_chores_t *chores, idem_store_t *store, apr_pool_t *p, int all);

/* How many are left whose record is still live; and is there any at all, also one whose record may yet show? */
int idem_chores_left(idem_chores_t *chores);
int idem_chores_any(idem_chores_t *chores);

#endif

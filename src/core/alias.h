/*
 * alias.h - identities that changed: who was whom. CONTRACT section 8 "Aliases".
 *
 * An alias says that an old (tenant, principal) has become a new one. Each has one successor, so aliases form trees:
 * at the root stands the newest identity, under which everybody of the tree writes, and every member looks at the
 * records of all. A book is filled once and only read afterwards, by any number of threads.
 */
#ifndef IDEM_ALIAS_H
#define IDEM_ALIAS_H

#include <apr_pools.h>

#define IDEM_ALIAS_MAX_CHAIN  4      /* aliases one after the other */
#define IDEM_ALIAS_MAX_MEMBERS 16    /* identities that have become one, the newest included */
#define IDEM_ALIAS_MAX_COUNT  100000 /* in one registry: they lie in every child's memory */

typedef struct idem_identity_t {
    const char *tenant;    /* in the stored, joined form */
    const char *principal;
} idem_identity_t;

typedef struct idem_alias_t {
    idem_identity_t from;
    idem_identity_t to;
} idem_alias_t;

typedef enum {
    IDEM_ALIAS_OK,
    IDEM_ALIAS_SELF,     /* from and to are the same */
    IDEM_ALIAS_TAKEN,    /* from has a successor already */
    IDEM_ALIAS_CYCLE,    /* to has become from, by some way */
    IDEM_ALIAS_TOO_LONG, /* a chain over the limit */
    IDEM_ALIAS_TOO_MANY  /* members or aliases over the limit */
} idem_alias_result_e;

typedef struct idem_alias_book_t idem_alias_book_t;

idem_alias_book_t *idem_alias_book_create(apr_pool_t *p);

/* Enters one alias; texts are copied. Where the result is not OK the book is as before. */
idem_alias_result_e idem_alias_book_add(idem_alias_book_t *book, const idem_alias_t *alias);

/* What a result means, for an operator. */
const char *idem_alias_result_text(idem_alias_result_e result);

/*
 * All members of an identity's tree, the newest first and each before those that became it; 0 where no alias names
 * the identity. The texts live as long as the book.
 */
int idem_alias_book_members(const idem_alias_book_t *book, const idem_identity_t *identity,
                            idem_identity_t members[IDEM_ALIAS_MAX_MEMBERS]);

/* The same for an identity and those that have become it, without what it has become itself: the identity first. */
int idem_alias_book_before(const idem_alias_book_t *book, const idem_identity_t *identity,
                           idem_identity_t members[IDEM_ALIAS_MAX_MEMBERS]);

#endif

/*
 * journal.h - settlements that the store would not take, in files until it does. CONTRACT section 9.
 *
 * One file a settlement, written to a name that nobody reads, fsynced, and renamed. Whoever meets it later applies it
 * by compare-and-set on operation and generation and removes it: several children and the tool may do so at once, and
 * a lock on the file keeps them from doing the same work twice. What does not fit any more is moved to the folder
 * `aside`, with the reason beside it; what there is no record of is removed.
 *
 * A name says the registry (hex of IDEM_JOURNAL_REGISTRY_LEN octets derived from its digest key), the time, operation
 * and generation: no key, no caller. The tenant stands inside, as it is part of the address. Response headers and body
 * are the octets that would have gone to the store, sealed where those are sealed.
 */
#ifndef IDEM_JOURNAL_H
#define IDEM_JOURNAL_H

#include <sys/types.h>

#include <apr_pools.h>
#include <apr_tables.h>
#include <apr_time.h>

#include "store/settlement.h"

#define IDEM_JOURNAL_REGISTRY_LEN 8
#define IDEM_JOURNAL_ASIDE "aside"

/* What became of one entry. */
typedef enum {
    IDEM_JOURNAL_APPLIED, /* it is in the store, by this or an earlier sending; the file is gone */
    IDEM_JOURNAL_ASIDE_PASSED, /* the record has gone on, or away; the file is in aside */
    IDEM_JOURNAL_ASIDE_BROKEN, /* the file cannot be read; it is in aside */
    IDEM_JOURNAL_WAITS,   /* the store did not take it now */
    IDEM_JOURNAL_DROPPED  /* there is no record of its operation: nobody can ask for it, and the file is gone */
} idem_journal_fate_e;

/* An entry as it was read; everything in the pool that was given. */
typedef struct idem_journal_entry_t {
    const char *name;          /* of the file, without the folder */
    unsigned char registry[IDEM_JOURNAL_REGISTRY_LEN];
    apr_time_t written_at;
    idem_settlement_t settlement;
    const char *fault;         /* why it cannot be read, or NULL: then the rest above is not set */
} idem_journal_entry_t;

/* One line for whoever asked: what became of an entry, and why where it was not applied. */
typedef void (*idem_journal_report_fn)(void *baton, const idem_journal_entry_t *entry, idem_journal_fate_e fate,
                                       const char *reason);

/* A reader of one folder: keeps its place between rounds. */
typedef struct idem_journal_t {
    const char *dir;
    char after[160]; /* the name that the last round ended with */
} idem_journal_t;

/*
 * At start-up: what is wrong with the folder for a server that runs as uid and gid (a sentence without its name), or
 * NULL. It must be there, be a folder, be open to that user and closed to everybody else.
 */
const char *idem_journal_fault(const char *dir, uid_t uid, gid_t gid, apr_pool_t *p);

/* The name of a registry, from the digest key of its control row (32 octets). */
void idem_journal_registry(const unsigned char digest_key[32], unsigned char registry[IDEM_JOURNAL_REGISTRY_LEN]);

/*
 * Writes one settlement, durable when it returns. 1, or 0 with *why (words): then no file is left behind.
 */
int idem_journal_write(const char *dir, const unsigned char registry[IDEM_JOURNAL_REGISTRY_LEN],
                       const idem_settlement_t *settlement, apr_pool_t *p, const char **why);

/*
 * One round: applies up to `most` entries of this store's registry, oldest first, and does not begin another one after
 * `until`. Stops where the store does not answer. Entries of other registries and those that somebody else works at
 * are left alone. Returns how many are left that this round has not dealt with, as far as it has looked; -1 with *why
 * where the folder cannot be read.
 */
int idem_journal_apply(idem_journal_t *journal, idem_store_t *store, int most, apr_time_t until,
                       idem_journal_report_fn report, void *baton, apr_pool_t *p, const char **why);

/* How much lies in a folder, by the names alone; at most 10,000 are counted. */
typedef struct idem_journal_depth_t {
    int waiting;       /* for the store; -1: the folder cannot be read */
    apr_time_t oldest; /* of those; 0: none */
    int aside;         /* with a reason why they were not applied */
} idem_journal_depth_t;

/* 1, or 0 where the folder cannot be read. */
int idem_journal_depth(const char *dir, idem_journal_depth_t *depth, apr_pool_t *p);

/* What idem_journal_erase did. */
typedef struct idem_journal_erased_t {
    int removed;    /* entries, those that were put aside included */
    int unreadable; /* files that nobody can read, half written or broken: they may be anybody's */
} idem_journal_erased_t;

/*
 * Removes the entries of a tenant, in the folder and in what was put aside, whose operations this store has no record of
 * (any more). 1, or 0 with *why: the folder cannot be read or written, or the store does not answer; then it is not done.
 */
int idem_journal_erase(const char *dir, idem_store_t *store, const char *tenant, idem_journal_erased_t *erased, apr_pool_t *p,
                       const char **why);

/* The entries there are, oldest first, at most `most`. NULL with *why where the folder cannot be read. */
apr_array_header_t *idem_journal_list(const char *dir, int most, apr_pool_t *p, const char **why);

#endif

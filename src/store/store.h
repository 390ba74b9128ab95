/*
 * store.h - how a record survives: one vtable, one implementation a file (pgsql.c). CONTRACT sections 7 and 9.
 *
 * The store keeps and compares; what a state means is core/machine's. Every call is bounded by a deadline that
 * includes waiting for a connection, and every write is one atomic statement. Calls are thread-safe: a call takes
 * its own connection from the store's source and gives it back before it returns.
 */
#ifndef IDEM_STORE_H
#define IDEM_STORE_H

#include <apr_pools.h>
#include <apr_tables.h>
#include <apr_time.h>

#include "core/alias.h"
#include "core/machine.h"
#include "core/scope.h"

#define IDEM_UUID_LEN        16
#define IDEM_FINGERPRINT_LEN 32
#define IDEM_MAX_OLDER       191

/* How a call ended. What a caller may conclude is in the second column. */
typedef enum {
    IDEM_STORE_OK,
    IDEM_STORE_FOUND,       /* reserve: the scope has a record already; it is in found, nothing was written */
    IDEM_STORE_NOT_FOUND,   /* find, settle ...: no such record (any more); nothing was written */
    IDEM_STORE_STALE,       /* compare-and-set: another generation, owner or state has it; nothing was written */
    IDEM_STORE_BUSY,        /* takeover: somebody holds the row's lock; nothing was written */
    IDEM_STORE_FENCED,      /* writer epoch or alias version has passed; nothing was written */
    IDEM_STORE_UNAVAILABLE, /* no connection, open breaker, refused statement: certainly nothing was written */
    IDEM_STORE_AMBIGUOUS    /* sent, and no answer: it may have been written, now or later */
} idem_store_result_e;

/* Octets with a length; octets NULL is SQL NULL ("not stored"), length 0 is empty. */
typedef struct idem_octets_t {
    const unsigned char *octets;
    apr_size_t len;
} idem_octets_t;

/* A record as it was seen, everything copied into the caller's pool. Times are compared by the store's clock. */
typedef struct idem_record_t {
    idem_scope_t scope;
    unsigned char operation[IDEM_UUID_LEN];
    int generation;                 /* 1 upwards */
    unsigned char owner[IDEM_UUID_LEN]; /* all zero: nobody */
    unsigned char owner_token[IDEM_UUID_LEN];
    idem_state_e state;
    idem_outcome_e outcome;
    idem_effect_e effect;
    int known_contract;             /* made by the contract of this build; else fingerprint and recipe say nothing to it */
    unsigned char fingerprint[IDEM_FINGERPRINT_LEN];
    idem_octets_t recipe;
    idem_octets_t fingerprint_parts;

    int lapsed;                     /* live records only: the owner's row is gone, it was silent beyond the lease, or it
                                       runs longer than max_run; never set for finals */
    int owner_alive;                /* the owner's row is there and within the lease, whatever the state */
    int expired;                    /* expires_at has passed */
    int tombstone_over;
    int reuse_allowed;
    int attempts;                   /* effect attempts, open or not */
    int attempt_open;               /* one was begun, not ended, and not as replayable */
    apr_interval_time_t age;        /* since this generation was reserved */
    apr_interval_time_t lease_left; /* until the owner would count as silent, 0 when lapsed */

    int response_code;              /* 0: none */
    idem_octets_t response_headers; /* core/snapshot's layout */
    idem_octets_t response_body;
    idem_octets_t response_digest;  /* SHA-256 of the body, 32 octets where a body is stored */

    apr_time_t created_at;          /* for showing only; 0: null */
    apr_time_t settled_at;
    apr_time_t expires_at;          /* APR_INT64_MAX: infinity */
} idem_record_t;

/* A request for a record. The caller fills the first part; everything it points at lives until the call returned. */
typedef struct idem_reserve_t {
    idem_scope_t scope;
    const idem_scope_t *older;      /* further scopes to look at, the newest first, NULL for none; nothing is written there.
                                       They differ from scope in version, tenant, principal and revision only. A record
                                       there whose key may be used again counts as none */
    int older_count;                /* at most IDEM_MAX_OLDER */
    const char *contract;           /* "http.idempotency.v1" */
    unsigned char fingerprint[IDEM_FINGERPRINT_LEN];
    idem_octets_t recipe;
    idem_octets_t fingerprint_parts;
    unsigned char operation[IDEM_UUID_LEN];   /* the new record's, if one is made */
    unsigned char owner_token[IDEM_UUID_LEN]; /* fresh for every reserve: recognises a row whose answer was lost */
    idem_state_e state;             /* idem_machine_first() */
    idem_effect_e effect;
    apr_interval_time_t lease;      /* 1 ms upwards */
    apr_interval_time_t max_run;
    apr_interval_time_t quiet;      /* how long an owner must be unseen before "not executed" may be said */
    apr_interval_time_t retention;
    apr_interval_time_t tombstone;
    int reuse_allowed;
    apr_off_t body_limit;           /* IdempotencyMaxSnapshot */
    int alias_version;              /* of the aliases that the scope was made with; another one in the store: FENCED,
                                       with older scopes even where a record is found */
    int may_write;                  /* 0: look only (ReadOnly mode): no record is IDEM_STORE_NOT_FOUND */
    apr_pool_t *pool;               /* where the found record is made; NULL: in the pool of the call */

    idem_store_result_e result;     /* OK (reserved: ours, generation 1), FOUND, NOT_FOUND, FENCED, UNAVAILABLE, AMBIGUOUS */
    idem_record_t *found;           /* with IDEM_STORE_FOUND: the record of the newest scope that has one */
    idem_record_t **all_found;      /* with IDEM_STORE_FOUND and older: every record, in the order of the scopes */
    int found_count;
    int maybe_written;              /* 1: a sending got no answer, so the row may still appear: with any result but OK
                                       it has to be withdrawn. Always 1 with AMBIGUOUS */
} idem_reserve_t;

/* The next owner of a record that lapsed (TAKE_OVER) or of a tombstone whose time is over (REUSE). */
typedef struct idem_take_over_t {
    const idem_record_t *seen;      /* as found; operation, generation and owner are compared */
    const idem_reserve_t *wanted;   /* token, state, effect, lease ...; REUSE: also operation, fingerprint, recipe */
    int reuse;                      /* 0: takeover, same operation; 1: reuse, the new operation */
    int generation;                 /* out: the new one */
} idem_take_over_t;

/* A settlement, applied by compare-and-set on (operation, generation) and the states legal for its event. */
typedef struct idem_settle_t {
    const char *tenant;             /* part of the address where the table is spread */
    unsigned char operation[IDEM_UUID_LEN];
    int generation;
    idem_outcome_e outcome;         /* SUCCEEDED, FAILED, REJECTED, UNKNOWN or RELEASED */
    int response_code;              /* 0: none */
    idem_octets_t response_headers;
    idem_octets_t response_body;    /* NULL octets: not stored */
    idem_octets_t response_digest;
    const char *actor;              /* for the event, if the transition makes one: "httpd", "ctl:user" */
    const char *reason;

    idem_store_result_e result;     /* OK, STALE, NOT_FOUND, UNAVAILABLE, AMBIGUOUS (may be sent again: it is a CAS) */
    idem_state_e state;             /* out, with OK: where the record is now; with STALE: where it is instead.
                                       IDEM_STATE_NONE: removed. OK with a final state also where the backend had settled
                                       to that state by itself in this generation and left no response: it was added. */
} idem_settle_t;

/* What a quota is held against. */
typedef struct idem_count_t {
    int live;     /* within retention, or not final */
    int inflight; /* reserved or executing */
} idem_count_t;

/* What the status page shows of a registry. Counts go to IDEM_OVERVIEW_MOST. */
#define IDEM_OVERVIEW_MOST 1000
typedef struct idem_overview_t {
    int writer_epoch;           /* below it nobody reserves */
    int unknown;                /* records of unknown outcome */
    int due;                    /* records that the sweep is to look at, and has not */
    apr_interval_time_t behind; /* since when the first of those is due */
    int records;                /* about how many there are, as the server believes; 0: it does not know yet */
} idem_overview_t;

typedef struct idem_store_t idem_store_t;
typedef struct idem_sweep_t idem_sweep_t;       /* store/sweep.h */
typedef struct idem_recovery_t idem_recovery_t; /* likewise */

/*
 * One store of one process. `owner` names this process (an httpd child) in idempotency_owners.
 * reserve and settle take arrays: each element has its own result. n is 1 upwards. With n > 1, or where the store says
 * once, they are written by one statement, no element has older scopes, and an element may come back as BUSY: not decided, to be
 * asked for alone, without once.
 */
typedef struct idem_store_provider_t {
    const char *name; /* mod_dbd's driver name */

    void (*reserve)(idem_store_t *, idem_reserve_t *const *, int n, apr_time_t deadline, apr_pool_t *);
    void (*settle)(idem_store_t *, idem_settle_t *const *, int n, apr_time_t deadline, apr_pool_t *);
    /* Both in one statement, with one commit; whatever the numbers, as for n > 1. n is 1 upwards, settle_count 0. */
    void (*write)(idem_store_t *, idem_reserve_t *const *, int n, idem_settle_t *const *, int settle_count,
                  apr_time_t deadline, apr_pool_t *);

    /* OK, STALE, BUSY, FENCED, UNAVAILABLE, AMBIGUOUS */
    idem_store_result_e (*take_over)(idem_store_t *, idem_take_over_t *, apr_time_t deadline, apr_pool_t *);
    /* RESERVED -> EXECUTING, and proof that the record is still ours. OK, STALE, UNAVAILABLE, AMBIGUOUS */
    idem_store_result_e (*dispatch)(idem_store_t *, const char *tenant, const unsigned char *operation, int generation,
                                    idem_state_e to, apr_time_t deadline, apr_pool_t *);
    /* A lapsed record -> UNKNOWN, if it is still lapsed and the same. OK, STALE, BUSY, UNAVAILABLE, AMBIGUOUS */
    idem_store_result_e (*mark_unknown)(idem_store_t *, const idem_record_t *seen, const char *actor,
                                        const char *reason, apr_time_t deadline, apr_pool_t *);
    /* Removes the row of an ambiguous reserve: by operation, token and generation. OK, NOT_FOUND, UNAVAILABLE ... */
    idem_store_result_e (*withdraw)(idem_store_t *, const char *tenant, const unsigned char *operation,
                                    const unsigned char *owner_token, int generation, apr_time_t deadline, apr_pool_t *);
    /* Gives up a record that is RESERVED, whoever owns it: it is removed, and its owner's settlement will be refused.
     * OK, NOT_FOUND, STALE (another state), BUSY (a backend is committing), UNAVAILABLE, AMBIGUOUS */
    idem_store_result_e (*cancel)(idem_store_t *, const char *tenant, const unsigned char *operation, int generation,
                                  const char *actor, apr_time_t deadline, apr_pool_t *);
    /* One record by its scope, or by its operation id. OK, NOT_FOUND, UNAVAILABLE, AMBIGUOUS (no answer) */
    idem_store_result_e (*find)(idem_store_t *, const idem_scope_t *, idem_record_t **, apr_time_t deadline, apr_pool_t *);
    idem_store_result_e (*find_operation)(idem_store_t *, const char *tenant /* or NULL */, const unsigned char *operation,
                                          idem_record_t **, apr_time_t deadline, apr_pool_t *);

    /* The oldest UNKNOWN records, at most `most`, of const idem_record_t *. OK, UNAVAILABLE, AMBIGUOUS (no answer) */
    idem_store_result_e (*unknown)(idem_store_t *, int most, apr_array_header_t **records, apr_time_t deadline, apr_pool_t *);

    /* Where the registry stands, in a time that does not grow with it. OK, UNAVAILABLE, AMBIGUOUS (no answer) */
    idem_store_result_e (*overview)(idem_store_t *, idem_overview_t *, apr_time_t deadline, apr_pool_t *);

    /*
     * Keeps what a route's scope is made of on a server (its ServerName). *before is what it was made of until now, where that differs (else NULL),
     * and *live then the number of its records that a retry would look for, at most `most`.
     * OK, UNAVAILABLE, AMBIGUOUS (no answer).
     */
    idem_store_result_e (*announce)(idem_store_t *, const char *server, const char *route, const char *revision, const char *sources, int most,
                                    const char **before, int *live, apr_time_t deadline, apr_pool_t *);

    /*
     * Says the aliases' version and, where that is not the one that *version had, adds all of them to the book: as of
     * one moment. *writes is the scope version that the registry is written in, in the pool; *due is 1 where the date of
     * an alias has passed. OK, STALE (they break the rules of core/alias.h, which the log says), UNAVAILABLE, AMBIGUOUS
     * (no answer)
     */
    idem_store_result_e (*aliases)(idem_store_t *, idem_alias_book_t *, int *version, const char **writes, int *due,
                                   apr_time_t deadline, apr_pool_t *);

    /*
     * Ends aliases whose date has passed and behind which nothing is remembered, a few at a time; *ended of them have.
     * OK, UNAVAILABLE, AMBIGUOUS (no answer)
     */
    idem_store_result_e (*end_aliases)(idem_store_t *, int *ended, apr_time_t deadline, apr_pool_t *);

    /*
     * How many records each of n identities (1 to 32) has in a scope version, at most `most` counted.
     * OK, UNAVAILABLE, AMBIGUOUS (no answer)
     */
    idem_store_result_e (*count)(idem_store_t *, const char *version, const idem_identity_t *identities, int n, int most, idem_count_t *counts,
                                 apr_time_t deadline, apr_pool_t *);

    /* One batch of what age does. OK (see its busy), UNAVAILABLE, AMBIGUOUS: what it did, it did whole */
    idem_store_result_e (*sweep)(idem_store_t *, idem_sweep_t *, apr_time_t deadline, apr_pool_t *);
    /* One batch of what a dead owner had begun. OK, NOT_FOUND (no owner is dead), UNAVAILABLE, AMBIGUOUS */
    idem_store_result_e (*recover)(idem_store_t *, idem_recovery_t *, apr_time_t deadline, apr_pool_t *);

    /* Adds to a count of Shadow mode, of this hour. OK, UNAVAILABLE, AMBIGUOUS */
    idem_store_result_e (*shadow_count)(idem_store_t *, const char *route, const char *kind, const char *groups,
                                        apr_int64_t count, apr_time_t deadline, apr_pool_t *);

    /* The owner's row: made or refreshed (seen_at by the store's clock), and removed at a clean exit. */
    idem_store_result_e (*heartbeat)(idem_store_t *, apr_time_t deadline, apr_pool_t *);
    idem_store_result_e (*farewell)(idem_store_t *, apr_time_t deadline, apr_pool_t *);
} idem_store_provider_t;

/* A connection that a provider works with. The source makes and ends it; the provider keeps its notes in state. */
typedef struct idem_conn_t {
    void *native;      /* PGconn * */
    void *state;       /* the provider's own; NULL on a new or reset connection */
    apr_pool_t *pool;  /* lives as long as the connection; used by one thread at a time */
} idem_conn_t;

/* Where connections come from: httpd/ (mod_dbd's) or ctl/ (its own). */
typedef struct idem_conn_source_t {
    void *baton;
    /* An open connection, idle and prepared, or APR_TIMEUP (none free by the deadline), APR_ECONNREFUSED (store
     * known to be away: answered at once). */
    apr_status_t (*borrow)(void *baton, apr_time_t deadline, idem_conn_t **conn);
    /* Back in good order: no statement in progress, no transaction. */
    void (*give_back)(void *baton, idem_conn_t *conn);
    /* Back in doubt or dead: never lent again as it is. reason is for the log: no data in it. */
    void (*broken)(void *baton, idem_conn_t *conn, const char *reason);
    /* For those who wait in a queue of the store's own, not in borrow: one comes (1), goes on waiting (0) or goes (-1).
     * With 1 and 0: 0 where waiting is in vain, or where too many wait; with 1 it has not come then. NULL: all may. */
    int (*queue)(void *baton, int change);
} idem_conn_source_t;

/* One line for the log of the process that has the store: level as in httpd (3 error, 4 warning, 6 info, 7 debug). */
typedef void (*idem_store_log_fn)(void *baton, int level, const char *message);

struct idem_store_t {
    const idem_store_provider_t *provider;
    const idem_conn_source_t *source;
    struct idem_combine_t *combine; /* of the provider that combines, else NULL */
    int once;                       /* see the vtable */
    unsigned char owner[IDEM_UUID_LEN];
    const char *host;               /* for the owner's row */
    int writer_epoch;               /* IdempotencyWriterEpoch */
    int use_prepared;               /* IdempotencyStorePrepare */
    apr_interval_time_t timeout;    /* IdempotencyStoreTimeout; statement_timeout and lock_timeout lie below it */
    unsigned char digest_key[32];   /* from the control row, for digests in logs; valid once digest_key_known is 1 */
    _Atomic int digest_key_known;   /* written once, by the thread that opens connections; publishes what it names */
    int max_connections;            /* that the server gives to ordinary roles; valid with digest_key_known */
    idem_store_log_fn log;
    void *log_baton;
};

#endif

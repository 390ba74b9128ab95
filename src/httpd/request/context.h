/*
 * context.h - what the module knows about one client request, through all its internal redirects.
 *
 * One context per request that came over the wire. create_request hands it on along r->prev, so a redirected request
 * has the same one; subrequests have none. Everything in it lives in the pool that all these requests share.
 */
#ifndef IDEM_HTTPD_CONTEXT_H
#define IDEM_HTTPD_CONTEXT_H

#include <httpd.h>
#include <util_filter.h>

#include "core/alias.h"
#include "core/problem.h"
#include "core/scope.h"
#include "httpd/setup/config.h"
#include "store/store.h"

/* Where a request stands. It only moves down this list. */
typedef enum {
    IDEM_PHASE_OPEN,     /* no route found yet */
    IDEM_PHASE_BOUND,    /* a route was found; nothing was looked at */
    IDEM_PHASE_PASSED,   /* not for us: mode Off, another method, no key where none is needed */
    IDEM_PHASE_READY,    /* key, identity and body are in hand; to be reserved when a handler is about to run */
    IDEM_PHASE_ANSWER,   /* the module answers by itself: a problem or a replay */
    IDEM_PHASE_RUNNING,  /* reserved by this request: the backend may run, the record is to be settled */
    IDEM_PHASE_SETTLED   /* the store, or the queue of last resort, has the outcome */
} idem_phase_e;

/* The module's own answer. */
typedef struct idem_answer_t {
    const idem_record_t *replay;  /* not NULL: this snapshot, else the problem */
    idem_problem_e problem;
    const char *detail;           /* NULL: the problem's own sentence */
    int retry_after;              /* seconds, 0: none */
    const char *outcome;          /* member of response-not-stored and key-expired */
    int original_status;
    const char *settled;
    const char *location;         /* header of response-not-stored */
} idem_answer_t;

typedef struct idem_body_t idem_body_t;
typedef struct idem_taken_t idem_taken_t;
typedef struct idem_capture_t idem_capture_t;
typedef struct idem_shadow_t idem_shadow_t;

typedef struct idem_ctx_t {
    apr_pool_t *pool;
    idem_phase_e phase;
    const idem_dir_t *bound;      /* the section in which the route was found, defaults not filled in; NULL while OPEN */
    const idem_dir_t *conf;       /* the same with its defaults; NULL until a key is looked for */
    const idem_route_t *route;
    idem_server_t *server;
    const apr_table_t *early_env; /* the environment before authentication began; NULL until then */
    const request_rec *early_of;  /* whose environment that is */
    const char *minted_key;       /* the server's own, by idempotency_server_key(); NULL: none */

    const char *route_name;       /* captures filled in, or method and path */
    const char *key;
    idem_identity_t caller;       /* as authenticated; the scope may name whom the caller has become */
    idem_identity_t former;       /* the caller as the scope version before made it; tenant NULL: there is none */
    int foreign_version;          /* the registry is written in a scope version that this configuration does not make */
    int aliases_read;             /* this request has read them anew */
    idem_scope_t scope;           /* of the record: the newest, or the one it was found under */
    const idem_recipe_t *recipe;
    const char *look_only;        /* not NULL: only an earlier contract takes this payload, so it may meet its record but
                                     not run; this is what its sender is told */
    const idem_request_t *request;/* for a look through another recipe */
    unsigned char fingerprint[IDEM_FINGERPRINT_LEN];
    const unsigned char *framed;
    apr_size_t framed_len;
    idem_body_t *body;
    idem_taken_t *taken;          /* who else reads it, and what; NULL: there is none, or not in this server */
    int unwatched;                /* that is not looked at, as nothing in the request is a key */

    idem_answer_t answer;
    const char *outcome_note;     /* %{idempotency-outcome}n */
    int has_operation;            /* operation below is valid: a record exists or existed */
    unsigned char operation[IDEM_UUID_LEN];
    int generation;
    struct idem_running_t *running_slot; /* where it stands among what is executed now; NULL: it does not */
    const char *quota_key;        /* under which it counts as running; NULL: it does not */
    int over_quota;               /* it may meet its record, but begin nothing */
    idem_effect_e effect;           /* the stricter one of record and route */
    idem_state_e state;             /* as reserved, or as the dispatch has made it */
    int reserve_in_doubt;           /* it is ours, but one of its sendings got no answer and may still come */
    unsigned char owner_token[IDEM_UUID_LEN]; /* of that reserve */
    const idem_reserve_t *reserve;  /* with which it became ours as a new record; NULL: it was taken over */
    unsigned char *cache_room;      /* for an entry of the replay cache; NULL until one is looked for */
    apr_interval_time_t reserved_at; /* by a clock that nobody sets: before the reserve was sent */
    int dispatched;                 /* a real handler has been given the request */

    /* The run of the backend: see run.c and capture.c. */
    const request_rec *running;   /* whose handler is at work; our own handler lets the real one run for it */
    int running_counts;           /* it is not there to show an error, nor only to redirect */
    int handler_ran;              /* other than redirect-handler */
    int handler_status;           /* returned by the last of them; 0 for OK and DONE */
    int passed_anything;          /* that handler passed something to the filters */
    int earlier_ran;              /* a real handler ran before it and then redirected to it */
    int error_status;             /* with which httpd began to show an error, whatever an ErrorDocument made of it */
    int body_failed;              /* a filter could not give the handler the request body */
    int never_connected;          /* seen by the error_log hook */
    int request_sent;             /* likewise */
    int broken;                   /* the response was cut, or a filter failed */
    int length_is_a_hint;         /* httpd would not have believed a script's Content-Length: it only tells a cut */
    idem_capture_t *capture;
    idem_shadow_t *shadow;        /* mode Shadow: what is seen in passing */
} idem_ctx_t;

/* Hook create_request. */
int idem_context_create(request_rec *r);

/* The request that came over the wire, from any of its internal redirects: only it has method and target as received. */
const request_rec *idem_context_received(const request_rec *r);

/* The context of a request, NULL for a subrequest. */
idem_ctx_t *idem_context_get(const request_rec *r);

/* Lets the module answer with a problem (and remembers the word for the log). */
void idem_context_refuse(idem_ctx_t *ctx, idem_problem_e problem, const char *detail);

/* The store of this server in this child; NULL where child_init could not make one. */
idem_store_t *idem_context_store(const idem_ctx_t *ctx);

#endif

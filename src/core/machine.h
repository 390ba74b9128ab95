/*
 * machine.h - the state machine of a record: states, verdicts, transitions, outcomes. CONTRACT section 4.
 *
 * Pure functions over small tables. Every store, hook, page and tool asks here what a state means; none compares
 * a state by itself.
 */
#ifndef IDEM_MACHINE_H
#define IDEM_MACHINE_H

#include <apr_time.h>

/* IDEM_STATE_NONE: there is no record (any more). */
typedef enum {
    IDEM_STATE_NONE,
    IDEM_STATE_RESERVED,
    IDEM_STATE_EXECUTING,
    IDEM_STATE_SUCCEEDED,
    IDEM_STATE_FAILED_FINAL,
    IDEM_STATE_UNKNOWN,
    IDEM_STATE_EXPIRED,
    IDEM_STATE_COUNT
} idem_state_e;

/* IdempotencyEffect. The greater value is the stricter one: where record and route differ, the greater decides. */
typedef enum {
    IDEM_EFFECT_REPEATABLE,
    IDEM_EFFECT_TRANSACTIONAL,
    IDEM_EFFECT_EXTERNAL,
    IDEM_EFFECT_COUNT
} idem_effect_e;

/* What became of an operation, as a backend, a rule or an operator says it. */
typedef enum {
    IDEM_OUTCOME_NONE,      /* nobody said anything */
    IDEM_OUTCOME_SUCCEEDED,
    IDEM_OUTCOME_FAILED,
    IDEM_OUTCOME_REJECTED,  /* no effect happened */
    IDEM_OUTCOME_UNKNOWN,   /* an effect may or may not have happened */
    IDEM_OUTCOME_RELEASED,  /* unfinished, and free to be taken over at once; never said by a backend */
    IDEM_OUTCOME_COUNT
} idem_outcome_e;

/* Everything that can move a record from one state to another. */
typedef enum {
    IDEM_EVENT_DISPATCH,             /* a real handler is about to run, or an effect attempt begins */
    IDEM_EVENT_SUCCEED,              /* settlement */
    IDEM_EVENT_FAIL,                 /* settlement */
    IDEM_EVENT_DOUBT,                /* settlement: nobody can say */
    IDEM_EVENT_REJECT,               /* settlement: no effect; the record goes where it may, see idem_machine_reject */
    IDEM_EVENT_RELEASE,              /* settlement: the lease is over at once */
    IDEM_EVENT_LAPSE,                /* the owner is gone and the effect cannot be ruled out */
    IDEM_EVENT_TAKE_OVER,            /* the owner is gone, the next generation begins */
    IDEM_EVENT_RESOLVE_SUCCEEDED,    /* an operator's verdict */
    IDEM_EVENT_RESOLVE_FAILED,       /* an operator's verdict */
    IDEM_EVENT_RESOLVE_NOT_EXECUTED, /* an operator's verdict: next generation, lease over */
    IDEM_EVENT_CANCEL,               /* the caller or an operator gives up what has not begun */
    IDEM_EVENT_EXPIRE,               /* retention is over: a tombstone stays */
    IDEM_EVENT_REUSE,                /* a tombstone's time is over and the route allows reuse */
    IDEM_EVENT_COUNT
} idem_event_e;

/* What a keyed request is to be told or given. */
typedef enum {
    IDEM_VERDICT_RESERVE,            /* no record: reserve and execute */
    IDEM_VERDICT_REUSE,              /* replace the tombstone: new operation, next generation, execute */
    IDEM_VERDICT_TAKE_OVER,          /* same operation, next generation, execute */
    IDEM_VERDICT_REPLAY,
    IDEM_VERDICT_IN_PROGRESS,
    IDEM_VERDICT_MARK_UNKNOWN,       /* write UNKNOWN first, then answer as IDEM_VERDICT_OUTCOME_UNKNOWN */
    IDEM_VERDICT_OUTCOME_UNKNOWN,
    IDEM_VERDICT_KEY_REUSED,
    IDEM_VERDICT_KEY_EXPIRED,
    IDEM_VERDICT_RESPONSE_NOT_STORED,
    IDEM_VERDICT_WRITER_FENCED,
    IDEM_VERDICT_COUNT
} idem_verdict_e;

/* A record as one request sees it; times were compared by the store's clock. */
typedef struct idem_facts_t {
    idem_state_e state;        /* IDEM_STATE_NONE: nothing found, all else is ignored */
    idem_effect_e record_effect;
    idem_effect_e route_effect;
    int fingerprint_equal;     /* negative: nobody can tell, the record's recipe is not known here */
    int expired;               /* expires_at has passed, swept or not */
    int tombstone_over;        /* tombstone_until has passed */
    int reuse_allowed;         /* the rule that the record was made with */
    int lapsed;                /* the owner is gone, silent beyond the lease, or over its longest run */
    int attempt_open;          /* an effect attempt was begun, not ended, and not as replayable */
    int response_stored;
    int response_on_its_way;   /* settled by the backend, and the owner that holds the response is alive */
    int writer_allowed;        /* the mode and the writer epoch let this server reserve and take over */
    int read_only;             /* IdempotencyMode ReadOnly: what is not final is not this server's to speak of */
} idem_facts_t;

/* The one place where a verdict is made. */
idem_verdict_e idem_machine_verdict(const idem_facts_t *facts);

/*
 * Where an event leads from a state, or IDEM_STATE_COUNT where it is illegal. IDEM_EVENT_REJECT leads to
 * IDEM_STATE_RESERVED here; whether the record may go instead is idem_machine_reject's to say.
 * TAKE_OVER and REUSE lead to idem_machine_first() of the new owner and are given as IDEM_STATE_RESERVED.
 */
idem_state_e idem_machine_next(idem_state_e from, idem_event_e event);

/* The states from which an event is legal, as names for a store's compare-and-set; NULL-terminated, static. */
const char *const *idem_machine_sources(idem_event_e event);

/* The state that is written before the backend runs. dispatch_mark: IdempotencyDispatchMark On. */
idem_state_e idem_machine_first(idem_effect_e effect, int dispatch_mark);

/* 1 where a REJECTED operation leaves no record behind, 0 where it stays as RESERVED with its lease over. */
int idem_machine_reject_removes(idem_state_e state, int generation, int has_attempts);

/* The settlement event of an outcome; IDEM_EVENT_COUNT for IDEM_OUTCOME_NONE. */
idem_event_e idem_machine_settlement(idem_outcome_e outcome);

int idem_machine_is_final(idem_state_e state); /* SUCCEEDED or FAILED_FINAL */
int idem_machine_is_live(idem_state_e state);  /* RESERVED or EXECUTING: an owner is or was at work */
int idem_machine_is_doubtful(idem_state_e state);  /* UNKNOWN */
int idem_machine_is_tombstone(idem_state_e state); /* EXPIRED */
int idem_machine_is_record(idem_state_e state); /* a state that a record can have: not NONE, and not COUNT */

/*
 * May an event of the registry say that a record went from one state to another? All transitions; and what was withdrawn,
 * rejected or released, which goes or stays as it was; and a next owner, who may begin as RESERVED or as EXECUTING.
 */
int idem_machine_may_be_told(idem_state_e from, idem_state_e to);

/* How a response came about, for the order of rules of CONTRACT section 4 "Settlement". */
typedef struct idem_response_facts_t {
    int handler_ran;          /* a handler other than redirect-handler was given the request */
    int handler_status;       /* what the last such handler returned; 0 for OK and DONE */
    int passed_nothing;       /* that handler passed no octet and no header to the filters */
    int error_override;       /* note proxy-error-override: the backend itself answered */
    int never_connected;      /* httpd logged that no connection to the backend came about */
    int request_sent;         /* httpd logged something that means that the request was sent */
    int broken;               /* error bucket, read error, filter error, bypassed filter, missing end */
    int backend_answered;     /* the response is the backend's own, not made by httpd or a proxy for it */
    int attempt_open;         /* as in idem_facts_t */
    int status;               /* HTTP status that the client gets */
    idem_outcome_e said;      /* response header Idempotency-Outcome */
    idem_outcome_e rule;      /* first fitting IdempotencyOutcome */
    idem_effect_e effect;
} idem_response_facts_t;

/* Settlement rules 1, 2, 4, 5 and 6, in this order; never IDEM_OUTCOME_NONE. Rule 3 is the store's: it has the
 * backend's own settlement. */
idem_outcome_e idem_machine_outcome(const idem_response_facts_t *facts);

/* 1 where rule 1 or 2 fits: nothing was executed, whatever a backend could have settled. */
int idem_machine_refused(const idem_response_facts_t *facts);

/* 1 where a response of this status can be the answer of an operation that ended in this state (rule 3). */
int idem_machine_fits(idem_state_e state, int status);

/* Seconds for Retry-After while an operation runs: as long as it has run, 1 to 10, not beyond the lease. */
int idem_machine_retry_after(apr_interval_time_t age, apr_interval_time_t lease_left);

/* Names as stored and shown. The parsers return the COUNT value for an unknown name; outcomes in either case. */
const char *idem_state_name(idem_state_e state);
idem_state_e idem_state_parse(const char *name);
const char *idem_effect_name(idem_effect_e effect);
idem_effect_e idem_effect_parse(const char *name);
const char *idem_outcome_name(idem_outcome_e outcome);
idem_outcome_e idem_outcome_parse(const char *name);

#endif

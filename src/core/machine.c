#include "core/machine.h"

#include <apr_cstr.h>

#define NAME_SLOTS (IDEM_STATE_COUNT + 1)

static const char *const state_names[IDEM_STATE_COUNT] = {
    [IDEM_STATE_NONE] = "NONE",
    [IDEM_STATE_RESERVED] = "RESERVED",
    [IDEM_STATE_EXECUTING] = "EXECUTING",
    [IDEM_STATE_SUCCEEDED] = "SUCCEEDED",
    [IDEM_STATE_FAILED_FINAL] = "FAILED_FINAL",
    [IDEM_STATE_UNKNOWN] = "UNKNOWN",
    [IDEM_STATE_EXPIRED] = "EXPIRED",
};

static const char *const effect_names[IDEM_EFFECT_COUNT] = {
    [IDEM_EFFECT_REPEATABLE] = "repeatable",
    [IDEM_EFFECT_TRANSACTIONAL] = "transactional",
    [IDEM_EFFECT_EXTERNAL] = "external",
};

static const char *const outcome_names[IDEM_OUTCOME_COUNT] = {
    [IDEM_OUTCOME_NONE] = "none",
    [IDEM_OUTCOME_SUCCEEDED] = "succeeded",
    [IDEM_OUTCOME_FAILED] = "failed",
    [IDEM_OUTCOME_REJECTED] = "rejected",
    [IDEM_OUTCOME_UNKNOWN] = "unknown",
    [IDEM_OUTCOME_RELEASED] = "released",
};

/* What an event does: where it leads, and from where. A state that is not listed cannot be left by that event. */
static const struct {
    idem_state_e to;
    const char *sources[NAME_SLOTS];
} transitions[IDEM_EVENT_COUNT] = {
    [IDEM_EVENT_DISPATCH] = {IDEM_STATE_EXECUTING, {"RESERVED", "EXECUTING"}},
    [IDEM_EVENT_SUCCEED] = {IDEM_STATE_SUCCEEDED, {"RESERVED", "EXECUTING", "UNKNOWN"}},
    [IDEM_EVENT_FAIL] = {IDEM_STATE_FAILED_FINAL, {"RESERVED", "EXECUTING", "UNKNOWN"}},
    [IDEM_EVENT_DOUBT] = {IDEM_STATE_UNKNOWN, {"RESERVED", "EXECUTING", "UNKNOWN"}},
    [IDEM_EVENT_REJECT] = {IDEM_STATE_RESERVED, {"RESERVED", "EXECUTING", "UNKNOWN"}},
    [IDEM_EVENT_RELEASE] = {IDEM_STATE_RESERVED, {"RESERVED", "EXECUTING"}},
    [IDEM_EVENT_LAPSE] = {IDEM_STATE_UNKNOWN, {"RESERVED", "EXECUTING"}},
    [IDEM_EVENT_TAKE_OVER] = {IDEM_STATE_RESERVED, {"RESERVED", "EXECUTING"}},
    [IDEM_EVENT_RESOLVE_SUCCEEDED] = {IDEM_STATE_SUCCEEDED, {"UNKNOWN"}},
    [IDEM_EVENT_RESOLVE_FAILED] = {IDEM_STATE_FAILED_FINAL, {"UNKNOWN"}},
    [IDEM_EVENT_RESOLVE_NOT_EXECUTED] = {IDEM_STATE_RESERVED, {"UNKNOWN"}},
    [IDEM_EVENT_CANCEL] = {IDEM_STATE_NONE, {"RESERVED"}},
    [IDEM_EVENT_EXPIRE] = {IDEM_STATE_EXPIRED, {"SUCCEEDED", "FAILED_FINAL", "RESERVED"}},
    [IDEM_EVENT_REUSE] = {IDEM_STATE_RESERVED, {"EXPIRED", "SUCCEEDED", "FAILED_FINAL"}},
};

/* What becomes of a lapsed record whose effect attempts, if any, are closed. */
static const idem_verdict_e lapse_verdicts[2][IDEM_EFFECT_COUNT] = {
    /* RESERVED: provably no effect yet */
    {IDEM_VERDICT_TAKE_OVER, IDEM_VERDICT_TAKE_OVER, IDEM_VERDICT_TAKE_OVER},
    /* EXECUTING */
    {
        [IDEM_EFFECT_REPEATABLE] = IDEM_VERDICT_TAKE_OVER,
        [IDEM_EFFECT_TRANSACTIONAL] = IDEM_VERDICT_TAKE_OVER,
        [IDEM_EFFECT_EXTERNAL] = IDEM_VERDICT_MARK_UNKNOWN,
    },
};

static int parse_name(const char *const *names, int count, const char *name)
{
    int i;

    for (i = 0; name && i < count; i++) {
        if (names[i] && !apr_cstr_casecmp(names[i], name)) {
            return i;
        }
    }
    return count;
}

const char *idem_state_name(idem_state_e state)
{
    return state < IDEM_STATE_COUNT ? state_names[state] : "?";
}

idem_state_e idem_state_parse(const char *name)
{
    return (idem_state_e)parse_name(state_names, IDEM_STATE_COUNT, name);
}

const char *idem_effect_name(idem_effect_e effect)
{
    return effect < IDEM_EFFECT_COUNT ? effect_names[effect] : "?";
}

idem_effect_e idem_effect_parse(const char *name)
{
    return (idem_effect_e)parse_name(effect_names, IDEM_EFFECT_COUNT, name);
}

const char *idem_outcome_name(idem_outcome_e outcome)
{
    return outcome < IDEM_OUTCOME_COUNT ? outcome_names[outcome] : "?";
}

idem_outcome_e idem_outcome_parse(const char *name)
{
    return (idem_outcome_e)parse_name(outcome_names, IDEM_OUTCOME_COUNT, name);
}

int idem_machine_is_final(idem_state_e state)
{
    return state == IDEM_STATE_SUCCEEDED || state == IDEM_STATE_FAILED_FINAL;
}

int idem_machine_is_live(idem_state_e state)
{
    return state == IDEM_STATE_RESERVED || state == IDEM_STATE_EXECUTING;
}

int idem_machine_is_doubtful(idem_state_e state)
{
    return state == IDEM_STATE_UNKNOWN;
}

int idem_machine_is_tombstone(idem_state_e state)
{
    return state == IDEM_STATE_EXPIRED;
}

int idem_machine_is_record(idem_state_e state)
{
    return state > IDEM_STATE_NONE && state < IDEM_STATE_COUNT;
}

int idem_machine_may_be_told(idem_state_e from, idem_state_e to)
{
    int event;

    if (!idem_machine_is_record(from)) {
        return 0;
    }
    for (event = 0; event < IDEM_EVENT_COUNT; event++) {
        idem_state_e next = idem_machine_next(from, (idem_event_e)event);
        int begins = event == IDEM_EVENT_TAKE_OVER || event == IDEM_EVENT_REUSE;

        if (next < IDEM_STATE_COUNT && (next == to || (begins && to == IDEM_STATE_EXECUTING) ||
                                        (event == IDEM_EVENT_REJECT && (to == IDEM_STATE_NONE || to == from)))) {
            return 1;
        }
    }
    return 0;
}

const char *const *idem_machine_sources(idem_event_e event)
{
    return transitions[event].sources;
}

idem_state_e idem_machine_next(idem_state_e from, idem_event_e event)
{
    const char *const *source;

    if (from >= IDEM_STATE_COUNT || event >= IDEM_EVENT_COUNT) {
        return IDEM_STATE_COUNT;
    }
    for (source = transitions[event].sources; *source; source++) {
        if (idem_state_parse(*source) == from) {
            /* a release changes the lease, not what is known of the effect */
            return event == IDEM_EVENT_RELEASE ? from : transitions[event].to;
        }
    }
    return IDEM_STATE_COUNT;
}

idem_state_e idem_machine_first(idem_effect_e effect, int dispatch_mark)
{
    if (effect == IDEM_EFFECT_TRANSACTIONAL || dispatch_mark) {
        return IDEM_STATE_RESERVED;
    }
    return IDEM_STATE_EXECUTING;
}

int idem_machine_reject_removes(idem_state_e state, int generation, int has_attempts)
{
    return idem_machine_is_live(state) && generation == 1 && !has_attempts;
}

idem_event_e idem_machine_settlement(idem_outcome_e outcome)
{
    static const idem_event_e events[IDEM_OUTCOME_COUNT] = {
        [IDEM_OUTCOME_NONE] = IDEM_EVENT_COUNT,
        [IDEM_OUTCOME_SUCCEEDED] = IDEM_EVENT_SUCCEED,
        [IDEM_OUTCOME_FAILED] = IDEM_EVENT_FAIL,
        [IDEM_OUTCOME_REJECTED] = IDEM_EVENT_REJECT,
        [IDEM_OUTCOME_UNKNOWN] = IDEM_EVENT_DOUBT,
        [IDEM_OUTCOME_RELEASED] = IDEM_EVENT_RELEASE,
    };

    return outcome < IDEM_OUTCOME_COUNT ? events[outcome] : IDEM_EVENT_COUNT;
}

static idem_verdict_e lapsed_verdict(const idem_facts_t *facts)
{
    idem_effect_e effect =
        facts->record_effect > facts->route_effect ? facts->record_effect : facts->route_effect;

    if (facts->attempt_open) {
        return IDEM_VERDICT_MARK_UNKNOWN;
    }
    return lapse_verdicts[facts->state == IDEM_STATE_EXECUTING][effect];
}

/* The verdict as if this server were free to write. */
static idem_verdict_e unfenced_verdict(const idem_facts_t *facts)
{
    if (facts->state == IDEM_STATE_NONE) {
        return IDEM_VERDICT_RESERVE;
    }
    if (facts->expired && facts->tombstone_over && facts->reuse_allowed) {
        return IDEM_VERDICT_REUSE;
    }
    if (facts->fingerprint_equal < 0) {
        return IDEM_VERDICT_OUTCOME_UNKNOWN;
    }
    if (!facts->fingerprint_equal) {
        return IDEM_VERDICT_KEY_REUSED;
    }
    if (facts->expired || facts->state == IDEM_STATE_EXPIRED) {
        return IDEM_VERDICT_KEY_EXPIRED;
    }
    if (idem_machine_is_final(facts->state)) {
        if (facts->response_stored) {
            return IDEM_VERDICT_REPLAY;
        }
        return facts->response_on_its_way ? IDEM_VERDICT_IN_PROGRESS : IDEM_VERDICT_RESPONSE_NOT_STORED;
    }
    if (facts->state == IDEM_STATE_UNKNOWN) {
        return IDEM_VERDICT_OUTCOME_UNKNOWN;
    }
    return facts->lapsed ? lapsed_verdict(facts) : IDEM_VERDICT_IN_PROGRESS;
}

idem_verdict_e idem_machine_verdict(const idem_facts_t *facts)
{
    idem_verdict_e verdict = unfenced_verdict(facts);
    int runs = verdict == IDEM_VERDICT_RESERVE || verdict == IDEM_VERDICT_REUSE || verdict == IDEM_VERDICT_TAKE_OVER;

    if (facts->read_only && (runs || verdict == IDEM_VERDICT_IN_PROGRESS || verdict == IDEM_VERDICT_MARK_UNKNOWN ||
                             verdict == IDEM_VERDICT_OUTCOME_UNKNOWN)) {
        return IDEM_VERDICT_WRITER_FENCED;
    }
    return runs && !facts->writer_allowed ? IDEM_VERDICT_WRITER_FENCED : verdict;
}

/* CONTRACT section 4, settlement rule 6. */
static idem_outcome_e default_outcome(const idem_response_facts_t *facts)
{
    int status = facts->status;

    if (facts->broken) {
        return IDEM_OUTCOME_UNKNOWN;
    }
    if (status >= 200 && status < 400) {
        /* a transactional backend settles what it committed; an answer without that is its fault, not a success */
        return facts->effect == IDEM_EFFECT_TRANSACTIONAL ? IDEM_OUTCOME_UNKNOWN : IDEM_OUTCOME_SUCCEEDED;
    }
    if (status == 401 || status == 407 || status == 425 || status == 429) {
        return IDEM_OUTCOME_REJECTED;
    }
    if (status >= 400 && status < 500 && status != 408) {
        return IDEM_OUTCOME_FAILED;
    }
    if (status >= 500 && facts->effect != IDEM_EFFECT_EXTERNAL && facts->backend_answered && !facts->attempt_open) {
        return IDEM_OUTCOME_RELEASED;
    }
    return IDEM_OUTCOME_UNKNOWN;
}

int idem_machine_refused(const idem_response_facts_t *facts)
{
    int refused_by_httpd = facts->handler_status >= 400 && facts->handler_status < 500 && facts->passed_nothing;

    if (!facts->handler_ran || (refused_by_httpd && !facts->error_override)) {
        return 1;
    }
    return facts->handler_status == 503 && facts->never_connected && !facts->request_sent && !facts->error_override;
}

int idem_machine_fits(idem_state_e state, int status)
{
    return (state == IDEM_STATE_SUCCEEDED && status >= 200 && status < 400) ||
           (state == IDEM_STATE_FAILED_FINAL && status >= 400 && status < 600);
}

idem_outcome_e idem_machine_outcome(const idem_response_facts_t *facts)
{
    if (idem_machine_refused(facts)) {
        return IDEM_OUTCOME_REJECTED;
    }
    if (facts->said != IDEM_OUTCOME_NONE) {
        return facts->said;
    }
    if (facts->rule != IDEM_OUTCOME_NONE) {
        return facts->rule;
    }
    return default_outcome(facts);
}

int idem_machine_retry_after(apr_interval_time_t age, apr_interval_time_t lease_left)
{
    apr_interval_time_t wait = apr_time_sec(age);
    apr_interval_time_t lease = apr_time_sec(lease_left);

    if (wait > 10) {
        wait = 10;
    }
    if (wait > lease) {
        wait = lease;
    }
    return wait < 1 ? 1 : (int)wait;
}

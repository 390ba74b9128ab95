/* idempotencyctl journal: settlements that the registry did not take when they came. CONTRACT sections 9 and 10. */
#include <stdio.h>
#include <string.h>

#include <apr_strings.h>

#include "core/uuid.h"
#include "ctl/operations.h"
#include "ctl/store.h"
#include "store/journal.h"

#define MOST_LISTED 1000
#define A_ROUND     100
#define NO_END      (apr_time_now() + apr_time_from_sec(3600))

static const char *when(apr_pool_t *p, apr_time_t at)
{
    apr_time_exp_t exploded;
    char *text = apr_pcalloc(p, 32);
    apr_size_t len;

    apr_time_exp_gmt(&exploded, at);
    apr_strftime(text, &len, 32, "%Y-%m-%dT%H:%M:%SZ", &exploded);
    return text;
}

static void show(const idem_ctl_t *ctl, const idem_journal_entry_t *entry)
{
    const idem_settle_t *settle = &entry->settlement.settle;
    const char *operation = entry->fault ? NULL : idem_uuid_text(ctl->p, settle->operation);

    if (ctl->json) {
        printf("{\"file\": %s, \"operation\": %s, \"generation\": %d, \"outcome\": %s, \"response_code\": %d, "
               "\"written\": %s, \"fault\": %s}\n",
               idem_ctl_json(ctl->p, entry->name), idem_ctl_json(ctl->p, operation), settle->generation,
               idem_ctl_json(ctl->p, entry->fault ? NULL : idem_outcome_name(settle->outcome)), settle->response_code,
               idem_ctl_json(ctl->p, entry->fault ? NULL : when(ctl->p, entry->written_at)), idem_ctl_json(ctl->p, entry->fault));
    }
    else if (entry->fault) {
        printf("%s  %s\n", idem_ctl_printable(ctl->p, entry->name), entry->fault);
    }
    else {
        printf("%s  generation %d  %-9s  %3d  %s\n", operation, settle->generation, idem_outcome_name(settle->outcome),
               settle->response_code, when(ctl->p, entry->written_at));
    }
}

static idem_ctl_exit_e list(const idem_ctl_t *ctl, const char *dir)
{
    const char *why;
    apr_array_header_t *entries = idem_journal_list(dir, MOST_LISTED, ctl->p, &why);
    int i;

    if (!entries) {
        return idem_ctl_fail(IDEM_CTL_REFUSED, "%s: %s", dir, why);
    }
    for (i = 0; i < entries->nelts; i++) {
        show(ctl, &APR_ARRAY_IDX(entries, i, idem_journal_entry_t));
    }
    if (!ctl->json && !entries->nelts) {
        printf("the journal is empty\n");
    }
    return IDEM_CTL_DONE;
}

typedef struct count_t {
    const idem_ctl_t *ctl;
    int applied;
    int aside;
    int waiting;
    int dropped;
} count_t;

static void report(void *baton, const idem_journal_entry_t *entry, idem_journal_fate_e fate, const char *reason)
{
    static const char *const fates[] = {"applied", "put aside", "put aside", "left", "dropped"};
    count_t *count = baton;

    count->applied += fate == IDEM_JOURNAL_APPLIED;
    count->dropped += fate == IDEM_JOURNAL_DROPPED;
    count->waiting += fate == IDEM_JOURNAL_WAITS;
    count->aside += fate == IDEM_JOURNAL_ASIDE_PASSED || fate == IDEM_JOURNAL_ASIDE_BROKEN;
    idem_ctl_progress(count->ctl, count->applied + count->aside + count->waiting + count->dropped, 0);
    if (!count->ctl->json) {
        printf("%s: %s%s%s\n", idem_ctl_printable(count->ctl->p, entry->name), fates[fate], reason ? ", " : "",
               reason ? reason : "");
    }
}

static idem_ctl_exit_e apply(idem_ctl_t *ctl, const char *dir)
{
    idem_ctl_exit_e status = idem_ctl_connect(ctl);
    idem_store_t *store = status == IDEM_CTL_DONE ? idem_ctl_store(ctl) : NULL;
    idem_journal_t journal = {dir, ""};
    count_t count = {ctl, 0, 0, 0, 0};
    const char *why;
    int left;

    if (!store) {
        return status == IDEM_CTL_DONE ? IDEM_CTL_STORE : status;
    }
    do {
        left = idem_journal_apply(&journal, store, A_ROUND, NO_END, report, &count, ctl->p, &why);
    } while (left > 0 && !count.waiting && *journal.after);
    if (left < 0) {
        return idem_ctl_fail(IDEM_CTL_REFUSED, "%s: %s", dir, why);
    }
    printf(ctl->json ? "{\"applied\": %d, \"aside\": %d, \"waiting\": %d, \"dropped\": %d}\n"
                     : "%d applied, %d put aside, %d left, %d dropped\n",
           count.applied, count.aside, count.waiting, count.dropped);
    return count.waiting ? IDEM_CTL_STORE : count.aside ? IDEM_CTL_REFUSED : IDEM_CTL_DONE;
}

static idem_ctl_exit_e run(idem_ctl_t *ctl, int argc, const char *const *argv)
{
    const idem_ctl_option_t options[] = {{NULL, NULL, NULL}};
    const char *args[2] = {NULL, NULL};
    int count = idem_ctl_options(argc, argv, options, args, 2);

    if (count < 0) {
        return IDEM_CTL_USAGE;
    }
    if (count != 2 || (strcmp(args[0], "list") && strcmp(args[0], "apply"))) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "journal: say list or apply, and the folder of IdempotencyJournal");
    }
    return strcmp(args[0], "list") ? apply(ctl, args[1]) : list(ctl, args[1]);
}

const idem_ctl_command_t idem_ctl_journal = {"journal", "list|apply DIR",
                                             "shows or applies settlements that the registry did not take when they came",
                                             run};

#include "httpd/child/journaling.h"

#include <unistd.h>

#include <apr_atomic.h>
#include <httpd.h>
#include <http_log.h>
#include <unixd.h>

#include "core/uuid.h"
#include "httpd/logging.h"
#include "store/journal.h"

APLOG_USE_MODULE(idempotency);

#define MOST_ENTRIES   32 /* in one round */
#define LONGEST_ROUND  apr_time_from_msec(500)
#define BETWEEN_ROUNDS apr_time_from_msec(50)  /* while there are more */
#define AGAIN          apr_time_from_msec(500) /* after one that the store did not take */
#define BETWEEN_LOOKS  apr_time_from_sec(5)    /* for what other children have left behind */

struct idem_journaling_t {
    server_rec *server;
    idem_journal_t journal;
    apr_time_t due;               /* of the thread alone */
    volatile apr_uint32_t written;/* by request threads: there is something new */
    int unreadable;               /* said so already */
};

const char *idem_journaling_fault(const char *dir, apr_pool_t *p)
{
    if (geteuid() == 0) {
        return idem_journal_fault(dir, ap_unixd_config.user_id, ap_unixd_config.group_id, p);
    }
    return idem_journal_fault(dir, geteuid(), getegid(), p);
}

apr_array_header_t *idem_journaling_open(apr_pool_t *pchild, server_rec *s, const server_rec *registry)
{
    apr_array_header_t *all = apr_array_make(pchild, 1, sizeof(idem_journaling_t *));

    for (; s; s = s->next) {
        idem_server_t *conf = idem_config_server(s);
        int i;

        if (conf->registry != registry || !conf->has_routes || !conf->journal) {
            continue;
        }
        for (i = 0; i < all->nelts && !conf->journaling; i++) {
            idem_journaling_t *known = APR_ARRAY_IDX(all, i, idem_journaling_t *);

            conf->journaling = strcmp(known->journal.dir, conf->journal) ? NULL : known;
        }
        if (!conf->journaling) {
            conf->journaling = apr_pcalloc(pchild, sizeof(*conf->journaling));
            conf->journaling->server = s;
            conf->journaling->journal.dir = conf->journal;
            APR_ARRAY_PUSH(all, idem_journaling_t *) = conf->journaling;
        }
    }
    return all;
}

int idem_journaling_write(idem_journaling_t *journaling, const idem_store_t *store, const idem_settlement_t *settlement,
                          request_rec *r)
{
    unsigned char registry[IDEM_JOURNAL_REGISTRY_LEN];
    const char *why;

    idem_journal_registry(store->digest_key, registry);
    if (!idem_journal_write(journaling->journal.dir, registry, settlement, r->pool, &why)) {
        ap_log_rerror(APLOG_MARK, APLOG_ERR, 0, r,
                      IDEM_LOG("1601") "IdempotencyJournal %s: the settlement of operation %s cannot be written, it will be "
                      "UNKNOWN: %s", journaling->journal.dir, idem_uuid_text(r->pool, settlement->settle.operation), why);
        return 0;
    }
    apr_atomic_set32(&journaling->written, 1);
    return 1;
}

static void report(void *baton, const idem_journal_entry_t *entry, idem_journal_fate_e fate, const char *reason)
{
    idem_journaling_t *journaling = baton;
    char operation[IDEM_UUID_TEXT_LEN + 1];

    idem_uuid_format(entry->settlement.settle.operation, operation);
    switch (fate) {
    case IDEM_JOURNAL_APPLIED:
        ap_log_error(APLOG_MARK, APLOG_NOTICE, 0, journaling->server,
                     IDEM_LOG("1602") "operation %s is settled from the journal (%s)", operation,
                     idem_outcome_name(entry->settlement.settle.outcome));
        break;
    case IDEM_JOURNAL_ASIDE_PASSED:
        ap_log_error(APLOG_MARK, APLOG_WARNING, 0, journaling->server,
                     IDEM_LOG("1603") "the journal's settlement of operation %s is put aside: %s", operation, reason);
        break;
    case IDEM_JOURNAL_DROPPED:
        ap_log_error(APLOG_MARK, APLOG_WARNING, 0, journaling->server,
                     IDEM_LOG("1607") "the journal's settlement of operation %s, generation %d (%s, %d) is dropped: %s", operation,
                     entry->settlement.settle.generation, idem_outcome_name(entry->settlement.settle.outcome),
                     entry->settlement.settle.response_code, reason);
        break;
    case IDEM_JOURNAL_ASIDE_BROKEN:
        ap_log_error(APLOG_MARK, APLOG_ERR, 0, journaling->server,
                     IDEM_LOG("1604") "%s in the journal is put aside: %s", entry->name, reason);
        break;
    default:
        ap_log_error(APLOG_MARK, APLOG_DEBUG, 0, journaling->server,
                     IDEM_LOG("1605") "operation %s stays in the journal: %s", operation, reason);
        break;
    }
}

apr_time_t idem_journaling_work(idem_journaling_t *journaling, idem_store_t *store, apr_pool_t *p)
{
    apr_time_t now = apr_time_now();
    apr_uint32_t fresh = apr_atomic_xchg32(&journaling->written, 0);
    const char *why;
    int left;

    if ((now < journaling->due && !fresh) || !store->digest_key_known) {
        return journaling->due > now ? journaling->due : now + BETWEEN_LOOKS;
    }
    left = idem_journal_apply(&journaling->journal, store, MOST_ENTRIES, now + LONGEST_ROUND, report, journaling, p, &why);
    if (left < 0 && !journaling->unreadable) {
        ap_log_error(APLOG_MARK, APLOG_ERR, 0, journaling->server,
                     IDEM_LOG("1606") "IdempotencyJournal %s cannot be read: %s", journaling->journal.dir, why);
    }
    journaling->unreadable = left < 0;
    now = apr_time_now();
    journaling->due = left > MOST_ENTRIES ? now + BETWEEN_ROUNDS : left > 0 ? now + AGAIN : now + BETWEEN_LOOKS;
    return journaling->due;
}

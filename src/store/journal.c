#include "store/journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <apr_strings.h>

#include "core/digest.h"
#include "core/uuid.h"
#include "store/journal_entry.h"
#include "store/journal_files.h"

#define UNFINISHED_FOR  3600 /* seconds after which nobody can still be writing it */
#define MOST_REFUSALS   3    /* in a row: then the store is away, and no single entry is to blame */

const char *idem_journal_fault(const char *dir, uid_t uid, gid_t gid, apr_pool_t *p)
{
    struct stat info;
    mode_t needed;

    if (stat(dir, &info)) {
        return apr_psprintf(p, "cannot be looked at: %s", strerror(errno));
    }
    if (!S_ISDIR(info.st_mode)) {
        return "is no folder";
    }
    if (info.st_mode & S_IRWXO) {
        return "is open to others: settlements hold responses, chmod o-rwx";
    }
    needed = info.st_uid == uid ? S_IRWXU : info.st_gid == gid ? S_IRWXG : S_IRWXO;
    if ((info.st_mode & needed) != needed) {
        return apr_psprintf(p, "cannot be read and written by the server's user (uid %lu): make it its owner, mode 700",
                            (unsigned long)uid);
    }
    return NULL;
}

void idem_journal_registry(const unsigned char digest_key[32], unsigned char registry[IDEM_JOURNAL_REGISTRY_LEN])
{
    static const char what[] = "mod_idempotency journal";
    unsigned char digest[IDEM_SHA256_LEN];

    idem_hmac_sha256(digest_key, 32, what, sizeof(what) - 1, digest);
    memcpy(registry, digest, IDEM_JOURNAL_REGISTRY_LEN);
}

/* ---------------------------------------------------------------- writing */

static int write_all(int fd, idem_octets_t octets)
{
    while (octets.len) {
        ssize_t n = write(fd, octets.octets, octets.len);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            errno = n ? errno : ENOSPC;
            return 0;
        }
        octets.octets += n;
        octets.len -= (apr_size_t)n;
    }
    return 1;
}

int idem_journal_write_file(int dir_fd, const char *name, idem_octets_t octets)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int done;
    int error;

    if (fd < 0) {
        return 0;
    }
    done = write_all(fd, octets) && !fsync(fd);
    error = errno;
    if (close(fd) && done) {
        done = 0;
        error = errno;
    }
    if (!done) {
        unlinkat(dir_fd, name, 0);
    }
    errno = error;
    return done;
}

int idem_journal_write(const char *dir, const unsigned char registry[IDEM_JOURNAL_REGISTRY_LEN],
                       const idem_settlement_t *settlement, apr_pool_t *p, const char **why)
{
    apr_time_t now = apr_time_now();
    const char *name = apr_psprintf(p, "%s-%014" APR_TIME_T_FMT "-%s-%d" IDEM_JOURNAL_SUFFIX, idem_journal_hex(registry, p), apr_time_as_msec(now),
                                    idem_uuid_text(p, settlement->settle.operation), settlement->settle.generation);
    const char *unfinished = apr_psprintf(p, IDEM_JOURNAL_UNFINISHED "%ld-%s", (long)getpid(), name);
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int done = dir_fd >= 0 && idem_journal_write_file(dir_fd, unfinished, idem_journal_encode(settlement, registry, now, p));

    if (done && (renameat(dir_fd, unfinished, dir_fd, name) || fsync(dir_fd))) {
        int error = errno;

        unlinkat(dir_fd, unfinished, 0);
        errno = error;
        done = 0;
    }
    *why = done ? NULL : apr_pstrdup(p, strerror(errno));
    if (dir_fd >= 0) {
        close(dir_fd);
    }
    return done;
}

/* ---------------------------------------------------------------- applying */

/* What a process that died has left half written: nobody can tell what it was to be. */
static void put_unfinished_aside(const char *dir, int dir_fd, apr_pool_t *p)
{
    DIR *handle = opendir(dir);
    const struct dirent *item;
    struct stat info;

    while (handle && (item = readdir(handle)) != NULL) {
        if (!strncmp(item->d_name, IDEM_JOURNAL_UNFINISHED, sizeof(IDEM_JOURNAL_UNFINISHED) - 1) &&
            !fstatat(dir_fd, item->d_name, &info, AT_SYMLINK_NOFOLLOW) &&
            apr_time_sec(apr_time_now()) - info.st_mtime > UNFINISHED_FOR) {
            idem_journal_put_aside(dir_fd, apr_pstrdup(p, item->d_name), "it was never finished: its writer has died", p);
        }
    }
    if (handle) {
        closedir(handle);
    }
}

static idem_journal_fate_e apply_entry(int dir_fd, idem_journal_entry_t *entry, idem_store_t *store, apr_pool_t *p,
                                       const char **reason)
{
    idem_settle_t *settle = &entry->settlement.settle;

    settle->actor = "journal";
    idem_settlement_apply(store, &entry->settlement, apr_time_now() + store->timeout, p);
    if (settle->result == IDEM_STORE_NOT_FOUND && settle->outcome == IDEM_OUTCOME_REJECTED) {
        settle->result = IDEM_STORE_OK; /* what was to be removed is not there */
    }
    switch (settle->result) {
    case IDEM_STORE_OK:
        unlinkat(dir_fd, entry->name, 0);
        return IDEM_JOURNAL_APPLIED;
    case IDEM_STORE_STALE:
        *reason = apr_psprintf(p, "the record has gone on without generation %d and is %s", settle->generation,
                               idem_state_name(settle->state));
        return IDEM_JOURNAL_ASIDE_PASSED;
    case IDEM_STORE_NOT_FOUND:
        /* nobody can ask for it; and what was erased must not stay here with its caller's data */
        *reason = "there is no record of this operation any more";
        unlinkat(dir_fd, entry->name, 0);
        return IDEM_JOURNAL_DROPPED;
    default:
        *reason = "the store did not take it";
        return IDEM_JOURNAL_WAITS;
    }
}

/* One entry, whatever becomes of it. 0 where it was not ours to work at. */
static int work_at(int dir_fd, const char *name, idem_store_t *store, idem_journal_report_fn report, void *baton,
                   apr_pool_t *p, idem_journal_fate_e *fate)
{
    idem_journal_entry_t entry;
    const char *reason = NULL;
    int fd;
    idem_journal_opened_e opened = idem_journal_open(dir_fd, name, 1, p, &entry, &fd);

    if (opened == IDEM_JOURNAL_OPENED) {
        *fate = apply_entry(dir_fd, &entry, store, p, &reason);
    }
    else if (opened == IDEM_JOURNAL_UNREADABLE) {
        *fate = IDEM_JOURNAL_ASIDE_BROKEN;
        reason = entry.fault;
    }
    if (opened != IDEM_JOURNAL_NOT_OURS) {
        if (*fate == IDEM_JOURNAL_ASIDE_PASSED || *fate == IDEM_JOURNAL_ASIDE_BROKEN) {
            reason = idem_journal_put_aside(dir_fd, name, reason, p);
        }
        report(baton, &entry, *fate, reason);
    }
    if (fd >= 0) {
        close(fd);
    }
    return opened != IDEM_JOURNAL_NOT_OURS;
}

int idem_journal_apply(idem_journal_t *journal, idem_store_t *store, int most, apr_time_t until,
                       idem_journal_report_fn report, void *baton, apr_pool_t *p, const char **why)
{
    unsigned char registry[IDEM_JOURNAL_REGISTRY_LEN];
    apr_array_header_t *names;
    int dir_fd = open(journal->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int refusals = 0;
    int more;
    int i;

    idem_journal_registry(store->digest_key, registry);
    if (dir_fd >= 0 && !*journal->after) {
        put_unfinished_aside(journal->dir, dir_fd, p);
    }
    names = dir_fd < 0 ? NULL : idem_journal_names(journal->dir, idem_journal_hex(registry, p), journal->after, p, &more);
    *why = names ? NULL : apr_pstrdup(p, strerror(errno));
    for (i = 0; names && i < names->nelts && i < most && refusals < MOST_REFUSALS && apr_time_now() < until; i++) {
        const char *name = APR_ARRAY_IDX(names, i, const char *);
        idem_journal_fate_e fate = IDEM_JOURNAL_WAITS;
        apr_pool_t *sub;

        apr_pool_create(&sub, p);
        refusals = work_at(dir_fd, name, store, report, baton, sub, &fate) && fate == IDEM_JOURNAL_WAITS ? refusals + 1 : 0;
        apr_pool_destroy(sub);
        apr_cpystrn(journal->after, name, sizeof(journal->after));
    }
    if (dir_fd >= 0) {
        close(dir_fd);
    }
    if (!names) {
        return -1;
    }
    if (i == names->nelts && !more) {
        *journal->after = '\0'; /* the next round begins from the oldest again */
    }
    return names->nelts - i + more + refusals;
}

apr_array_header_t *idem_journal_list(const char *dir, int most, apr_pool_t *p, const char **why)
{
    apr_array_header_t *entries = apr_array_make(p, 16, sizeof(idem_journal_entry_t));
    apr_array_header_t *names;
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int more = 0;
    int i;

    names = dir_fd < 0 ? NULL : idem_journal_names(dir, NULL, "", p, &more);
    *why = names ? NULL : apr_pstrdup(p, strerror(errno));
    for (i = 0; names && i < names->nelts && i < most; i++) {
        idem_journal_entry_t entry;
        int fd;

        if (idem_journal_open(dir_fd, APR_ARRAY_IDX(names, i, const char *), 0, p, &entry, &fd) != IDEM_JOURNAL_NOT_OURS) {
            APR_ARRAY_PUSH(entries, idem_journal_entry_t) = entry;
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    if (dir_fd >= 0) {
        close(dir_fd);
    }
    return names ? entries : NULL;
}

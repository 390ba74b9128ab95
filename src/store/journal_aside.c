/* What could not be applied: kept beside, with the reason, and bounded. */
#include "store/journal_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <apr_strings.h>

#define REASON ".reason"

/* The oldest entry of the folder where it is full, else NULL. A rename keeps a file's time: that of its writing. */
static const char *oldest_of_full(int aside, apr_pool_t *p)
{
    int fd = openat(aside, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *handle = fd < 0 ? NULL : fdopendir(fd);
    const char *oldest = NULL;
    const struct dirent *item;
    struct timespec written = {0, 0};
    struct stat info;
    int count = 0;

    while (handle && (item = readdir(handle)) != NULL) {
        apr_size_t len = strlen(item->d_name);

        if ((len > sizeof(REASON) && !strcmp(item->d_name + len - (sizeof(REASON) - 1), REASON)) ||
            fstatat(aside, item->d_name, &info, AT_SYMLINK_NOFOLLOW) || !S_ISREG(info.st_mode)) {
            continue;
        }
        count++;
        if (!oldest || info.st_mtim.tv_sec < written.tv_sec ||
            (info.st_mtim.tv_sec == written.tv_sec && info.st_mtim.tv_nsec < written.tv_nsec)) {
            oldest = apr_pstrdup(p, item->d_name);
            written = info.st_mtim;
        }
    }
    if (handle) {
        closedir(handle);
    }
    else if (fd >= 0) {
        close(fd);
    }
    return count >= IDEM_JOURNAL_MOST_ASIDE ? oldest : NULL;
}

/* Room for one more. Returns the reason, and what had to go for it. */
static const char *make_room(int aside, const char *reason, apr_pool_t *p)
{
    const char *oldest = oldest_of_full(aside, p);

    if (!oldest || unlinkat(aside, oldest, 0)) {
        return reason;
    }
    unlinkat(aside, apr_pstrcat(p, oldest, REASON, NULL), 0);
    return apr_psprintf(p, "%s; %d entries were aside, so the oldest of them, %s, was removed", reason,
                        IDEM_JOURNAL_MOST_ASIDE, oldest);
}

const char *idem_journal_put_aside(int dir_fd, const char *name, const char *reason, apr_pool_t *p)
{
    const char *why = apr_pstrcat(p, reason, "\n", NULL);
    idem_octets_t words = {(const unsigned char *)why, strlen(why)};
    struct stat info;
    int aside;

    if (!mkdirat(dir_fd, IDEM_JOURNAL_ASIDE, 0700) && !geteuid() && !fstat(dir_fd, &info) &&
        fchownat(dir_fd, IDEM_JOURNAL_ASIDE, info.st_uid, info.st_gid, AT_SYMLINK_NOFOLLOW)) {
        return reason;
    }
    aside = openat(dir_fd, IDEM_JOURNAL_ASIDE, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (aside < 0) {
        return reason;
    }
    reason = make_room(aside, reason, p);
    if (idem_journal_write_file(aside, apr_pstrcat(p, name, REASON, NULL), words) || errno == EEXIST) {
        renameat(dir_fd, name, aside, name);
        fsync(aside);
    }
    close(aside);
    return reason;
}

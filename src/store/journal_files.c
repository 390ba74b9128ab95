#include "store/journal_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <apr_strings.h>

#include "store/journal_entry.h"

#define MOST_OCTETS (APR_INT64_C(1100) * 1024 * 1024) /* the largest snapshot, and its head */
#define MOST_NAMES  1000

const char *idem_journal_hex(const unsigned char *registry, apr_pool_t *p)
{
    char *text = apr_palloc(p, 2 * IDEM_JOURNAL_REGISTRY_LEN + 1);
    int i;

    for (i = 0; i < IDEM_JOURNAL_REGISTRY_LEN; i++) {
        apr_snprintf(text + 2 * i, 3, "%02x", registry[i]);
    }
    return text;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int idem_journal_is_entry(const char *name, const char *registry)
{
    apr_size_t len = strlen(name);

    return len > sizeof(IDEM_JOURNAL_SUFFIX) && !strcmp(name + len - (sizeof(IDEM_JOURNAL_SUFFIX) - 1), IDEM_JOURNAL_SUFFIX) && *name != '.' &&
           (!registry || !strncmp(name, registry, strlen(registry)));
}

apr_array_header_t *idem_journal_names(const char *dir, const char *registry, const char *after, apr_pool_t *p, int *more)
{
    apr_array_header_t *names = apr_array_make(p, 16, sizeof(const char *));
    DIR *handle = opendir(dir);
    const struct dirent *item;

    *more = 0;
    if (!handle) {
        return NULL;
    }
    while ((item = readdir(handle)) != NULL) {
        if (!idem_journal_is_entry(item->d_name, registry) || strcmp(item->d_name, after) <= 0) {
            continue;
        }
        if (names->nelts == MOST_NAMES) {
            *more = 1;
            break;
        }
        APR_ARRAY_PUSH(names, const char *) = apr_pstrdup(p, item->d_name);
    }
    closedir(handle);
    qsort(names->elts, (size_t)names->nelts, sizeof(const char *), compare_names);
    return names;
}

/* The octets of an open file. 1, or 0 with errno. */
static int read_all(int fd, apr_size_t len, apr_pool_t *p, idem_octets_t *octets)
{
    unsigned char *buffer = apr_palloc(p, len + 1);
    apr_size_t done = 0;
    ssize_t n;

    while ((n = read(fd, buffer + done, len - done)) != 0) {
        if (n < 0 && errno != EINTR) {
            return 0;
        }
        done += n > 0 ? (apr_size_t)n : 0;
        if (done == len) {
            break;
        }
    }
    octets->octets = buffer;
    octets->len = done;
    return 1;
}

idem_journal_opened_e idem_journal_open(int dir_fd, const char *name, int lock, apr_pool_t *p, idem_journal_entry_t *entry, int *fd)
{
    struct stat info;
    idem_octets_t octets;

    memset(entry, 0, sizeof(*entry));
    entry->name = name;
    *fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (*fd < 0) {
        entry->fault = apr_psprintf(p, "cannot be opened: %s", strerror(errno));
        return errno == ENOENT ? IDEM_JOURNAL_NOT_OURS : IDEM_JOURNAL_UNREADABLE;
    }
    if (lock && flock(*fd, LOCK_EX | LOCK_NB)) {
        return IDEM_JOURNAL_NOT_OURS;
    }
    if (fstat(*fd, &info) || !info.st_nlink) {
        return IDEM_JOURNAL_NOT_OURS;
    }
    if (!S_ISREG(info.st_mode) || info.st_size > MOST_OCTETS) {
        entry->fault = "it is no file, or larger than any settlement";
        return IDEM_JOURNAL_UNREADABLE;
    }
    if (!read_all(*fd, (apr_size_t)info.st_size, p, &octets)) {
        entry->fault = apr_psprintf(p, "cannot be read: %s", strerror(errno));
        return IDEM_JOURNAL_UNREADABLE;
    }
    idem_journal_decode(octets, entry, p);
    return entry->fault ? IDEM_JOURNAL_UNREADABLE : IDEM_JOURNAL_OPENED;
}

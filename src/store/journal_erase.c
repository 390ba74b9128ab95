/* What a journal's folder has of a tenant whose records were erased. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <apr_strings.h>

#include "store/journal_files.h"

typedef struct erasing_t {
    idem_store_t *store;
    const char *registry;
    const char *tenant;
    idem_journal_erased_t *erased;
    const char *why;
} erasing_t;

/* 1 where the store has no record of the operation, 0 where it has one or did not say. */
static int is_forgotten(erasing_t *erasing, const idem_journal_entry_t *entry, apr_pool_t *p)
{
    idem_record_t *record;
    idem_store_result_e result = erasing->store->provider->find_operation(
        erasing->store, erasing->tenant, entry->settlement.settle.operation, &record, apr_time_now() + erasing->store->timeout, p);

    if (result != IDEM_STORE_OK && result != IDEM_STORE_NOT_FOUND) {
        erasing->why = "the registry does not answer";
    }
    return result == IDEM_STORE_NOT_FOUND;
}

static void look_at(erasing_t *erasing, int dir_fd, const char *name, apr_pool_t *p)
{
    idem_journal_entry_t entry;
    int fd;

    switch (idem_journal_open(dir_fd, name, 1, p, &entry, &fd)) {
    case IDEM_JOURNAL_OPENED:
        if (!strcmp(entry.settlement.settle.tenant, erasing->tenant) && is_forgotten(erasing, &entry, p) &&
            !unlinkat(dir_fd, name, 0)) {
            unlinkat(dir_fd, apr_pstrcat(p, name, ".reason", NULL), 0);
            erasing->erased->removed++;
        }
        break;
    case IDEM_JOURNAL_UNREADABLE:
        erasing->erased->unreadable++;
        break;
    default:
        break;
    }
    if (fd >= 0) {
        close(fd);
    }
}

/* One folder, name by name: it may be long. 0 where it cannot be read; one that is not there is read. */
static int look_through(erasing_t *erasing, const char *dir, apr_pool_t *p)
{
    DIR *handle = opendir(dir);
    const struct dirent *item;

    if (!handle) {
        erasing->why = errno == ENOENT ? erasing->why : apr_pstrdup(p, strerror(errno));
        return errno == ENOENT;
    }
    while (!erasing->why && (item = readdir(handle)) != NULL) {
        apr_pool_t *sub;

        if (!strncmp(item->d_name, IDEM_JOURNAL_UNFINISHED, sizeof(IDEM_JOURNAL_UNFINISHED) - 1)) {
            /* the reason beside one that was put aside has its name, too */
            erasing->erased->unreadable += !!idem_journal_is_entry(item->d_name + 1, NULL);
        }
        else if (idem_journal_is_entry(item->d_name, erasing->registry)) {
            apr_pool_create(&sub, p);
            look_at(erasing, dirfd(handle), apr_pstrdup(sub, item->d_name), sub);
            apr_pool_destroy(sub);
        }
    }
    fsync(dirfd(handle));
    closedir(handle);
    return !erasing->why;
}

int idem_journal_erase(const char *dir, idem_store_t *store, const char *tenant, idem_journal_erased_t *erased, apr_pool_t *p,
                       const char **why)
{
    unsigned char registry[IDEM_JOURNAL_REGISTRY_LEN];
    erasing_t erasing = {store, NULL, tenant, erased, NULL};
    int there = access(dir, R_OK | W_OK | X_OK) == 0;

    memset(erased, 0, sizeof(*erased));
    if (!there) {
        *why = apr_pstrdup(p, strerror(errno));
        return 0;
    }
    idem_journal_registry(store->digest_key, registry);
    erasing.registry = idem_journal_hex(registry, p);
    if (look_through(&erasing, dir, p)) {
        look_through(&erasing, apr_pstrcat(p, dir, "/" IDEM_JOURNAL_ASIDE, NULL), p);
    }
    *why = erasing.why;
    return !erasing.why;
}

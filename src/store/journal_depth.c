/* How many settlements lie in a journal's folder, by their names alone. */
#include "store/journal.h"

#include <dirent.h>
#include <string.h>

#include <apr_strings.h>

#define SUFFIX     ".settlement"
#define MOST_NAMES 10000
#define TIME_AT    (2 * IDEM_JOURNAL_REGISTRY_LEN + 1) /* in a name: registry, time in ms, operation, generation */

/* The entries of one folder, to the bound; *oldest where there is a time in a name. -1: it cannot be read. */
static int count_in(const char *dir, apr_time_t *oldest)
{
    DIR *handle = opendir(dir);
    const struct dirent *item;
    int count = 0;

    if (!handle) {
        return -1;
    }
    while (count < MOST_NAMES && (item = readdir(handle)) != NULL) {
        apr_size_t len = strlen(item->d_name);
        apr_time_t when;

        if (*item->d_name == '.' || len <= TIME_AT + sizeof(SUFFIX) ||
            strcmp(item->d_name + len - (sizeof(SUFFIX) - 1), SUFFIX)) {
            continue;
        }
        count++;
        when = apr_time_from_msec(apr_atoi64(item->d_name + TIME_AT));
        *oldest = when > 0 && (!*oldest || when < *oldest) ? when : *oldest;
    }
    closedir(handle);
    return count;
}

int idem_journal_depth(const char *dir, idem_journal_depth_t *depth, apr_pool_t *p)
{
    apr_time_t ignored = 0;

    depth->oldest = 0;
    depth->waiting = count_in(dir, &depth->oldest);
    depth->aside = count_in(apr_pstrcat(p, dir, "/" IDEM_JOURNAL_ASIDE, NULL), &ignored);
    depth->aside = depth->aside < 0 ? 0 : depth->aside;
    return depth->waiting >= 0;
}

/*
 * journal_files.h - the files of a journal's folder, for those that work at them: journal.c, journal_erase.c.
 */
#ifndef IDEM_JOURNAL_FILES_H
#define IDEM_JOURNAL_FILES_H

#include "store/journal.h"

#define IDEM_JOURNAL_SUFFIX     ".settlement"
#define IDEM_JOURNAL_UNFINISHED ".unfinished-" /* how the name of a file begins that is still being written */

typedef enum {
    IDEM_JOURNAL_OPENED,
    IDEM_JOURNAL_NOT_OURS,  /* it is gone, or somebody else works at it */
    IDEM_JOURNAL_UNREADABLE /* entry->fault says why */
} idem_journal_opened_e;

/* How the names of a registry's entries begin. */
const char *idem_journal_hex(const unsigned char *registry, apr_pool_t *p);

/* Is this the name of an entry, of the registry that begins so (NULL: of any)? */
int idem_journal_is_entry(const char *name, const char *registry);

/* Up to 1000 names of entries behind `after`, in order; *more where there are others. NULL with errno. */
apr_array_header_t *idem_journal_names(const char *dir, const char *registry, const char *after, apr_pool_t *p, int *more);

/* Opens an entry, locks it where lock says so, and reads it. *fd is to be closed unless it is -1. */
idem_journal_opened_e idem_journal_open(int dir_fd, const char *name, int lock, apr_pool_t *p, idem_journal_entry_t *entry,
                                        int *fd);

/* A whole file under this name, on the disk. 1, or 0 with errno; then none is left. */
int idem_journal_write_file(int dir_fd, const char *name, idem_octets_t octets);

/*
 * Moves an entry to the folder beside (journal_aside.c), with the reason; where that fails it stays, and is met again. The
 * folder keeps at most IDEM_JOURNAL_MOST_ASIDE entries: the oldest goes for a new one, and the reason that is returned, for
 * the log, says so.
 */
#define IDEM_JOURNAL_MOST_ASIDE 1000
const char *idem_journal_put_aside(int dir_fd, const char *name, const char *reason, apr_pool_t *p);

#endif

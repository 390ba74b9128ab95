/*
 * journal_entry.h - the layout of a file of the journal. CONTRACT section 9.
 *
 *     8 octets  "IDEMJRN" and the version, 1
 *     number    flags: 0. A reader refuses a file with a flag that it does not know.
 *     8 octets  registry
 *     8 octets  when it was written, microseconds since 1970
 *     16 octets operation
 *     number    generation
 *     number    1 where the backend's own settlement comes first
 *     number    1 where the response is whole
 *     number    response code, 0 for none
 *     fields    outcome (its name), tenant, response headers, response body, response digest, empty head, reason; each
 *               a number, 1 where there is one, and then its length as a number and its octets
 *     32 octets SHA-256 of everything before
 *
 * Numbers are 4 octets, big endian.
 */
#ifndef IDEM_JOURNAL_ENTRY_H
#define IDEM_JOURNAL_ENTRY_H

#include "store/journal.h"

/* Lays a settlement out in pool p. */
idem_octets_t idem_journal_encode(const idem_settlement_t *settlement, const unsigned char *registry,
                                  apr_time_t written_at, apr_pool_t *p);

/* The way back. entry->fault says what is wrong with the octets; they must live as long as the entry. */
void idem_journal_decode(idem_octets_t octets, idem_journal_entry_t *entry, apr_pool_t *p);

#endif

/*
 * replay_entry.h - a final record as it lies in a cache. CONTRACT section 11 (ReplayCache).
 *
 *     octet     layout, 1
 *     8 octets  until when it may be used, microseconds of a clock that nobody sets
 *     32 octets registry: which one it is of
 *     32 octets list: of the scopes among which it was found to decide; zeros where there was one scope only
 *     fields    the seven parts of its scope
 *     16 octets operation
 *     numbers   generation, state, outcome, response code
 *     32 octets fingerprint
 *     fields    recipe, response headers, response body, response digest, each as the record has it
 *     32 octets SHA-256 of everything before
 *
 * Numbers are 4 octets, big endian; a field is its length as a number, and its octets.
 */
#ifndef IDEM_REPLAY_ENTRY_H
#define IDEM_REPLAY_ENTRY_H

#include "core/digest.h"
#include "store/store.h"

typedef struct idem_replay_entry_t {
    apr_interval_time_t until;
    unsigned char registry[IDEM_SHA256_LEN];
    unsigned char list[IDEM_SHA256_LEN];
    idem_record_t record; /* decoded: final, neither expired nor lapsed, with a response; what is not laid out is zero */
} idem_replay_entry_t;

/*
 * The octets that idem_replay_encode() would need, 0 where this record is none for a cache: not final, expired, without
 * a stored response, or of a later generation than the first (its retention is not known for certain then).
 * A record whose contract is not known never decides, so it is none either.
 */
apr_size_t idem_replay_size(const idem_record_t *record);

/* Lays an entry of that size out at `to`. */
void idem_replay_encode(const idem_replay_entry_t *entry, unsigned char *to);

/* The way back, from octets that may be wrong in any way: 0 for anything that is not a whole entry. The record points
 * into octets, which must live as long as it; the texts of its scope are in pool p. */
int idem_replay_decode(idem_octets_t octets, idem_replay_entry_t *entry, apr_pool_t *p);

#endif

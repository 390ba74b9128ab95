/*
 * digest.h - SHA-256 and HMAC-SHA256 over OpenSSL, in the forms the core needs.
 *
 * None of the digests returns an error. OpenSSL fails to digest octets in memory only where it has no memory left or
 * no SHA-256 at all. The first ends the process, as httpd itself ends where a pool cannot grow: a digest that is not
 * one would make two different requests equal (CONTRACT section 3). The second is found at start-up by
 * idem_digest_check().
 */
#ifndef IDEM_DIGEST_H
#define IDEM_DIGEST_H

#include <apr.h>
#include <apr_errno.h>
#include <apr_pools.h>

#define IDEM_SHA256_LEN 32

/* A digest in the making. */
typedef struct idem_sha256_t idem_sha256_t;

/* Is SHA-256 there and right? For start-up. APR_SUCCESS, or APR_ENOTIMPL where OpenSSL has none that works. */
apr_status_t idem_digest_check(void);

/* Frees what this thread keeps for its next digest. For a thread that goes on when this code is unloaded. */
void idem_digest_forget(void);

/* The SHA-256 of len octets at data (NULL where len is 0), written to out. */
void idem_sha256(const void *data, apr_size_t len, unsigned char out[IDEM_SHA256_LEN]);

/*
 * The SHA-256 of n strings, each framed as idem_sha256_update_framed() does it (NULL counts as empty): no two
 * different lists of n strings are one sequence of octets.
 */
void idem_sha256_strings(const char *const *strings, int n, unsigned char out[IDEM_SHA256_LEN]);

/*
 * Begin a digest of octets that come in pieces. It lives in pool p, whose cleanup frees what OpenSSL holds, so an
 * abandoned one leaks nothing. Never NULL.
 */
idem_sha256_t *idem_sha256_init(apr_pool_t *p);

/* Add len octets at data (NULL where len is 0). Not after idem_sha256_final(). */
void idem_sha256_update(idem_sha256_t *sha, const void *data, apr_size_t len);

/*
 * Add one field so that it cannot run into the next: its length as 8 octets, big endian, then the octets
 * (CONTRACT section 3). Not after idem_sha256_final().
 */
void idem_sha256_update_framed(idem_sha256_t *sha, const void *data, apr_size_t len);

/* End the digest, write it to out and free what OpenSSL holds. Once only. */
void idem_sha256_final(idem_sha256_t *sha, unsigned char out[IDEM_SHA256_LEN]);

/*
 * HMAC-SHA256 of several things under one key: begin, of as often as there are things, end, which frees what OpenSSL
 * holds. By one thread.
 */
typedef struct idem_hmac_t {
    struct evp_md_ctx_st *inner, *outer, *work;
} idem_hmac_t;

void idem_hmac_begin(idem_hmac_t *hmac, const void *key, apr_size_t key_len);
void idem_hmac_of(const idem_hmac_t *hmac, const void *data, apr_size_t len, unsigned char out[IDEM_SHA256_LEN]);
void idem_hmac_end(idem_hmac_t *hmac);

/* HMAC-SHA256 of len octets at data under key_len octets of key (each NULL where its length is 0). */
void idem_hmac_sha256(const void *key, apr_size_t key_len, const void *data, apr_size_t len,
                      unsigned char out[IDEM_SHA256_LEN]);

#endif

#include "core/digest.h"

#include <stdlib.h>
#include <string.h>

#include <pthread.h>
#include <stdatomic.h>

#include <openssl/evp.h>

struct idem_sha256_t {
    EVP_MD_CTX *ctx; /* NULL once final */
    apr_pool_t *pool;
};

/* Where going on would mean a wrong digest (see the header). */
static void must(int ok)
{
    if (!ok) {
        abort();
    }
}

/*
 * SHA-256 as OpenSSL has fetched it. To look for it among the providers costs more than a small digest does, so the
 * first digest does it for all; two first ones fetch the same, and the later is given back. Written once.
 */
static const EVP_MD *sha256(void)
{
    static _Atomic(EVP_MD *) fetched;
    EVP_MD *md = atomic_load_explicit(&fetched, memory_order_acquire);
    EVP_MD *none = NULL;

    if (!md) {
        md = EVP_MD_fetch(NULL, "SHA256", NULL);
        must(md != NULL);
        if (!atomic_compare_exchange_strong(&fetched, &none, md)) {
            EVP_MD_free(md);
            md = none;
        }
    }
    return md;
}

/*
 * Every thread keeps one context: to make one costs more than a small digest does. Whoever uses it has taken it away, so
 * nothing in between can use it, too. A thread frees its own when it ends; the key goes when the module is unloaded, or
 * the C library would call into what is not there any more.
 */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t kept;
static int may_keep;

static void free_kept(void *ctx)
{
    EVP_MD_CTX_free(ctx);
}

static void make_key(void)
{
    may_keep = pthread_key_create(&kept, free_kept) == 0;
}

__attribute__((destructor)) static void drop_key(void)
{
    if (may_keep) {
        may_keep = 0;
        pthread_key_delete(kept);
    }
}

static EVP_MD_CTX *take(void)
{
    EVP_MD_CTX *ctx = NULL;

    pthread_once(&once, make_key);
    if (may_keep && (ctx = pthread_getspecific(kept)) != NULL) {
        pthread_setspecific(kept, NULL);
    }
    ctx = ctx ? ctx : EVP_MD_CTX_new();
    must(ctx != NULL);
    return ctx;
}

static void give_back(EVP_MD_CTX *ctx)
{
    if (!may_keep || pthread_getspecific(kept) || pthread_setspecific(kept, ctx) != 0) {
        EVP_MD_CTX_free(ctx);
    }
}

void idem_digest_forget(void)
{
    EVP_MD_CTX_free(take());
}

apr_status_t idem_digest_check(void)
{
    /* of "abc": FIPS 180-2, appendix B.1 */
    static const unsigned char expected[IDEM_SHA256_LEN] = {
        0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23,
        0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad
    };
    unsigned char out[EVP_MAX_MD_SIZE];
    unsigned int len = 0;

    return EVP_Digest("abc", 3, out, &len, EVP_sha256(), NULL) == 1 && len == IDEM_SHA256_LEN &&
                   memcmp(out, expected, IDEM_SHA256_LEN) == 0
               ? APR_SUCCESS
               : APR_ENOTIMPL;
}

static EVP_MD_CTX *begin(void)
{
    EVP_MD_CTX *ctx = take();

    must(EVP_DigestInit_ex2(ctx, sha256(), NULL) == 1);
    return ctx;
}

void idem_sha256(const void *data, apr_size_t len, unsigned char out[IDEM_SHA256_LEN])
{
    EVP_MD_CTX *ctx = begin();

    must((len == 0 || EVP_DigestUpdate(ctx, data, len) == 1) && EVP_DigestFinal_ex(ctx, out, NULL) == 1);
    give_back(ctx);
}

static void add(EVP_MD_CTX *ctx, const void *data, apr_size_t len)
{
    must(len == 0 || EVP_DigestUpdate(ctx, data, len) == 1);
}

static void add_framed(EVP_MD_CTX *ctx, const void *data, apr_size_t len)
{
    unsigned char frame[8];
    apr_uint64_t rest = len;
    int i;

    for (i = 7; i >= 0; i--) {
        frame[i] = (unsigned char)(rest & 0xff);
        rest >>= 8;
    }
    add(ctx, frame, sizeof(frame));
    add(ctx, data, len);
}

void idem_sha256_strings(const char *const *strings, int n, unsigned char out[IDEM_SHA256_LEN])
{
    EVP_MD_CTX *ctx = begin();
    int i;

    for (i = 0; i < n; i++) {
        add_framed(ctx, strings[i], strings[i] ? strlen(strings[i]) : 0);
    }
    must(EVP_DigestFinal_ex(ctx, out, NULL) == 1);
    give_back(ctx);
}

static apr_status_t free_ctx(void *data)
{
    idem_sha256_t *sha = data;

    if (sha->ctx) {
        give_back(sha->ctx);
    }
    sha->ctx = NULL;
    return APR_SUCCESS;
}

idem_sha256_t *idem_sha256_init(apr_pool_t *p)
{
    idem_sha256_t *sha = apr_palloc(p, sizeof(*sha));

    sha->pool = p;
    sha->ctx = begin();
    apr_pool_cleanup_register(p, sha, free_ctx, apr_pool_cleanup_null);
    return sha;
}

void idem_sha256_update(idem_sha256_t *sha, const void *data, apr_size_t len)
{
    must(sha->ctx != NULL);
    add(sha->ctx, data, len);
}

void idem_sha256_update_framed(idem_sha256_t *sha, const void *data, apr_size_t len)
{
    must(sha->ctx != NULL);
    add_framed(sha->ctx, data, len);
}

void idem_sha256_final(idem_sha256_t *sha, unsigned char out[IDEM_SHA256_LEN])
{
    must(sha->ctx != NULL && EVP_DigestFinal_ex(sha->ctx, out, NULL) == 1);
    apr_pool_cleanup_run(sha->pool, sha, free_ctx);
}

/* RFC 2104: the key, filled up with zeroes and mixed with one of two octets, comes before what is digested. */
#define BLOCK 64

static EVP_MD_CTX *begin_padded(const unsigned char block[BLOCK], unsigned char mix)
{
    EVP_MD_CTX *ctx = begin();
    unsigned char padded[BLOCK];
    int i;

    for (i = 0; i < BLOCK; i++) {
        padded[i] = block[i] ^ mix;
    }
    add(ctx, padded, BLOCK);
    return ctx;
}

void idem_hmac_begin(idem_hmac_t *hmac, const void *key, apr_size_t key_len)
{
    unsigned char block[BLOCK] = {0};

    if (key_len > BLOCK) {
        idem_sha256(key, key_len, block);
    }
    else if (key_len) {
        memcpy(block, key, key_len);
    }
    hmac->inner = begin_padded(block, 0x36);
    hmac->outer = begin_padded(block, 0x5c);
    hmac->work = EVP_MD_CTX_new();
    must(hmac->work != NULL);
}

void idem_hmac_of(const idem_hmac_t *hmac, const void *data, apr_size_t len, unsigned char out[IDEM_SHA256_LEN])
{
    must(EVP_MD_CTX_copy_ex(hmac->work, hmac->inner) == 1);
    add(hmac->work, data, len);
    must(EVP_DigestFinal_ex(hmac->work, out, NULL) == 1 && EVP_MD_CTX_copy_ex(hmac->work, hmac->outer) == 1);
    add(hmac->work, out, IDEM_SHA256_LEN);
    must(EVP_DigestFinal_ex(hmac->work, out, NULL) == 1);
}

void idem_hmac_end(idem_hmac_t *hmac)
{
    EVP_MD_CTX_free(hmac->inner);
    EVP_MD_CTX_free(hmac->outer);
    EVP_MD_CTX_free(hmac->work);
}

void idem_hmac_sha256(const void *key, apr_size_t key_len, const void *data, apr_size_t len,
                      unsigned char out[IDEM_SHA256_LEN])
{
    idem_hmac_t hmac;

    idem_hmac_begin(&hmac, key, key_len);
    idem_hmac_of(&hmac, data, len, out);
    idem_hmac_end(&hmac);
}

#include "core/digest.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

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

apr_status_t idem_digest_check(void)
{
    /* of "abc": FIPS 180-2, appendix B.1 */
    static const unsigned char expected[IDEM_SHA256_LEN] = {
        0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23,
        0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad
    };
    unsigned char out[EVP_MAX_MD_SIZE];
    unsigned int len = 0;

    if (EVP_Digest("abc", 3, out, &len, EVP_sha256(), NULL) != 1 || len != IDEM_SHA256_LEN
        || memcmp(out, expected, IDEM_SHA256_LEN) != 0) {
        return APR_ENOTIMPL;
    }
    return HMAC(EVP_sha256(), "k", 1, expected, 3, out, &len) ? APR_SUCCESS : APR_ENOTIMPL;
}

void idem_sha256(const void *data, apr_size_t len, unsigned char out[IDEM_SHA256_LEN])
{
    must(EVP_Digest(len ? data : "", len, out, NULL, EVP_sha256(), NULL) == 1);
}

static EVP_MD_CTX *begin(void)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();

    must(ctx != NULL && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1);
    return ctx;
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
    EVP_MD_CTX_free(ctx);
}

static apr_status_t free_ctx(void *data)
{
    idem_sha256_t *sha = data;

    EVP_MD_CTX_free(sha->ctx);
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

void idem_hmac_sha256(const void *key, apr_size_t key_len, const void *data, apr_size_t len,
                      unsigned char out[IDEM_SHA256_LEN])
{
    unsigned int out_len = IDEM_SHA256_LEN;

    must(key_len <= INT_MAX
         && HMAC(EVP_sha256(), key_len ? key : "", (int)key_len, len ? data : (const void *)"", len, out, &out_len));
}

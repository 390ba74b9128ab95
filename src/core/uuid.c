#include "core/uuid.h"

#include <string.h>

#include <openssl/rand.h>

#include "core/digest.h"

static const char DOWNSTREAM_LABEL[] = "mod_idempotency downstream key";

static const char HEX[] = "0123456789abcdef";

static void set_version(unsigned char uuid[IDEM_UUID_LEN], int version)
{
    uuid[6] = (unsigned char)((version << 4) | (uuid[6] & 0x0f));
    uuid[8] = (unsigned char)(0x80 | (uuid[8] & 0x3f));
}

#define RANDOM_LEN (IDEM_UUID_LEN - 6)

/* n of them, at most 2: OpenSSL's generator costs nearly the same for both. */
static apr_status_t make_v7(unsigned char *const out[], int n, apr_time_t now)
{
    unsigned char random[2 * RANDOM_LEN];
    apr_int64_t ms = now / 1000;
    apr_status_t rv = APR_SUCCESS;
    int i, octet;

    if (now < 0 || ms >= APR_INT64_C(1) << 48) {
        rv = APR_EINVAL;
    }
    else if (RAND_bytes(random, n * RANDOM_LEN) != 1) {
        rv = APR_EGENERAL;
    }
    for (i = 0; i < n; i++) {
        memset(out[i], 0, IDEM_UUID_LEN);
        if (rv == APR_SUCCESS) {
            for (octet = 0; octet < 6; octet++) {
                out[i][octet] = (unsigned char)(ms >> (40 - 8 * octet) & 0xff);
            }
            memcpy(out[i] + 6, random + i * RANDOM_LEN, RANDOM_LEN);
            set_version(out[i], 7);
        }
    }
    return rv;
}

apr_status_t idem_uuid_v7(unsigned char out[IDEM_UUID_LEN], apr_time_t now)
{
    unsigned char *const one[] = {out};

    return make_v7(one, 1, now);
}

apr_status_t idem_uuid_v7_pair(unsigned char out[IDEM_UUID_LEN], unsigned char other[IDEM_UUID_LEN], apr_time_t now)
{
    unsigned char *const both[] = {out, other};

    return make_v7(both, 2, now);
}

void idem_uuid_downstream(const unsigned char op[IDEM_UUID_LEN], unsigned char out[IDEM_UUID_LEN])
{
    unsigned char input[sizeof(DOWNSTREAM_LABEL) - 1 + IDEM_UUID_LEN];
    unsigned char digest[IDEM_SHA256_LEN];

    memcpy(input, DOWNSTREAM_LABEL, sizeof(DOWNSTREAM_LABEL) - 1);
    memcpy(input + sizeof(DOWNSTREAM_LABEL) - 1, op, IDEM_UUID_LEN);
    idem_sha256(input, sizeof(input), digest);
    memcpy(out, digest, IDEM_UUID_LEN);
    set_version(out, 8);
}

static int is_hyphen_place(int i)
{
    return i == 8 || i == 13 || i == 18 || i == 23;
}

void idem_uuid_format(const unsigned char uuid[IDEM_UUID_LEN], char out[IDEM_UUID_TEXT_LEN + 1])
{
    int i, nibble = 0;

    for (i = 0; i < IDEM_UUID_TEXT_LEN; i++) {
        if (is_hyphen_place(i)) {
            out[i] = '-';
        }
        else {
            out[i] = HEX[(uuid[nibble / 2] >> (nibble % 2 ? 0 : 4)) & 0x0f];
            nibble++;
        }
    }
    out[IDEM_UUID_TEXT_LEN] = '\0';
}

const char *idem_uuid_text(apr_pool_t *p, const unsigned char uuid[IDEM_UUID_LEN])
{
    char *text = apr_palloc(p, IDEM_UUID_TEXT_LEN + 1);

    idem_uuid_format(uuid, text);
    return text;
}

apr_status_t idem_uuid_parse(const char *text, unsigned char out[IDEM_UUID_LEN])
{
    unsigned char uuid[IDEM_UUID_LEN] = { 0 };
    const char *digit;
    int i, nibble = 0;

    if (!text || strlen(text) != IDEM_UUID_TEXT_LEN) {
        return APR_EINVAL;
    }
    for (i = 0; i < IDEM_UUID_TEXT_LEN; i++) {
        if (is_hyphen_place(i)) {
            if (text[i] != '-') {
                return APR_EINVAL;
            }
            continue;
        }
        digit = strchr(HEX, text[i]);
        if (!digit) {
            return APR_EINVAL;
        }
        uuid[nibble / 2] = (unsigned char)(uuid[nibble / 2] << 4 | (digit - HEX));
        nibble++;
    }
    memcpy(out, uuid, IDEM_UUID_LEN);
    return APR_SUCCESS;
}

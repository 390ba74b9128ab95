#include "unit.h"

#include <apr_escape.h>

#include "core/digest.h"

static const char *hex(apr_pool_t *p, const unsigned char *digest)
{
    return apr_pescape_hex(p, digest, IDEM_SHA256_LEN, 0);
}

/* FIPS 180-2, appendix B, and the empty message */
static void one_shot_gives_published_digests(void **state)
{
    static const char long_message[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    unsigned char out[IDEM_SHA256_LEN];

    assert_int_equal(idem_digest_check(), APR_SUCCESS);
    idem_sha256("abc", 3, out);
    assert_string_equal(hex(*state, out), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    idem_sha256(long_message, strlen(long_message), out);
    assert_string_equal(hex(*state, out), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    idem_sha256(NULL, 0, out);
    assert_string_equal(hex(*state, out), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

static void pieces_give_the_digest_of_the_whole(void **state)
{
    unsigned char whole[1000], out[IDEM_SHA256_LEN], expected[IDEM_SHA256_LEN];
    apr_size_t i, step;

    for (i = 0; i < sizeof(whole); i++) {
        whole[i] = (unsigned char)(i * 7);
    }
    idem_sha256(whole, sizeof(whole), expected);
    for (step = 1; step < 200; step += 13) {
        idem_sha256_t *sha = idem_sha256_init(*state);

        for (i = 0; i < sizeof(whole); i += step) {
            idem_sha256_update(sha, whole + i, step < sizeof(whole) - i ? step : sizeof(whole) - i);
        }
        idem_sha256_update(sha, NULL, 0);
        idem_sha256_final(sha, out);
        assert_memory_equal(out, expected, sizeof(out));
    }
}

/* A digest that nobody ends: LeakSanitizer would tell. */
static void abandoned_digest_is_freed_with_its_pool(void **state)
{
    idem_sha256_update(idem_sha256_init(*state), "x", 1);
}

static void frame_is_eight_octets_of_length_big_endian(void **state)
{
    static const char framed[] = "\0\0\0\0\0\0\0\2ab\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1c";
    static const char *const strings[] = { "ab", NULL, "c" };
    unsigned char out[IDEM_SHA256_LEN], expected[IDEM_SHA256_LEN];
    idem_sha256_t *sha = idem_sha256_init(*state);

    idem_sha256(framed, sizeof(framed) - 1, expected);
    idem_sha256_update_framed(sha, "ab", 2);
    idem_sha256_update_framed(sha, NULL, 0);
    idem_sha256_update_framed(sha, "c", 1);
    idem_sha256_final(sha, out);
    assert_memory_equal(out, expected, sizeof(out));

    idem_sha256_strings(strings, 3, out);
    assert_memory_equal(out, expected, sizeof(out));
}

static void frame_of_a_long_field_counts_beyond_one_octet(void **state)
{
    unsigned char out[IDEM_SHA256_LEN], expected[IDEM_SHA256_LEN], framed[8 + 0x1234] = { 0 };
    idem_sha256_t *sha = idem_sha256_init(*state);

    framed[6] = 0x12;
    framed[7] = 0x34;
    memset(framed + 8, 'x', 0x1234);
    idem_sha256(framed, sizeof(framed), expected);
    idem_sha256_update_framed(sha, framed + 8, 0x1234);
    idem_sha256_final(sha, out);
    assert_memory_equal(out, expected, sizeof(out));
}

/* RFC 4231, cases 1, 2 and 6; and nothing under no key */
static void hmac_gives_published_digests(void **state)
{
    unsigned char key[131], out[IDEM_SHA256_LEN];
    const char *text = "Test Using Larger Than Block-Size Key - Hash Key First";

    memset(key, 0x0b, 20);
    idem_hmac_sha256(key, 20, "Hi There", 8, out);
    assert_string_equal(hex(*state, out), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    idem_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, out);
    assert_string_equal(hex(*state, out), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof(key));
    idem_hmac_sha256(key, sizeof(key), text, strlen(text), out);
    assert_string_equal(hex(*state, out), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    idem_hmac_sha256(NULL, 0, NULL, 0, out);
    assert_string_equal(hex(*state, out), "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT_TEST(one_shot_gives_published_digests),
        UNIT_TEST(pieces_give_the_digest_of_the_whole),
        UNIT_TEST(abandoned_digest_is_freed_with_its_pool),
        UNIT_TEST(frame_is_eight_octets_of_length_big_endian),
        UNIT_TEST(frame_of_a_long_field_counts_beyond_one_octet),
        UNIT_TEST(hmac_gives_published_digests),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

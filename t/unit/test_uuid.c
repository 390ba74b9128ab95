#include "unit.h"

#include "core/uuid.h"

static void v7_holds_the_milliseconds_and_its_marks(void **state)
{
    unsigned char uuid[IDEM_UUID_LEN];

    /* RFC 9562, appendix A.6: 2022-02-22T19:22:22Z */
    assert_int_equal(idem_uuid_v7(uuid, APR_TIME_C(1645557742000) * 1000 + 999), APR_SUCCESS);
    assert_memory_equal(idem_uuid_text(*state, uuid), "017f22e2-79b0-7", 15);
    assert_int_equal(uuid[8] & 0xc0, 0x80);
}

static void v7_is_ordered_by_time_and_differs_within_a_millisecond(void **state)
{
    unsigned char ids[1000][IDEM_UUID_LEN], later[IDEM_UUID_LEN];
    unsigned char ones[IDEM_UUID_LEN] = { 0 }, zeros[IDEM_UUID_LEN] = { 0 };
    int i, j;

    (void)state;
    for (i = 0; i < 1000; i++) {
        assert_int_equal(idem_uuid_v7(ids[i], APR_TIME_C(1700000000000000)), APR_SUCCESS);
        for (j = 0; j < i; j++) {
            assert_memory_not_equal(ids[i], ids[j], IDEM_UUID_LEN);
        }
        for (j = 0; j < IDEM_UUID_LEN; j++) {
            ones[j] |= ids[i][j];
            zeros[j] |= (unsigned char)~ids[i][j];
        }
    }
    /* every bit after the time but the six of version and variant is seen as 1 and as 0 */
    for (j = 6; j < IDEM_UUID_LEN; j++) {
        assert_int_equal(ones[j], j == 6 ? 0x7f : j == 8 ? 0xbf : 0xff);
        assert_int_equal(zeros[j], j == 6 ? 0x8f : j == 8 ? 0x7f : 0xff);
    }
    assert_int_equal(idem_uuid_v7(later, APR_TIME_C(1700000000001000)), APR_SUCCESS);
    for (i = 0; i < 1000; i++) {
        assert_true(memcmp(ids[i], later, IDEM_UUID_LEN) < 0);
    }
}

static void a_pair_is_two_that_differ(void **state)
{
    unsigned char one[IDEM_UUID_LEN], other[IDEM_UUID_LEN], alone[IDEM_UUID_LEN], zero[IDEM_UUID_LEN] = {0};

    (void)state;
    assert_int_equal(idem_uuid_v7(alone, APR_TIME_C(1700000000000000)), APR_SUCCESS);
    assert_int_equal(idem_uuid_v7_pair(one, other, APR_TIME_C(1700000000000000)), APR_SUCCESS);
    assert_memory_equal(one, alone, 6);
    assert_memory_equal(other, alone, 6);
    assert_int_equal(one[6] & 0xf0, 0x70);
    assert_int_equal(other[6] & 0xf0, 0x70);
    assert_int_equal(other[8] & 0xc0, 0x80);
    assert_memory_not_equal(one + 7, other + 7, 9);
    assert_int_equal(idem_uuid_v7_pair(one, other, -1), APR_EINVAL);
    assert_memory_equal(one, zero, sizeof(zero));
    assert_memory_equal(other, zero, sizeof(zero));
}

static void v7_refuses_times_it_cannot_hold(void **state)
{
    static const unsigned char none[IDEM_UUID_LEN] = { 0 };
    unsigned char uuid[IDEM_UUID_LEN];

    memset(uuid, 1, sizeof(uuid));
    assert_int_equal(idem_uuid_v7(uuid, -1), APR_EINVAL);
    assert_memory_equal(uuid, none, sizeof(uuid));
    assert_int_equal(idem_uuid_v7(uuid, (APR_INT64_C(1) << 48) * 1000), APR_EINVAL);
    assert_int_equal(idem_uuid_v7(uuid, (APR_INT64_C(1) << 48) * 1000 - 1), APR_SUCCESS);
    assert_memory_equal(idem_uuid_text(*state, uuid), "ffffffff-ffff-7", 15);
}

/* The value is part of the contract: providers remember it. Computed apart from this code. */
static void downstream_key_never_changes(void **state)
{
    unsigned char op[IDEM_UUID_LEN], again[IDEM_UUID_LEN], key[IDEM_UUID_LEN];

    assert_int_equal(idem_uuid_parse("0190a6e0-7b3c-7def-8123-456789abcdef", op), APR_SUCCESS);
    idem_uuid_downstream(op, key);
    assert_string_equal(idem_uuid_text(*state, key), "5c215452-a028-858b-abb4-46e05a786423");
    idem_uuid_downstream(op, again);
    assert_memory_equal(again, key, sizeof(key));
    op[15] ^= 1;
    idem_uuid_downstream(op, again);
    assert_memory_not_equal(again, key, sizeof(key));
}

static void text_is_lower_case_both_ways(void **state)
{
    unsigned char uuid[IDEM_UUID_LEN], back[IDEM_UUID_LEN];
    char text[IDEM_UUID_TEXT_LEN + 1];
    int i;

    (void)state;
    for (i = 0; i < IDEM_UUID_LEN; i++) {
        uuid[i] = (unsigned char)(i * 17);
    }
    idem_uuid_format(uuid, text);
    assert_string_equal(text, "00112233-4455-6677-8899-aabbccddeeff");
    assert_int_equal(idem_uuid_parse(text, back), APR_SUCCESS);
    assert_memory_equal(back, uuid, sizeof(uuid));
}

static void parser_takes_no_other_form(void **state)
{
    static const char *const wrong[] = {
        "", "-", "00112233-4455-6677-8899-AABBCCDDEEFF", "00112233-4455-6677-8899-aabbccddeef",
        "00112233-4455-6677-8899-aabbccddeefff", "00112233445566778899aabbccddeeff",
        "{00112233-4455-6677-8899-aabbccddeeff}", " 00112233-4455-6677-8899-aabbccddeef",
        "00112233-4455-6677-8899-aabbccddeeff ", "0011223-34455-6677-8899-aabbccddeeff",
        "00112233-4455-6677-8899-aabbccddeefg", "00112233-4455-6677-8899_aabbccddeeff",
        "urn:uuid:00112233-4455-6677-8899-aab", "00112233-4455-6677-8899--abbccddeeff"
    };
    unsigned char uuid[IDEM_UUID_LEN], before[IDEM_UUID_LEN];
    apr_size_t i;

    (void)state;
    memset(uuid, 0x5a, sizeof(uuid));
    memcpy(before, uuid, sizeof(uuid));
    assert_int_equal(idem_uuid_parse(NULL, uuid), APR_EINVAL);
    for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(idem_uuid_parse(wrong[i], uuid), APR_EINVAL);
    }
    assert_memory_equal(uuid, before, sizeof(uuid));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT_TEST(v7_holds_the_milliseconds_and_its_marks),
        UNIT_TEST(v7_is_ordered_by_time_and_differs_within_a_millisecond),
        UNIT_TEST(a_pair_is_two_that_differ),
        UNIT_TEST(v7_refuses_times_it_cannot_hold),
        UNIT_TEST(downstream_key_never_changes),
        UNIT_TEST(text_is_lower_case_both_ways),
        UNIT_TEST(parser_takes_no_other_form),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

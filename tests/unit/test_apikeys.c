/* The comparison of API keys: every bit of a digest counts. */
#include "serve/server.h"
#include "support/check.h"

#include <openssl/sha.h>

static const char secret[] = "first-secret";

static void digest_of(const char *text, unsigned char *to)
{
    SHA256((const unsigned char *)text, strlen(text), to);
}

static void a_digest_that_differs_in_one_bit_is_no_key(void **state)
{
    (void)state;
    unsigned char key[1][KEY_BYTES];
    pesc_server s = { .keys = key, .n_keys = 1 };
    for (int bit = 0; bit < 8 * KEY_BYTES; bit++) {
        digest_of(secret, key[0]);
        assert_int_equal(apikeys_match(&s, secret, strlen(secret)), 1);
        key[0][bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_equal(apikeys_match(&s, secret, strlen(secret)), 0);
    }
}

static void each_key_has_its_number(void **state)
{
    (void)state;
    static const char *const all[] = { "first-secret", "second-secret", "third-secret" };
    unsigned char keys[3][KEY_BYTES];
    pesc_server s = { .keys = keys, .n_keys = 3 };
    for (int i = 0; i < 3; i++)
        digest_of(all[i], keys[i]);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(apikeys_match(&s, all[i], strlen(all[i])), i + 1);
    assert_int_equal(apikeys_match(&s, "first-secret2", 13), 0);
    assert_int_equal(apikeys_match(&s, "", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_digest_that_differs_in_one_bit_is_no_key),
        cmocka_unit_test(each_key_has_its_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "base/status.h"
#include "support/check.h"

static void keeps_the_sentence(void **state)
{
    (void)state;
    must_fail(fail(PESC_FORMAT, "a.json: byte %d: is odd", 7), PESC_FORMAT,
              "a.json: byte 7: is odd");
    must_fail(fail_errno(PESC_IO, 2, "a.bin"), PESC_IO, "a.bin: No such file");
    status_clear();
    assert_string_equal(pesc_last_error(), "");
}

static void shows_hostile_bytes(void **state)
{
    (void)state;
    fail(PESC_FORMAT, "name %s", "\x1b]0;owned\x07\n\xff\xe2\x80\xae");
    assert_string_equal(pesc_last_error(), "name \\x1B]0;owned\\x07\\x0A\\xFF\\u{202E}");
    fail(PESC_FORMAT, "%s", "a\xc2\xad\xd8\x9c\xe2\x81\xaf\xe2\x80\xa8\xf3\xa0\x81\x81 \xc3\xa9");
    assert_string_equal(pesc_last_error(),
                        "a\\u{00AD}\\u{061C}\\u{206F}\\u{2028}\\u{E0041} \xc3\xa9");
}

static void cuts_long_sentences(void **state)
{
    (void)state;
    static char big[40000];
    memset(big, 'a', sizeof big - 1);
    fail(PESC_FORMAT, "%s", big);
    size_t n = strlen(pesc_last_error());
    assert_true(n < 20000);
    assert_string_equal(pesc_last_error() + n - 3, "...");
}

static void maps_exit_codes(void **state)
{
    (void)state;
    assert_int_equal(pesc_status_exit_code(PESC_OK), 0);
    assert_int_equal(pesc_status_exit_code(PESC_USAGE), 2);
    assert_int_equal(pesc_status_exit_code(PESC_FORMAT), 3);
    assert_int_equal(pesc_status_exit_code(PESC_DISK), 4);
    assert_int_equal(pesc_status_exit_code(PESC_NUMERIC), 5);
    assert_int_equal(pesc_status_exit_code(PESC_STOPPED), 75);
    assert_int_equal(pesc_status_exit_code(PESC_LOST), 1);
    assert_int_equal(pesc_status_exit_code((pesc_status)1000), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_sentence),
        cmocka_unit_test(shows_hostile_bytes),
        cmocka_unit_test(cuts_long_sentences),
        cmocka_unit_test(maps_exit_codes),
    };
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}

#include "eval/digest.h"

#include "support/check.h"

static void hashes_text(void **state)
{
    (void)state;
    static const char abc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    char whole[DIGEST_TEXT], pieces[DIGEST_TEXT];
    digest *d;
    digest_text(whole, "abc", 3);
    assert_string_equal(whole, abc);
    must(digest_open(&d));
    digest_add(d, "a", 1);
    digest_add(d, "", 0);
    digest_add(d, "bc", 2);
    digest_close(d, pieces);
    assert_string_equal(pieces, abc);
    must(digest_open(&d));
    digest_close(d, NULL);
    digest_close(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(hashes_text) };
    return cmocka_run_group_tests_name("digest", tests, NULL, NULL);
}

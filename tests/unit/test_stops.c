#include "infer/stops.h"
#include "support/check.h"

static void put(stop_text *t, const char *text)
{
    must(stop_text_put(t, text, strlen(text), false));
}

/* Fed one byte at a time, no byte of a stop string is ever certain. */
static void a_partial_match_is_held_back(void **state)
{
    (void)state;
    const char *const stop[] = { "END", "" };
    stop_text t = { .stop = stop, .n_stop = 2 };
    put(&t, "a");
    assert_int_equal(t.certain, 1);
    put(&t, "E");
    put(&t, "N");
    assert_int_equal(t.certain, 1);
    put(&t, "x");
    assert_int_equal(t.certain, 4);
    put(&t, "EN");
    put(&t, "EN");
    assert_int_equal(t.certain, 6);
    put(&t, "Dz");
    assert_true(t.stopped);
    assert_string_equal(t.text.p, "aENxEN");
    assert_int_equal(t.certain, 6);
    put(&t, "more");
    assert_string_equal(t.text.p, "aENxEN");
    str_free(&t.text);
}

static void the_earliest_stop_counts_and_may_stay(void **state)
{
    (void)state;
    const char *const stop[] = { "cd", "bc" };
    stop_text t = { .stop = stop, .n_stop = 2, .keep = true };
    put(&t, "abcde");
    assert_true(t.stopped);
    assert_string_equal(t.text.p, "abc");
    assert_int_equal(t.certain, 3);
    str_free(&t.text);
}

/* As with min_tokens: one that begins in what is ignored and ends after it counts. */
static void a_stop_may_be_ignored_at_first(void **state)
{
    (void)state;
    const char *const stop[] = { "ab", "c" };
    stop_text t = { .stop = stop, .n_stop = 2, .ignore = true };
    put(&t, "abc");
    put(&t, "caba");
    assert_false(t.stopped);
    assert_int_equal(t.certain, 6);
    t.ignore = false;
    put(&t, "");
    assert_false(t.stopped);
    put(&t, "bc");
    assert_true(t.stopped);
    assert_string_equal(t.text.p, "abccab");
    str_free(&t.text);
}

static void the_end_releases_what_was_held_back(void **state)
{
    (void)state;
    const char *const stop[] = { "xyz" };
    stop_text t = { .stop = stop, .n_stop = 1 };
    put(&t, "axy");
    assert_int_equal(t.certain, 1);
    must(stop_text_put(&t, "", 0, true));
    assert_int_equal(t.certain, 3);
    assert_false(t.stopped);
    str_free(&t.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_partial_match_is_held_back),
        cmocka_unit_test(the_earliest_stop_counts_and_may_stay),
        cmocka_unit_test(a_stop_may_be_ignored_at_first),
        cmocka_unit_test(the_end_releases_what_was_held_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Guesses: what is looked up, and that only guesses that pay are checked. */
#include "base/rng.h"
#include "infer/guess.h"
#include "support/check.h"

#include <pesc/pesc.h>

enum { TEXT = 60, CASES = 3000 };

/* The longest end of the text, of 2 to 8 tokens, that occurs before, where it does so last. */
static size_t last_occurrence(const int32_t *ids, size_t n)
{
    for (size_t length = 8; length >= 2; length--)
        for (size_t end = n - 1; n > length && end >= length; end--)
            if (memcmp(ids + end - length, ids + n - length, length * sizeof *ids) == 0)
                return end;
    return 0;
}

static void a_lookup_finds_the_longest_end_where_it_was_last(void **state)
{
    (void)state;
    int found_some = 0;
    for (uint64_t c = 0; c < CASES; c++) {
        int32_t ids[TEXT], out[GUESS_MOST];
        size_t n = 1 + rng_below((rng_key){ 1, c }, 0, TEXT);
        uint64_t letters = 2 + rng_below((rng_key){ 1, c }, 1, 6);
        for (size_t i = 0; i < n; i++)
            ids[i] = (int32_t)rng_below((rng_key){ 2, c }, i, letters);
        size_t from = last_occurrence(ids, n), most = 1 + c % GUESS_MOST;
        size_t want = from == 0 ? 0 : n - from < most ? n - from : most;
        int32_t got = guess_lookup(ids, n, out, (int32_t)most);
        assert_int_equal(got, want);
        if (got > 0)
            assert_memory_equal(out, ids + from, want * sizeof *ids);
        found_some += got > 0;
    }
    assert_true(found_some > CASES / 4 && found_some < CASES);
}

/* A text in which the next token is the one that followed before. */
static int32_t asked(guess_record *r, const guess_pace *p, int32_t most, int64_t wanted)
{
    static const int32_t text[] = { 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 5, 6, 7 };
    int32_t out[GUESS_MOST];
    int32_t n = guess_next(r, p, &(guess_text){ .ids = text, .n = 15, .rows = 1, .most = most },
                           wanted, out);
    for (int32_t i = 0; i < n; i++)
        assert_int_equal(out[i], 8 + i);
    return n;
}

static void guesses_are_checked_where_they_pay(void **state)
{
    (void)state;
    guess_record r = { 0 };
    guess_pace p = { 0 };
    assert_int_equal(asked(&r, &p, 8, PESC_AUTO), 0); /* nothing is known */
    assert_int_equal(asked(&r, &p, 8, 3), 3);
    assert_int_equal(asked(&r, &p, 2, 3), 2);
    assert_int_equal(asked(&r, &p, 8, 0), 0);
    assert_int_equal(r.checked, 5);
    guess_timed(&p, 1, 0.010);
    assert_int_equal(asked(&r, &p, 8, PESC_AUTO), 0);
    for (int i = 0; i < 100; i++) { /* right guesses are learned though none is checked */
        (void)asked(&r, &p, 8, PESC_AUTO);
        guess_learn(&r, 8);
    }
    assert_int_equal(asked(&r, &p, 8, PESC_AUTO), 8);
    for (int32_t rows = 2; rows <= 9; rows++)
        guess_timed(&p, rows, 0.010 * rows); /* a row costs what a forward does */
    assert_int_equal(asked(&r, &p, 8, PESC_AUTO), 0);
    for (int32_t rows = 2; rows <= 3; rows++)
        for (int i = 0; i < 200; i++)
            guess_timed(&p, rows, 0.011);
    assert_int_equal(asked(&r, &p, 8, PESC_AUTO), 2);
    for (int i = 0; i < 100; i++) {
        (void)asked(&r, &p, 8, PESC_AUTO);
        guess_learn(&r, 9);
    }
    assert_int_equal(asked(&r, &p, 8, PESC_AUTO), 0); /* they are wrong by now */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lookup_finds_the_longest_end_where_it_was_last),
        cmocka_unit_test(guesses_are_checked_where_they_pay),
    };
    return cmocka_run_group_tests_name("guess", tests, NULL, NULL);
}

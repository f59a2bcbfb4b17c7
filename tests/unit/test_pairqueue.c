#include "base/mem.h"
#include "base/rng.h"
#include "support/check.h"
#include "tokenizer/pairqueue.h"

#include <stdlib.h>

enum { N = 20000 };

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Keys in no order, in rising runs, and while others are taken out: always the lowest first. */
static void gives_the_lowest_first(void **state)
{
    (void)state;
    static uint64_t in[N];
    for (int kind = 0; kind < 3; kind++) {
        pairqueue q = { 0 };
        rng_key k = { 9, (uint64_t)kind };
        uint64_t key, last = 0;
        for (size_t i = 0; i < N; i++) {
            in[i] = kind == 1 ? i : kind == 2 ? i % 100 * 1000 + i / 100 : rng_below(k, i, 1 << 20);
            assert_true(pairqueue_push(&q, in[i]));
        }
        qsort(in, N, sizeof *in, by_value);
        for (size_t i = 0; i < N / 2; i++) {
            assert_true(pairqueue_pop(&q, &key));
            assert_int_equal(key, in[i]);
        }
        for (size_t i = 0; i < N; i++) /* behind what was taken, as merging does it */
            assert_true(pairqueue_push(&q, in[N / 2] + rng_below(k, N + i, 1 << 16)));
        for (size_t i = 0; pairqueue_pop(&q, &key); i++) {
            assert_true(key >= last);
            last = key;
        }
        assert_false(pairqueue_pop(&q, &key));
        pairqueue_free(&q);
    }
}

static void clears_and_fails(void **state)
{
    (void)state;
    pairqueue q = { 0 };
    uint64_t key;
    mem_fail_at(1);
    assert_false(pairqueue_push(&q, 5));
    assert_true(pairqueue_push(&q, 5));
    mem_fail_at(1);
    assert_false(pairqueue_push(&q, 3)); /* out of order: the heap's turn */
    mem_fail_at(0);
    assert_true(pairqueue_push(&q, 3));
    pairqueue_clear(&q);
    assert_false(pairqueue_pop(&q, &key));
    pairqueue_free(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_lowest_first),
        cmocka_unit_test(clears_and_fails),
    };
    return cmocka_run_group_tests_name("pairqueue", tests, NULL, NULL);
}

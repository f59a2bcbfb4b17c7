#include "support/check.h"
#include "train/schedule.h"
#include "data/shuffle.h"

#include <math.h>
#include <stdlib.h>

/* lr 2, 4 warm-up steps of 10: after the warm-up as get_*_schedule_with_warmup of transformers, in
 * it one step ahead, so that no step has rate 0. */
static void equals_transformers(void **state)
{
    (void)state;
    static const double constant[] = { 0.5, 1, 1.5, 2, 2, 2, 2, 2, 2, 2 };
    static const double linear[] = { 0.5, 1, 1.5, 2, 2, 10. / 6, 8. / 6, 1, 4. / 6, 2. / 6 };
    for (int i = 0; i < 10; i++) {
        assert_true(fabs(schedule_lr(SCHEDULE_CONSTANT, 2, i, 4, 10) - constant[i]) < 1e-12);
        assert_true(fabs(schedule_lr(SCHEDULE_LINEAR, 2, i, 4, 10) - linear[i]) < 1e-12);
        double cosine = i < 4 ? constant[i] : 1 + cos(M_PI * (i - 4) / 6.);
        assert_true(fabs(schedule_lr(SCHEDULE_COSINE, 2, i, 4, 10) - cosine) < 1e-12);
    }
    assert_true(schedule_lr(SCHEDULE_LINEAR, 2, 0, 0, 1) == 2);
    assert_true(schedule_lr(SCHEDULE_CONSTANT, 2, 0, 1, 1) == 2); /* a run of one step learns */
    assert_true(schedule_lr(SCHEDULE_COSINE, 2, 99, 0, 10) < 1e-12);
    schedule_kind k;
    assert_true(schedule_find("cosine", &k) && k == SCHEDULE_COSINE);
    assert_false(schedule_find("cos", &k));
}

static void shuffles_without_loss(void **state)
{
    (void)state;
    static const uint64_t sizes[] = { 1, 2, 3, 16, 17, 1000, 4097 };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        uint64_t n = sizes[s], moved = 0;
        unsigned char *seen = calloc(n, 1);
        rng_key key = { 5, rng_stream(3, s, 0) };
        for (uint64_t i = 0; i < n; i++) {
            uint64_t at = shuffle_at(key, n, i);
            assert_true(at < n && !seen[at]);
            seen[at] = 1;
            moved += at != i;
        }
        assert_true(n < 16 || moved > n / 2);
        free(seen);
    }
    rng_key a = { 5, 1 }, b = { 6, 1 };
    int differ = 0;
    for (uint64_t i = 0; i < 100; i++)
        differ += shuffle_at(a, 100, i) != shuffle_at(b, 100, i);
    assert_true(differ > 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_transformers),
        cmocka_unit_test(shuffles_without_loss),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}

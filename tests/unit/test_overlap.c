/* The expected scores are sacrebleu 2.6's and rouge_score 0.1.2's. */
#include "eval/overlap.h"

#include "base/mem.h"
#include "support/check.h"

#include <math.h>

static slice text(const char *s)
{
    return (slice){ s, strlen(s) };
}

static void scores_as_the_packages(void **state)
{
    (void)state;
    static const struct {
        const char *prediction, *reference;
        double rouge, chrf;
    } rows[] = {
        { "the cat sat", "the cat sat on the mat", 0.6666666666666666, 49.59348409966008 },
        { "Cat, THE dog", "the cat the dog!", 0.8571428571428571, 12.709584984447567 },
        { "", "x", 0.0, 0.0 },
        { "\u65E5\u672C\u8A9E\u306E\u30C6\u30AD\u30B9\u30C8",
          "\u65E5\u672C\u306E\u30C6\u30AD\u30B9\u30C8", 0.0, 52.425789532418264 },
        { "x", "x", 1.0, 100.0 },
        { "x x x", "x y", 0.4, 22.727272727272727 },
        { "a b c d e f g", "g f e d c b a", 0.14285714285714285, 16.666666666666664 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double rouge, chrf;
        must(overlap_rouge_l(text(rows[i].prediction), text(rows[i].reference), &rouge));
        must(overlap_chrf(text(rows[i].prediction), text(rows[i].reference), &chrf));
        assert_true(fabs(rouge - rows[i].rouge) < 1e-12);
        assert_true(fabs(chrf - rows[i].chrf) < 1e-9);
    }
}

static void bears_want_of_memory(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        double score;
        mem_fail_at(n);
        pesc_status s = overlap_rouge_l(text("a b"), text("a c"), &score);
        if (s == PESC_OK)
            s = overlap_chrf(text("a b"), text("a c"), &score);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        if (!fired) {
            must(s);
            return;
        }
        assert_int_equal(s, PESC_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_as_the_packages),
        cmocka_unit_test(bears_want_of_memory),
    };
    return cmocka_run_group_tests_name("overlap", tests, NULL, NULL);
}

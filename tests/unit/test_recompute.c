/* The table of what each layer keeps: which layers have slots of their own, and how counts that are
 * too large are cut. */
#include "model/recompute.h"

#include "support/check.h"

static void expect(int32_t n_layers, int32_t first, keep_counts keep, const layer_plan *rows)
{
    recompute_plan p = recompute_plan_of(n_layers, first, keep);
    for (int32_t i = 0; i < n_layers; i++) {
        layer_plan got = recompute_layer(&p, i);
        if (got.keep != rows[i].keep || got.slot != rows[i].slot)
            fail_msg("layer %d of %d: found keep %d in slot %d, expected %d in %d", i, n_layers,
                     got.keep, got.slot, rows[i].keep, rows[i].slot);
    }
}

static void each_kind_in_its_place(void **state)
{
    (void)state;
    expect(6, 1, (keep_counts){ 1, 2 },
           (layer_plan[]){ { KEEP_NOTHING, 3 },
                           { KEEP_ALL, 0 },
                           { KEEP_PARTIAL, 1 },
                           { KEEP_PARTIAL, 2 },
                           { KEEP_CHECKPOINT, 3 },
                           { KEEP_LIVE, 3 } });
}

static void nothing_is_kept(void **state)
{
    (void)state;
    expect(3, 0, (keep_counts){ 0, 0 },
           (layer_plan[]){ { KEEP_CHECKPOINT, 0 }, { KEEP_CHECKPOINT, 0 }, { KEEP_LIVE, 0 } });
}

static void the_top_layer_never_has_a_slot(void **state)
{
    (void)state;
    expect(3, 0, (keep_counts){ 99, 99 },
           (layer_plan[]){ { KEEP_ALL, 0 }, { KEEP_ALL, 1 }, { KEEP_LIVE, 2 } });
    expect(3, 0, (keep_counts){ 1, 99 },
           (layer_plan[]){ { KEEP_ALL, 0 }, { KEEP_PARTIAL, 1 }, { KEEP_LIVE, 2 } });
    expect(1, 0, (keep_counts){ 1, 1 }, (layer_plan[]){ { KEEP_LIVE, 0 } });
}

static void only_the_head_trains(void **state)
{
    (void)state;
    expect(2, 2, (keep_counts){ 5, 5 }, (layer_plan[]){ { KEEP_NOTHING, 0 }, { KEEP_NOTHING, 0 } });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_in_its_place),
        cmocka_unit_test(nothing_is_kept),
        cmocka_unit_test(the_top_layer_never_has_a_slot),
        cmocka_unit_test(only_the_head_trains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

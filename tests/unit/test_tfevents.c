#include "support/check.h"
#include "format/tfevents.h"

/* The bytes TensorBoard's own writer makes for these two events. */
static void equals_tensorboard(void **state)
{
    (void)state;
    static const unsigned char want[] = {
#include "support/tfevents_golden.inc"
    };
    str s = { 0 };
    tfevents_header(&s, 1700000000.5);
    const tf_scalar scalars[] = { { "train/loss", 1.25f }, { "train/grad_norm", 0.5f } };
    tfevents_scalars(&s, 1700000001.25, 300, scalars, 2);
    assert_true(str_ok(&s));
    assert_int_equal(s.n, sizeof want);
    assert_memory_equal(s.p, want, sizeof want);
    str_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(equals_tensorboard) };
    return cmocka_run_group_tests_name("tfevents", tests, NULL, NULL);
}

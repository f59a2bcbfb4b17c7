#include "explain/surplus.h"

#include "support/check.h"

#include <math.h>

static void ranks_by_choices_above_the_share(void **state)
{
    (void)state;
    surplus s;
    pesc_routes_token best[2 * 2];
    must(surplus_open(&s, 2, 5));
    /* token 3 ten times: expert 0 in 9; token 1 four times: expert 0 always; token 4 six times:
     * expert 1. So expert 0 has 13 of 20 tokens. */
    for (int i = 0; i < 10; i++)
        surplus_add(&s, 3, &(int32_t){ i == 0 }, 1);
    for (int i = 0; i < 4; i++)
        surplus_add(&s, 1, &(int32_t){ 0 }, 1);
    for (int i = 0; i < 6; i++)
        surplus_add(&s, 4, &(int32_t){ 1 }, 1);
    surplus_best(&s, best, 2);
    assert_int_equal(best[0].id, 3); /* 9 - 6.5 */
    assert_int_equal(best[0].seen, 10);
    assert_int_equal(best[0].chosen, 9);
    assert_true(fabs(best[0].lift - 0.9 / 0.65) < 1e-12);
    assert_int_equal(best[1].id, 1); /* 4 - 2.6 */
    assert_true(fabs(best[1].lift - 1 / 0.65) < 1e-12);
    assert_int_equal(best[2].id, 4);
    assert_int_equal(best[3].id, -1); /* token 3 is below the share of expert 1 */
    surplus_close(&s);
}

static void equal_ones_are_in_the_order_of_ids(void **state)
{
    (void)state;
    surplus s;
    pesc_routes_token best[3 * 3];
    must(surplus_open(&s, 3, 6));
    for (int32_t id = 5; id >= 0; id--)
        surplus_add(&s, id, (int32_t[]){ id < 3 ? 0 : 1, 2 }, 2);
    surplus_best(&s, best, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(best[i].id, i);
        assert_int_equal(best[3 + i].id, 3 + i);
        assert_int_equal(best[6 + i].id, -1); /* every token chose it */
    }
    surplus_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_by_choices_above_the_share),
        cmocka_unit_test(equal_ones_are_in_the_order_of_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "base/arena.h"
#include "support/check.h"
#include "tensor/tensor.h"

#include <stdalign.h>

static void lay_out(arena *a, tensor t[3])
{
    t[0] = tensor_take2(a, DT_F32, 3, 5);
    t[1] = tensor_take1(a, DT_BF16, 7);
    t[2] = tensor_take3(a, DT_NF4, 2, 5, 13);
}

static void measures_then_places(void **state)
{
    (void)state;
    arena a = { 0 };
    tensor t[3];
    lay_out(&a, t);
    assert_null(t[0].data);
    assert_int_equal(a.used, 64 + 64 + 128);
    alignas(64) static unsigned char span[256];
    a = (arena){ .base = span, .size = a.used };
    lay_out(&a, t);
    assert_ptr_equal(t[1].data, span + 64);
    assert_ptr_equal(t[2].data, span + 128);
    assert_int_equal(a.used, a.size);
}

static void saturates_instead_of_wrapping(void **state)
{
    (void)state;
    arena a = { 0 };
    arena_take(&a, SIZE_MAX - 100);
    arena_take(&a, SIZE_MAX / 2);
    assert_true(a.used == SIZE_MAX);
}

/* 5 * 13 = 65 elements: 33 bytes of codes padded to 36, then two blocks of scales. */
static void nf4_stacks_have_a_span_each(void **state)
{
    (void)state;
    tensor t = { .dt = DT_NF4, .nd = 3, .ne = { 2, 5, 13 } };
    assert_int_equal(tensor_bytes(&t), 2 * (36 + 8));
    char span[88];
    t.data = span;
    assert_ptr_equal(tensor_slice(&t, 1, 1).data, span + 44);
}

static void slices_and_counts(void **state)
{
    (void)state;
    float x[12];
    tensor t = { .data = x, .dt = DT_F32, .nd = 3, .ne = { 2, 3, 2 } };
    assert_int_equal(tensor_rows(&t), 6);
    assert_int_equal(tensor_cols(&t), 2);
    tensor s = tensor_slice(&t, 1, 1);
    assert_ptr_equal(s.data, x + 6);
    assert_int_equal(tensor_count(&s), 6);
    tensor none = { 0 };
    assert_int_equal(tensor_count(&none), 0);
    size_t bytes;
    assert_false(dtype_bytes(DT_Q4_K, 255, &bytes));
    assert_false(dtype_bytes(DT_F64, UINT64_MAX / 2, &bytes));
    assert_true(dtype_bytes(DT_Q4_K, 512, &bytes) && bytes == 288);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measures_then_places),
        cmocka_unit_test(saturates_instead_of_wrapping),
        cmocka_unit_test(nf4_stacks_have_a_span_each),
        cmocka_unit_test(slices_and_counts),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}

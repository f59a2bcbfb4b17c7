/* The tables of product kernels of a GPU. They are data: no GPU and no CUDA part is needed. */
#include "backend/cuda_kernels.h"
#include "support/check.h"

#include <string.h>

static const kernel_traits gemv = { "gemv",      "streams",  "k % 8 == 0", 2, 8, 80, 0, KERNEL_NT,
                                    KERNEL_BF16, KERNEL_NF4, KERNEL_FLOATS };

static bool gemv_serves(int64_t rows, int32_t cc, mm_layout layout, dtype a, dtype b, dtype out)
{
    return kernel_serves(&gemv, &(kernel_use){ rows, cc, layout, a, b, out });
}

static void every_trait_counts(void **state)
{
    (void)state;
    assert_true(gemv_serves(2, 80, MM_NT, DT_BF16, DT_NF4, DT_F32));
    assert_true(gemv_serves(8, 90, MM_NT, DT_BF16, DT_NF4, DT_BF16));
    assert_false(gemv_serves(1, 80, MM_NT, DT_BF16, DT_NF4, DT_F32));
    assert_false(gemv_serves(9, 80, MM_NT, DT_BF16, DT_NF4, DT_F32));
    assert_false(gemv_serves(2, 75, MM_NT, DT_BF16, DT_NF4, DT_F32));
    assert_false(gemv_serves(2, 80, MM_NN, DT_BF16, DT_NF4, DT_F32));
    assert_false(gemv_serves(2, 80, MM_NT, DT_F32, DT_NF4, DT_F32));
    assert_false(gemv_serves(2, 80, MM_NT, DT_BF16, DT_BF16, DT_F32));
    assert_false(gemv_serves(2, 80, MM_NT, DT_BF16, DT_NF4, DT_NF4));
}

static void zero_is_no_limit(void **state)
{
    (void)state;
    kernel_traits t = gemv;
    t.rows_to = 0;
    t.cc_from = t.cc_to = 90;
    kernel_use u = { 1 << 20, 90, MM_NT, DT_BF16, DT_NF4, DT_F32 };
    assert_true(kernel_serves(&t, &u));
    u.cc = 100;
    assert_false(kernel_serves(&t, &u));
}

/* ---- every product that the program can ask for has a kernel ---- */

typedef struct table {
    const kernel_traits *rows;
    size_t n;
    int64_t least_rows; /* of the products that reach the table */
    bool converts;      /* weights may become the activations' type first */
} table;

static table products(void)
{
    table t = { .least_rows = 0 };
    t.rows = kernel_products(&t.n);
    return t;
}

static table grouped(void)
{
    table t = { .least_rows = 1, .converts = true };
    t.rows = kernel_grouped(&t.n);
    return t;
}

/* A row that serves it whatever its sizes and addresses are: one that needs nothing further. */
static bool always_served(const table *t, const kernel_use *u)
{
    for (size_t i = 0; i < t->n; i++)
        if (!*t->rows[i].needs && kernel_serves(&t->rows[i], u))
            return true;
    return false;
}

/* Every layout and type, for some rows on some GPU. In TN b is activations too: never NF4, and
 * never converted. */
static void check_types(const table *t, int64_t rows, int32_t cc)
{
    static const dtype floats[] = { DT_F32, DT_BF16 }, weights[] = { DT_F32, DT_BF16, DT_NF4 };
    for (int layout = MM_NT; layout <= MM_TN; layout++)
        for (int a = 0; a < 2; a++)
            for (int b = 0; b < (layout == MM_TN ? 2 : 3); b++)
                for (int out = 0; out < 2; out++) {
                    kernel_use u = {
                        rows, cc, (mm_layout)layout, floats[a], weights[b], floats[out]
                    };
                    bool served = always_served(t, &u);
                    u.b = u.a;
                    served = served || (t->converts && layout != MM_TN && always_served(t, &u));
                    if (!served)
                        fail_msg("sm_%d, %d rows, layout %d: %s x %s -> %s has no kernel", cc,
                                 (int)rows, layout, dtype_name(floats[a]), dtype_name(weights[b]),
                                 dtype_name(floats[out]));
                }
}

static void tables_have_no_hole(void **state)
{
    (void)state;
    static const int32_t gpus[] = { 80, 86, 89, 90 };
    table tables[] = { products(), grouped() };
    for (size_t i = 0; i < 2; i++)
        for (size_t gpu = 0; gpu < sizeof gpus / sizeof *gpus; gpu++) {
            for (int64_t rows = tables[i].least_rows; rows <= 512; rows++)
                check_types(&tables[i], rows, gpus[gpu]);
            check_types(&tables[i], 1 << 20, gpus[gpu]);
        }
}

/* The first row whose traits allow bf16 x weights -> bf16 in NT. */
static const char *first(const table *t, int64_t rows, int32_t cc, dtype weights)
{
    kernel_use u = { rows, cc, MM_NT, DT_BF16, weights, DT_BF16 };
    for (size_t i = 0; i < t->n; i++)
        if (kernel_serves(&t->rows[i], &u) && strcmp(t->rows[i].name, "gemm_wgmma") != 0)
            return t->rows[i].name;
    return "none";
}

/* gemm_wgmma is left out: its fits() refuses products with few rows. */
static void rows_choose_the_kernel_of_nf4(void **state)
{
    (void)state;
    table p = products(), g = grouped();
    assert_string_equal(first(&p, 1, 90, DT_NF4), "nf4_gemv");
    assert_string_equal(first(&p, 4, 90, DT_NF4), "nf4_gemv");
    assert_string_equal(first(&p, 5, 90, DT_NF4), "nf4_stream");
    assert_string_equal(first(&p, 8, 90, DT_NF4), "nf4_stream");
    assert_string_equal(first(&p, 8, 80, DT_NF4), "nf4_gemv");
    assert_string_equal(first(&p, 9, 90, DT_NF4), "nf4_split_k");
    assert_string_equal(first(&p, 32, 90, DT_NF4), "nf4_split_k");
    assert_string_equal(first(&p, 33, 90, DT_NF4), "nf4_wgmma");
    assert_string_equal(first(&p, 256, 90, DT_NF4), "nf4_wgmma");
    assert_string_equal(first(&p, 257, 90, DT_NF4), "cublaslt");
    assert_string_equal(first(&p, 9, 80, DT_NF4), "cublaslt");
    assert_string_equal(first(&p, 8, 80, DT_BF16), "gemv");
    assert_string_equal(first(&p, 9, 80, DT_BF16), "cublaslt");
    assert_string_equal(first(&g, 32, 90, DT_NF4), "grouped_gemv");
    assert_string_equal(first(&g, 33, 90, DT_NF4), "none"); /* converted first */
    assert_string_equal(first(&g, 9, 90, DT_BF16), "grouped_wgmma");
    assert_string_equal(first(&g, 9, 80, DT_BF16), "grouped_mma");
}

/* ---- the listing ---- */

static const pesc_kernel_row *find(const pesc_kernel_row *rows, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    fail_msg("no kernel %s", name);
    return NULL;
}

static void rows_read_like_the_traits(void **state)
{
    (void)state;
    pesc_kernel_row rows[64];
    size_t n = cuda_kernels(rows, 64);
    assert_true(n <= 64);
    const pesc_kernel_row *r = find(rows, n, "nf4_gemv");
    assert_string_equal(r->device, "cuda");
    assert_string_equal(r->op, "matmul");
    assert_string_equal(r->rows, "1-8");
    assert_string_equal(r->layouts, "NT");
    assert_string_equal(r->types, "bf16 x nf4 -> f32|bf16");
    assert_string_equal(r->hardware, "sm_80+");
    assert_non_null(strstr(r->detail, "; needs k % 64 == 0"));
    r = find(rows, n, "router_dx");
    assert_string_equal(r->rows, "256-");
    assert_string_equal(r->layouts, "NN");
    r = find(rows, n, "cublaslt");
    assert_string_equal(r->rows, "any");
    assert_string_equal(r->layouts, "NT NN TN");
    assert_string_equal(r->types, "f32|bf16 x f32|bf16|nf4 -> f32|bf16");
    assert_null(strstr(r->detail, "needs"));
    r = find(rows, n, "grouped_wgmma");
    assert_string_equal(r->op, "grouped_matmul");
    assert_string_equal(r->hardware, "sm_90");
}

/* No text of a row is cut off by the size of its field. */
static void fields_hold_the_texts(void **state)
{
    (void)state;
    pesc_kernel_row rows[64];
    size_t n = pesc_kernels(rows, 64);
    assert_true(n <= 64);
    for (size_t i = 0; i < n; i++) {
        assert_true(strlen(rows[i].name) + 1 < sizeof rows[i].name);
        assert_true(strlen(rows[i].types) + 1 < sizeof rows[i].types);
        assert_true(strlen(rows[i].hardware) + 1 < sizeof rows[i].hardware);
        assert_true(strlen(rows[i].detail) + 1 < sizeof rows[i].detail);
    }
}

/* The list of all devices: the rows that fit, and how many there are in any case. */
static void the_list_is_bounded(void **state)
{
    (void)state;
    pesc_kernel_row rows[3] = { 0 };
    size_t n = pesc_kernels(NULL, 0);
    assert_true(n > 3);
    assert_int_equal(pesc_kernels(rows, 2), n);
    assert_string_equal(rows[0].device, "cpu");
    assert_string_equal(rows[1].device, "cpu");
    assert_string_equal(rows[2].device, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_trait_counts),
        cmocka_unit_test(zero_is_no_limit),
        cmocka_unit_test(tables_have_no_hole),
        cmocka_unit_test(rows_choose_the_kernel_of_nf4),
        cmocka_unit_test(rows_read_like_the_traits),
        cmocka_unit_test(fields_hold_the_texts),
        cmocka_unit_test(the_list_is_bounded),
    };
    return cmocka_run_group_tests_name("cuda_kernels", tests, NULL, NULL);
}

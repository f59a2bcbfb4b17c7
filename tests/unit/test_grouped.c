#include "base/mem.h"
#include "support/products.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_EXPERTS = 200 };

typedef struct routes {
    int64_t n_experts;
    int32_t offsets[MAX_EXPERTS + 1];
} routes;

static device *dev;
static cpu_isa dev_isa;

/* Runs the test on every instruction set this CPU has. */
static void on_each(void (*test)(void))
{
    for (dev_isa = CPU_BASE; dev_isa <= cpu_isa_best(); dev_isa++) {
        must(cpu_open_isa(&dev, 2, dev_isa));
        test();
        must(dev->op->sync(dev));
        dev->op->close(dev);
    }
}

typedef struct fixture {
    grouped_mm call;
    matrix a, b;
    int64_t rows_out, cols_out; /* of one matrix of out, TN; of all of it otherwise */
    int64_t n_out;              /* elements */
    double *before;             /* what TN adds to */
} fixture;

static fixture make(mm_layout layout, routes *r, int64_t o, int64_t i, dtype act, dtype weight)
{
    int64_t n = r->offsets[r->n_experts];
    bool dw = layout == MM_TN;
    fixture f = { .a = matrix_new(act, n, layout == MM_NT ? i : o, 5) };
    f.b = dw ? matrix_new(weight, n, i, 6) : matrix_stack(weight, r->n_experts, o, i, 6);
    f.rows_out = dw ? o : n;
    f.cols_out = layout == MM_NT ? o : i;
    f.n_out = (dw ? r->n_experts : 1) * f.rows_out * f.cols_out;
    float *out = mem_aligned((size_t)f.n_out * sizeof *out + 64);
    f.before = calloc((size_t)f.n_out + 1, sizeof *f.before);
    assert_non_null(out);
    for (int64_t j = 0; j < f.n_out; j++) {
        out[j] = dw ? (float)(j % 13) : NAN;
        f.before[j] = dw ? (double)out[j] : 0;
    }
    f.call = (grouped_mm){ .layout = layout, .a = f.a.t, .b = f.b.t, .scale = 0.5f };
    f.call.out = (tensor){ .data = out, .dt = DT_F32, .nd = 2, .ne = { n, f.cols_out } };
    if (dw)
        f.call.out = (tensor){ .data = out, .dt = DT_F32, .nd = 3, .ne = { r->n_experts, o, i } };
    f.call.offsets =
        (tensor){ .data = r->offsets, .dt = DT_I32, .nd = 1, .ne = { r->n_experts + 1 } };
    return f;
}

static void drop(fixture *f)
{
    mem_free(f->call.out.data);
    matrix_free(&f->a);
    matrix_free(&f->b);
    free(f->before);
}

static void compare_expert(const fixture *f, const routes *r, int64_t e, int64_t o, int64_t i)
{
    bool dw = f->call.layout == MM_TN;
    oracle q = { .layout = f->call.layout,
                 .a = &f->a,
                 .b = &f->b,
                 .first = r->offsets[e],
                 .n = r->offsets[e + 1] - r->offsets[e],
                 .b_rows = o,
                 .b_cols = i,
                 .b_at = dw ? r->offsets[e] * i : e * o * i };
    int64_t n = oracle_rows(&q) * oracle_cols(&q);
    int64_t at = dw ? e * o * i : r->offsets[e] * f->cols_out;
    int64_t depth = dw ? q.n : f->call.layout == MM_NT ? i : o;
    double *sum = calloc((size_t)n + 1, 2 * sizeof *sum), *magnitude = sum + n;
    oracle_run(&q, sum, magnitude);
    for (int64_t j = 0; j < n; j++) {
        double want = 0.5 * sum[j] + f->before[at + j], got = matrix_get(&f->call.out, at + j);
        double error = oracle_error(depth, magnitude[j] + fabs(f->before[at + j]), want, DT_F32);
        if (!(fabs(got - want) <= error))
            fail_msg("%s layout %d expert %lld of %lld, element %lld: got %.9g, expected %.9g",
                     cpu_isa_name(dev_isa), (int)f->call.layout, (long long)e,
                     (long long)r->n_experts, (long long)j, got, want);
    }
    free(sum);
}

static void check(routes r, int64_t o, int64_t i, dtype act, dtype weight)
{
    for (mm_layout l = MM_NT; l <= MM_TN; l++) {
        if (l == MM_TN && weight == DT_NF4)
            continue;
        fixture f = make(l, &r, o, i, act, weight);
        dev->op->grouped_matmul(dev, &f.call);
        for (int64_t e = 0; e < r.n_experts; e++)
            compare_expert(&f, &r, e, o, i);
        drop(&f);
    }
}

static void each_dtype(routes r, int64_t o, int64_t i)
{
    check(r, o, i, DT_F32, DT_F32);
    check(r, o, i, DT_F32, DT_NF4);
    check(r, o, i, DT_BF16, DT_BF16);
    check(r, o, i, DT_BF16, DT_NF4);
}

static void uneven(void)
{
    routes r = { 6, { 0, 3, 3, 20, 21, 60, 60 } }; /* the second and the last have no tokens */
    each_dtype(r, 20, 64);
    each_dtype(r, 37, 71);
}

static void one_has_all(void)
{
    routes r = { 4, { 0, 0, 0, 33, 33 } };
    each_dtype(r, 16, 128);
}

static void nobody_has_any(void)
{
    routes r = { 3, { 0 } };
    each_dtype(r, 5, 64);
}

/* More experts than are packed together, none, one or two rows each. */
static void many(void)
{
    routes r = { .n_experts = MAX_EXPERTS };
    for (int e = 0; e < MAX_EXPERTS; e++)
        r.offsets[e + 1] = r.offsets[e] + e % 3;
    check(r, 6, 64, DT_F32, DT_F32);
    check(r, 6, 64, DT_BF16, DT_NF4);
}

static void experts_without_tokens(void **state)
{
    (void)state;
    on_each(uneven);
    on_each(nobody_has_any);
}

static void one_expert_with_all_tokens(void **state)
{
    (void)state;
    on_each(one_has_all);
}

static void many_experts(void **state)
{
    (void)state;
    on_each(many);
}

/* A token's row has the bits that the plain product gives it, whoever its neighbours are. */
static void equals_the_plain_product(void)
{
    routes r = { 4, { 0, 1, 9, 30, 64 } };
    for (int nt = 0; nt < 2; nt++) {
        fixture f = make(nt ? MM_NT : MM_NN, &r, 50, 192, DT_BF16, DT_NF4);
        dev->op->grouped_matmul(dev, &f.call);
        float *alone = mem_aligned((size_t)f.cols_out * sizeof *alone);
        for (int64_t e = 0; e < r.n_experts; e++) {
            tensor w = tensor_slice(&f.b.t, e, 1);
            for (int64_t row = r.offsets[e]; row < r.offsets[e + 1]; row++) {
                mm c = { .layout = f.call.layout, .scale = 0.5f };
                c.a = tensor_slice(&f.a.t, row, 1);
                c.b = tensor_view2(&w, 50, 192);
                c.out = (tensor){ .data = alone, .dt = DT_F32, .nd = 2, .ne = { 1, f.cols_out } };
                dev->op->matmul(dev, &c);
                assert_memory_equal(alone, (float *)f.call.out.data + row * f.cols_out,
                                    (size_t)f.cols_out * sizeof *alone);
            }
        }
        mem_free(alone);
        drop(&f);
    }
}

static void rows_have_the_bits_of_the_plain_product(void **state)
{
    (void)state;
    on_each(equals_the_plain_product);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_without_tokens),
        cmocka_unit_test(one_expert_with_all_tokens),
        cmocka_unit_test(many_experts),
        cmocka_unit_test(rows_have_the_bits_of_the_plain_product),
    };
    return cmocka_run_group_tests_name("grouped", tests, NULL, NULL);
}

#include "backend/cpu/matmul.h"

#include "base/mem.h"
#include "support/products.h"

#include <math.h>
#include <stdlib.h>

static device *opened[CPU_ISA_MOST];

static int open_all(void **state)
{
    (void)state;
    for (cpu_isa isa = CPU_BASE; isa <= cpu_isa_best(); isa++)
        if (cpu_open_isa(&opened[isa], 2, isa) != PESC_OK)
            return -1;
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    for (cpu_isa isa = CPU_BASE; isa <= cpu_isa_best(); isa++)
        opened[isa]->op->close(opened[isa]);
    return 0;
}

/* The operands of one product, and what it should be. */
typedef struct fixture {
    mm_layout layout;
    matrix a, b, bias;
    oracle o;
    int64_t rows, cols, depth;
    double *sum, *magnitude;
} fixture;

/* T, O, I as in backend.h. */
typedef struct shape {
    int64_t t, o, i;
} shape;

static fixture make(mm_layout layout, shape s, dtype a, dtype b)
{
    fixture f = { .layout = layout };
    f.a = matrix_new(a, s.t, layout == MM_NT ? s.i : s.o, 1);
    f.b = matrix_new(b, layout == MM_TN ? s.t : s.o, s.i, 2);
    f.o = (oracle){ .layout = layout, .n = s.t, .b_rows = f.b.t.ne[0], .b_cols = s.i };
    f.rows = layout == MM_TN ? s.o : s.t;
    f.cols = layout == MM_NT ? s.o : s.i;
    f.depth = layout == MM_NT ? s.i : layout == MM_NN ? s.o : s.t;
    f.bias = matrix_new(b == DT_BF16 ? DT_BF16 : DT_F32, 1, f.cols, 3);
    matrix_double(&f.bias, 6); /* so that a bias too many shows in a long sum */
    f.bias.t = (tensor){ .data = f.bias.t.data, .dt = f.bias.t.dt, .nd = 1, .ne = { f.cols } };
    f.sum = calloc((size_t)(f.rows * f.cols) + 1, sizeof *f.sum);
    f.magnitude = calloc((size_t)(f.rows * f.cols) + 1, sizeof *f.magnitude);
    return f;
}

static void drop(fixture *f)
{
    matrix_free(&f->a);
    matrix_free(&f->b);
    matrix_free(&f->bias);
    free(f->sum);
    free(f->magnitude);
}

static tensor out_of(dtype dt, int64_t rows, int64_t cols)
{
    size_t bytes = (size_t)(rows * cols) * (dt == DT_F32 ? 4 : 2);
    tensor t = { .data = mem_aligned(bytes + 64), .dt = dt, .nd = 2, .ne = { rows, cols } };
    assert_non_null(t.data);
    memset(t.data, 0xFF, bytes + 64); /* NaN: what is not overwritten shows */
    return t;
}

static mm call_of(const fixture *f, tensor out)
{
    return (mm){ .layout = f->layout, .out = out, .a = f->a.t, .b = f->b.t, .scale = 1 };
}

/* Every element within its bound of scale * sum (+ bias) (+ before), and nothing behind the end. */
static void compare(const fixture *f, const mm *c, cpu_isa isa, const double *before)
{
    static const char *const names[] = { "NT", "NN", "TN" };
    for (int64_t i = 0; i < f->rows * f->cols; i++) {
        double want = (double)c->scale * f->sum[i], size = fabs((double)c->scale) * f->magnitude[i];
        double add[2] = { c->bias.data ? f->bias.value[i % f->cols] : 0, before ? before[i] : 0 };
        for (int j = 0; j < 2; j++) {
            want += add[j];
            size += fabs(add[j]);
        }
        double got = matrix_get(&c->out, i);
        if (!(fabs(got - want) <= oracle_error(f->depth, size, want, c->out.dt)))
            fail_msg("%s %s %s*%s->%s [%lld,%lld] k %lld element %lld: got %.9g, expected %.9g",
                     cpu_isa_name(isa), names[f->layout], dtype_name(c->a.dt), dtype_name(c->b.dt),
                     dtype_name(c->out.dt), (long long)f->rows, (long long)f->cols,
                     (long long)f->depth, (long long)i, got, want);
    }
    const unsigned char *end = (const unsigned char *)c->out.data + tensor_bytes(&c->out);
    for (int i = 0; i < 64; i++)
        assert_int_equal(end[i], 0xFF);
}

/* Plain; then with bias (NT), scale and accumulation. */
static void check_on(const fixture *f, cpu_isa isa, dtype out_dt)
{
    tensor out = out_of(out_dt, f->rows, f->cols);
    mm c = call_of(f, out);
    opened[isa]->op->matmul(opened[isa], &c);
    compare(f, &c, isa, NULL);

    int64_t n = f->rows * f->cols;
    double *before = malloc((size_t)n * sizeof *before);
    for (int64_t i = 0; i < n; i++)
        before[i] = matrix_get(&out, i);
    c.scale = -0.75f;
    c.accumulate = true;
    c.bias = f->layout == MM_NT ? f->bias.t : (tensor){ 0 };
    opened[isa]->op->matmul(opened[isa], &c);
    compare(f, &c, isa, before);
    must(opened[isa]->op->sync(opened[isa]));
    free(before);
    mem_free(out.data);
}

static void check(mm_layout layout, shape s, dtype a, dtype b)
{
    fixture f = make(layout, s, a, b);
    f.o.a = &f.a;
    f.o.b = &f.b;
    oracle_run(&f.o, f.sum, f.magnitude);
    for (cpu_isa isa = CPU_BASE; isa <= cpu_isa_best(); isa++) {
        check_on(&f, isa, DT_F32);
        check_on(&f, isa, DT_BF16);
    }
    drop(&f);
}

static const dtype acts[] = { DT_F32, DT_BF16 };
static const dtype weights[] = { DT_F32, DT_BF16, DT_NF4 };
/* GGUF's block formats, those of the most common files first. */
static const dtype blocks[] = { DT_Q8_0, DT_Q4_K, DT_Q6_K, DT_Q4_0,   DT_Q4_1,   DT_Q5_0, DT_Q5_1,
                                DT_Q2_K, DT_Q3_K, DT_Q5_K, DT_IQ4_NL, DT_IQ4_XS, DT_MXFP4 };
enum { COMMON_BLOCKS = 3 };
static const int64_t tokens[] = { 1, 2, 3, 5, 17, 64, 130 };
#define EACH(x, list) for (size_t x = 0; x < sizeof(list) / sizeof *(list); x++)

static void matches_the_oracle(void **state)
{
    (void)state;
    static const shape sizes[] = { { 0, 1, 1 },    { 0, 3, 5 },    { 0, 16, 64 }, { 0, 33, 71 },
                                   { 0, 65, 128 }, { 0, 31, 320 }, { 0, 300, 20 } };
    EACH(s, sizes) EACH(t, tokens) EACH(a, acts) EACH(w, weights)
    {
        shape at = { tokens[t], sizes[s].o, sizes[s].i };
        check(MM_NT, at, acts[a], weights[w]);
        check(MM_NN, at, acts[a], weights[w]);
        if (weights[w] != DT_NF4)
            check(MM_TN, at, acts[a], weights[w]);
    }
}

/* More than one block, more than one piece along rows, and sums carried over pieces of k. */
static void takes_long_sums_and_many_rows(void **state)
{
    (void)state;
    EACH(a, acts)
    {
        check(MM_NT, (shape){ 3, 5, 70001 }, acts[a], DT_F32);
        check(MM_NT, (shape){ 3, 2, 70016 }, acts[a], DT_NF4);
        check(MM_NT, (shape){ 2, 33, 2112 }, acts[a], DT_NF4);
        check(MM_NT, (shape){ 20, 33, 2112 }, acts[a], DT_NF4);
        check(MM_NN, (shape){ 2, 70001, 3 }, acts[a], DT_BF16);
        check(MM_TN, (shape){ 70001, 2, 3 }, acts[a], DT_F32);
        check(MM_NT, (shape){ 1100, 9, 33 }, acts[a], DT_BF16);
        check(MM_TN, (shape){ 7, 1100, 300 }, acts[a], DT_F32);
        check(MM_NT, (shape){ 150, 20, 4224 }, acts[a], DT_BF16); /* rows lie as tiles, thin */
        check(MM_TN, (shape){ 4224, 150, 20 }, acts[a], DT_BF16);
        check(MM_NT, (shape){ 20, 150, 4224 }, acts[a], DT_BF16);
        check(MM_NN, (shape){ 70, 17001, 33 }, acts[a], DT_BF16); /* many rows of long sums */
        check(MM_NT, (shape){ 90, 40, 16448 }, acts[a], DT_NF4);
    }
    check(MM_NT, (shape){ 600, 3, 9000 }, DT_F32, DT_F32);
}

static void weights_may_be_in_a_block_format(void **state)
{
    (void)state;
    static const int64_t rows[] = { 1, 3, 8, 9, 70 };
    EACH(b, blocks)
    {
        int64_t block = (int64_t)dtype_block(blocks[b]);
        EACH(a, acts) EACH(t, rows)
        {
            check(MM_NT, (shape){ rows[t], 33, block }, acts[a], blocks[b]);
            check(MM_NT, (shape){ rows[t], 67, 5 * block }, acts[a], blocks[b]);
            check(MM_NN, (shape){ rows[t], 45, 3 * block }, acts[a], blocks[b]);
        }
    }
    EACH(a, acts)
    {
        check(MM_NT, (shape){ 3, 5, 36 * 2048 }, acts[a], DT_Q4_K);
        check(MM_NT, (shape){ 8, 5, 36 * 2048 }, acts[a], DT_Q4_K);
        int64_t k = acts[a] == DT_BF16 ? 34 * 512 : 17 * 512; /* 17 k blocks with bf16 pairs, too */
        check(MM_NT, (shape){ 30, 9, k }, acts[a], DT_Q8_0);
        check(MM_NT, (shape){ 31, 9, k }, acts[a], DT_Q8_0);
        check(MM_NT, (shape){ 2, 200, 1056 }, acts[a], DT_Q8_0);
        check(MM_NT, (shape){ 20, 200, 1056 }, acts[a], DT_Q8_0);
        check(MM_NT, (shape){ 6, 35, 1280 }, acts[a], DT_Q3_K);
        check(MM_NN, (shape){ 20, 1055, 288 }, acts[a], DT_Q8_0);
    }
}

static void no_tokens_give_zero(void **state)
{
    (void)state;
    for (cpu_isa isa = CPU_BASE; isa <= cpu_isa_best(); isa++) {
        fixture f = make(MM_TN, (shape){ 0, 3, 5 }, DT_F32, DT_F32);
        check_on(&f, isa, DT_F32);
        drop(&f);
        f = make(MM_NT, (shape){ 0, 3, 5 }, DT_F32, DT_F32);
        check_on(&f, isa, DT_F32);
        drop(&f);
    }
}

static void same_on_all_threads(mm_layout l, shape s, dtype a, dtype w)
{
    static const int threads[] = { 1, 2, 3, 7 };
    fixture f = make(l, s, a, w);
    tensor first = out_of(DT_F32, f.rows, f.cols), other = out_of(DT_F32, f.rows, f.cols);
    EACH(n, threads)
    {
        device *d;
        must(cpu_open_isa(&d, threads[n], cpu_isa_best()));
        mm c = call_of(&f, n == 0 ? first : other);
        d->op->matmul(d, &c);
        d->op->close(d);
        assert_memory_equal(c.out.data, first.data, tensor_bytes(&first));
    }
    mem_free(first.data);
    mem_free(other.data);
    drop(&f);
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    static const shape shapes[] = { { 1, 70, 320 }, { 5, 130, 576 }, { 130, 300, 320 } };
    EACH(s, shapes)
    EACH(a, acts)
    EACH(w, weights)
    for (mm_layout l = MM_NT; l <= MM_TN; l++)
        if (l != MM_TN || weights[w] != DT_NF4)
            same_on_all_threads(l, shapes[s], acts[a], weights[w]);
    static const shape whole[] = { { 1, 70, 768 }, { 5, 130, 256 }, { 130, 300, 1024 } };
    EACH(s, whole) EACH(a, acts) for (int b = 0; b < COMMON_BLOCKS; b++)
    {
        same_on_all_threads(MM_NT, whole[s], acts[a], blocks[b]);
        same_on_all_threads(MM_NN, whole[s], acts[a], blocks[b]);
    }
}

/* Rows [first, first + n) computed alone equal the same rows of the whole, bit for bit. */
static void compare_part(const fixture *f, cpu_isa isa, tensor whole, int64_t first, int64_t n)
{
    tensor part = out_of(DT_F32, n, f->cols);
    mm c = call_of(f, part);
    c.a = tensor_slice(&f->a.t, first, n);
    opened[isa]->op->matmul(opened[isa], &c);
    tensor same = tensor_slice(&whole, first, n);
    if (memcmp(part.data, same.data, tensor_bytes(&part)) != 0)
        fail_msg("%s: %s*%s, k %lld: %lld rows from %lld differ from those of %lld rows",
                 cpu_isa_name(isa), dtype_name(c.a.dt), dtype_name(c.b.dt), (long long)f->depth,
                 (long long)n, (long long)first, (long long)f->rows);
    mem_free(part.data);
}

static void same_in_all_batches(mm_layout l, shape s, dtype a, dtype w)
{
    static const int64_t batches[] = { 1, 2, 3, 5, 8, 9, 13, 16, 17, 31, 32, 33, 64 };
    fixture f = make(l, s, a, w);
    tensor whole = out_of(DT_F32, f.rows, f.cols);
    mm c = call_of(&f, whole);
    for (cpu_isa isa = CPU_BASE; isa <= cpu_isa_best(); isa++) {
        opened[isa]->op->matmul(opened[isa], &c);
        EACH(n, batches)
        for (int64_t first = 0; first + batches[n] <= f.rows; first += 31)
            compare_part(&f, isa, whole, first, batches[n]);
    }
    mem_free(whole.data);
    drop(&f);
}

static void a_row_does_not_see_its_batch(void **state)
{
    (void)state;
    static const shape shapes[] = { { 70, 45, 7 }, { 70, 45, 577 }, { 70, 70, 1152 } };
    static const shape whole[] = { { 70, 45, 256 }, { 70, 70, 1280 } };
    static const shape odd = { 70, 45, 1056 }; /* 33 groups */
    EACH(a, acts) same_in_all_batches(MM_NT, odd, acts[a], DT_Q8_0);
    EACH(a, acts) same_in_all_batches(MM_NT, odd, acts[a], DT_Q4_1);
    for (mm_layout l = MM_NT; l <= MM_NN; l++) {
        EACH(s, shapes)
        EACH(a, acts) EACH(w, weights) same_in_all_batches(l, shapes[s], acts[a], weights[w]);
        EACH(s, whole)
        EACH(a, acts) EACH(b, blocks) same_in_all_batches(l, whole[s], acts[a], blocks[b]);
    }
}

/* Rows [first, first + n) of a product with two terms before it. */
static tensor sum_of_terms(cpu_isa isa, const fixture *f, dtype dt, int64_t first, int64_t n)
{
    mm_pair more[2];
    tensor out = out_of(dt, n, f->cols);
    for (int i = 0; i < 2; i++)
        more[i] = (mm_pair){ .a = tensor_slice(&f[i].a.t, first, n), .b = f[i].b.t };
    mm c = call_of(&f[2], out);
    c.a = tensor_slice(&f[2].a.t, first, n);
    c.more = more;
    c.n_more = 2;
    opened[isa]->op->matmul(opened[isa], &c);
    return out;
}

/* Short and long terms, packed and in place, of every kind of weight: the sum is right and rounded
 * once, and few rows have the bits of many. */
static void terms_are_one_sum(void **state)
{
    (void)state;
    enum { ROWS = 70, COLS = 33 };
    static const int64_t depths[][3] = { { 16, 48, 576 }, { 7, 64, 1088 }, { 32, 17000, 20 } };
    EACH(d, depths) EACH(w, weights) for (mm_layout l = MM_NT; l <= MM_NN; l++)
    {
        fixture f[3];
        double *sum = calloc(ROWS * COLS, sizeof *sum), *size = calloc(ROWS * COLS, sizeof *size);
        for (int i = 0; i < 3; i++) {
            int64_t k = depths[d][i];
            shape s = l == MM_NT ? (shape){ ROWS, COLS, k } : (shape){ ROWS, k, COLS };
            f[i] = make(l, s, DT_BF16, i < 2 ? DT_BF16 : weights[w]);
            f[i].o.a = &f[i].a;
            f[i].o.b = &f[i].b;
            oracle_run(&f[i].o, f[i].sum, f[i].magnitude);
            for (int j = 0; j < ROWS * COLS; j++) {
                sum[j] += f[i].sum[j];
                size[j] += f[i].magnitude[j];
            }
        }
        for (cpu_isa isa = CPU_BASE; isa <= cpu_isa_best(); isa++)
            EACH(o, acts)
            {
                tensor whole = sum_of_terms(isa, f, acts[o], 0, ROWS);
                for (int64_t j = 0; j < ROWS * COLS; j++) {
                    double error = oracle_error(20000, size[j], sum[j], acts[o]);
                    if (!(fabs(matrix_get(&whole, j) - sum[j]) <= error))
                        fail_msg("%s, k %lld, element %lld: got %.9g, expected %.9g",
                                 cpu_isa_name(isa), (long long)f[2].depth, (long long)j,
                                 matrix_get(&whole, j), sum[j]);
                }
                for (int64_t n = 5; n <= 40; n += 35) {
                    tensor part = sum_of_terms(isa, f, acts[o], 11, n);
                    tensor same = tensor_slice(&whole, 11, n);
                    assert_memory_equal(part.data, same.data, tensor_bytes(&part));
                    mem_free(part.data);
                }
                mem_free(whole.data);
            }
        for (int i = 0; i < 3; i++)
            drop(&f[i]);
        free(sum);
        free(size);
    }
}

/* Several products at once, of which the first two are alike, have the bits of each alone. */
static void products_at_once_are_those_alone(void **state)
{
    (void)state;
    enum { N = 3 };
    static const int64_t columns[N] = { 45, 33, 160 };
    static const dtype kinds[N] = { DT_BF16, DT_Q4_K, DT_F32 };
    EACH(t, tokens) EACH(a, acts) for (cpu_isa isa = CPU_BASE; isa <= cpu_isa_best(); isa++)
    {
        fixture f[N];
        mm together[N];
        for (int i = 0; i < N; i++) {
            f[i] = make(MM_NT, (shape){ tokens[t], columns[i], 512 }, acts[a], kinds[i]);
            together[i] = call_of(&f[i], out_of(acts[a], f[i].rows, f[i].cols));
            together[i].bias = f[i].bias.t;
            together[i].scale = i < 2 ? 1.0f : -0.5f;
        }
        opened[isa]->op->matmuls(opened[isa], together, N);
        for (int i = 0; i < N; i++) {
            mm alone = together[i];
            alone.out = out_of(acts[a], f[i].rows, f[i].cols);
            opened[isa]->op->matmul(opened[isa], &alone);
            assert_memory_equal(together[i].out.data, alone.out.data, tensor_bytes(&alone.out));
            mem_free(together[i].out.data);
            mem_free(alone.out.data);
            drop(&f[i]);
        }
    }
}

static void poison(matrix *m, int64_t i, float with)
{
    uint32_t u;
    memcpy(&u, &with, sizeof u);
    if (m->t.dt == DT_F32)
        memcpy((char *)m->t.data + 4 * i, &u, 4);
    else
        memcpy((char *)m->t.data + 2 * i, (const char *)&u + 2, 2);
}

static void nan_reaches_its_row_and_column_only(void **state)
{
    (void)state;
    EACH(t, tokens)
    EACH(a, acts)
    for (int w = 0; w < 2; w++)
        for (cpu_isa isa = CPU_BASE; isa <= cpu_isa_best(); isa++) {
            fixture f = make(MM_NT, (shape){ tokens[t], 37, 75 }, acts[a], weights[w]);
            int64_t row = f.rows / 2, column = 21;
            poison(&f.a, row * 75 + 74, NAN);
            poison(&f.b, column * 75, INFINITY);
            poison(&f.a, 0, 0); /* 0 * infinity */
            tensor out = out_of(DT_BF16, f.rows, f.cols);
            mm c = call_of(&f, out);
            opened[isa]->op->matmul(opened[isa], &c);
            for (int64_t i = 0; i < f.rows * f.cols; i++) {
                double y = matrix_get(&out, i);
                bool in_row = i / f.cols == row, in_column = i % f.cols == column;
                assert_int_equal(isnan(y) != 0, in_row || (in_column && i / f.cols == 0));
                assert_int_equal(isfinite(y) != 0, !in_row && !in_column);
            }
            mem_free(out.data);
            drop(&f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_the_oracle),
        cmocka_unit_test(takes_long_sums_and_many_rows),
        cmocka_unit_test(weights_may_be_in_a_block_format),
        cmocka_unit_test(no_tokens_give_zero),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(a_row_does_not_see_its_batch),
        cmocka_unit_test(terms_are_one_sum),
        cmocka_unit_test(products_at_once_are_those_alone),
        cmocka_unit_test(nan_reaches_its_row_and_column_only),
    };
    return cmocka_run_group_tests_name("matmul", tests, open_all, close_all);
}

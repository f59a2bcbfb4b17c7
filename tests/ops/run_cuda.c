/* run_cuda: every case on a GPU against the CPU, and twice on the GPU: the same bits.
 *
 * Sums run in another order, and where a tensor is bf16 one may round what the other keeps
 * (operands of products: attention's weights and their gradients, which the GPU keeps in f32 for
 * heads that its tensor cores do not take): so f32 cases carry a few times the op's own tolerance,
 * and cases that touch bf16 or nf4 in addition what the op allows for such operands, and two units
 * of bf16 of the result and of the tensor's own size. */
#include "base/rng.h"
#include "ops/harness.h"
#include "ops/run.h"
#include "support/check.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static device *gpu, *cpu;

static bool is_coarse(const trial *t)
{
    bool coarse = t->p->w == DT_NF4;
    for (int k = 0; k < t->n; k++)
        coarse = coarse || t->slots[k].dt == DT_BF16;
    return coarse;
}

/* The size of a slot's numbers: what an error of a sum is measured by. */
static double rms(const trial *t, int k)
{
    double sum = 0;
    i64 n = trial_count(t, k), counted = 0;
    for (i64 i = 0; i < n; i++) {
        double x = trial_result(t, k, i);
        sum += isfinite(x) ? x * x : 0;
        counted += isfinite(x);
    }
    return counted ? sqrt(sum / (double)counted) : 0;
}

static void compare(const trial *got, const trial *want, int number)
{
    bool coarse = is_coarse(want);
    double tolerance = want->test->tolerance * 4;
    for (int k = 0; k < want->n; k++) {
        const slot *s = &want->slots[k];
        bool whole = s->dt == DT_I32 || s->dt == DT_U8;
        double size = rms(want, k);
        for (i64 i = 0; i < trial_count(want, k) && s->role >= SLOT_OUT; i++) {
            double x = trial_result(got, k, i), y = trial_result(want, k, i);
            double allowed = whole ? 0 : tolerance * (1 + fabs(y));
            if (tolerance > 0 && coarse && !whole)
                allowed += (fabs(y) + size) * 0x1p-7 + want->test->bf16_tolerance * (1 + fabs(y));
            if (x != y && !(fabs(x - y) <= allowed) && !(isnan(x) && isnan(y)))
                fail_msg("%s case %d: %s[%lld] is %.9g, on the CPU %.9g (allowed %.3g)",
                         want->test->name, number, s->name, (long long)i, x, y, allowed);
        }
    }
}

static void against_cpu(void **state)
{
    const op_test *test = *state;
    for (int number = 0; number < n_cases(test); number++) {
        trial got, want;
        trial_init(&got, test, number);
        trial_init(&want, test, number);
        trial_run(&want, cpu);
        trial_run(&got, gpu);
        compare(&got, &want, number);
        trial_free(&got);
        trial_free(&want);
    }
}

static void same_bits_again(void **state)
{
    const op_test *test = *state;
    for (int number = 0; number < n_cases(test); number++) {
        trial first, again;
        trial_init(&first, test, number);
        trial_init(&again, test, number);
        trial_run(&first, gpu);
        trial_run(&again, gpu);
        for (int k = 0; k < first.n; k++)
            if (memcmp(first.result[k], again.result[k], first.bytes[k]) != 0)
                fail_msg("%s case %d: %s differs between two runs", test->name, number,
                         first.slots[k].name);
        trial_free(&first);
        trial_free(&again);
    }
}

/* ---- a handle opened by one thread and used by another, whose current GPU is another one ---- */

typedef struct errand {
    pesc_status status;
    float x[4];
} errand;

static pesc_status double_numbers(device *d, float *x, size_t bytes)
{
    void *at = NULL;
    TRY(d->op->alloc(d, bytes, &at));
    tensor t = { at, DT_F32, 1, { (i64)(bytes / sizeof *x) } };
    d->op->upload(d, at, x, bytes);
    d->op->add(d, t, t, 1);
    pesc_status s = d->op->download(d, x, at, bytes);
    d->op->free(d, at);
    return s;
}

static void *run_errand(void *ctx)
{
    errand *e = ctx;
    e->status = double_numbers(gpu, e->x, sizeof e->x);
    return NULL;
}

static void from_another_thread(void **state)
{
    (void)state;
    errand e = { PESC_DEVICE, { 1, -2, 3.5f, 0 } };
    const float want[4] = { 2, -4, 7, 0 };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_errand, &e), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(e.status, PESC_OK);
    assert_memory_equal(e.x, want, sizeof want);
}

/* ---- scratch: handed out of what is reserved, and never allocated by an op ---- */

static pesc_status sum_of_squares(device *d, float *sum)
{
    void *at = NULL;
    TRY(d->op->alloc(d, 2 * sizeof *sum, &at));
    tensor x = { at, DT_F32, 1, { 1 } }, out = { (float *)at + 1, DT_F32, 1, { 1 } };
    const float three = 3;
    d->op->upload(d, at, &three, sizeof three);
    d->op->sumsq(d, out, x);
    pesc_status s = d->op->download(d, sum, out.data, sizeof *sum);
    d->op->free(d, at);
    return s;
}

static void scratch_is_not_allocated(void **state)
{
    const char *spec = *state;
    device *d;
    float sum = 0;
    must(backend_open(&d, spec)); /* of its own: nothing is reserved yet */
    assert_int_equal(sum_of_squares(d, &sum), PESC_NOMEM);
    assert_non_null(strstr(pesc_last_error(), "sumsq"));
    assert_non_null(strstr(pesc_last_error(), "needs 8 bytes of scratch, but 0 are reserved"));
    d->op->close(d);
    must(backend_open(&d, spec));
    must(d->op->reserve(d, d->op->scratch_bytes(d, &(work_limits){ .trained = 1 })));
    must(sum_of_squares(d, &sum));
    assert_true(sum == 9);
    d->op->close(d);
}

/* ---- decoding: a row has the same bits whatever is beside it ----
 *
 * The past of all rows is the same, so they share its pages and store the same new row; their
 * queries differ. A row is decoded twice among as many others, at another place. With more than two
 * query heads on a key head it has the same bits alone, too: then it has a block for each part of
 * its past, among many one block for all parts. (With fewer the number of rows chooses how many
 * warps share a part, and so the order of sums.) */

enum { PAGE = 64, PAGES = 128, SHIFT = 61 };

typedef struct decode_shape {
    int32_t rows, heads, kv, dim, pos, window;
} decode_shape;

static const decode_shape decode_shapes[] = {
    { 512, 8, 8, 64, 100, 0 },     { 512, 8, 8, 64, 5000, 0 },  { 256, 16, 16, 128, 700, 0 },
    { 512, 16, 8, 64, 8191, 300 }, { 512, 32, 8, 64, 700, 0 },  { 512, 32, 8, 64, 5000, 0 },
    { 512, 24, 8, 64, 5000, 900 }, { 200, 24, 8, 64, 5000, 0 },
};

/* n random numbers as bf16. */
static tensor random_bf16(i64 rows, i64 cols, uint64_t stream)
{
    tensor t = { NULL, DT_BF16, 2, { rows, cols } };
    uint16_t *x = malloc((size_t)(rows * cols) * sizeof *x);
    for (i64 i = 0; i < rows * cols; i++) {
        float v = rng_normal((rng_key){ 7, stream }, (uint64_t)i);
        memcpy(&x[i], (char *)&v + 2, 2);
    }
    must(gpu->op->alloc(gpu, tensor_bytes(&t), &t.data));
    gpu->op->upload(gpu, t.data, x, tensor_bytes(&t));
    free(x);
    return t;
}

static tensor random_pages(i64 pages, i64 width, uint64_t stream)
{
    tensor t = random_bf16(pages * PAGE, width, stream);
    return (tensor){ t.data, DT_BF16, 3, { pages, PAGE, width } };
}

/* start + i * step */
static tensor counted_i32(i64 n, int32_t start, int32_t step)
{
    tensor t = { NULL, DT_I32, 1, { n } };
    int32_t *x = malloc((size_t)n * sizeof *x);
    for (i64 i = 0; i < n; i++)
        x[i] = start + (int32_t)i * step;
    must(gpu->op->alloc(gpu, tensor_bytes(&t), &t.data));
    gpu->op->upload(gpu, t.data, x, tensor_bytes(&t));
    free(x);
    return t;
}

typedef struct decoding {
    decode_shape s;
    tensor q, k, v, pages_k, pages_v, pos;
} decoding;

/* Attention of n rows of the queries; the caller adds where the keys are and where results go. */
static attention attention_of(const decoding *d, int32_t first, int32_t n)
{
    return (attention){ .q = tensor_slice(&d->q, first, n),
                        .k = tensor_slice(&d->k, first, n),
                        .v = tensor_slice(&d->v, first, n),
                        .n_heads = d->s.heads,
                        .n_kv_heads = d->s.kv,
                        .qk_dim = d->s.dim,
                        .v_dim = d->s.dim,
                        .window = d->s.window,
                        .scale = 0.1f };
}

/* Rows [first, first + n) of the queries; the results are in `out`. */
static void decode_rows(const decoding *d, int32_t first, int32_t n, uint16_t *out)
{
    decode_shape s = d->s;
    i64 width = (i64)s.heads * s.dim;
    tensor starts = counted_i32(n + 1, 0, 1), table = counted_i32((i64)n * PAGES, 0, 1);
    tensor o = { NULL, DT_BF16, 2, { n, width } };
    int32_t *pages = malloc(tensor_bytes(&table));
    for (i64 i = 0; i < (i64)n * PAGES; i++)
        pages[i] = (int32_t)(i % PAGES);
    gpu->op->upload(gpu, table.data, pages, tensor_bytes(&table));
    must(gpu->op->alloc(gpu, tensor_bytes(&o), &o.data));
    kv_pages kv = { d->pages_k, d->pages_v, { table.data, DT_I32, 2, { n, PAGES } } };
    attention a = attention_of(d, first, n);
    a.out = o;
    a.starts = starts;
    a.pos = tensor_slice(&d->pos, first, n);
    a.kv = &kv;
    gpu->op->attention_fwd(gpu, &a);
    must(gpu->op->download(gpu, out, o.data, tensor_bytes(&o)));
    void *used[] = { starts.data, table.data, o.data };
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        gpu->op->free(gpu, used[i]);
    free(pages);
}

static void same_row(const uint16_t *x, const uint16_t *y, size_t width, const char *where, int row)
{
    if (memcmp(x, y, width * sizeof *x) != 0)
        fail_msg("row %d has other bits %s", row, where);
}

static void decode_among_others(void **state)
{
    const decode_shape *s = *state;
    size_t width = (size_t)(s->heads * s->dim);
    int32_t rows = s->rows + SHIFT;
    tensor none = random_bf16(1, (i64)s->kv * s->dim, 3);
    decoding d = { .s = *s,
                   .q = random_bf16(rows, s->heads * s->dim, 1),
                   .k = random_bf16(rows, s->kv * s->dim, 2),
                   .v = random_bf16(rows, s->kv * s->dim, 2),
                   .pages_k = random_pages(PAGES, s->kv * s->dim, 4),
                   .pages_v = random_pages(PAGES, s->kv * s->dim, 5),
                   .pos = counted_i32(rows, s->pos, 0) };
    size_t row_bytes = tensor_bytes(&none);
    for (int32_t i = 0; i < rows; i++) {
        gpu->op->copy(gpu, (char *)d.k.data + (size_t)i * row_bytes, none.data, row_bytes);
        gpu->op->copy(gpu, (char *)d.v.data + (size_t)i * row_bytes, none.data, row_bytes);
    }
    uint16_t *many = malloc((size_t)s->rows * width * 2),
             *other = malloc((size_t)s->rows * width * 2);
    decode_rows(&d, 0, s->rows, many);
    decode_rows(&d, SHIFT, s->rows, other);
    for (int32_t i = SHIFT; i < s->rows; i++)
        same_row(many + (size_t)i * width, other + (size_t)(i - SHIFT) * width, width,
                 "among others", i);
    for (int32_t i = 0; s->heads > 2 * s->kv && i < s->rows; i += i + 3 < s->rows ? 61 : 1) {
        decode_rows(&d, i, 1, other);
        same_row(many + (size_t)i * width, other, width, "alone", i);
    }
    void *used[] = { none.data,      d.q.data,       d.k.data,  d.v.data,
                     d.pages_k.data, d.pages_v.data, d.pos.data };
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        gpu->op->free(gpu, used[i]);
    free(many);
    free(other);
}

/* ---- prompts: a row has the same bits in whatever piece it is computed ----
 *
 * Positions [pos, pos + TEXT) of a sequence after a long past, in forwards of PIECES_ROWS rows, the
 * rest of which another sequence has. */

enum { TEXT = 40, PIECES_ROWS = 48 };

static const decode_shape piece_shapes[] = { { TEXT, 8, 8, 128, 5100, 0 },
                                             { TEXT, 8, 2, 64, 1515, 700 },
                                             { TEXT, 32, 32, 128, 8120, 0 } };

/* Rows [first, first + n) of the text; the results are in `out`. */
static void attend_piece(const decoding *d, int32_t first, int32_t n, uint16_t *out)
{
    decode_shape s = d->s;
    const int32_t starts[] = { 0, n, PIECES_ROWS };
    tensor begin = counted_i32(3, 0, 0), pos = counted_i32(PIECES_ROWS, s.pos + first, 1);
    tensor table = counted_i32(2 * PAGES, 0, 1), others = counted_i32(PIECES_ROWS, 0, 1);
    tensor o = { NULL, DT_BF16, 2, { PIECES_ROWS, s.heads * s.dim } };
    must(gpu->op->alloc(gpu, tensor_bytes(&o), &o.data));
    gpu->op->upload(gpu, begin.data, starts, sizeof starts);
    gpu->op->copy(gpu, (int32_t *)pos.data + n, others.data, (size_t)(PIECES_ROWS - n) * 4);
    kv_pages kv = { d->pages_k, d->pages_v, { table.data, DT_I32, 2, { 2, PAGES } } };
    attention a = attention_of(d, first, PIECES_ROWS);
    a.out = o;
    a.starts = begin;
    a.pos = pos;
    a.kv = &kv;
    gpu->op->attention_fwd(gpu, &a);
    must(gpu->op->download(gpu, out, o.data, (size_t)n * (size_t)(s.heads * s.dim) * sizeof *out));
    void *used[] = { begin.data, pos.data, table.data, others.data, o.data };
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        gpu->op->free(gpu, used[i]);
}

static void prompt_in_pieces(void **state)
{
    const decode_shape *s = *state;
    size_t width = (size_t)(s->heads * s->dim);
    int32_t rows = TEXT + PIECES_ROWS;
    decoding d = { .s = *s,
                   .q = random_bf16(rows, s->heads * s->dim, 1),
                   .k = random_bf16(rows, s->kv * s->dim, 2),
                   .v = random_bf16(rows, s->kv * s->dim, 3),
                   .pages_k = random_pages(2 * PAGES, s->kv * s->dim, 4),
                   .pages_v = random_pages(2 * PAGES, s->kv * s->dim, 5) };
    uint16_t *whole = malloc(TEXT * width * 2), *piece = malloc(TEXT * width * 2);
    attend_piece(&d, 0, TEXT, whole);
    for (int32_t cut = 2; cut <= TEXT - 2; cut += 9) {
        attend_piece(&d, 0, cut, piece);
        attend_piece(&d, cut, TEXT - cut, piece + (size_t)cut * width);
        for (int32_t i = 0; i < TEXT; i++)
            same_row(whole + (size_t)i * width, piece + (size_t)i * width, width, "in a piece", i);
    }
    void *used[] = { d.q.data, d.k.data, d.v.data, d.pages_k.data, d.pages_v.data };
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        gpu->op->free(gpu, used[i]);
    free(whole);
    free(piece);
}

/* More than any case needs. No op allocates, so cases that pass are within it. */
enum { CASES_SCRATCH = 256 << 20 };

int run_cuda(const char *spec)
{
    enum { MAX_TESTS = 128 };
    struct CMUnitTest cases[MAX_TESTS] = { 0 }, twice[MAX_TESTS] = { 0 };
    if (backend_open(&gpu, spec) != PESC_OK) {
        printf("SKIPPED: %s\n", pesc_last_error());
        return 0;
    }
    must(cpu_open(&cpu, 2));
    must(gpu->op->reserve(gpu, CASES_SCRATCH));
    assert_true(n_op_tests <= MAX_TESTS);
    for (int i = 0; i < n_op_tests; i++) {
        void *test = (void *)(uintptr_t)op_tests[i];
        cases[i] = (struct CMUnitTest){ op_tests[i]->name, against_cpu, NULL, NULL, test };
        twice[i] = (struct CMUnitTest){ op_tests[i]->name, same_bits_again, NULL, NULL, test };
    }
    const struct CMUnitTest device_tests[] = {
        cmocka_unit_test(from_another_thread),
        cmocka_unit_test_prestate(scratch_is_not_allocated, (void *)(uintptr_t)spec),
    };
    enum {
        SHAPES = sizeof decode_shapes / sizeof *decode_shapes,
        PIECES = sizeof piece_shapes / sizeof *piece_shapes
    };
    struct CMUnitTest decodes[SHAPES] = { 0 }, pieces[PIECES] = { 0 };
    for (int i = 0; i < SHAPES; i++)
        decodes[i] = (struct CMUnitTest){ "decode among others", decode_among_others, NULL, NULL,
                                          (void *)(uintptr_t)&decode_shapes[i] };
    for (int i = 0; i < PIECES; i++)
        pieces[i] = (struct CMUnitTest){ "prompt in pieces", prompt_in_pieces, NULL, NULL,
                                         (void *)(uintptr_t)&piece_shapes[i] };
    size_t n = (size_t)n_op_tests;
    int failed = cmocka_run_group_tests_name("the device", device_tests, NULL, NULL);
    failed += cmocka_run_group_tests_name("decoding", decodes, NULL, NULL);
    failed += cmocka_run_group_tests_name("prompts", pieces, NULL, NULL);
    failed += _cmocka_run_group_tests("cuda against the cpu", cases, n, NULL, NULL) +
              _cmocka_run_group_tests("again, the same bits", twice, n, NULL, NULL);
    cpu->op->close(cpu);
    gpu->op->close(gpu);
    return failed;
}

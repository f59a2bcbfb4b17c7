/* properties: relations between calls: decode equals prefill, packed equals single sequences, NaN
 * cannot break the routing, quantising in pieces equals quantising whole. */
#include "backend/cpu/cpu.h"
#include "base/rng.h"
#include "ops/run.h"
#include "support/check.h"
#include "tensor/nf4.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- attention: one sequence of n tokens, computed in pieces or at once ---- */

typedef struct shape {
    int32_t n, heads, kv, qk, v, window, page;
    dtype dt;
} shape;

static const shape shapes[] = {
    { 200, 9, 3, 64, 64, 0, 64, DT_F32 },       { 150, 4, 4, 40, 24, 0, 64, DT_F32 },
    { 200, 6, 2, 16, 16, 33, 64, DT_F32 },      { 140, 8, 1, 32, 32, 0, 16, DT_BF16 },
    { 140, 4, 2, 128, 128, 100, 128, DT_BF16 }, { 67, 3, 1, 5, 3, 0, 7, DT_F32 },
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static size_t width(dtype dt)
{
    return dt == DT_F32 ? 4 : 2;
}

/* Random f32 or bf16 numbers; bf16 has random bits with a moderate exponent. */
static void *numbers(dtype dt, int64_t n, uint64_t stream)
{
    void *p = calloc((size_t)n + 1, width(dt));
    for (int64_t i = 0; i < n; i++) {
        float x = rng_normal((rng_key){ 7, stream }, (uint64_t)i);
        if (dt == DT_F32)
            ((float *)p)[i] = x;
        else
            memcpy((uint16_t *)p + i, (char *)&x + 2, 2);
    }
    return p;
}

typedef struct text {
    shape s;
    void *q, *k, *v, *pages_k, *pages_v;
    int32_t n_pages, *table;
} text;

static text make_text(shape s, uint64_t seed)
{
    text t = { .s = s, .n_pages = (s.n + s.page - 1) / s.page };
    t.q = numbers(s.dt, (int64_t)s.n * s.heads * s.qk, seed);
    t.k = numbers(s.dt, (int64_t)s.n * s.kv * s.qk, seed + 1);
    t.v = numbers(s.dt, (int64_t)s.n * s.kv * s.v, seed + 2);
    t.pages_k = malloc((size_t)(t.n_pages * s.page * s.kv * s.qk) * width(s.dt));
    t.pages_v = malloc((size_t)(t.n_pages * s.page * s.kv * s.v) * width(s.dt));
    /* the previous contents of a page must not matter: all bits set is NaN in both dtypes */
    memset(t.pages_k, 0xff, (size_t)(t.n_pages * s.page * s.kv * s.qk) * width(s.dt));
    memset(t.pages_v, 0xff, (size_t)(t.n_pages * s.page * s.kv * s.v) * width(s.dt));
    t.table = calloc((size_t)t.n_pages, sizeof *t.table);
    for (int32_t i = 0; i < t.n_pages; i++)
        t.table[i] = t.n_pages - 1 - i;
    return t;
}

static void free_text(text *t)
{
    void *all[] = { t->q, t->k, t->v, t->pages_k, t->pages_v, t->table };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static tensor view(void *p, dtype dt, int64_t rows, int64_t cols)
{
    return (tensor){ p, dt, 2, { rows, cols } };
}

static void *row(void *p, dtype dt, int64_t i)
{
    return (char *)p + (size_t)i * width(dt);
}

/* Computes rows [first, first + n) of the text into the same rows of out. */
static void attend(device *d, const text *t, int32_t first, int32_t n, bool cached, void *out)
{
    shape s = t->s;
    int32_t starts[2] = { 0, n }, *pos = calloc((size_t)n, sizeof *pos);
    for (int32_t i = 0; i < n; i++)
        pos[i] = first + i;
    kv_pages kv = { { t->pages_k, s.dt, 3, { t->n_pages, s.page, s.kv * s.qk } },
                    { t->pages_v, s.dt, 3, { t->n_pages, s.page, s.kv * s.v } },
                    { t->table, DT_I32, 2, { 1, t->n_pages } } };
    attention a = {
        .q = view(row(t->q, s.dt, (int64_t)first * s.heads * s.qk), s.dt, n, s.heads * s.qk),
        .k = view(row(t->k, s.dt, (int64_t)first * s.kv * s.qk), s.dt, n, s.kv * s.qk),
        .v = view(row(t->v, s.dt, (int64_t)first * s.kv * s.v), s.dt, n, s.kv * s.v),
        .out = view(row(out, s.dt, (int64_t)first * s.heads * s.v), s.dt, n, s.heads * s.v),
        .starts = { starts, DT_I32, 1, { 2 } },
        .pos = { pos, DT_I32, 1, { n } },
        .kv = cached ? &kv : NULL,
        .n_heads = s.heads,
        .n_kv_heads = s.kv,
        .qk_dim = s.qk,
        .v_dim = s.v,
        .window = s.window,
        .scale = 0.2f
    };
    d->op->attention_fwd(d, &a);
    must(d->op->sync(d));
    free(pos);
}

static void expect_same(const void *a, const void *b, size_t row_bytes, int64_t rows,
                        const char *what)
{
    for (int64_t r = 0; r < rows; r++)
        if (memcmp((const char *)a + (size_t)r * row_bytes, (const char *)b + (size_t)r * row_bytes,
                   row_bytes) != 0)
            fail_msg("%s: row %lld differs", what, (long long)r);
}

/* On each instruction set and some thread counts. */
static void decode_is_prefill(void **state)
{
    (void)state;
    static const int32_t pieces[] = { 1, 40, 1, 1, 70, 3 };
    for (cpu_isa isa = CPU_BASE; isa <= cpu_isa_best(); isa++)
        for (int i = 0; i < N_SHAPES; i++) {
            shape s = shapes[i];
            size_t bytes = (size_t)(s.heads * s.v) * width(s.dt);
            char *whole = calloc((size_t)s.n, bytes), *plain = calloc((size_t)s.n, bytes);
            char *ones = calloc((size_t)s.n, bytes), *cut = calloc((size_t)s.n, bytes);
            device *d;
            text t = make_text(s, 100), u = make_text(s, 100), w = make_text(s, 100);
            must(cpu_open_isa(&d, 1 + i % 3, isa));
            attend(d, &t, 0, s.n, true, whole);
            attend(d, &t, 0, s.n, false, plain);
            for (int32_t at = 0; at < s.n; at++)
                attend(d, &u, at, 1, true, ones);
            for (int32_t at = 0, j = 0, n; at < s.n; at += n, j++) {
                n = pieces[j % 6] < s.n - at ? pieces[j % 6] : s.n - at;
                attend(d, &w, at, n, true, cut);
            }
            expect_same(whole, plain, bytes, s.n, "with and without a cache");
            expect_same(whole, ones, bytes, s.n, "prefill and decode");
            expect_same(whole, cut, bytes, s.n, "prefill at once and in pieces");
            d->op->close(d);
            free_text(&t);
            free_text(&u);
            free_text(&w);
            free(whole);
            free(plain);
            free(ones);
            free(cut);
        }
}

static void packed_is_single(void **state)
{
    (void)state;
    enum { SEQS = 3 };
    static const int32_t starts[SEQS + 1] = { 0, 70, 71, 200 };
    for (int i = 0; i < N_SHAPES; i++) {
        shape s = shapes[i];
        s.n = starts[SEQS];
        size_t bytes = (size_t)(s.heads * s.v) * width(s.dt);
        char *packed = calloc((size_t)s.n, bytes), *single = calloc((size_t)s.n, bytes);
        int32_t *pos = calloc((size_t)s.n, sizeof *pos);
        device *d;
        text t = make_text(s, 300);
        must(cpu_open(&d, 2));
        for (int q = 0; q < SEQS; q++) {
            int32_t at = starts[q];
            text part = t;
            part.q = row(t.q, s.dt, (int64_t)at * s.heads * s.qk);
            part.k = row(t.k, s.dt, (int64_t)at * s.kv * s.qk);
            part.v = row(t.v, s.dt, (int64_t)at * s.kv * s.v);
            attend(d, &part, 0, starts[q + 1] - at, false, single + (size_t)at * bytes);
            for (int32_t r = at; r < starts[q + 1]; r++)
                pos[r] = r - at;
        }
        attention a = { .q = view(t.q, s.dt, s.n, s.heads * s.qk),
                        .k = view(t.k, s.dt, s.n, s.kv * s.qk),
                        .v = view(t.v, s.dt, s.n, s.kv * s.v),
                        .out = view(packed, s.dt, s.n, s.heads * s.v),
                        .starts = { (void *)(uintptr_t)starts, DT_I32, 1, { SEQS + 1 } },
                        .pos = { pos, DT_I32, 1, { s.n } },
                        .n_heads = s.heads,
                        .n_kv_heads = s.kv,
                        .qk_dim = s.qk,
                        .v_dim = s.v,
                        .window = s.window,
                        .scale = 0.2f };
        d->op->attention_fwd(d, &a);
        expect_same(packed, single, bytes, s.n, "packed and single");
        d->op->close(d);
        free_text(&t);
        free(packed);
        free(single);
        free(pos);
    }
}

/* Gradients of the rows from `first` on, as the sequences of `starts`. */
static void attend_back(device *d, shape s, const text *t, int64_t first, tensor starts,
                        float *grads)
{
    int32_t n = ((int32_t *)starts.data)[starts.ne[0] - 1];
    int32_t *pos = calloc((size_t)n, sizeof *pos);
    float *lse = calloc((size_t)(n * s.heads), 4), *delta = calloc((size_t)(n * s.heads), 4);
    float *out = calloc((size_t)(n * s.heads * s.v), 4);
    int64_t q = first * s.heads * s.qk, k = first * s.kv * s.qk, v = first * s.kv * s.v;
    int64_t total_q = (int64_t)s.n * s.heads * s.qk, total_k = (int64_t)s.n * s.kv * s.qk;
    attention a = { .q = view((float *)t->q + q, DT_F32, n, s.heads * s.qk),
                    .k = view((float *)t->k + k, DT_F32, n, s.kv * s.qk),
                    .v = view((float *)t->v + v, DT_F32, n, s.kv * s.v),
                    .out = view(out, DT_F32, n, s.heads * s.v),
                    .starts = starts,
                    .pos = { pos, DT_I32, 1, { n } },
                    .lse = view(lse, DT_F32, n, s.heads),
                    .n_heads = s.heads,
                    .n_kv_heads = s.kv,
                    .qk_dim = s.qk,
                    .v_dim = s.v,
                    .window = s.window,
                    .scale = 0.2f };
    for (int64_t i = 0; i + 1 < starts.ne[0]; i++)
        for (int32_t r = ((int32_t *)starts.data)[i]; r < ((int32_t *)starts.data)[i + 1]; r++)
            pos[r] = r - ((int32_t *)starts.data)[i];
    d->op->attention_fwd(d, &a);
    attention_bwd b = { .fwd = a,
                        .dout = a.out,
                        .delta = view(delta, DT_F32, n, s.heads),
                        .dq = view(grads + q, DT_F32, n, s.heads * s.qk),
                        .dk = view(grads + total_q + k, DT_F32, n, s.kv * s.qk),
                        .dv = view(grads + total_q + total_k + v, DT_F32, n, s.kv * s.v) };
    d->op->attention_bwd(d, &b);
    free(pos);
    free(lse);
    free(delta);
    free(out);
}

static void packed_gradients_are_single(void **state)
{
    (void)state;
    enum { SEQS = 3 };
    int32_t starts[SEQS + 1] = { 0, 70, 71, 200 };
    for (int i = 0; i < 3; i++) { /* the shapes in f32 */
        shape s = shapes[i];
        s.n = starts[SEQS];
        int64_t total = (int64_t)s.n * (s.heads * s.qk + s.kv * (s.qk + s.v));
        float *packed = calloc((size_t)total, 4), *single = calloc((size_t)total, 4);
        text t = make_text(s, 300);
        device *d;
        must(cpu_open(&d, 2));
        attend_back(d, s, &t, 0, (tensor){ starts, DT_I32, 1, { SEQS + 1 } }, packed);
        for (int q = 0; q < SEQS; q++) {
            int32_t one[2] = { 0, starts[q + 1] - starts[q] };
            attend_back(d, s, &t, starts[q], (tensor){ one, DT_I32, 1, { 2 } }, single);
        }
        assert_memory_equal(packed, single, (size_t)total * 4);
        d->op->close(d);
        free_text(&t);
        free(packed);
        free(single);
    }
}

/* A NaN affects its own row only. */
static void nan_stays_in_its_row(void **state)
{
    (void)state;
    shape s = shapes[0];
    size_t bytes = (size_t)(s.heads * s.v) * 4;
    char *good = calloc((size_t)s.n, bytes), *bad = calloc((size_t)s.n, bytes);
    device *d;
    text t = make_text(s, 500);
    must(cpu_open(&d, 2));
    attend(d, &t, 0, s.n, false, good);
    ((float *)t.q)[100 * s.heads * s.qk] = NAN; /* head 0 of row 100 */
    attend(d, &t, 0, s.n, false, bad);
    assert_true(isnan(((float *)bad)[100 * s.heads * s.v]));
    memcpy(bad + 100 * bytes, good + 100 * bytes, (size_t)s.v * 4);
    expect_same(good, bad, bytes, s.n, "with a NaN in row 100");
    d->op->close(d);
    free_text(&t);
    free(good);
    free(bad);
}

/* ---- routing ---- */

static void route(device *d, const topk_rule *rule, float *logits, int32_t *ids, float *gates)
{
    d->op->topk_fwd(d, view(ids, DT_I32, 1, rule->k), view(gates, DT_F32, 1, rule->k),
                    view(logits, DT_F32, 1, rule->n_experts), rule, (tensor){ 0 });
}

static void nan_ranks_last(void **state)
{
    (void)state;
    topk_rule rule = {
        .n_experts = 6, .k = 3, .score_after_topk = true, .scale = 1, .n_groups = 1, .k_groups = 1
    };
    float gates[3], some[6] = { NAN, -INFINITY, 2, NAN, 2, NAN },
                    all[6] = { NAN, NAN, NAN, NAN, NAN, NAN };
    int32_t ids[3];
    device *d;
    must(cpu_open(&d, 1));
    route(d, &rule, some, ids, gates);
    assert_int_equal(ids[0], 2); /* the tie goes to the lower index */
    assert_int_equal(ids[1], 4);
    assert_int_equal(ids[2], 1); /* -infinity ranks above NaN */
    assert_true(gates[0] == 0.5f && gates[1] == 0.5f && gates[2] == 0);
    rule.n_groups = 3;
    rule.k_groups = 2;
    for (int after = 0; after < 2; after++) {
        rule.score_after_topk = after;
        route(d, &rule, all, ids, gates);
        for (int i = 0; i < 3; i++)
            assert_true(ids[i] == i && isnan(gates[i]));
    }
    d->op->close(d);
}

/* ---- quantisation ---- */

static void pieces_are_the_whole(void **state)
{
    (void)state;
    enum { ROWS = 70, COLS = 1000, N = ROWS * COLS };
    float *w = numbers(DT_F32, N, 1);
    tensor out = { .dt = DT_NF4, .nd = 2, .ne = { ROWS, COLS } };
    size_t bytes = tensor_bytes(&out);
    unsigned char *whole = calloc(bytes, 1);
    out.data = calloc(bytes, 1);
    for (int twice = 0; twice < 2; twice++) {
        device *d;
        must(cpu_open(&d, 3));
        d->op->quantize_nf4(d, out, (tensor){ w, DT_F32, 2, { ROWS, COLS } }, twice);
        nf4_quantize(whole, w, N);
        if (twice)
            nf4_double_quantize(whole, N, NULL, NULL, NULL);
        assert_memory_equal(whole, out.data, bytes);
        d->op->close(d);
    }
    free(out.data);
    free(whole);
    free(w);
}

/* For large negative x activations are tiny, but keep their relative accuracy. */
static void tails_keep_their_digits(void **state)
{
    (void)state;
    enum { N = 9 };
    device *d;
    must(cpu_open(&d, 1));
    for (int exact = 0; exact < 2; exact++) {
        float x[N], y[N];
        for (int i = 0; i < N; i++)
            x[i] = -1.0f - (float)i * 1.25f;
        d->op->act_fwd(d, view(y, DT_F32, 1, N), view(x, DT_F32, 1, N), exact ? ACT_GELU : ACT_SILU,
                       NULL);
        for (int i = 0; i < N; i++) {
            double want =
                exact ? x[i] * 0.5 * erfc(-x[i] / sqrt(2)) : x[i] / (1 + exp(-(double)x[i]));
            if (!(fabs(y[i] / want - 1) < 1e-6))
                fail_msg("%s(%g) is %.9g, expected %.9g", exact ? "gelu" : "silu", x[i], y[i],
                         want);
        }
        static const float far[] = { 65, 3e8f, 1e30f };
        for (int i = 0; exact && i < 3; i++) { /* whose square may overflow */
            x[0] = far[i];
            x[1] = -far[i];
            d->op->act_fwd(d, view(y, DT_F32, 1, 2), view(x, DT_F32, 1, 2), ACT_GELU, NULL);
            assert_true(y[0] == far[i] && y[1] == 0);
        }
    }
    d->op->close(d);
}

/* ---- training ---- */

/* Backward ops may overwrite their inputs where the contract allows it. */
static void in_place(void **state)
{
    (void)state;
    enum { N = 5000 };
    for (int half = 0; half < 2; half++) {
        dtype dt = half ? DT_BF16 : DT_F32;
        size_t bytes = N * width(dt);
        tensor gate = view(numbers(dt, N, 1), dt, 1, N), up = view(numbers(dt, N, 2), dt, 1, N);
        tensor dy = view(numbers(dt, N, 3), dt, 1, N), dgate = view(malloc(bytes), dt, 1, N);
        tensor dup = view(malloc(bytes), dt, 1, N), dx = view(malloc(bytes), dt, 1, N);
        tensor x = view(numbers(dt, N, 1), dt, 1, N), kept = view(malloc(bytes), dt, 1, N);
        device *d;
        must(cpu_open(&d, 2));
        d->op->glu_bwd(d, &(glu_bwd){ dgate, dup, dy, gate, up, .act = ACT_SILU });
        d->op->glu_bwd(d, &(glu_bwd){ gate, up, dy, gate, up, .act = ACT_SILU });
        assert_memory_equal(gate.data, dgate.data, bytes);
        assert_memory_equal(up.data, dup.data, bytes);
        d->op->act_bwd(d, dx, dy, x, ACT_GELU, NULL);
        d->op->dropout(d, kept, x, (rng_key){ 1, 2 }, 0.3f);
        d->op->dropout(d, x, x, (rng_key){ 1, 2 }, 0.3f);
        assert_memory_equal(x.data, kept.data, bytes);
        d->op->convert(d, x, view(dgate.data, dt, 1, N)); /* any other numbers */
        d->op->act_bwd(d, dx, dy, x, ACT_GELU, NULL);
        d->op->act_bwd(d, x, dy, x, ACT_GELU, NULL);
        assert_memory_equal(x.data, dx.data, bytes);
        d->op->close(d);
        void *all[] = { gate.data, up.data, dy.data, dgate.data,
                        dup.data,  dx.data, x.data,  kept.data };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            free(all[i]);
    }
}

/* Sixty steps towards a target: 8-bit moments end where f32 moments end, within a few percent of
 * the way. */
static void eight_bits_follow(void **state)
{
    (void)state;
    enum { N = 2000, STEPS = 60 };
    float *target = numbers(DT_F32, N, 9), *exact = calloc(N, 4), *coded = calloc(N, 4);
    float *grad = calloc(N, 4), *m = calloc(N, 4), *v = calloc(N, 4), scales[2][8] = { 0 };
    uint8_t m8[N] = { 0 }, v8[N] = { 0 };
    device *d;
    must(cpu_open(&d, 2));
    adamw a = { .lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f };
    a.grad = view(grad, DT_F32, 1, N);
    for (a.step = 1; a.step <= STEPS; a.step++)
        for (int small = 0; small < 2; small++) {
            float *w = small ? coded : exact;
            for (int i = 0; i < N; i++)
                grad[i] = (w[i] - target[i]) * (float)(1 + i % 50) +
                          rng_normal((rng_key){ 3, (uint64_t)a.step }, (uint64_t)i);
            a.w = view(w, DT_F32, 1, N);
            a.m = small ? view(m8, DT_U8, 1, N) : view(m, DT_F32, 1, N);
            a.v = small ? view(v8, DT_U8, 1, N) : view(v, DT_F32, 1, N);
            a.m_scale = view(scales[0], DT_F32, 1, 8);
            a.v_scale = view(scales[1], DT_F32, 1, 8);
            d->op->adamw(d, &a);
        }
    double moved = 0, apart = 0;
    for (int i = 0; i < N; i++) {
        moved += fabs(exact[i]);
        apart += fabs(exact[i] - coded[i]);
    }
    if (!(apart < 0.06 * moved && moved > 0.1 * N))
        fail_msg("the weights moved by %g and are %g apart", moved / N, apart / N);
    d->op->close(d);
    void *all[] = { target, exact, coded, grad, m, v };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

int run_properties(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_is_prefill),           cmocka_unit_test(packed_is_single),
        cmocka_unit_test(nan_stays_in_its_row),        cmocka_unit_test(nan_ranks_last),
        cmocka_unit_test(pieces_are_the_whole),        cmocka_unit_test(in_place),
        cmocka_unit_test(packed_gradients_are_single), cmocka_unit_test(tails_keep_their_digits),
        cmocka_unit_test(eight_bits_follow),
    };
    return cmocka_run_group_tests_name("properties", tests, NULL, NULL);
}

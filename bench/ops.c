/* bench/ops: the speed of each CPU op at the sizes of a 135M model (C 576, 9/3 heads of 64, F 1536,
 * V 49152), for 512 tokens and for 1. Best of several runs; ops that are bound by memory in GB/s,
 * by arithmetic in GFLOP/s. ops [threads [part of an op's name]] */
#include "backend/backend.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { C = 576, HEADS = 9, KV = 3, DIM = 64, F = 1536, V = 49152, E = 8, TOP = 2, CONTEXT = 2048 };

static device *dev;
static dtype act = DT_F32; /* of activations */

static clockid_t clock_id = CLOCK_MONOTONIC; /* one thread: its CPU time */

static double now(void)
{
    return clock_read(clock_id);
}

static void *allocate(size_t bytes)
{
    void *p = NULL;
    if (dev->op->alloc(dev, bytes, &p) != PESC_OK) {
        fprintf(stderr, "%s\n", pesc_last_error());
        return NULL;
    }
    return p;
}

/* Normal numbers: some CPUs are faster on zeros. */
static tensor numbers(dtype dt, int64_t rows, int64_t cols)
{
    enum { PERIOD = 4099 };
    tensor f = { allocate((size_t)(rows * cols) * 4), DT_F32, 2, { rows, cols } };
    static float some[PERIOD];
    for (int i = 0; i < PERIOD && !some[0]; i++)
        some[PERIOD - 1 - i] = rng_normal((rng_key){ 1, 1 }, (uint64_t)i);
    for (int64_t i = 0; i < rows * cols; i++)
        ((float *)f.data)[i] = some[i % PERIOD];
    if (dt == DT_F32)
        return f;
    tensor h = { allocate((size_t)(rows * cols) * 2), DT_BF16, 2, { rows, cols } };
    dev->op->convert(dev, h, f);
    dev->op->free(dev, f.data);
    return h;
}

static tensor indices(int64_t n, int64_t step, int64_t limit)
{
    tensor t = { allocate((size_t)n * 4), DT_I32, 1, { n } };
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)t.data)[i] = (int32_t)(i * step % limit);
    return t;
}

static void drop(tensor t)
{
    dev->op->free(dev, t.data);
}

typedef struct work {
    tensor t[8];
    attention att;
    kv_pages kv;
    rope rot;
    topk_rule rule;
} work;

typedef struct row {
    const char *name;
    void (*make)(work *w, int64_t tokens);
    void (*call)(work *w);
    double (*cost)(int64_t tokens); /* bytes or FLOP of a call */
    const char *unit;
} row;

static double act_bytes(void)
{
    return act == DT_F32 ? 4 : 2;
}

static void norm_make(work *w, int64_t n)
{
    w->t[0] = numbers(act, n, C);
    w->t[1] = numbers(DT_F32, n, C);
    w->t[2] = numbers(DT_F32, 1, C);
}
static void norm_call(work *w)
{
    norm_fwd a = { .out = w->t[0], .x = w->t[1], .w = w->t[2], .eps = 1e-5f };
    dev->op->rmsnorm_fwd(dev, &a);
}
static double norm_cost(int64_t n)
{
    return (double)n * C * (4 + act_bytes());
}

static void glu_make(work *w, int64_t n)
{
    for (int i = 0; i < 3; i++)
        w->t[i] = numbers(act, n, F);
}
static void silu_call(work *w)
{
    dev->op->glu_fwd(dev, w->t[0], w->t[1], w->t[2], ACT_SILU);
}
static void gelu_call(work *w)
{
    dev->op->glu_fwd(dev, w->t[0], w->t[1], w->t[2], ACT_GELU);
}
static double glu_cost(int64_t n)
{
    return (double)n * F * 3 * act_bytes();
}

static void add_make(work *w, int64_t n)
{
    w->t[0] = numbers(DT_F32, n, C);
    w->t[1] = numbers(act, n, C);
}
static void add_call(work *w)
{
    dev->op->add(dev, w->t[0], w->t[1], 0.5f);
}
static double add_cost(int64_t n)
{
    return (double)n * C * (8 + act_bytes());
}

static void rope_make(work *w, int64_t n)
{
    w->t[0] = numbers(act, n, HEADS * DIM);
    w->t[1] = numbers(DT_F32, n, DIM / 2);
    w->t[2] = numbers(DT_F32, n, DIM / 2);
    w->t[3] = indices(n, 1, n + 1);
    w->t[4] = numbers(DT_F32, 1, DIM / 2);
    w->rot = (rope){ w->t[0], w->t[1], w->t[2], HEADS, DIM, 0, DIM, false, false };
}
static void rope_call(work *w)
{
    dev->op->rope(dev, &w->rot);
}
static double rope_cost(int64_t n)
{
    return (double)n * HEADS * DIM * 2 * act_bytes();
}
static void table_call(work *w)
{
    dev->op->rope_table(dev, w->t[1], w->t[2], w->t[3], w->t[4], 1.0f);
}
static double table_cost(int64_t n)
{
    return (double)n * DIM * 4;
}

/* tokens > 1: a prefill without cache; 1: decode after CONTEXT - 1 tokens */
static void attention_make(work *w, int64_t n)
{
    w->t[0] = numbers(act, n, HEADS * DIM);
    w->t[1] = numbers(act, n, KV * DIM);
    w->t[2] = numbers(act, n, KV * DIM);
    w->t[3] = numbers(act, n, HEADS * DIM);
    w->t[4] = indices(2, n, n + 1);
    w->t[5] = indices(n, 1, n);
    w->att = (attention){ .q = w->t[0],
                          .k = w->t[1],
                          .v = w->t[2],
                          .out = w->t[3],
                          .starts = w->t[4],
                          .pos = w->t[5],
                          .n_heads = HEADS,
                          .n_kv_heads = KV,
                          .qk_dim = DIM,
                          .v_dim = DIM,
                          .scale = 0.125f };
    if (n > 1)
        return;
    ((int32_t *)w->t[5].data)[0] = CONTEXT - 1;
    w->t[6] = numbers(act, CONTEXT, KV * DIM);
    w->t[7] = numbers(act, CONTEXT, KV * DIM);
    w->kv.k = (tensor){ w->t[6].data, act, 3, { CONTEXT / 64, 64, KV * DIM } };
    w->kv.v = (tensor){ w->t[7].data, act, 3, { CONTEXT / 64, 64, KV * DIM } };
    w->kv.table = indices(CONTEXT / 64, 1, CONTEXT);
    w->kv.table.nd = 2;
    w->kv.table.ne[0] = 1;
    w->kv.table.ne[1] = CONTEXT / 64;
    w->att.kv = &w->kv;
}
static void attention_call(work *w)
{
    dev->op->attention_fwd(dev, &w->att);
}
static double attention_cost(int64_t n)
{
    double pairs = n > 1 ? (double)n * (double)(n + 1) / 2 : CONTEXT;
    return pairs * HEADS * DIM * 4;
}

static void embed_make(work *w, int64_t n)
{
    w->t[0] = numbers(DT_F32, n, C);
    w->t[1] = numbers(act, V, C);
    w->t[2] = indices(n, 7919, V);
}
static void embed_call(work *w)
{
    dev->op->embed(dev, w->t[0], w->t[1], w->t[2]);
}
static double embed_cost(int64_t n)
{
    return (double)n * C * (4 + act_bytes());
}

static void topk_make(work *w, int64_t n)
{
    w->t[0] = indices(n * TOP, 1, E);
    w->t[0] = (tensor){ w->t[0].data, DT_I32, 2, { n, TOP } };
    w->t[1] = numbers(DT_F32, n, TOP);
    w->t[2] = numbers(DT_F32, n, E);
    w->t[3] = indices(n * TOP, 1, E);
    w->t[4] = indices(n * TOP, 1, E);
    w->t[5] = indices(E + 1, 1, E);
    w->rule = (topk_rule){
        .n_experts = E, .k = TOP, .score_after_topk = true, .scale = 1, .n_groups = 1, .k_groups = 1
    };
}
static void topk_call(work *w)
{
    dev->op->topk_fwd(dev, w->t[0], w->t[1], w->t[2], &w->rule, (tensor){ 0 });
}
static void sort_call(work *w)
{
    dev->op->expert_sort(dev, w->t[3], w->t[4], w->t[5], w->t[0], E);
}
static double topk_cost(int64_t n)
{
    return (double)n * (E + TOP * 2) * 4;
}

static void scatter_make(work *w, int64_t n)
{
    w->t[0] = numbers(DT_F32, n, C);
    w->t[1] = numbers(act, n * TOP, C);
    w->t[2] = numbers(DT_F32, n, TOP);
    w->t[3] = indices(n * TOP, 3, n * TOP);
    w->t[4] = numbers(act, n, C);
}
static void scatter_call(work *w)
{
    dev->op->scatter_add(dev, w->t[0], w->t[1], w->t[2], w->t[3], 0.25f);
}
static double scatter_cost(int64_t n)
{
    return (double)n * C * (8 + TOP * act_bytes());
}
static void gather_call(work *w)
{
    dev->op->gather_rows(dev, w->t[1], w->t[4], w->t[3], TOP);
}
static double gather_cost(int64_t n)
{
    return (double)n * TOP * C * 2 * act_bytes();
}

static void xent_make(work *w, int64_t n)
{
    n = n > 64 ? 64 : n; /* rows of one chunk of the loss */
    w->t[0] = numbers(DT_F32, 1, n);
    w->t[1] = numbers(DT_F32, n, V);
    w->t[2] = indices(n, 7919, V);
}
static void xent_call(work *w)
{
    dev->op->xent_fwd(dev, w->t[0], w->t[1], w->t[2]);
}
static double xent_cost(int64_t n)
{
    return (double)(n > 64 ? 64 : n) * V * 4;
}

static void quant_make(work *w, int64_t n)
{
    (void)n;
    w->t[1] = numbers(DT_F32, F, C);
    w->t[0] = (tensor){ .dt = DT_NF4, .nd = 2, .ne = { F, C } };
    w->t[0].data = allocate(tensor_bytes(&w->t[0]));
}
static void quant_call(work *w)
{
    dev->op->quantize_nf4(dev, w->t[0], w->t[1], true);
}
static double quant_cost(int64_t n)
{
    (void)n;
    return (double)F * C * 4;
}

/* ---- training ---- */

static void norm_bwd_make(work *w, int64_t n)
{
    w->t[0] = numbers(DT_F32, n, C);
    w->t[1] = numbers(act, n, C);
    w->t[2] = numbers(DT_F32, n, C);
    w->t[3] = numbers(DT_F32, 1, C);
    w->t[4] = numbers(DT_F32, 1, n);
}
static void norm_bwd_call(work *w)
{
    norm_bwd a = { .dx = w->t[0],
                   .dy = w->t[1],
                   .x = w->t[2],
                   .w = w->t[3],
                   .rstd = w->t[4],
                   .accumulate = true };
    dev->op->rmsnorm_bwd(dev, &a);
}
static double norm_bwd_cost(int64_t n)
{
    return (double)n * C * (12 + act_bytes());
}

static void glu_bwd_make(work *w, int64_t n)
{
    for (int i = 0; i < 5; i++)
        w->t[i] = numbers(act, n, F);
}
static void glu_bwd_call(work *w)
{
    dev->op->glu_bwd(dev, &(glu_bwd){ .dgate = w->t[0],
                                      .dup = w->t[1],
                                      .dy = w->t[2],
                                      .gate = w->t[3],
                                      .up = w->t[4],
                                      .act = ACT_SILU });
}
static double glu_bwd_cost(int64_t n)
{
    return (double)n * F * 5 * act_bytes();
}

static void attention_bwd_make(work *w, int64_t n)
{
    attention_make(w, n > 1 ? n : 2);
    w->t[6] = numbers(DT_F32, n > 1 ? n : 2, HEADS);
    w->att.lse = w->t[6];
    dev->op->attention_fwd(dev, &w->att);
    w->t[7] = numbers(act, 4 * (n > 1 ? n : 2), HEADS * DIM);
}
static void attention_bwd_call(work *w)
{
    int64_t n = w->t[0].ne[0];
    tensor part[4];
    for (int i = 0; i < 4; i++)
        part[i] = tensor_slice(&w->t[7], i * n, n);
    static float delta[512 * HEADS];
    tensor dk = { part[1].data, act, 2, { n, KV * DIM } },
           dv = { part[2].data, act, 2, { n, KV * DIM } };
    attention_bwd a = { w->att, part[3], part[0], dk, dv, { delta, DT_F32, 2, { n, HEADS } } };
    dev->op->attention_bwd(dev, &a);
}
static double attention_bwd_cost(int64_t n)
{
    n = n > 1 ? n : 2;
    return (double)n * (double)(n + 1) / 2 * HEADS * DIM * 10;
}

static void xent_bwd_make(work *w, int64_t n)
{
    xent_make(w, n);
    w->t[3] = numbers(DT_F32, 1, n);
}
static void xent_bwd_call(work *w)
{
    dev->op->xent_bwd(dev, w->t[0], w->t[1], w->t[1], w->t[2], w->t[3]);
}
static double xent_bwd_cost(int64_t n)
{
    return 2 * xent_cost(n);
}

static void dropout_call(work *w)
{
    dev->op->dropout(dev, w->t[0], w->t[1], (rng_key){ 1, 2 }, 0.1f);
}
static double dropout_cost(int64_t n)
{
    return (double)n * C * (4 + act_bytes());
}

static void adamw_make(work *w, int64_t n)
{
    for (int i = 0; i < 4; i++)
        w->t[i] = numbers(DT_F32, n, 4 * C);
    dev->op->zero(dev, w->t[3].data, tensor_bytes(&w->t[3]));
    w->t[4] = numbers(DT_BF16, n, 4 * C);
    w->t[5] = numbers(DT_F32, n, 4 * C);
    w->t[6] = numbers(DT_F32, n, 4 * C / 256 + 1);
    w->t[7] = numbers(DT_F32, n, 4 * C / 256 + 1);
    dev->op->zero(dev, w->t[5].data, tensor_bytes(&w->t[5]));
    dev->op->zero(dev, w->t[7].data, tensor_bytes(&w->t[7]));
}
static adamw adamw_args(work *w)
{
    return (adamw){ .w = w->t[0],
                    .grad = w->t[1],
                    .m = w->t[2],
                    .v = w->t[3],
                    .copy = w->t[4],
                    .lr = 1e-4f,
                    .beta1 = 0.9f,
                    .beta2 = 0.999f,
                    .eps = 1e-8f,
                    .step = 10 };
}
static void adamw_call(work *w)
{
    adamw a = adamw_args(w);
    dev->op->adamw(dev, &a);
}
static double adamw_cost(int64_t n)
{
    return (double)n * 4 * C * 30;
}
static void adamw8_call(work *w)
{
    adamw a = adamw_args(w);
    int64_t n = tensor_count(&a.w);
    a.m = (tensor){ w->t[5].data, DT_U8, 1, { n } };
    a.v = (tensor){ (char *)w->t[5].data + n, DT_U8, 1, { n } };
    a.m_scale = w->t[6];
    a.v_scale = w->t[7];
    dev->op->adamw(dev, &a);
}
static double adamw8_cost(int64_t n)
{
    return (double)n * 4 * C * 18;
}
static void sumsq_call(work *w)
{
    float sum;
    dev->op->sumsq(dev, (tensor){ &sum, DT_F32, 1, { 1 } }, w->t[1]);
}
static double sumsq_cost(int64_t n)
{
    return (double)n * 4 * C * 4;
}

static const row table[] = {
    { "rmsnorm_fwd", norm_make, norm_call, norm_cost, "GB/s" },
    { "glu_fwd silu", glu_make, silu_call, glu_cost, "GB/s" },
    { "glu_fwd gelu", glu_make, gelu_call, glu_cost, "GB/s" },
    { "add", add_make, add_call, add_cost, "GB/s" },
    { "rope", rope_make, rope_call, rope_cost, "GB/s" },
    { "rope_table", rope_make, table_call, table_cost, "GB/s" },
    { "attention_fwd", attention_make, attention_call, attention_cost, "GFLOP/s" },
    { "embed", embed_make, embed_call, embed_cost, "GB/s" },
    { "topk_fwd", topk_make, topk_call, topk_cost, "GB/s" },
    { "expert_sort", topk_make, sort_call, topk_cost, "GB/s" },
    { "gather_rows", scatter_make, gather_call, gather_cost, "GB/s" },
    { "scatter_add", scatter_make, scatter_call, scatter_cost, "GB/s" },
    { "xent_fwd", xent_make, xent_call, xent_cost, "GB/s" },
    { "quantize_nf4", quant_make, quant_call, quant_cost, "GB/s" },
    { "rmsnorm_bwd", norm_bwd_make, norm_bwd_call, norm_bwd_cost, "GB/s" },
    { "glu_bwd silu", glu_bwd_make, glu_bwd_call, glu_bwd_cost, "GB/s" },
    { "attention_bwd", attention_bwd_make, attention_bwd_call, attention_bwd_cost, "GFLOP/s" },
    { "xent_bwd", xent_bwd_make, xent_bwd_call, xent_bwd_cost, "GB/s" },
    { "dropout", add_make, dropout_call, dropout_cost, "GB/s" },
    { "sumsq", adamw_make, sumsq_call, sumsq_cost, "GB/s" },
    { "adamw", adamw_make, adamw_call, adamw_cost, "GB/s" },
    { "adamw 8 bit", adamw_make, adamw8_call, adamw8_cost, "GB/s" },
};

static void measure(const row *r, int64_t tokens)
{
    work w = { 0 };
    double best = 1e9, begin = now();
    r->make(&w, tokens);
    for (int i = 0; i < 3 || (now() - begin < 0.2 && i < 1000); i++) {
        double t = now();
        r->call(&w);
        t = now() - t;
        best = t < best ? t : best;
    }
    printf("%-16s %5lld %-5s %10.1f us %9.2f %s\n", r->name, (long long)tokens, dtype_name(act),
           best * 1e6, r->cost(tokens) / best * 1e-9, r->unit);
    for (int i = 0; i < 8; i++)
        drop(w.t[i]);
    drop(w.kv.table);
}

int main(int argc, char **argv)
{
    char spec[32];
    snprintf(spec, sizeof spec, argc > 1 ? "cpu:%s" : "cpu", argc > 1 ? argv[1] : "");
    if (backend_open(&dev, spec) != PESC_OK) {
        fprintf(stderr, "%s\n", pesc_last_error());
        return 1;
    }
    if (argc > 1 && strcmp(argv[1], "1") == 0)
        clock_id = CLOCK_THREAD_CPUTIME_ID;
    printf("%s\n%-16s %5s %-5s %13s %9s\n", dev->name, "op", "T", "type", "best", "rate");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int half = 0; half < 2 && (argc < 3 || strstr(table[i].name, argv[2])); half++) {
            act = half ? DT_BF16 : DT_F32;
            measure(&table[i], 512);
            measure(&table[i], 1);
        }
    dev->op->close(dev);
    return 0;
}

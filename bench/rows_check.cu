/* bench/rows_check: ops on a GPU against the CPU, at sizes and alignments the op tests do not have:
 * odd lengths, tensors that start anywhere, many experts, long rows, large vocabularies. What is
 * promised to be the same has tolerance 0. Each op runs twice and must repeat itself. */
#include "rows_cuda.h"

extern "C" {
#include "base/rng.h"
}

#include <cuda_bf16.h>
#include <algorithm>
#include <functional>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <string>
#include <vector>

static device *cpu;
static int64_t most; /* numbers of a tensor */

/* ---- a tensor on both sides ---- */

enum fill { NORMAL, COARSE, SQUARE, INDEX, PERMUTE, RSTD, ZERO, RUNS };

struct both {
    std::vector<unsigned char> host, back;
    tensor t;       /* the CPU's */
    void *gpu_data; /* shifted by `shift` numbers, as the CPU's */
    dtype dt;
    size_t bytes;
};

static std::vector<both *> made;

static void put(both *b, int64_t i, double x)
{
    unsigned char *at = (unsigned char *)b->t.data + i * rows_width(b->dt);
    if (b->dt == DT_F32)
        *(float *)at = (float)x;
    else if (b->dt == DT_I32)
        *(int32_t *)at = (int32_t)x;
    else if (b->dt == DT_BF16)
        *(__nv_bfloat16 *)at = __float2bfloat16((float)x);
    else
        *at = (unsigned char)x;
}

static double get(const both *b, const unsigned char *base, int64_t i)
{
    const unsigned char *at = base + i * rows_width(b->dt);
    return b->dt == DT_F32    ? (double)*(const float *)at
           : b->dt == DT_I32  ? (double)*(const int32_t *)at
           : b->dt == DT_BF16 ? (double)__bfloat162float(*(const __nv_bfloat16 *)at)
                              : (double)*at;
}

static both *make(dtype dt, std::vector<int64_t> ne, fill f, int64_t limit = 0, int shift = 0)
{
    both *b = new both;
    b->dt = dt;
    b->t = tensor{};
    b->t.dt = dt;
    b->t.nd = (int32_t)ne.size();
    for (size_t i = 0; i < ne.size(); i++)
        b->t.ne[i] = ne[i];
    int64_t n = tensor_count(&b->t);
    b->bytes = n * rows_width(dt);
    b->host.resize(b->bytes + 64 + shift * rows_width(dt));
    b->t.data = b->host.data() + shift * rows_width(dt);
    rng_key key = { 11, 100 + made.size() };
    for (int64_t i = 0; i < n; i++) {
        double z = f == NORMAL || f == SQUARE || f == RSTD ? rng_normal(key, i) : 0;
        put(b, i,
            f == NORMAL    ? z
            : f == COARSE  ? (double)rng_below(key, i, 5) * 0.5
            : f == SQUARE  ? z * z
            : f == INDEX   ? (double)rng_below(key, i, limit)
            : f == PERMUTE ? (double)((i * 7919 + 3) % n)
            : f == RSTD    ? 0.5 + z * z
            : f == RUNS    ? (double)(i % 3 ? (int64_t)rng_below(key, i, limit) : 1)
                           : 0);
    }
    cudaMalloc(&b->gpu_data, b->bytes + 256);
    b->gpu_data = (char *)b->gpu_data + shift * rows_width(dt);
    cudaMemcpy(b->gpu_data, b->t.data, b->bytes, cudaMemcpyHostToDevice);
    made.push_back(b);
    return b;
}

static tensor on(device *d, const both *b)
{
    tensor t = b ? b->t : tensor{};
    if (b && d != cpu)
        t.data = b->gpu_data;
    return t;
}

/* Runs on both, twice on the GPU (the inputs put back between), and compares what is in outs. */
static void compare(const char *name, std::vector<both *> outs, double tolerance,
                    std::function<void(device *)> run)
{
    std::vector<std::vector<unsigned char>> first;
    for (int turn = 0; turn < 2; turn++) {
        for (both *b : made)
            cudaMemcpy(b->gpu_data, b->t.data, b->bytes, cudaMemcpyHostToDevice);
        cudaDeviceSynchronize(); /* the stream does not wait for copies from pageable memory */
        run(&rows_gpu.base);
        if (cudaStreamSynchronize(rows_gpu.stream) != cudaSuccess) {
            printf("WRONG %s: %s\n", name, cudaGetErrorString(cudaGetLastError()));
            rows_wrong++;
            return;
        }
        for (size_t k = 0; k < outs.size(); k++) {
            outs[k]->back.resize(outs[k]->bytes);
            cudaMemcpy(outs[k]->back.data(), outs[k]->gpu_data, outs[k]->bytes,
                       cudaMemcpyDeviceToHost);
            if (turn == 0)
                first.push_back(outs[k]->back);
            else if (first[k] != outs[k]->back)
                printf("WRONG %s: output %zu differs between two runs\n", name, k), rows_wrong++;
        }
    }
    run(cpu);
    for (size_t k = 0; k < outs.size(); k++) {
        both *b = outs[k];
        int64_t n = tensor_count(&b->t), differ = 0;
        double worst = 0;
        for (int64_t i = 0; i < n; i++) {
            double x = get(b, b->back.data(), i), y = get(b, (unsigned char *)b->t.data, i);
            if (x == y || (isnan(x) && isnan(y)))
                continue;
            differ++;
            double e = fabs(x - y) / (1 + fabs(y));
            worst = std::max(worst, isnan(e) ? INFINITY : e);
        }
        double allowed = tolerance + (tolerance > 0 && b->dt == DT_BF16 ? 0x1p-8 : 0);
        bool bad = worst > allowed;
        rows_wrong += bad;
        printf("%s %-28s out %zu: %8lld of %9lld differ, worst %.2g\n", bad ? "WRONG" : "ok   ",
               name, k, (long long)differ, (long long)n, worst);
    }
}

/* compare() of what is wanted; the tensors made for it end here. */
static void check(const char *name, std::vector<both *> outs, double tolerance,
                  std::function<void(device *)> run)
{
    if (strncmp(name, rows_only, strlen(rows_only)) == 0)
        compare(name, outs, tolerance, run);
    for (both *b : made) {
        cudaFree((char *)b->gpu_data - (uintptr_t)b->gpu_data % 256);
        delete b;
    }
    made.clear();
}

static void check_pointwise(void)
{
    const struct {
        int64_t n;
        int shift;
    } sizes[] = { { 1, 0 }, { 1027, 0 }, { 1 << 20, 0 }, { 70001, 1 }, { 4099, 3 } };
    for (auto z : sizes)
        for (int half = 0; half < 2 && z.n <= most; half++) {
            dtype dt = half ? DT_BF16 : DT_F32;
            std::string tag = (half ? " bf16 " : " f32 ") + std::to_string(z.n);
            auto a = [&](fill f) { return make(dt, { 1, z.n }, f, 0, z.shift); };
            both *g = a(NORMAL), *u = a(NORMAL), *o = a(ZERO);
            check(("glu_fwd" + tag).c_str(), { o }, 4e-7,
                  [=](device *d) { d->op->glu_fwd(d, on(d, o), on(d, g), on(d, u), ACT_SILU); });
            both *x = a(NORMAL), *dy = a(NORMAL);
            check(("act_bwd gelu, in place" + tag).c_str(), { x }, 4e-7, [=](device *d) {
                d->op->act_bwd(d, on(d, x), on(d, dy), on(d, x), ACT_GELU, nullptr);
            });
            both *p = a(NORMAL), *q = a(NORMAL), *dg = a(NORMAL);
            /* In bf16 tanh is the hardware's approximation; where the slope of GELU is near 0, that
             * is an ulp. */
            check(("glu_bwd, in place" + tag).c_str(), { dg, q }, half ? 5e-3 : 4e-7,
                  [=](device *d) {
                      glu_bwd b = { on(d, dg), on(d, q), on(d, dg),    on(d, p),
                                    on(d, q),  {},       ACT_GELU_TANH };
                      d->op->glu_bwd(d, &b);
                  });
            both *r = a(NORMAL);
            check(("dropout" + tag).c_str(), { r }, 0, [=](device *d) {
                d->op->dropout(d, on(d, r), on(d, r), rng_key{ 5, 6 }, 0.3f);
            });
            both *s = a(NORMAL), *sum = make(DT_F32, { 1 }, ZERO);
            check(("sumsq" + tag).c_str(), { sum }, 4e-6,
                  [=](device *d) { d->op->sumsq(d, on(d, sum), on(d, s)); });
            both *y = make(DT_F32, { z.n }, NORMAL), *h = make(dt, { z.n }, NORMAL);
            check(("add" + tag).c_str(), { y }, 0,
                  [=](device *d) { d->op->add(d, on(d, y), on(d, h), 0.5f); });
        }
}

static const struct row_size {
    int64_t t, n;
} row_sizes[] = { { 1, 1 }, { 300, 33 }, { 1000, 128 }, { 33, 1025 }, { 70, 4096 }, { 9, 7171 } };

static std::string row_tag(row_size z, bool half)
{
    return (half ? " bf16 " : " f32 ") + std::to_string(z.t) + "x" + std::to_string(z.n);
}

static void check_norm(void)
{
    for (auto z : row_sizes)
        for (int half = 0; half < 2; half++) {
            dtype dt = half ? DT_BF16 : DT_F32;
            std::string tag = row_tag(z, half);
            auto m = [&](dtype type, fill f) { return make(type, { z.t, z.n }, f); };
            both *x = m(DT_F32, NORMAL), *w = make(dt, { z.n }, NORMAL), *o = m(dt, ZERO);
            both *rstd = make(DT_F32, { z.t }, ZERO);
            check(("rmsnorm_fwd" + tag).c_str(), { o, rstd }, 2e-6, [=](device *d) {
                norm_fwd a = {
                    .out = on(d, o), .x = on(d, x), .w = on(d, w), .rstd = on(d, rstd), .eps = 1e-5f
                };
                d->op->rmsnorm_fwd(d, &a);
            });
            both *dx = m(DT_F32, NORMAL), *dy = m(dt, NORMAL), *v = m(dt, NORMAL),
                 *g = make(DT_F32, { z.n }, NORMAL), *rs = make(DT_F32, { z.t }, RSTD),
                 *dw = make(DT_F32, { z.n }, NORMAL);
            check(("rmsnorm_bwd" + tag).c_str(), { dx, dw }, 1e-4, [=](device *d) {
                norm_bwd b = { .dx = on(d, dx),
                               .dy = on(d, dy),
                               .x = on(d, v),
                               .w = on(d, g),
                               .rstd = on(d, rs),
                               .dw = on(d, dw),
                               .accumulate = true };
                d->op->rmsnorm_bwd(d, &b);
            });
        }
}

static void check_rows(void)
{
    for (auto z : row_sizes)
        for (int half = 0; half < 2; half++) {
            dtype dt = half ? DT_BF16 : DT_F32;
            std::string tag = row_tag(z, half);
            auto m = [&](dtype type, fill f) { return make(type, { z.t, z.n }, f); };
            both *sx = m(dt, NORMAL), *so = make(DT_F32, { z.n }, NORMAL);
            check(("sum_rows" + tag).c_str(), { so }, 3e-5,
                  [=](device *d) { d->op->sum_rows(d, on(d, so), on(d, sx)); });
            both *table = make(DT_F32, { 50, z.n }, NORMAL), *dout = m(dt, NORMAL),
                 *ids = make(DT_I32, { z.t }, RUNS, 50);
            check(("embed_bwd" + tag).c_str(), { table }, 0,
                  [=](device *d) { d->op->embed_bwd(d, on(d, table), on(d, dout), on(d, ids)); });
            both *y = m(DT_F32, NORMAL), *ex = make(dt, { z.t * 2, z.n }, NORMAL),
                 *gates = make(DT_F32, { z.t, 2 }, NORMAL),
                 *inv = make(DT_I32, { z.t * 2 }, PERMUTE);
            check(("scatter_add" + tag).c_str(), { y }, 0, [=](device *d) {
                d->op->scatter_add(d, on(d, y), on(d, ex), on(d, gates), on(d, inv), 0.25f);
            });
            both *sd = make(dt, { z.t * 2, z.n }, NORMAL), *sg = make(DT_F32, { z.t, 2 }, ZERO),
                 *sy = m(DT_F32, NORMAL), *gt = make(DT_F32, { z.t, 2 }, NORMAL),
                 *in = make(DT_I32, { z.t * 2 }, PERMUTE);
            check(("scatter_add_bwd" + tag).c_str(), { sd, sg }, 3e-5, [=](device *d) {
                scatter_bwd b = { on(d, sd), on(d, sg), on(d, sy), on(d, sd),
                                  on(d, gt), on(d, in), 0.5f };
                d->op->scatter_add_bwd(d, &b);
            });
            both *gx = m(dt, NORMAL), *gd = make(dt, { z.t * 3, z.n }, NORMAL),
                 *gi = make(DT_I32, { z.t * 3 }, PERMUTE);
            check(("gather_rows_bwd" + tag).c_str(), { gx }, 0, [=](device *d) {
                d->op->gather_rows_bwd(d, on(d, gx), on(d, gd), on(d, gi), 3, true);
            });
        }
}

/* Shapes of MLA: heads cut and joined, one piece for all heads, and its backward, a sum of heads.
 */
static void check_heads(void)
{
    const struct {
        int32_t heads, n, dst_head, dst_col, src_head, src_col;
        bool accumulate;
    } cuts[] = { { 16, 128, 192, 0, 256, 0, false },   { 16, 64, 192, 128, 0, 512, false },
                 { 16, 128, 128, 0, 256, 128, false }, { 16, 64, 0, 512, 192, 128, true },
                 { 5, 7, 11, 3, 9, 1, false },         { 5, 7, 0, 3, 9, 1, true } };
    for (auto c : cuts)
        for (int half = 0; half < 2; half++) {
            dtype dt = half ? DT_BF16 : DT_F32;
            int64_t t = 33, dst_width = std::max(c.heads * c.dst_head, c.dst_col + c.n + 8),
                    src_width = std::max(c.heads * c.src_head, c.src_col + c.n + 8);
            both *dst = make(dt, { t, dst_width }, NORMAL),
                 *src = make(DT_F32, { t, src_width }, NORMAL);
            check("copy_heads", { dst }, 0, [=](device *d) {
                copy_heads a = { on(d, dst), on(d, src), c.heads,   c.n,         c.dst_head,
                                 c.dst_col,  c.src_head, c.src_col, c.accumulate };
                d->op->copy_heads(d, &a);
            });
        }
}

/* The shared expert's gate: the types of a pass in bf16. */
static void check_gated(void)
{
    for (int64_t n : { 100, 2049, 4096 })
        for (int half = 0; half < 2; half++) {
            dtype dt = half ? DT_BF16 : DT_F32;
            both *y = make(DT_F32, { 37, n }, NORMAL), *x = make(dt, { 37, n }, NORMAL),
                 *z = make(dt, { 37, 1 }, NORMAL);
            check("add_gated", { y }, 0,
                  [=](device *d) { d->op->add_gated(d, on(d, y), on(d, x), on(d, z)); });
            both *dx = make(dt, { 37, n }, ZERO), *dz = make(DT_F32, { 37, 1 }, ZERO),
                 *dy = make(DT_F32, { 37, n }, NORMAL), *v = make(dt, { 37, n }, NORMAL),
                 *g = make(DT_F32, { 37, 1 }, NORMAL);
            check("add_gated_bwd", { dx, dz }, 1e-5, [=](device *d) {
                d->op->add_gated_bwd(d, on(d, dx), on(d, dz), on(d, dy), on(d, v), on(d, g));
            });
            both *out = make(DT_F32, { 74, n }, ZERO), *from = make(dt, { 37, n }, NORMAL),
                 *rows = make(DT_I32, { 74 }, PERMUTE);
            check("gather_rows", { out }, 0, [=](device *d) {
                d->op->gather_rows(d, on(d, out), on(d, from), on(d, rows), 2);
            });
        }
}

static void check_rope(void)
{
    for (int neighbours = 0; neighbours < 2; neighbours++)
        for (int odd = 0; odd < 2; odd++)
            for (int half = 0; half < 2; half++) {
                int32_t dim = odd ? 38 : 192, offset = odd ? 2 : 128, rot = odd ? 34 : 64;
                int64_t t = 37;
                both *pos = make(DT_I32, { t }, INDEX, 2000000);
                both *freq = make(DT_F32, { rot / 2 }, SQUARE);
                both *c = make(DT_F32, { t, rot / 2 }, ZERO),
                     *s = make(DT_F32, { t, rot / 2 }, ZERO);
                check("rope_table", { c, s }, 1e-6, [=](device *d) {
                    d->op->rope_table(d, on(d, c), on(d, s), on(d, pos), on(d, freq), 1.1f);
                });
                both *x = make(half ? DT_BF16 : DT_F32, { t, 16 * dim }, NORMAL);
                both *cs = make(DT_F32, { t, rot / 2 }, NORMAL),
                     *sn = make(DT_F32, { t, rot / 2 }, NORMAL);
                check("rope", { x }, 0, [=](device *d) {
                    rope r = { on(d, x), on(d, cs), on(d, sn),       16,  dim,
                               offset,   rot,       neighbours != 0, true };
                    d->op->rope(d, &r);
                });
            }
}

/* Mixtral's rule with 8 experts; with more the gates of all experts, renormalised where there are
 * no groups. */
static topk_rule rule_of(int32_t experts, int32_t k, score_kind score, int32_t groups, int32_t best)
{
    topk_rule r = {};
    r.n_experts = experts;
    r.k = k;
    r.score = score;
    r.score_after_topk = experts == 8;
    r.renormalise = experts > 8 && (groups == 1 || score == SCORE_SIGMOID);
    r.scale = groups > 1 ? 2.5f : 1;
    r.n_groups = groups;
    r.k_groups = best;
    return r;
}

static void check_topk(void)
{
    const topk_rule rules[] = {
        rule_of(8, 2, SCORE_SOFTMAX, 1, 1),    rule_of(64, 6, SCORE_SOFTMAX, 1, 1),
        rule_of(160, 6, SCORE_SOFTMAX, 8, 3),  rule_of(256, 8, SCORE_SIGMOID, 8, 4),
        rule_of(512, 16, SCORE_SIGMOID, 1, 1), rule_of(2048, 100, SCORE_SOFTMAX, 64, 40),
    };
    for (const topk_rule &r : rules)
        for (int coarse = 0; coarse < 2; coarse++) {
            int64_t t = r.n_experts > 512 || most < INT64_MAX ? 50 : 1001, e = r.n_experts, k = r.k;
            std::string tag = " E " + std::to_string(e) + (coarse ? " ties" : "");
            both *z = make(DT_F32, { t, e }, coarse ? COARSE : NORMAL);
            ((float *)z->t.data)[0] = NAN;
            ((float *)z->t.data)[e - 1] = -INFINITY;
            both *bias = r.score == SCORE_SIGMOID ? make(DT_F32, { e }, NORMAL) : NULL;
            both *ids = make(DT_I32, { t, k }, ZERO), *gates = make(DT_F32, { t, k }, ZERO);
            check(("topk_fwd" + tag).c_str(), { ids, gates }, 0, [=](device *d) {
                d->op->topk_fwd(d, on(d, ids), on(d, gates), on(d, z), &r, on(d, bias));
            });
            both *dz = make(DT_F32, { t, e }, ZERO), *dg = make(DT_F32, { t, k }, NORMAL),
                 *zz = make(DT_F32, { t, e }, NORMAL), *share = make(DT_F32, { 2, e }, SQUARE),
                 *who = make(DT_I32, { t, k }, ZERO);
            for (int64_t i = 0; i < t * k; i++)
                ((int32_t *)who->t.data)[i] = (int32_t)((i / k * 3 + i % k * 5) % e);
            check(("topk_bwd" + tag).c_str(), { dz }, 0, [=](device *d) {
                topk_bwd b = { on(d, dz), on(d, dg), on(d, who), on(d, zz), on(d, share), r, 0.5f };
                d->op->topk_bwd(d, &b);
            });
            both *sh = make(DT_F32, { 2, e }, ZERO), *aux = make(DT_F32, { 1 }, ZERO),
                 *lg = make(DT_F32, { t, e }, NORMAL), *ch = make(DT_I32, { t, k }, INDEX, e);
            check(("balance" + tag).c_str(), { sh, aux }, 0, [=](device *d) {
                d->op->balance(d, on(d, sh), on(d, aux), on(d, lg), on(d, ch));
            });
        }
}

static void check_sort(void)
{
    const int64_t sorts[][3] = {
        { 16384, 2, 8 }, { 131072, 2, 512 }, { 40000, 1, 1 }, { 33, 6, 2048 }, { 70001, 3, 64 }
    };
    for (auto &q : sorts) {
        if (q[0] * q[1] > most)
            continue;
        both *order = make(DT_I32, { q[0] * q[1] }, ZERO),
             *inverse = make(DT_I32, { q[0] * q[1] }, ZERO),
             *offsets = make(DT_I32, { q[2] + 1 }, ZERO),
             *ids = make(DT_I32, { q[0], q[1] }, RUNS, q[2]);
        for (int64_t i = 0; i < q[0] * q[1] && q[2] == 1; i++)
            ((int32_t *)ids->t.data)[i] = 0;
        int32_t e = (int32_t)q[2];
        check(("expert_sort E " + std::to_string(e)).c_str(), { order, inverse, offsets }, 0,
              [=](device *d) {
                  d->op->expert_sort(d, on(d, order), on(d, inverse), on(d, offsets), on(d, ids),
                                     e);
              });
    }
}

static void check_loss(void)
{
    const int64_t sizes[][2] = { { 3, 1 }, { 7, 1001 }, { 40, 32000 }, { 3, 262144 }, { 5, 4099 } };
    for (auto &q : sizes)
        for (int half = 0; half < 2 && q[0] * q[1] <= most; half++) {
            both *loss = make(DT_F32, { q[0] }, ZERO),
                 *z = make(half ? DT_BF16 : DT_F32, { q[0], q[1] }, NORMAL),
                 *target = make(DT_I32, { q[0] }, INDEX, q[1]), *w = make(DT_F32, { q[0] }, NORMAL);
            ((int32_t *)target->t.data)[1] = -100;
            for (int64_t i = 0; i < 5000 && i < q[1] - 1 && !half; i++)
                ((float *)z->t.data)[i] = -INFINITY; /* what a thread meets first */
            check(("xent_bwd V " + std::to_string(q[1])).c_str(), { loss, z }, 4e-6,
                  [=](device *d) {
                      d->op->xent_bwd(d, on(d, loss), on(d, z), on(d, z), on(d, target), on(d, w));
                  });
        }
}

static void check_training(void)
{
    for (int64_t n : { 1, 1000, 300007, 1 << 20 })
        for (int small = 0; small < 2 && n <= most; small++)
            for (int shift = 0; shift < 2; shift++) {
                int64_t blocks = (n + 255) / 256;
                dtype dt = small ? DT_U8 : DT_F32;
                both *w = make(DT_F32, { n }, NORMAL, 0, shift),
                     *g = make(DT_F32, { n }, NORMAL, 0, shift),
                     *m = make(dt, { n }, small ? INDEX : NORMAL, 256, shift),
                     *v = make(dt, { n }, small ? INDEX : SQUARE, 256, shift),
                     *ms = make(DT_F32, { blocks }, SQUARE), *vs = make(DT_F32, { blocks }, SQUARE),
                     *copy = make(DT_BF16, { n }, ZERO, 0, shift), *q = make(DT_F32, { 1 }, ZERO);
                *(float *)q->t.data = (float)n;
                check(
                    (std::string("adamw ") + (small ? "u8 " : "f32 ") + std::to_string(n)).c_str(),
                    { w, m, v, ms, vs, copy }, 0, [=](device *d) {
                        adamw a = { on(d, w),  on(d, g),    on(d, m), on(d, v), on(d, ms),
                                    on(d, vs), on(d, copy), on(d, q), 0.7f,     0.01f,
                                    0.9f,      0.99f,       1e-8f,    0.1f,     7 };
                        d->op->adamw(d, &a);
                    });
            }
    const int64_t sizes[][3] = { { 1, 1, 1 }, { 3, 100, 77 }, { 1, 4096, 4096 }, { 8, 512, 320 } };
    for (auto &q : sizes)
        for (int twice = 0; twice < 2 && q[0] * q[1] * q[2] <= most; twice++) {
            tensor shape = { NULL, DT_NF4, 3, { q[0], q[1], q[2] } };
            both *span = make(DT_U8, { (int64_t)tensor_bytes(&shape) }, ZERO),
                 *w = make(DT_F32, { q[0], q[1], q[2] }, NORMAL);
            for (int64_t i = 0; i < tensor_count(&w->t) && q[0] == 8; i++) /* scales far apart */
                ((float *)w->t.data)[i] *= ldexpf(1, -(int)(i / 64 * 7 % 41));
            check("quantize_nf4", { span }, 0, [=](device *d) {
                tensor out = shape;
                out.data = on(d, span).data;
                d->op->quantize_nf4(d, out, on(d, w), twice != 0);
            });
        }
}

void rows_check(int64_t limit)
{
    most = limit;
    if (cpu_open(&cpu, 8) != PESC_OK)
        return;
    check_pointwise();
    check_norm();
    check_rows();
    check_heads();
    check_gated();
    check_rope();
    check_topk();
    check_sort();
    check_loss();
    check_training();
    printf("%d wrong\n", rows_wrong);
    cpu->op->close(cpu);
}

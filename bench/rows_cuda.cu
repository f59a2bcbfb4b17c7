/* bench/rows_cuda: the ops that memory bounds, on a GPU: right at odd sizes, and how fast.
 *
 *   rows_cuda check   against the CPU at sizes and alignments the op tests do not have
 *   rows_cuda small   the same without the large ones, for compute-sanitizer
 *   rows_cuda time    GB/s (each input once, each output once) beside a plain device copy
 *
 * A second argument is how the names begin that are wanted: `rows_cuda time adamw`.
 * It links rows_check.cu, the ops' objects and libpesc.a (the CPU's side), and stands in for
 * cuda.c.
 *
 * A tensor of the timings has three copies, used in turn: none is still in the cache when its turn
 * comes again. */
#include "rows_cuda.h"
#include "study.cuh"

#include <cuda_bf16.h>
#include <algorithm>
#include <functional>
#include <stdio.h>
#include <string.h>
#include <string>
#include <vector>

/* ---- what the ops need of a device ---- */

cuda_device rows_gpu;
int rows_wrong;
const char *rows_only = "";

/* Products are not studied here; a norm asks for one where its own kernel does not serve. */
extern "C" void cuda_matmul(device *d, const mm *a)
{
    (void)a;
    cuda_fail_with(cuda_of(d), PESC_UNSUPPORTED, "matmul", "not part of this study");
}

static ops gpu_ops(void)
{
    ops o = {};
#define ROW(name) o.name = cuda_##name;
    ROW(rope_table)
    ROW(rope)
    ROW(copy_heads)
    ROW(embed)
    ROW(rmsnorm_fwd)
    ROW(glu_fwd)
    ROW(act_fwd)
    ROW(add)
    ROW(add_gated)
    ROW(convert)
    ROW(gather_rows)
    ROW(topk_fwd)
    ROW(expert_sort)
    ROW(scatter_add)
    ROW(xent_fwd)
    ROW(rmsnorm_bwd)
    ROW(glu_bwd)
    ROW(act_bwd)
    ROW(embed_bwd)
    ROW(gather_rows_bwd)
    ROW(add_gated_bwd)
    ROW(sum_rows)
    ROW(topk_bwd)
    ROW(scatter_add_bwd)
    ROW(balance)
    ROW(xent_bwd)
    ROW(dropout)
    ROW(sumsq)
    ROW(adamw)
    ROW(quantize_nf4)
#undef ROW
    return o;
}

static const ops table = gpu_ops();

/* ---- timings ---- */

enum { TURNS = 3, ROUNDS = 7, CALLS = 12 };

struct thrice {
    void *at[TURNS];
    tensor t;
};

static std::vector<void *> pool;

static __global__ void fill_kernel(void *out, dtype dt, int64_t n, uint32_t limit)
{
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    uint64_t x = (i + 1) * 0x9E3779B97F4A7C15ull;
    x = (x ^ x >> 31) * 0xBF58476D1CE4E5B9ull;
    x ^= x >> 29;
    float f = (float)(x & 0xffff) / 65536.0f - 0.5f + 1e-3f;
    if (dt == DT_F32)
        ((float *)out)[i] = limit ? fabsf(f) : f;
    else if (dt == DT_BF16)
        ((__nv_bfloat16 *)out)[i] = __float2bfloat16(f);
    else if (dt == DT_U8)
        ((unsigned char *)out)[i] = (unsigned char)x;
    else
        ((int32_t *)out)[i] = limit ? (int32_t)(x % limit) : (int32_t)((i * 7919 + 3) % n);
}

static thrice big(dtype dt, std::vector<int64_t> ne, uint32_t limit = 0)
{
    thrice b = {};
    b.t.dt = dt;
    b.t.nd = (int32_t)ne.size();
    for (size_t i = 0; i < ne.size(); i++)
        b.t.ne[i] = ne[i];
    int64_t n = tensor_count(&b.t);
    for (int i = 0; i < TURNS; i++) {
        if (cudaMalloc(&b.at[i], n * rows_width(dt)) != cudaSuccess)
            printf("WRONG no room\n"), rows_wrong++;
        pool.push_back(b.at[i]);
        fill_kernel<<<(unsigned)((n + 255) / 256), 256, 0, rows_gpu.stream>>>(b.at[i], dt, n,
                                                                              limit);
    }
    return b;
}

static tensor turn(const thrice &b, int i)
{
    tensor t = b.t;
    t.data = b.at[i % TURNS];
    return t;
}

static double best_copy;

static void report(const char *name, double bytes, std::function<void(int)> run)
{
    std::vector<float> times;
    cudaEvent_t a, b;
    cudaEventCreate(&a);
    cudaEventCreate(&b);
    bool wanted = !best_copy || strncmp(name, rows_only, strlen(rows_only)) == 0;
    for (int round = 0; round <= ROUNDS && wanted; round++) {
        cudaEventRecord(a, rows_gpu.stream);
        for (int i = 0; i < CALLS; i++)
            run(i);
        cudaEventRecord(b, rows_gpu.stream);
        if (cudaEventSynchronize(b) != cudaSuccess) {
            printf("WRONG %s: %s\n", name, cudaGetErrorString(cudaGetLastError()));
            rows_wrong++;
            return;
        }
        float ms = 0;
        cudaEventElapsedTime(&ms, a, b);
        if (round)
            times.push_back(ms / CALLS);
    }
    if (wanted) {
        std::sort(times.begin(), times.end());
        double ms = times[times.size() / 2], rate = bytes / ms / 1e6;
        best_copy = best_copy ? best_copy : rate;
        printf("%-34s %8.1f us %7.0f GB/s %5.0f %%\n", name, ms * 1e3, rate,
               100 * rate / best_copy);
    }
    cudaEventDestroy(a);
    cudaEventDestroy(b);
    for (void *p : pool)
        cudaFree(p);
    pool.clear();
}

static const int64_t T = 8192, C = 4096, F = 11008, V = 32000, H = 2048, N = T * C;
static const dtype f = DT_F32, h = DT_BF16;

static void time_act(void)
{
    device *d = &rows_gpu.base;
    const ops *op = d->op;
    {
        thrice a = big(h, { T, F }), b = big(h, { T, F });
        report("device copy, bf16 TxF", 4.0 * T * F, [=](int i) {
            cudaMemcpyAsync(turn(a, i).data, turn(b, i).data, 2 * T * F, cudaMemcpyDeviceToDevice,
                            rows_gpu.stream);
        });
    }
    {
        thrice o = big(h, { T, F }), g = big(h, { T, F }), u = big(h, { T, F });
        report("glu_fwd silu bf16 TxF", 6.0 * T * F,
               [=](int i) { op->glu_fwd(d, turn(o, i), turn(g, i), turn(u, i), ACT_SILU); });
    }
    {
        thrice y = big(h, { T, F }), g = big(h, { T, F }), u = big(h, { T, F });
        report("glu_bwd silu bf16 TxF, in place", 10.0 * T * F,
               [=](int i) {
                   glu_bwd b = { turn(y, i), turn(u, i), turn(y, i), turn(g, i),
                                 turn(u, i), {},         ACT_SILU };
                   op->glu_bwd(d, &b);
               });
    }
    {
        thrice o = big(h, { T, C }), x = big(h, { T, C });
        report("act_fwd gelu bf16 TxC", 4.0 * N,
               [=](int i) { op->act_fwd(d, turn(o, i), turn(x, i), ACT_GELU, nullptr); });
    }
    {
        thrice y = big(h, { T, C }), x = big(h, { T, C });
        report("act_bwd gelu bf16 TxC, in place", 6.0 * N, [=](int i) {
            op->act_bwd(d, turn(y, i), turn(y, i), turn(x, i), ACT_GELU, nullptr);
        });
    }
}

static void time_convert(void)
{
    device *d = &rows_gpu.base;
    const ops *op = d->op;
    {
        thrice y = big(f, { T, C }), x = big(h, { T, C });
        report("add f32 += bf16 TxC", 10.0 * N,
               [=](int i) { op->add(d, turn(y, i), turn(x, i), 1); });
    }
    {
        thrice y = big(h, { T, C }), x = big(f, { T, C });
        report("convert f32 to bf16 TxC", 6.0 * N,
               [=](int i) { op->convert(d, turn(y, i), turn(x, i)); });
    }
    {
        thrice y = big(h, { T, V }), x = big(f, { T, V });
        report("convert f32 to bf16 TxV", 6.0 * T * V,
               [=](int i) { op->convert(d, turn(y, i), turn(x, i)); });
    }
    {
        thrice x = big(h, { T, F }), y = big(h, { T, F });
        report("dropout bf16 TxF", 4.0 * T * F, [=](int i) {
            op->dropout(d, turn(y, i), turn(x, i), rng_key{ 1, (uint64_t)i }, 0.1f);
        });
    }
}

static void time_norm(void)
{
    device *d = &rows_gpu.base;
    const ops *op = d->op;
    {
        thrice o = big(h, { T, C }), x = big(f, { T, C }), w = big(h, { C }), r = big(f, { T });
        report("rmsnorm_fwd f32 to bf16 TxC", 6.0 * N, [=](int i) {
            norm_fwd a = { .out = turn(o, i),
                           .x = turn(x, i),
                           .w = turn(w, i),
                           .rstd = turn(r, i),
                           .eps = 1e-5f };
            op->rmsnorm_fwd(d, &a);
        });
    }
    {
        thrice o = big(h, { T * 32, 128 }), x = big(h, { T * 32, 128 }), w = big(h, { 128 });
        report("rmsnorm_fwd bf16, heads of 128", 4.0 * N, [=](int i) {
            norm_fwd a = { .out = turn(o, i), .x = turn(x, i), .w = turn(w, i), .eps = 1e-5f };
            op->rmsnorm_fwd(d, &a);
        });
    }
    for (int64_t experts = 0; experts <= 8; experts += 8) {
        thrice o = big(h, { T, C }), x = big(f, { T, C }), sum = big(f, { T, C }),
               add = big(h, { T, C }), w = big(f, { C }), r = big(f, { T });
        thrice router = big(f, { 8, C }), logits = big(f, { T, 8 });
        report(experts ? "rmsnorm_fwd of a sum, and a router" : "rmsnorm_fwd of a sum TxC",
               12.0 * N, [=](int i) {
                   norm_fwd a = { .out = turn(o, i),
                                  .x = turn(x, i),
                                  .w = turn(w, i),
                                  .rstd = turn(r, i),
                                  .eps = 1e-5f,
                                  .sum = turn(sum, i),
                                  .add = turn(add, i),
                                  .logits = experts ? turn(logits, i) : tensor{},
                                  .router = experts ? turn(router, i) : tensor{} };
                   op->rmsnorm_fwd(d, &a);
               });
    }
    for (int with = 0; with < 2; with++) {
        thrice dx = big(f, { T, C }), dy = big(f, { T, C }), x = big(f, { T, C }),
               w = big(h, { C }), r = big(f, { T }), dw = big(f, { C });
        report(with ? "rmsnorm_bwd f32 TxC += and dw" : "rmsnorm_bwd f32 TxC +=",
               with ? 24.0 * N : 16.0 * N, [=](int i) {
                   norm_bwd b = { .dx = turn(dx, i),
                                  .dy = turn(dy, i),
                                  .x = turn(x, i),
                                  .w = turn(w, i),
                                  .rstd = turn(r, i),
                                  .dw = with ? turn(dw, i) : tensor{},
                                  .accumulate = true };
                   op->rmsnorm_bwd(d, &b);
               });
    }
}

static void time_rope(void)
{
    device *d = &rows_gpu.base;
    const ops *op = d->op;
    {
        thrice x = big(h, { T, C }), c = big(f, { T, 64 }), s = big(f, { T, 64 });
        report("rope bf16 32 heads of 128", 4.0 * N, [=](int i) {
            rope r = { turn(x, i), turn(c, i), turn(s, i), 32, 128, 0, 128, false, false };
            op->rope(d, &r);
        });
    }
    {
        thrice c = big(f, { T, 64 }), s = big(f, { T, 64 }), p = big(DT_I32, { T }, 2048),
               q = big(f, { 64 });
        report("rope_table Tx64", 8.0 * T * 64, [=](int i) {
            op->rope_table(d, turn(c, i), turn(s, i), turn(p, i), turn(q, i), 1);
        });
    }
}

static void time_rows(void)
{
    device *d = &rows_gpu.base;
    const ops *op = d->op;
    {
        thrice o = big(h, { 2 * T, C }), x = big(h, { T, C }), r = big(DT_I32, { 2 * T });
        report("gather_rows bf16, k 2, x twice", 8.0 * N,
               [=](int i) { op->gather_rows(d, turn(o, i), turn(x, i), turn(r, i), 2); });
    }
    {
        thrice y = big(f, { T, C }), x = big(h, { 2 * T, C }), g = big(f, { T, 2 }),
               r = big(DT_I32, { 2 * T });
        report("scatter_add f32 += bf16, k 2", 12.0 * N, [=](int i) {
            op->scatter_add(d, turn(y, i), turn(x, i), turn(g, i), turn(r, i), 1);
        });
    }
    {
        thrice x = big(h, { 2 * T, C }), dg = big(f, { T, 2 }), dy = big(f, { T, C }),
               g = big(f, { T, 2 }), r = big(DT_I32, { 2 * T });
        report("scatter_add_bwd bf16, k 2", 12.0 * N, [=](int i) {
            scatter_bwd b = { turn(x, i), turn(dg, i), turn(dy, i),
                              turn(x, i), turn(g, i),  turn(r, i),
                              1 };
            op->scatter_add_bwd(d, &b);
        });
    }
    {
        thrice dx = big(h, { T, C }), x = big(h, { 2 * T, C }), r = big(DT_I32, { 2 * T });
        report("gather_rows_bwd bf16 +=, k 2", 8.0 * N, [=](int i) {
            op->gather_rows_bwd(d, turn(dx, i), turn(x, i), turn(r, i), 2, true);
        });
    }
    {
        thrice o = big(f, { C }), x = big(h, { T, C });
        report("sum_rows bf16 TxC", 2.0 * N,
               [=](int i) { op->sum_rows(d, turn(o, i), turn(x, i)); });
    }
}

static void time_embed(void)
{
    device *d = &rows_gpu.base;
    const ops *op = d->op;
    {
        thrice o = big(f, { T, C }), t = big(h, { V, C }), r = big(DT_I32, { T }, (uint32_t)V);
        report("embed bf16 to f32", 6.0 * N,
               [=](int i) { op->embed(d, turn(o, i), turn(t, i), turn(r, i)); });
    }
    for (uint32_t ids : { 32000u, 100u }) {
        thrice t = big(f, { V, C }), x = big(f, { T, C }), r = big(DT_I32, { T }, ids);
        report(ids == 100 ? "embed_bwd f32, 100 ids" : "embed_bwd f32, 32000 ids",
               ids == 100 ? 4.0 * N : 11.0 * N,
               [=](int i) { op->embed_bwd(d, turn(t, i), turn(x, i), turn(r, i)); });
    }
    {
        thrice t = big(f, { T, C }), x = big(f, { H, C }), r = big(DT_I32, { H });
        report("embed_bwd f32, 2048 rows", 12.0 * H * C,
               [=](int i) { op->embed_bwd(d, turn(t, i), turn(x, i), turn(r, i)); });
    }
}

static void time_loss(void)
{
    device *d = &rows_gpu.base;
    const ops *op = d->op;
    for (int half = 0; half < 2; half++)
        for (int64_t rows : { (int64_t)256, H }) {
            thrice l = big(f, { rows }), z = big(half ? h : f, { rows, V }),
                   t = big(DT_I32, { rows }, (uint32_t)V), w = big(f, { rows });
            char name[64];
            snprintf(name, sizeof name, "xent_bwd %s %lldxV", half ? "bf16" : "f32",
                     (long long)rows);
            report(name, (half ? 6.0 : 12.0) * (double)(rows * V), [=](int i) {
                op->xent_bwd(d, turn(l, i), turn(z, i), turn(z, i), turn(t, i), turn(w, i));
            });
        }
}

static void time_training(void)
{
    device *d = &rows_gpu.base;
    const ops *op = d->op;
    {
        thrice o = big(f, { 1 }), x = big(f, { T, F });
        report("sumsq f32 TxF", 4.0 * T * F, [=](int i) { op->sumsq(d, turn(o, i), turn(x, i)); });
    }
    for (int small = 0; small < 2; small++) {
        int64_t n = T * F;
        thrice w = big(f, { n }), g = big(f, { n }), m = big(small ? DT_U8 : f, { n }),
               v = big(small ? DT_U8 : f, { n }, 1), ms = big(f, { n / 256 }, 1),
               vs = big(f, { n / 256 }, 1), c = big(h, { n }), s = big(f, { 1 }, 1);
        report(small ? "adamw 8-bit moments" : "adamw f32 moments", (small ? 18.0 : 30.0) * n,
               [=](int i) {
                   adamw a = { turn(w, i),  turn(g, i), turn(m, i), turn(v, i), turn(ms, i),
                               turn(vs, i), turn(c, i), turn(s, i), 1,          1e-3f,
                               0.9f,        0.99f,      1e-8f,      0.01f,      3 };
                   op->adamw(d, &a);
               });
    }
    for (int twice = 0; twice < 2; twice++) {
        tensor shape = { NULL, DT_NF4, 2, { F, C } };
        thrice o = big(DT_U8, { (int64_t)tensor_bytes(&shape) }), w = big(f, { F, C });
        report(twice ? "quantize_nf4 double FxC" : "quantize_nf4 FxC", 4.5625 * F * C, [=](int i) {
            tensor out = shape;
            out.data = turn(o, i).data;
            op->quantize_nf4(d, out, turn(w, i), twice != 0);
        });
    }
}

static void time_routing(void)
{
    device *d = &rows_gpu.base;
    const ops *op = d->op;
    const int64_t experts[] = { 8, 64, 512 };
    for (int64_t e : experts) {
        topk_rule r = {};
        r.n_experts = (int32_t)e;
        r.k = e == 8 ? 2 : 8;
        r.score_after_topk = e == 8;
        r.scale = r.n_groups = r.k_groups = 1;
        int64_t k = r.k;
        auto named = [&](const char *name) {
            return std::string(name) + " E " + std::to_string(e);
        };
        {
            thrice i32 = big(DT_I32, { T, k }), g = big(f, { T, k }), z = big(f, { T, e });
            report(named("topk_fwd").c_str(), 4.0 * T * e, [=](int i) {
                op->topk_fwd(d, turn(i32, i), turn(g, i), turn(z, i), &r, tensor{});
            });
        }
        {
            thrice o = big(DT_I32, { T * k }), v = big(DT_I32, { T * k }),
                   x = big(DT_I32, { e + 1 }), ids = big(DT_I32, { T, k }, (uint32_t)e);
            report(named("expert_sort").c_str(), 12.0 * T * k, [=](int i) {
                op->expert_sort(d, turn(o, i), turn(v, i), turn(x, i), turn(ids, i), (int32_t)e);
            });
        }
        {
            thrice dz = big(f, { T, e }), dg = big(f, { T, k }), z = big(f, { T, e }),
                   ids = big(DT_I32, { T, k }, (uint32_t)e), s = big(f, { 2, e });
            report(named("topk_bwd").c_str(), 8.0 * T * e, [=](int i) {
                topk_bwd b = { turn(dz, i), turn(dg, i), turn(ids, i), turn(z, i),
                               turn(s, i),  r,           0.01f };
                op->topk_bwd(d, &b);
            });
        }
        {
            thrice s = big(f, { 2, e }), a = big(f, { 1 }), z = big(f, { T, e }),
                   ids = big(DT_I32, { T, k }, (uint32_t)e);
            report(named("balance").c_str(), 4.0 * T * e, [=](int i) {
                op->balance(d, turn(s, i), turn(a, i), turn(z, i), turn(ids, i));
            });
        }
    }
}

int main(int argc, char **argv)
{
    const char *what = argc < 2 ? "all" : argv[1];
    rows_only = argc > 2 ? argv[2] : "";
    rows_gpu.base.op = &table;
    if (!study_open(&rows_gpu))
        return 1;
    if (strcmp(what, "time") != 0)
        rows_check(strcmp(what, "small") == 0 ? 200000 : INT64_MAX);
    if (strcmp(what, "time") == 0 || strcmp(what, "all") == 0) {
        time_act();
        time_convert();
        time_norm();
        time_rope();
        time_rows();
        time_embed();
        time_loss();
        time_training();
        time_routing();
    }
    return rows_wrong != 0 || study_failures != 0;
}

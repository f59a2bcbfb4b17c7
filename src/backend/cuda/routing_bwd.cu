/* routing_bwd: gradients of a router's logits, and the balance loss. The formulas are in
 * cpu/ops/routing_bwd.c. A warp has a token. __fmul_rn keeps the compiler from contracting products
 * and sums, and sums are in the CPU's order, so that both devices give the same bits. */
#include "backend/cuda/score.cuh"

namespace
{

/* ---- gradients through the gates ---- */

/* dc of the k chosen experts, from dg and their scores c. */
__device__ void raw_gradient(const topk_rule &r, float *dc, const float *dg, const float *c)
{
    float sum = r.sum_more + 1e-20f, pull = 0.0f;
    for (int32_t j = 0; j < r.k && r.renormalise; j++)
        sum += c[j];
    bool floored = sum < r.sum_floor;
    sum = floored ? r.sum_floor : sum;
    for (int32_t j = 0; j < r.k && r.renormalise && !floored; j++)
        pull += __fmul_rn(dg[j], c[j]) / sum;
    for (int32_t j = threadIdx.x % WARP; j < r.k; j += WARP)
        dc[j] = r.renormalise ? r.scale * (dg[j] - pull) / sum : r.scale * dg[j];
    __syncwarp();
}

/* dz of the n experts. c, dc: scratch of k each; scores: the logits, which become scores. */
__device__ void gate_row(const topk_rule &r, float *dz, const float *dg, const int32_t *ids,
                         float *scores, float *c, float *dc)
{
    int lane = threadIdx.x % WARP;
    bool softmax = r.score == SCORE_SOFTMAX, all = softmax && !r.score_after_topk;
    float pull = 0.0f;
    if (all)
        score_softmax(scores, r.n_experts);
    for (int32_t j = lane; j < r.k; j += WARP)
        c[j] = scores[ids ? ids[j] : j];
    __syncwarp();
    if (!all)
        score_all(c, r.k, r.score);
    raw_gradient(r, dc, dg, c);
    for (int32_t j = 0; j < r.k && softmax; j++)
        pull += __fmul_rn(c[j], dc[j]);
    for (int32_t e = lane; e < r.n_experts; e += WARP)
        dz[e] = all ? -scores[e] * pull : 0.0f;
    __syncwarp();
    for (int32_t j = lane; j < r.k; j += WARP)
        dz[ids ? ids[j] : j] = softmax ? c[j] * (dc[j] - pull) : c[j] * (1.0f - c[j]) * dc[j];
    __syncwarp();
}

/* dz += factor p_e (f_e - sum f p). */
__device__ void balance_row(float *dz, const float *prob, const float *f, int32_t n, float factor)
{
    float mean = 0.0f;
#pragma unroll 8
    for (int32_t e = 0; e < n; e++)
        mean += __fmul_rn(f[e], prob[e]);
    for (int32_t e = threadIdx.x % WARP; e < n; e += WARP)
        dz[e] = __fadd_rn(dz[e], factor * prob[e] * (f[e] - mean));
}

/* dz += factor lse p_e. */
__device__ void z_row(float *dz, const float *prob, int32_t n, float factor, float lse)
{
    for (int32_t e = threadIdx.x % WARP; e < n; e += WARP)
        dz[e] = __fadd_rn(dz[e], factor * lse * prob[e]);
}

struct topk_bwd_args {
    float *dlogits;
    const float *dgates, *logits, *share;
    const int32_t *ids; /* NULL: all experts in their order */
    int64_t rows;
    topk_rule rule;
    float factor; /* of the balance loss: balance E / T */
    float z;      /* of the z-loss: 2 z / T */
};

__global__ void topk_bwd_kernel(topk_bwd_args a)
{
    extern __shared__ float room[]; /* a warp: scores [n], dz [n], c [k], dc [k] */
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int64_t t = (int64_t)blockIdx.x * (blockDim.x / WARP) + warp;
    if (t >= a.rows)
        return;
    int32_t n = a.rule.n_experts, k = a.rule.k;
    const float *logits = a.logits + t * n;
    float *scores = room + (int64_t)warp * 2 * (n + k), *dz = scores + n, *c = dz + n;
    for (int32_t e = lane; e < n; e += WARP)
        scores[e] = logits[e];
    __syncwarp();
    gate_row(a.rule, dz, a.dgates + t * k, a.ids ? a.ids + t * k : NULL, scores, c, c + k);
    if (a.share || a.z != 0.0f) {
        for (int32_t e = lane; e < n; e += WARP)
            scores[e] = logits[e];
        __syncwarp();
        float lse = score_softmax_lse(scores, n);
        if (a.share)
            balance_row(dz, scores, a.share, n, a.factor);
        if (a.z != 0.0f)
            z_row(dz, scores, n, a.z, lse);
    }
    for (int32_t e = lane; e < n; e += WARP)
        a.dlogits[t * n + e] = dz[e];
}

/* ---- the balance loss ---- */

constexpr int PARTS = BALANCE_PARTS; /* partial sums of P, which are then added in order */

/* Part b of the rows: the sum of their probabilities, and how many chose each expert. A tile of
 * rows at a time: softmax, a warp for each row; then sums in order, a thread for each expert. */
__global__ void balance_part_kernel(float *sums, int32_t *counts, const float *logits,
                                    const int32_t *ids, int64_t rows, int32_t n, int32_t k)
{
    extern __shared__ float tile[]; /* [warps][n], sum [n + 1], count [n], z [warps] */
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    int64_t begin = blockIdx.x * rows / PARTS, end = (blockIdx.x + 1) * rows / PARTS;
    float *mine = tile + warp * n, *sum = tile + warps * n;
    int32_t *count = (int32_t *)(sum + n + 1);
    float *squares = (float *)(count + n);
    for (int32_t e = threadIdx.x; e < n; e += blockDim.x) {
        sum[e] = 0.0f;
        count[e] = 0;
    }
    if (threadIdx.x == 0)
        sum[n] = 0.0f;
    for (int64_t base = begin; base < end; base += warps) {
        if (base + warp < end) {
            for (int32_t e = lane; e < n; e += WARP)
                mine[e] = logits[(base + warp) * n + e];
            __syncwarp();
            float lse = score_softmax_lse(mine, n);
            if (lane == 0)
                squares[warp] = __fmul_rn(lse, lse);
        }
        __syncthreads();
        int64_t there = end - base < warps ? end - base : warps;
        for (int32_t e = threadIdx.x; e < n; e += blockDim.x)
            for (int r = 0; r < there; r++)
                sum[e] += tile[r * n + e];
        if (threadIdx.x == 0)
            for (int r = 0; r < there; r++)
                sum[n] = __fadd_rn(sum[n], squares[r]);
        __syncthreads();
    }
    __syncthreads(); /* the counters are zero */
    for (int64_t i = begin * k + threadIdx.x; i < end * k; i += blockDim.x)
        atomicAdd(&count[ids[i]], 1); /* integers: the order does not matter */
    __syncthreads();
    for (int32_t e = threadIdx.x; e < n; e += blockDim.x) {
        sums[(int64_t)blockIdx.x * (n + 1) + e] = sum[e];
        counts[(int64_t)blockIdx.x * n + e] = count[e];
    }
    if (threadIdx.x == 0)
        sums[(int64_t)blockIdx.x * (n + 1) + n] = sum[n];
}

__global__ void balance_fold_kernel(float *share, float *aux, const float *sums,
                                    const int32_t *counts, int64_t rows, int64_t choices, int32_t n)
{
    float *f = share, *mean = share + n;
    for (int32_t e = threadIdx.x; e < n; e += blockDim.x) {
        float sum = 0.0f;
        int32_t count = 0;
#pragma unroll 16
        for (int part = 0; part < PARTS; part++) {
            sum += sums[(int64_t)part * (n + 1) + e];
            count += counts[(int64_t)part * n + e];
        }
        f[e] = (float)count / (float)choices;
        mean[e] = sum / (float)rows;
    }
    __syncthreads();
    if (threadIdx.x)
        return;
    float sum = 0.0f, z = 0.0f;
    for (int32_t e = 0; e < n; e++)
        sum += __fmul_rn(f[e], mean[e]);
    for (int part = 0; part < PARTS; part++)
        z += sums[(int64_t)part * (n + 1) + n];
    aux[0] = (float)n * sum;
    aux[1] = z / (float)rows;
}

} // namespace

extern "C" void cuda_topk_bwd(device *d, const topk_bwd *a)
{
    int32_t n = a->rule.n_experts, k = a->rule.k;
    int64_t rows = tensor_rows(&a->logits), floats = 2 * ((int64_t)n + k);
    topk_bwd_args args = { .dlogits = (float *)a->dlogits.data,
                           .dgates = (const float *)a->dgates.data,
                           .logits = (const float *)a->logits.data,
                           .share = (const float *)a->share.data,
                           .ids = (const int32_t *)a->ids.data,
                           .rows = rows,
                           .rule = a->rule,
                           .factor = a->balance * (float)n / (float)rows,
                           .z = a->z * 2.0f / (float)rows };
    int warps = score_warps(floats);
    topk_bwd_kernel<<<vec_blocks(rows, warps), warps * WARP, warps * floats * sizeof(float),
                      cuda_of(d)->stream>>>(args);
    cuda_launched(cuda_of(d), "topk_bwd");
}

extern "C" void cuda_balance(device *d, tensor share, tensor aux, tensor logits, tensor ids)
{
    cuda_device *c = cuda_of(d);
    int64_t rows = tensor_rows(&logits), choices = tensor_count(&ids);
    int32_t n = (int32_t)tensor_cols(&logits), k = (int32_t)(rows ? choices / rows : 0);
    /* and the sums and counts, and a number for each warp */
    int warps = ((int)(48 * 1024 / sizeof(float)) - 1 - WARP) / n - 2;
    ASSERT(warps >= 1);
    warps = warps < WARP ? warps : WARP;
    float *sums = (float *)cuda_scratch(c, "balance", scratch_balance(n));
    if (!sums)
        return;
    int32_t *counts = (int32_t *)(sums + (int64_t)PARTS * (n + 1));
    size_t shared = ((size_t)(warps + 2) * n + 1 + warps) * sizeof(float);
    balance_part_kernel<<<PARTS, warps * WARP, shared, c->stream>>>(
        sums, counts, (const float *)logits.data, (const int32_t *)ids.data, rows, n, k);
    balance_fold_kernel<<<1, VEC_THREADS, 0, c->stream>>>((float *)share.data, (float *)aux.data,
                                                          sums, counts, rows, choices, n);
    cuda_launched(c, "balance");
}

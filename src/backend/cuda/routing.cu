/* routing: top-k experts of each token, other numbers for them where a row has experts of its own,
 * and a stable sort of rows by expert.
 *
 * Top-k: a warp for each token. Experts are ranked as on the CPU (cpu/ops/routing.c): by value,
 * then by lowest index, NaN last. That is a total order, so the lanes' candidates may be compared
 * in any order.
 *
 * Sort: a counting sort. Each warp of a block has consecutive rows and a counter for each expert. A
 * row's place is the offset of the expert, plus the rows of that expert in earlier blocks and
 * warps, plus its rank in the warp. So the sort is stable, and the same for any number of blocks.
 * Up to SORT_ALONE rows one block does all in one launch; more take three: count, prefix sums,
 * place. Top-k and the sort of one block are part of decoding, so they may start early
 * (overlap.cuh). */
#include "backend/cuda/overlap.cuh"
#include "backend/cuda/score.cuh"

namespace
{

/* ---- top-k ---- */

struct candidate {
    float value;
    int32_t index; /* -1: none */
};

__device__ bool beats(float a, float b)
{
    return a == a && (b != b || a > b);
}

__device__ bool better(candidate a, candidate b)
{
    if (a.index < 0 || b.index < 0)
        return b.index < 0;
    return beats(a.value, b.value) || (!beats(b.value, a.value) && a.index < b.index);
}

/* The index of the best of x[0..n) that is not taken: bit i / 32 of `taken` in lane i % 32. */
__device__ int32_t best(const float *x, uint64_t taken, int32_t n)
{
    candidate top = { 0.0f, -1 };
    for (int32_t i = threadIdx.x % WARP, bit = 0; i < n; i += WARP, bit++) {
        candidate c = { x[i], taken >> bit & 1 ? -1 : i };
        if (better(c, top))
            top = c;
    }
    for (int lane = WARP / 2; lane; lane /= 2) {
        candidate c = { __shfl_xor_sync(0xffffffffu, top.value, lane),
                        __shfl_xor_sync(0xffffffffu, top.index, lane) };
        if (better(c, top))
            top = c;
    }
    return top.index;
}

__device__ uint64_t bit_of(int32_t i)
{
    return threadIdx.x % WARP == i % WARP ? (uint64_t)1 << i / WARP : 0;
}

/* The score of a group of experts: its best rank; with a bias, the sum of its two best. */
__device__ float group_score(const float *rank, int32_t size, bool with_second)
{
    candidate first = { 0.0f, -1 }, second = first;
    for (int32_t i = 0; i < size; i++) {
        candidate c = { rank[i], i };
        if (better(c, first)) {
            second = first;
            first = c;
        } else if (better(c, second)) {
            second = c;
        }
    }
    return with_second && size > 1 ? first.value + second.value : first.value;
}

/* `taken` bits of the experts of all but the k_groups best groups; scores: scratch of n_groups. */
__device__ uint64_t limit_groups(const topk_rule &r, const float *rank, float *scores, bool biased)
{
    int lane = threadIdx.x % WARP;
    int32_t size = r.n_experts / r.n_groups;
    for (int32_t g = lane; g < r.n_groups; g += WARP)
        scores[g] = group_score(rank + g * size, size, biased);
    __syncwarp();
    uint64_t chosen = 0, taken = 0;
    for (int32_t i = 0; i < r.k_groups; i++)
        chosen |= bit_of(best(scores, chosen, r.n_groups));
    __syncwarp();
    for (int32_t g = lane, bit = 0; g < r.n_groups; g += WARP, bit++)
        scores[g] = chosen >> bit & 1 ? 1.0f : 0.0f;
    __syncwarp();
    for (int32_t e = lane, bit = 0; e < r.n_experts; e += WARP, bit++)
        taken |= (uint64_t)(scores[e / size] == 0.0f) << bit;
    __syncwarp();
    return taken;
}

__global__ void topk_kernel(int32_t *ids, float *gates, const float *logits, const float *bias,
                            int64_t rows, topk_rule r)
{
    extern __shared__ float room[]; /* a warp: scores [n], rank [n], groups, then gates [n] */
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int64_t t = (int64_t)blockIdx.x * (blockDim.x / WARP) + warp;
    overlap_both();
    if (t >= rows)
        return;
    int32_t n = r.n_experts;
    float *scores = room + (int64_t)warp * 3 * n, *rank = scores + n, *chosen = rank + n;
    for (int32_t e = lane; e < n; e += WARP)
        scores[e] = rank[e] = logits[t * n + e];
    __syncwarp();
    if (!r.score_after_topk)
        score_all(scores, n, r.score);
    for (int32_t e = lane; bias && e < n; e += WARP)
        rank[e] = scores[e] + bias[e];
    __syncwarp();
    uint64_t taken = r.n_groups > 1 ? limit_groups(r, rank, chosen, bias) : 0;
    for (int32_t slot = 0; slot < r.k; slot++) {
        int32_t e = best(rank, taken, n);
        taken |= bit_of(e);
        if (lane == 0) {
            ids[t * r.k + slot] = e;
            chosen[slot] = scores[e];
        }
    }
    __syncwarp();
    if (r.score_after_topk)
        score_all(chosen, r.k, r.score);
    float sum = 0.0f;
    for (int32_t slot = 0; slot < r.k; slot++)
        sum += chosen[slot];
    sum += r.sum_more + 1e-20f; /* all sigmoids may be 0 */
    float factor = r.scale / (!r.renormalise ? 1.0f : sum < r.sum_floor ? r.sum_floor : sum);
    for (int32_t slot = lane; slot < r.k; slot += WARP)
        gates[t * r.k + slot] = chosen[slot] * factor;
}

/* ---- remap ---- */

__global__ void remap_kernel(int32_t *out, const int32_t *ids, const int32_t *table,
                             const int32_t *rows, int64_t n, int32_t k, int32_t n_experts)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = table[(int64_t)rows[i / k] * n_experts + ids[i]];
}

/* ---- sort ---- */

struct sort_args {
    int32_t *order, *inverse, *offsets;
    int32_t *starts; /* [blocks][E]: counts, then first places; NULL: one block does all */
    const int32_t *ids;
    int64_t n, rows; /* of all, of a block */
    int32_t n_experts;
};

/* f(i, expert, peers) for this warp's rows of the block; peers: the lanes with the same expert. */
template <class F> __device__ void sort_each(const sort_args &a, F f)
{
    int64_t begin = blockIdx.x * a.rows, n = a.n - begin < a.rows ? a.n - begin : a.rows;
    int warps = blockDim.x / WARP, warp = threadIdx.x / WARP;
    int64_t each = (n + warps - 1) / warps, end = (warp + 1) * each < n ? (warp + 1) * each : n;
    for (int64_t i = warp * each + threadIdx.x % WARP; i - threadIdx.x % WARP < end; i += WARP) {
        int32_t e = i < end ? a.ids[begin + i] : -1;
        f(begin + i, e, __match_any_sync(0xffffffffu, e));
    }
}

/* count[w][e]: rows of warp w with expert e. */
__device__ void sort_count(const sort_args &a, int32_t *count)
{
    int lane = threadIdx.x % WARP;
    int32_t *mine = count + threadIdx.x / WARP * a.n_experts;
    for (int32_t e = lane; e < a.n_experts; e += WARP)
        mine[e] = 0;
    __syncwarp();
    sort_each(a, [&](int64_t, int32_t e, unsigned peers) {
        if (e >= 0 && lane == __ffs(peers) - 1)
            mine[e] += __popc(peers);
        __syncwarp();
    });
    __syncthreads();
}

/* Prefix sums over parts: total[e] = rows of e in all parts; count[p][e] becomes the rows of e in
 * the parts before p. */
__device__ void sort_before(int32_t *count, int32_t parts, int32_t n_experts, int32_t *total)
{
    for (int32_t e = threadIdx.x; e < n_experts; e += blockDim.x) {
        int32_t sum = 0;
#pragma unroll 8
        for (int32_t p = 0; p < parts; p++) {
            int32_t c = count[(int64_t)p * n_experts + e];
            count[(int64_t)p * n_experts + e] = sum;
            sum += c;
        }
        total[e] = sum;
    }
    __syncthreads();
}

/* offsets[e] from the totals: a prefix sum by the first warp, 32 experts at a time. */
__device__ void sort_offsets(const sort_args &a, const int32_t *total)
{
    int lane = threadIdx.x;
    int32_t before = 0;
    for (int32_t base = 0; base < a.n_experts && lane < WARP; base += WARP) {
        int32_t own = base + lane < a.n_experts ? total[base + lane] : 0, sum = own;
        for (int by = 1; by < WARP; by *= 2) {
            int32_t lower = __shfl_up_sync(0xffffffffu, sum, by);
            sum += lane >= by ? lower : 0;
        }
        if (base + lane < a.n_experts)
            a.offsets[base + lane] = before + sum - own;
        before += __shfl_sync(0xffffffffu, sum, WARP - 1);
    }
    if (lane == 0)
        a.offsets[a.n_experts] = before;
    __syncthreads();
}

/* Places the rows; next[w][e]: the place of warp w's next row of e. */
__device__ void sort_place(const sort_args &a, int32_t *next)
{
    int lane = threadIdx.x % WARP;
    int32_t *mine = next + threadIdx.x / WARP * a.n_experts;
    sort_each(a, [&](int64_t i, int32_t e, unsigned peers) {
        int32_t at = e >= 0 ? mine[e] + __popc(peers & ((1u << lane) - 1)) : 0;
        __syncwarp();
        if (e >= 0) {
            a.inverse[i] = at;
            a.order[at] = (int32_t)i;
            if (lane == __ffs(peers) - 1)
                mine[e] = at + __popc(peers);
        }
        __syncwarp();
    });
}

/* The first place of each warp's rows, from that of the block's. */
__device__ void sort_starts(const sort_args &a, int32_t *count, const int32_t *start)
{
    int warps = blockDim.x / WARP;
    for (int32_t i = threadIdx.x; i < warps * a.n_experts; i += blockDim.x)
        count[i] += start[i % a.n_experts];
    __syncthreads();
}

__global__ void sort_whole_kernel(sort_args a)
{
    extern __shared__ int32_t count[];
    int warps = blockDim.x / WARP;
    int32_t *total = count + warps * a.n_experts;
    overlap_both();
    sort_count(a, count);
    sort_before(count, warps, a.n_experts, total);
    sort_offsets(a, total);
    sort_starts(a, count, a.offsets);
    sort_place(a, count);
}

__global__ void sort_count_kernel(sort_args a)
{
    extern __shared__ int32_t count[];
    sort_count(a, count);
    sort_before(count, blockDim.x / WARP, a.n_experts,
                a.starts + (int64_t)blockIdx.x * a.n_experts);
}

__global__ void sort_starts_kernel(sort_args a, int32_t blocks)
{
    extern __shared__ int32_t total[];
    sort_before(a.starts, blocks, a.n_experts, total);
    sort_offsets(a, total);
    for (int32_t e = threadIdx.x; e < a.n_experts; e += blockDim.x)
        for (int32_t b = 0; b < blocks; b++)
            a.starts[(int64_t)b * a.n_experts + e] += a.offsets[e];
}

__global__ void sort_place_kernel(sort_args a)
{
    extern __shared__ int32_t count[];
    int warps = blockDim.x / WARP;
    sort_count(a, count);
    sort_before(count, warps, a.n_experts, count + warps * a.n_experts);
    sort_starts(a, count, a.starts + (int64_t)blockIdx.x * a.n_experts);
    sort_place(a, count);
}

} // namespace

extern "C" void cuda_topk_fwd(device *d, tensor ids, tensor gates, tensor logits,
                              const topk_rule *rule, tensor bias)
{
    int32_t n = rule->n_experts, groups = rule->n_groups;
    ASSERT(rule->k >= 1 && rule->k <= n && n <= 64 * WARP);
    ASSERT(groups <= 1 || (n % groups == 0 && rule->k <= n / groups * rule->k_groups));
    ASSERT(groups <= 1 || rule->k_groups <= groups);
    int warps = score_warps(3 * (int64_t)n);
    int64_t rows = tensor_rows(&logits);
    overlap_grid grid = { dim3(vec_blocks(rows, warps)), warps * WARP,
                          warps * 3 * n * (int)sizeof(float) };
    overlap_launch(cuda_of(d), "topk_fwd", grid, topk_kernel, (int32_t *)ids.data,
                   (float *)gates.data, (const float *)logits.data, (const float *)bias.data, rows,
                   *rule);
}

extern "C" void cuda_expert_remap(device *d, tensor out, tensor ids, tensor table, tensor rows)
{
    int64_t n = tensor_count(&ids);
    remap_kernel<<<vec_blocks(n, VEC_THREADS), VEC_THREADS, 0, cuda_of(d)->stream>>>(
        (int32_t *)out.data, (const int32_t *)ids.data, (const int32_t *)table.data,
        (const int32_t *)rows.data, n, (int32_t)tensor_cols(&ids), (int32_t)tensor_cols(&table));
    cuda_launched(cuda_of(d), "expert_remap");
}

extern "C" void cuda_expert_sort(device *d, tensor order, tensor inverse, tensor offsets,
                                 tensor ids, int32_t n_experts)
{
    cuda_device *c = cuda_of(d);
    int64_t n = tensor_count(&ids);
    int64_t rows = n <= SORT_ALONE ? SORT_ALONE : SORT_ROWS;
    unsigned blocks = vec_blocks(n, rows);
    sort_args a = { (int32_t *)order.data,
                    (int32_t *)inverse.data,
                    (int32_t *)offsets.data,
                    NULL,
                    (const int32_t *)ids.data,
                    n,
                    rows,
                    n_experts };
    int warps = (int)(48 * 1024 / sizeof(int32_t)) / n_experts - 1; /* and the totals */
    ASSERT(warps >= 1);
    warps = warps < WARP ? warps : WARP;
    size_t room = (size_t)(warps + 1) * n_experts * sizeof(int32_t);
    if (blocks == 1) {
        overlap_grid grid = { dim3(1), warps * WARP, (int)room };
        overlap_launch(c, "expert_sort", grid, sort_whole_kernel, a);
        return;
    }
    a.starts = (int32_t *)cuda_scratch(c, "expert_sort", scratch_sort(n, n_experts));
    if (!a.starts)
        return;
    sort_count_kernel<<<blocks, warps * WARP, room, c->stream>>>(a);
    sort_starts_kernel<<<1, VEC_THREADS, n_experts * sizeof(int32_t), c->stream>>>(a, blocks);
    sort_place_kernel<<<blocks, warps * WARP, room, c->stream>>>(a);
    cuda_launched(c, "expert_sort");
}

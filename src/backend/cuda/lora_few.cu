/* lora_few: the low-rank terms B (A x) of up to three products of few rows, added to `out` in one
 * launch, as decoding has them where a LoRA cannot be merged into NF4 weights, or differs by
 * sequence.
 *
 * Bound: the latency of a launch, since B is a hundredth of the base weights. A warp has 16 rows of
 * B and all tokens, and multiplies with mma.m16n8k16: 16 rows by 16 of k by 8 tokens. As in gemv.cu
 * the order of k within a step is free, so every lane loads 8 neighbours of B and of A x straight
 * into registers. B depends on no other kernel and is loaded before the wait. */
#include "backend/cuda/epilogue.cuh"
#include "backend/cuda/overlap.cuh"
#include "backend/cuda/products.h"
#include "backend/cuda/warp.cuh"

namespace
{

enum { WARPS = 4, LANES = 32, ROWS = 16, TOKENS = 8, AHEAD = 4, STEP = 32, TERMS = 2 };

typedef __nv_bfloat16 bf16;

struct low_rank {
    const bf16 *b, *x; /* [n,k]; [tokens,k] in rows of `ld` */
    int k, ld;
};

struct product {
    epilogue end;
    low_rank terms[TERMS];
    int n_terms;
    unsigned first; /* of its blocks */
};

struct problem {
    product of[LORA_FEW_PRODUCTS];
    int n, tokens;
};

/* What a lane works on: rows `row` and `row + 8` of the warp's 16 rows of B, token `row` of 8, and
 * of every step of 32 elements of k the quarter `part`. */
struct lane {
    int row, part, first; /* first: of the warp's rows */
};

__device__ __forceinline__ uint4 load16(const bf16 *p, bool there)
{
    return there ? *(const uint4 *)p : make_uint4(0, 0, 0, 0);
}

/* AHEAD steps of the lane's two rows of B. */
__device__ __forceinline__ void load_rows(uint4 (*w)[2], const low_rank &t, const lane &l, int n,
                                          int k0)
{
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        int k = k0 + i * STEP + l.part * 8, row = l.first + l.row;
        w[i][0] = load16(t.b + (int64_t)row * t.k + k, k < t.k && row < n);
        w[i][1] = load16(t.b + (int64_t)(row + 8) * t.k + k, k < t.k && row + 8 < n);
    }
}

/* These steps times 8 tokens. */
__device__ __forceinline__ void multiply_rows(float *sum, const uint4 (*w)[2], const low_rank &t,
                                              const lane &l, int tokens, int first_token, int k0)
{
    int token = first_token + l.row;
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        int k = k0 + i * STEP + l.part * 8;
        uint4 a = w[i][0], b = w[i][1];
        uint4 x = load16(t.x + (int64_t)token * t.ld + k, token < tokens && k < t.k);
        uint32_t first[4] = { a.x, b.x, a.y, b.y }, second[4] = { a.z, b.z, a.w, b.w };
        warp_mma_bf16(sum, first, x.x, x.y);
        warp_mma_bf16(sum, second, x.z, x.w);
    }
}

__device__ __forceinline__ void store(const product &q, const lane &l, int tokens, int first_token,
                                      const float *sum)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = l.first + l.row + i / 2 * 8, token = first_token + l.part * 2 + i % 2;
        if (row < q.end.n && token < tokens)
            epilogue_store(q.end, token, row, sum[i]);
    }
}

/* GROUPS of 8 tokens. */
template <int GROUPS>
__global__ void __launch_bounds__(WARPS *LANES) lora_few_kernel(const __grid_constant__ problem p)
{
    int at = 0;
    while (at + 1 < p.n && blockIdx.x >= p.of[at + 1].first)
        at++;
    const product &q = p.of[at];
    int id = threadIdx.x % LANES, block = (int)(blockIdx.x - q.first);
    lane l = { id / 4, id % 4, (block * WARPS + (int)threadIdx.x / LANES) * ROWS };
    float sum[GROUPS][4] = {};
    bool waited = false;
    for (int t = 0; t < q.n_terms; t++)
        for (int k = 0; k < q.terms[t].k; k += AHEAD * STEP) {
            uint4 w[AHEAD][2];
            load_rows(w, q.terms[t], l, q.end.n, k);
            if (!waited) {
                overlap_both();
                waited = true;
            }
#pragma unroll
            for (int g = 0; g < GROUPS; g++)
                multiply_rows(sum[g], w, q.terms[t], l, p.tokens, g * TOKENS, k);
        }
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
        store(q, l, p.tokens, g * TOKENS, sum[g]);
}

bool term_fits(const mm_pair *t)
{
    int64_t k = tensor_cols(&t->b), ld = t->a_ld ? t->a_ld : tensor_cols(&t->a);
    uintptr_t at = (uintptr_t)t->a.data | (uintptr_t)t->b.data;
    return t->a.dt == DT_BF16 && t->b.dt == DT_BF16 && k && k % 8 == 0 && ld % 8 == 0 &&
           at % 16 == 0 && (!t->b_ld || t->b_ld == k);
}

bool product_fits(const mm *a)
{
    bool fits = a->layout == MM_NT && a->n_more > 0 && a->n_more <= TERMS &&
                (!a->out_ld || a->out_ld == tensor_cols(&a->out)) &&
                (a->out.dt == DT_BF16 || a->out.dt == DT_F32);
    for (int i = 0; fits && i < a->n_more; i++)
        fits = term_fits(&a->more[i]);
    return fits;
}

product product_of(const mm *a, unsigned first)
{
    product q = {};
    q.end = epilogue_of(a);
    q.end.bias = nullptr; /* the base's product has added it */
    q.end.accumulate = true;
    q.first = first;
    q.n_terms = a->n_more;
    for (int i = 0; i < a->n_more; i++) {
        const mm_pair *t = &a->more[i];
        q.terms[i] =
            low_rank{ (const bf16 *)t->b.data, (const bf16 *)t->a.data, (int)tensor_cols(&t->b),
                      (int)(t->a_ld ? t->a_ld : tensor_cols(&t->a)) };
    }
    return q;
}

} // namespace

bool lora_few_fits(const cuda_device *d, const mm *a, int n)
{
    int64_t tokens = tensor_rows(&a->a);
    bool fits = d->cc >= 80 && n <= LORA_FEW_PRODUCTS && tokens > 0 && tokens <= 8 * TOKENS;
    for (int i = 0; fits && i < n; i++)
        fits = tensor_rows(&a[i].a) == tokens && product_fits(&a[i]);
    return fits;
}

void lora_few_launch(cuda_device *d, const mm *a, int n)
{
    problem p = {};
    unsigned blocks = 0;
    p.n = n;
    p.tokens = (int)tensor_rows(&a->a);
    for (int i = 0; i < n; i++) {
        p.of[i] = product_of(&a[i], blocks);
        blocks += (unsigned)((p.of[i].end.n + WARPS * ROWS - 1) / (WARPS * ROWS));
    }
    overlap_grid grid = { dim3(blocks), WARPS * LANES, 0 };
    int groups = (p.tokens + TOKENS - 1) / TOKENS;
    overlap_launch(d, "matmul", grid,
                   groups <= 1   ? lora_few_kernel<1>
                   : groups <= 2 ? lora_few_kernel<2>
                   : groups <= 4 ? lora_few_kernel<4>
                                 : lora_few_kernel<8>,
                   p);
}

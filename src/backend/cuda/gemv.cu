/* gemv: few rows of activations against a whole matrix of weights, as decoding does it.
 *
 * Reading the weights once is all the time there is, so nothing else may cost any. A block takes 16
 * rows of w, its warps split k between them, and the tensor cores multiply: 16 rows by 16 of k by 8
 * tokens at a time. Which element of k stands where in these 16 is free as long as both sides
 * agree, so every thread reads a run of neighbours of w and of x straight into its registers.
 *
 * NF4 is decoded by byte: a table of 256 pairs of bf16 codes, one copy for each bank of shared
 * memory, so no two threads ever wait for each other. The codes are rounded to bf16 and the f32
 * scale of a block of 64 multiplies its f32 sum: as exact as rounding code times scale, and
 * cheaper.
 *
 * The warps' sums are added in order, so results repeat bit for bit. */
#include "backend/cuda/cuda.h"

#include <cuda_bf16.h>
#include <string.h>

extern "C" {
#include "tensor/nf4.h"
}

namespace
{

enum { WARPS = 8, LANES = 32, ROWS = 16, TOKENS = 8, COPIES = 32, AHEAD = 4, STEPS = 8 };
static_assert(WARPS * LANES == 256, "a thread for each byte");

struct few {
    void *out;
    const void *w;
    const float *scales; /* nf4 */
    const __nv_bfloat16 *x;
    const void *bias;
    int64_t n, k; /* of w [n,k] */
    int tokens;
    float scale;
    bool out_f32, bias_f32, accumulate;
};

struct code_table {
    float value[16];
};

__device__ __forceinline__ void multiply(float *c, const uint32_t *a, const uint32_t *b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Weights are read once and must not push x out of the cache. Volatile, so that several are on
 * their way before the first is used. */
__device__ __forceinline__ uint4 stream16(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* What a thread needs to find its part: rows `row` and `row + 8` of the block's 16, token `row`
 * of 8, a quarter `part` of every run along k. */
struct lane {
    int row, part, warp;
    int64_t w0, w1; /* its two rows of w, kept inside */
    const __nv_bfloat16 *x;
};

__device__ __forceinline__ lane lane_of(const few &f)
{
    lane l;
    int id = threadIdx.x % LANES;
    int64_t first = (int64_t)blockIdx.x * ROWS;
    l.row = id / 4;
    l.part = id % 4;
    l.warp = threadIdx.x / LANES;
    l.w0 = min(first + l.row, f.n - 1);
    l.w1 = min(first + l.row + 8, f.n - 1);
    l.x = l.row < f.tokens ? f.x + l.row * f.k : nullptr;
    return l;
}

/* [begin, end) of `total` steps along k for a warp. */
__device__ __forceinline__ void share(int64_t total, int warp, int64_t *begin, int64_t *end)
{
    int64_t each = (total + WARPS - 1) / WARPS;
    *begin = min(each * warp, total);
    *end = min(*begin + each, total);
}

__device__ __forceinline__ float read(const void *p, bool is_f32, int64_t i)
{
    return is_f32 ? ((const float *)p)[i] : __bfloat162float(((const __nv_bfloat16 *)p)[i]);
}

/* Adds what the warps have, in their order, and stores. */
__device__ __forceinline__ void finish(const few &f, const lane &l, const float *sum,
                                       float (*sums)[ROWS][TOKENS])
{
    int column = l.part * 2;
    *(float2 *)&sums[l.warp][l.row][column] = make_float2(sum[0], sum[1]);
    *(float2 *)&sums[l.warp][l.row + 8][column] = make_float2(sum[2], sum[3]);
    __syncthreads();
    int token = threadIdx.x / ROWS, row = threadIdx.x % ROWS;
    int64_t at = (int64_t)blockIdx.x * ROWS + row;
    if (token >= f.tokens || token >= TOKENS || at >= f.n)
        return;
    float y = 0;
    for (int w = 0; w < WARPS; w++)
        y += sums[w][row][token];
    y *= f.scale;
    if (f.bias)
        y += read(f.bias, f.bias_f32, at);
    int64_t to = token * f.n + at;
    if (f.accumulate)
        y += read(f.out, f.out_f32, to);
    if (f.out_f32)
        ((float *)f.out)[to] = y;
    else
        ((__nv_bfloat16 *)f.out)[to] = __float2bfloat16(y);
}

/* A kernel may begin while the one before it ends: what it reads of that one, and whatever it
 * writes, comes behind wait_before(). Weights do not. */
__device__ __forceinline__ void wait_before()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- bf16: a step is 32 of k, a thread's run 8 ---- */

struct part_bf16 {
    uint4 w[AHEAD][2];
};

/* Past the end: any weights, since x is 0 there. */
__device__ __forceinline__ void load(part_bf16 *p, const few &f, const lane &l, int64_t step,
                                     int64_t end)
{
    const __nv_bfloat16 *w = (const __nv_bfloat16 *)f.w;
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        int64_t k = (step + i) * 32 + l.part * 8;
        k = step + i < end && k < f.k ? k : 0;
        p->w[i][0] = stream16(w + l.w0 * f.k + k);
        p->w[i][1] = stream16(w + l.w1 * f.k + k);
    }
}

__device__ __forceinline__ void use(float *sum, const part_bf16 *p, const few &f, const lane &l,
                                    int64_t step, int64_t end)
{
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        int64_t k = (step + i) * 32 + l.part * 8;
        uint4 a = p->w[i][0], b = p->w[i][1], x = make_uint4(0, 0, 0, 0);
        if (step + i < end && k < f.k && l.x)
            x = *(const uint4 *)(l.x + k);
        uint32_t first[4] = { a.x, b.x, a.y, b.y }, second[4] = { a.z, b.z, a.w, b.w };
        uint32_t at[4] = { x.x, x.y, x.z, x.w };
        multiply(sum, first, at);
        multiply(sum, second, at + 2);
    }
}

__global__ void __launch_bounds__(WARPS *LANES) few_bf16(const few f)
{
    lane l = lane_of(f);
    part_bf16 even, odd;
    float sum[4] = { 0, 0, 0, 0 };
    int64_t step, end;
    share((f.k + 31) / 32, l.warp, &step, &end);
    load(&even, f, l, step, end);
    load(&odd, f, l, step + AHEAD, end);
    wait_before();
    for (; step < end; step += 2 * AHEAD) {
        use(sum, &even, f, l, step, end);
        if (step + 2 * AHEAD < end)
            load(&even, f, l, step + 2 * AHEAD, end);
        use(sum, &odd, f, l, step + AHEAD, end);
        if (step + 3 * AHEAD < end)
            load(&odd, f, l, step + 3 * AHEAD, end);
    }
    __shared__ float sums[WARPS][ROWS][TOKENS];
    finish(f, l, sum, sums);
}

/* ---- nf4: a step is one block of 64, a thread's run 16 ---- */

/* A warp's part of w on its way: STEPS blocks of each row. Rows are so far apart that a half warp
 * reads them without waiting. */
struct stage {
    unsigned char codes[ROWS][STEPS * NF4_BLOCK / 2 + 32];
    float scales[ROWS][STEPS];
};

struct shared_nf4 {
    uint32_t pairs[256 * COPIES];
    union {
        stage of[WARPS];
        float sums[WARPS][ROWS][TOKENS];
    };
};

template <int BYTES> __device__ __forceinline__ void copy_ahead(void *to, const void *from)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from));
}

__device__ __forceinline__ void load(stage *to, const few &f, int64_t step, int64_t end)
{
    const unsigned char *codes = (const unsigned char *)f.w;
    int lane = threadIdx.x % LANES, piece = lane % 16;
    int64_t first = (int64_t)blockIdx.x * ROWS, blocks = f.k / NF4_BLOCK;
#pragma unroll
    for (int row = lane / 16; row < ROWS; row += 2)
        if (step + piece / 2 < end)
            copy_ahead<16>(&to->codes[row][piece * 16],
                           codes + min(first + row, f.n - 1) * f.k / 2 + step * 32 + piece * 16);
#pragma unroll
    for (int i = lane; i < ROWS * STEPS; i += LANES)
        if (step + i % STEPS < end)
            copy_ahead<4>(&to->scales[i / STEPS][i % STEPS],
                          f.scales + min(first + i / STEPS, f.n - 1) * blocks + step + i % STEPS);
}

__device__ __forceinline__ void arrive()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();
}

/* pairs [256][COPIES]: the two codes of a byte as bf16; the earlier element is in the high nibble.
 * Thread i makes entry i; neighbours write to different banks. */
__device__ __forceinline__ void fill(uint32_t *pairs, const code_table &table)
{
    __shared__ float code[16];
    int i = threadIdx.x;
    if (i < 16)
        code[i] = table.value[i];
    __syncthreads();
    __nv_bfloat162 pair = __floats2bfloat162_rn(code[i >> 4], code[i & 15]);
#pragma unroll
    for (int c = 0; c < COPIES; c++)
        pairs[i * COPIES + (c + i) % COPIES] = *(const uint32_t *)&pair;
    __syncthreads();
}

/* The pair of a byte of `word`, from this lane's copy of the table. */
__device__ __forceinline__ uint32_t pair_of(const uint32_t *copy, uint32_t word, int byte)
{
    return copy[(word >> byte * 8 & 255) * COPIES];
}

__device__ __forceinline__ void use(float *sum, const stage *from, const few &f, const lane &l,
                                    const uint32_t *copy, int64_t step, int64_t end)
{
#pragma unroll 2
    for (int i = 0; i < STEPS; i++) {
        bool there = step + i < end;
        uint4 x[2] = { make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0) };
        const uint4 *at = (const uint4 *)(l.x + (step + i) * NF4_BLOCK + l.part * 16);
        if (there && l.x) {
            x[0] = at[0];
            x[1] = at[1];
        }
        const uint32_t b[8] = { x[0].x, x[0].y, x[0].z, x[0].w, x[1].x, x[1].y, x[1].z, x[1].w };
        uint2 w0 = *(const uint2 *)&from->codes[l.row][i * 32 + l.part * 8];
        uint2 w1 = *(const uint2 *)&from->codes[l.row + 8][i * 32 + l.part * 8];
        float s0 = there ? from->scales[l.row][i] : 0, s1 = there ? from->scales[l.row + 8][i] : 0;
        float block[2][4] = {}; /* two, so that products need not wait for each other */
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t u = j < 2 ? w0.x : w0.y, v = j < 2 ? w1.x : w1.y;
            int byte = j % 2 * 2;
            uint32_t a[4] = { pair_of(copy, u, byte), pair_of(copy, v, byte),
                              pair_of(copy, u, byte + 1), pair_of(copy, v, byte + 1) };
            multiply(block[j % 2], a, b + 2 * j);
        }
        sum[0] += s0 * (block[0][0] + block[1][0]);
        sum[1] += s0 * (block[0][1] + block[1][1]);
        sum[2] += s1 * (block[0][2] + block[1][2]);
        sum[3] += s1 * (block[0][3] + block[1][3]);
    }
}

__global__ void __launch_bounds__(WARPS *LANES, 3)
    few_nf4(const few f, const __grid_constant__ code_table table)
{
    extern __shared__ uint4 memory[];
    shared_nf4 *m = (shared_nf4 *)memory;
    lane l = lane_of(f);
    stage *mine = &m->of[l.warp];
    float sum[4] = { 0, 0, 0, 0 };
    int64_t step, end;
    share(f.k / NF4_BLOCK, l.warp, &step, &end);
    load(mine, f, step, end);
    fill(m->pairs, table); /* meanwhile */
    wait_before();
    for (; step < end; step += STEPS) {
        arrive();
        use(sum, mine, f, l, m->pairs + threadIdx.x % COPIES, step, end);
        __syncwarp();
        if (step + STEPS < end)
            load(mine, f, step + STEPS, end);
    }
    __syncthreads();
    finish(f, l, sum, m->sums);
}

} // namespace

extern "C" bool cuda_few_rows(cuda_device *d, const mm *a)
{
    int64_t tokens = tensor_rows(&a->a), n = tensor_rows(&a->b), k = tensor_cols(&a->b);
    bool nf4 = a->b.dt == DT_NF4;
    uintptr_t at = (uintptr_t)a->a.data | (uintptr_t)a->b.data;
    if (a->layout != MM_NT || tokens > TOKENS || a->a.dt != DT_BF16 || at % 16 ||
        !(nf4 ? k % NF4_BLOCK == 0 : a->b.dt == DT_BF16 && k % 8 == 0))
        return false;
    few f = { a->out.data,
              a->b.data,
              nf4 ? nf4_scales(a->b.data, n * k) : NULL,
              (const __nv_bfloat16 *)a->a.data,
              a->bias.data,
              n,
              k,
              (int)tokens,
              a->scale,
              a->out.dt == DT_F32,
              a->bias.dt == DT_F32,
              a->accumulate };
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t launch = {};
    launch.gridDim = dim3((unsigned)((n + ROWS - 1) / ROWS));
    launch.blockDim = dim3(WARPS * LANES);
    launch.stream = d->stream;
    launch.attrs = &overlap;
    launch.numAttrs = d->cc >= 90;
    code_table table;
    memcpy(table.value, nf4_code, sizeof table.value);
    launch.dynamicSmemBytes = nf4 ? sizeof(shared_nf4) : 0;
    static bool raised;
    if (nf4 && !raised)
        cudaFuncSetAttribute(few_nf4, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             sizeof(shared_nf4));
    raised = raised || nf4;
    cudaError_t e = nf4 ? cudaLaunchKernelEx(&launch, few_nf4, f, table)
                        : cudaLaunchKernelEx(&launch, few_bf16, f);
    if (e != cudaSuccess)
        cuda_fail(d, e, "few rows");
    return true;
}

/* quant: quantises f32 weights to NF4, bit for bit as tensor/nf4.c, which explains each step.
 * Intrinsics keep the compiler from contracting products and sums. Bound: memory; 16 lanes have a
 * block of 64 weights.
 *
 * Double quantisation needs the mean of the scales, whose sum is the one value that can depend on
 * the order: the CPU adds in double. Where no addition can round, any order gives the same bits;
 * otherwise one thread adds in the CPU's order, while the others load and convert. */
#include "backend/cuda/vec.cuh"

extern "C" {
#include "tensor/nf4.h"
}

namespace
{

constexpr float LEAST_ABSMAX = 1e-38f;
constexpr int LANES = NF4_BLOCK / 4; /* of a block: four weights each */

struct thresholds {
    float x[15]; /* midpoints between the values of the code */
};

struct spans {
    unsigned char *first; /* of `count` spans, `bytes` apart */
    size_t bytes, codes;  /* of a span; of its codes */
    int64_t n, blocks;    /* elements and blocks of a span */
};

__device__ float *scales_of(const spans &s, int64_t m)
{
    return (float *)(s.first + m * s.bytes + s.codes);
}

/* The largest magnitude over N lanes, compared as integers: NaN is above all. */
template <int N> __device__ float absmax_lanes(int32_t bits)
{
    for (int lane = N / 2; lane; lane /= 2)
        bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, lane));
    return __int_as_float(bits);
}

__device__ int32_t magnitude(float x)
{
    return __float_as_int(x) & INT32_MAX;
}

__device__ uint32_t code_of(float s, const thresholds &t)
{
    uint32_t below = 0;
#pragma unroll
    for (int i = 0; i < 15; i++)
        below += !(s <= t.x[i]);
    return below;
}

/* LANES lanes have a block. Matrices are blockIdx.y. */
__global__ void quant_kernel(spans s, const float *w, thresholds t, bool wide)
{
    int lane = threadIdx.x % LANES;
    int64_t m = blockIdx.y;
    int64_t block = (int64_t)blockIdx.x * (VEC_THREADS / LANES) + threadIdx.x / LANES;
    int64_t i = block * NF4_BLOCK + lane * 4;
    unsigned char *codes = s.first + m * s.bytes;
    bool full = (block + 1) * NF4_BLOCK <= s.n;
    float x[4] = { 0 };
    w += m * s.n;
    vec_at<4>(i, s.n, wide, [&](auto at) { at.load(x, w); });
    int32_t most = 0;
    for (int j = 0; j < 4; j++)
        most = max(most, magnitude(x[j]));
    float absmax = absmax_lanes<LANES>(most);
    float least = absmax < LEAST_ABSMAX ? LEAST_ABSMAX : absmax, inverse = 1.0f / least;
    uint32_t q[4];
    for (int j = 0; j < 4; j++) {
        float v = full ? x[j] * inverse : x[j] / least;
        q[j] = code_of(i + j < s.n ? v : 0.0f, t);
    }
    if (block >= s.blocks)
        return;
    if (lane == 0)
        scales_of(s, m)[block] = full ? absmax : least;
    if (i < s.n)
        codes[i / 2] = (unsigned char)(q[0] << 4 | q[1]);
    if (i + 2 < s.n)
        codes[i / 2 + 1] = (unsigned char)(q[2] << 4 | q[3]);
    for (int64_t b = (s.n + 1) / 2 + lane; block == s.blocks - 1 && b < (int64_t)s.codes;
         b += LANES)
        codes[b] = 0; /* padding */
}

/* ---- double quantisation ---- */

constexpr int TILE = 2048;

/* The sum of n scales by the block, in thread 0. `exact`: no addition rounded, because all scales
 * are multiples of the last bit of the smallest, and 53 bits hold the largest sum. */
__device__ double sum_any(const float *scales, int64_t n, bool &exact)
{
    __shared__ int32_t least[VEC_THREADS / WARP], most[VEC_THREADS / WARP];
    int32_t low = INT32_MAX, high = 0; /* as integers of bits: scales are not negative */
    double sum = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < n; i += VEC_THREADS) {
        int32_t bits = magnitude(scales[i]);
        low = bits && bits < low ? bits : low;
        high = max(high, bits);
        sum += scales[i];
    }
    low = __reduce_min_sync(0xffffffffu, low);
    high = __reduce_max_sync(0xffffffffu, high);
    if (threadIdx.x % WARP == 0) {
        least[threadIdx.x / WARP] = low;
        most[threadIdx.x / WARP] = high;
    }
    sum = vec_team_sum<VEC_THREADS>(sum);
    for (int w = 0; w < VEC_THREADS / WARP; w++) {
        low = min(low, least[w]);
        high = max(high, most[w]);
    }
    int bits = 64 - __clzll(n) + (high >> 23) + 1 - max(low >> 23, 1) + 23;
    exact = bits <= 53;
    return sum;
}

/* The same, added in order by thread 0; tiles are double buffered. */
__device__ double sum_in_order(const float *scales, int64_t n)
{
    __shared__ double tile[2][TILE];
    double sum = 0;
    for (int64_t base = 0, turn = 0; base - TILE < n; base += TILE, turn ^= 1) {
        for (int i = threadIdx.x - 1; i < TILE && i >= 0 && base + i < n; i += VEC_THREADS - 1)
            tile[turn][i] = scales[base + i];
        if (threadIdx.x == 0 && base > 0) {
            int64_t left = n - (base - TILE);
            int count = left < TILE ? (int)left : TILE;
#pragma unroll 16
            for (int i = 0; i < count; i++)
                sum += tile[turn ^ 1][i];
        }
        __syncthreads();
    }
    return sum;
}

/* mean[m] of the scales of matrix m. */
__global__ void mean_kernel(spans s, float *mean)
{
    const float *scales = scales_of(s, blockIdx.x);
    bool exact;
    double sum = sum_any(scales, s.blocks, exact);
    if (!exact)
        sum = sum_in_order(scales, s.blocks);
    if (threadIdx.x == 0)
        mean[blockIdx.x] = (float)(sum / (double)s.blocks);
}

struct dynamic_map {
    float value[NF4_NESTED_BLOCK];
};

__device__ int dynamic_code(float s, const float *map)
{
    float unit = (s + 1.0f) * 0.5f;
    double point = floor((float)((double)unit * 65535.0 + 0.5)) / 65535.0 * 2.0 - 1.0;
    int low = 0, high = 255;
    while (low < high) {
        int mid = (low + high) / 2;
        if (point > ((double)map[mid] + map[mid + 1]) / 2)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* A block of threads has a nested block of 256 scales of matrix blockIdx.y. */
__global__ void nested_kernel(spans s, const float *means, const __grid_constant__ dynamic_map map)
{
    __shared__ float value[NF4_NESTED_BLOCK];
    __shared__ int32_t most[VEC_THREADS / WARP];
    int64_t i = (int64_t)blockIdx.x * NF4_NESTED_BLOCK + threadIdx.x;
    float *scale = scales_of(s, blockIdx.y) + i, mean = means[blockIdx.y];
    bool there = i < s.blocks;
    float x = there ? *scale - mean : 0.0f;
    value[threadIdx.x] = map.value[threadIdx.x];
    float warps_most = absmax_lanes<WARP>(there ? magnitude(x) : 0);
    if (threadIdx.x % WARP == 0)
        most[threadIdx.x / WARP] = __float_as_int(warps_most);
    __syncthreads();
    int32_t bits = 0;
    for (int w = 0; w < VEC_THREADS / WARP; w++)
        bits = max(bits, most[w]);
    float absmax = __int_as_float(bits), inverse = 1.0f / absmax;
    int q = absmax > 0 ? dynamic_code(__fmul_rn(x, inverse), value) : 0;
    if (there)
        *scale = __fadd_rn(__fmul_rn(value[q], absmax), mean);
}

} // namespace

extern "C" void cuda_quantize_nf4(device *d, tensor out, tensor w, bool double_quant)
{
    static_assert((int)NF4_NESTED_BLOCK == (int)VEC_THREADS, "a thread for each nested scale");
    cuda_device *c = cuda_of(d);
    int64_t matrices = out.nd == 3 ? out.ne[0] : 1, n = matrices ? tensor_count(&w) / matrices : 0;
    spans s = { (unsigned char *)out.data, 0, nf4_codes_bytes(n), n,
                (n + NF4_BLOCK - 1) / NF4_BLOCK };
    s.bytes = s.codes + (size_t)s.blocks * sizeof(float);
    thresholds t;
    for (int i = 0; i < 15; i++)
        t.x[i] = (float)(((double)nf4_code[i] + nf4_code[i + 1]) / 2);
    if (n == 0)
        return;
    dim3 grid(vec_blocks(s.blocks, VEC_THREADS / LANES), (unsigned)matrices);
    quant_kernel<<<grid, VEC_THREADS, 0, c->stream>>>(s, (const float *)w.data, t,
                                                      vec_aligned(w) && n % 4 == 0);
    cuda_launched(c, "quantize_nf4");
    if (!double_quant)
        return;
    float *means = (float *)cuda_scratch(c, "quantize_nf4", scratch_means(matrices));
    if (!means)
        return;
    dynamic_map map;
    for (int i = 0; i < NF4_NESTED_BLOCK; i++)
        map.value[i] = nf4_dynamic_map()[i];
    mean_kernel<<<(unsigned)matrices, VEC_THREADS, 0, c->stream>>>(s, means);
    dim3 nested(vec_blocks(s.blocks, NF4_NESTED_BLOCK), (unsigned)matrices);
    nested_kernel<<<nested, VEC_THREADS, 0, c->stream>>>(s, means, map);
    cuda_launched(c, "quantize_nf4");
}

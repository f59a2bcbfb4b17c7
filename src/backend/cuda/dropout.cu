/* dropout: masks from a counter-based random number generator (Philox). The mask depends on (key,
 * index) alone, so forward, backward and recomputation generate the same one and none is stored. It
 * is the CPU's: rng_uniform(), four numbers from each Philox block. Bound: memory. */
#include "backend/cuda/vec.cuh"

namespace
{

/* As philox() of base/rng.c. */
__device__ void philox(uint32_t (&x)[4], rng_key key, uint64_t block)
{
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
    x[0] = (uint32_t)block;
    x[1] = (uint32_t)(block >> 32);
    x[2] = (uint32_t)key.stream;
    x[3] = (uint32_t)(key.stream >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)x[0] * 0xD2511F53u, p1 = (uint64_t)x[2] * 0xCD9E8D57u;
        x[0] = (uint32_t)(p1 >> 32) ^ x[1] ^ k0;
        x[2] = (uint32_t)(p0 >> 32) ^ x[3] ^ k1;
        x[1] = (uint32_t)p1;
        x[3] = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* A uniform number has 24 bits: it is below p when they are below `dropped`. */
template <class O, class X>
__global__ void dropout_kernel(O *out, const X *x, int64_t n, rng_key key, uint32_t dropped,
                               float keep, bool wide)
{
    constexpr int W = vec_width<O, X>;
    vec_each<W>(n, wide, [&](auto at) {
        float v[W];
        at.load(v, x);
        for (int j = 0; j < W; j += 4) {
            uint32_t u[4];
            philox(u, key, (uint64_t)(at.i + j) / 4);
            for (int l = 0; l < 4; l++)
                v[j + l] = u[l] >> 8 < dropped ? 0.0f : v[j + l] * keep;
        }
        at.store(out, v);
    });
}

} // namespace

extern "C" void cuda_dropout(device *d, tensor out, tensor x, rng_key key, float p)
{
    int64_t n = tensor_count(&x);
    bool wide = vec_aligned(out, x);
    uint32_t dropped = (uint32_t)ceil((double)p * 0x1p24);
    vec_typed2(out.dt, x.dt, [&](auto o, auto v) {
        typedef decltype(o) O;
        typedef decltype(v) X;
        vec_launch_flat<O, X>(d, "dropout", n, dropout_kernel<O, X>, (O *)out.data, (X *)x.data, n,
                              key, dropped, 1.0f / (1.0f - p), wide);
    });
}

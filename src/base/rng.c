#include "base/rng.h"

#include <math.h>

static void philox(rng_key k, uint64_t block, uint32_t x[4])
{
    uint32_t k0 = (uint32_t)k.seed, k1 = (uint32_t)(k.seed >> 32);
    x[0] = (uint32_t)block;
    x[1] = (uint32_t)(block >> 32);
    x[2] = (uint32_t)k.stream;
    x[3] = (uint32_t)(k.stream >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)x[0] * 0xD2511F53u, p1 = (uint64_t)x[2] * 0xCD9E8D57u;
        uint32_t y0 = (uint32_t)(p1 >> 32) ^ x[1] ^ k0, y2 = (uint32_t)(p0 >> 32) ^ x[3] ^ k1;
        x[1] = (uint32_t)p1;
        x[3] = (uint32_t)p0;
        x[0] = y0;
        x[2] = y2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

uint64_t rng_stream(uint64_t a, uint64_t b, uint64_t c)
{
    return mix(mix(mix(a + 0x9E3779B97F4A7C15u) + b + 0x9E3779B97F4A7C15u) + c);
}

uint32_t rng_u32(rng_key k, uint64_t index)
{
    uint32_t x[4];
    philox(k, index >> 2, x);
    return x[index & 3];
}

float rng_uniform(rng_key k, uint64_t index)
{
    return (float)(rng_u32(k, index) >> 8) * 0x1p-24f;
}

/* Box-Muller: each pair of uniforms gives the normals of two consecutive indices. */
float rng_normal(rng_key k, uint64_t index)
{
    uint64_t pair = index & ~(uint64_t)1;
    double u = ((double)rng_u32(k, pair) + 1.0) * 0x1p-32;
    double v = (double)rng_u32(k, pair + 1) * 0x1p-32;
    double r = sqrt(-2.0 * log(u)), angle = 6.283185307179586 * v;
    return (float)(index & 1 ? r * sin(angle) : r * cos(angle));
}

uint64_t rng_below(rng_key k, uint64_t index, uint64_t n)
{
    uint32_t x[4];
    philox(k, index, x);
    uint64_t r = (uint64_t)x[1] << 32 | x[0];
    return (uint64_t)((unsigned __int128)r * n >> 64);
}

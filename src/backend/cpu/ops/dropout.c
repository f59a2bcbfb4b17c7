/* dropout: zeros by counter-based random numbers. The mask depends on (key, index) alone, so
 * forward, backward and recomputation make the same one and none is kept. The numbers are
 * rng_uniform()'s; its philox is written here for a vector of counters at a time. */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/vec.h"

enum { NUMBERS = 4 * VEC_LANES, RANGE = 4096 }; /* of one vector of counters; a range is many */

typedef uint64_t vl __attribute__((vector_size(VEC_BYTES)));

/* The halves of 32 by 32 bit products: even lanes, then odd ones. */
static inline vu multiply(vu x, uint32_t by, vu *high)
{
    vl factor = (vl)(vu){ 0 } + by, low_half = (vl)(vu){ 0 } + 0xffffffffu;
    vl even = ((vl)x & low_half) * factor, odd = ((vl)x >> 32) * factor;
    *high = (vu)((even >> 32) | (odd & ~low_half));
    return (vu)((even & low_half) | (odd << 32));
}

/* u[4 i + j]: number j of block first + i, as rng_u32() gives it. */
static void draw(uint32_t u[NUMBERS], rng_key key, uint64_t first)
{
    uint32_t low[VEC_LANES], top[VEC_LANES], k0 = (uint32_t)key.seed,
                                             k1 = (uint32_t)(key.seed >> 32);
    vu x[4], none = { 0 };
    for (int i = 0; i < VEC_LANES; i++) {
        low[i] = (uint32_t)(first + (uint64_t)i);
        top[i] = (uint32_t)((first + (uint64_t)i) >> 32);
    }
    memcpy(&x[0], low, sizeof low);
    memcpy(&x[1], top, sizeof top);
    x[2] = none + (uint32_t)key.stream;
    x[3] = none + (uint32_t)(key.stream >> 32);
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        vu high0, high1, low0 = multiply(x[0], 0xD2511F53u, &high0);
        vu low1 = multiply(x[2], 0xCD9E8D57u, &high1);
        x[0] = high1 ^ x[1] ^ k0;
        x[1] = low1;
        x[2] = high0 ^ x[3] ^ k1;
        x[3] = low0;
    }
    for (int j = 0; j < 4; j++) {
        memcpy(low, &x[j], sizeof low);
        for (int i = 0; i < VEC_LANES; i++)
            u[4 * i + j] = low[i];
    }
}

typedef struct drop {
    tensor out, x;
    rng_key key;
    float p;
} drop;

static void drop_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const drop *p = ctx;
    uint32_t u[NUMBERS];
    vf keep = vec_set(1.0f / (1.0f - p->p)), none = { 0 };
    for (int64_t i = begin; i < end; i += NUMBERS) {
        draw(u, p->key, (uint64_t)i / 4);
        for (int64_t j = 0; j < NUMBERS && i + j < end; j += VEC_LANES) {
            vf x = vec_load(p->x.data, i + j, end - i - j, p->x.dt);
            vi bits; /* 24 of them make a uniform number */
            memcpy(&bits, u + j, sizeof bits);
            vf uniform = __builtin_convertvector((vi)((vu)bits >> 8), vf) * 0x1p-24f;
            vec_store(p->out.data, i + j, end - i - j, p->out.dt,
                      vec_select(uniform < p->p, none, x * keep));
        }
    }
}

void OP(dropout)(device *d, tensor out, tensor x, rng_key key, float p)
{
    drop a = { out, x, key, p };
    cpu_for(cpu_of(d), tensor_count(&x), RANGE, drop_range, &a);
}

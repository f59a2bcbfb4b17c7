/* dropout: zeros by counter-based random numbers. The mask depends on (key, index) alone, so
 * forward, backward and recomputation make the same one and none is kept. The numbers are
 * rng_uniform()'s; its philox is written here for a vector of counters at a time. */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/vec.h"

#if defined(__AVX512F__)
#define WHOLE(name, a, b) (vl) _mm512_##name((__m512i)(a), (__m512i)(b))
#elif defined(__AVX2__)
#define WHOLE(name, a, b) (vl) _mm256_##name((__m256i)(a), (__m256i)(b))
#else
#define WHOLE(name, a, b) (vl) _mm_##name((__m128i)(a), (__m128i)(b))
#endif

typedef uint64_t vl __attribute__((vector_size(VEC_BYTES)));

enum {
    COUNTERS = VEC_BYTES / 8, /* of a vector: one in each 64 bits */
    NUMBERS = 4 * COUNTERS,   /* they give: two vectors */
    ROUNDS = 10,
    RANGE = 4096
};

/* What the rounds of one key share. */
typedef struct schedule {
    vl stream, keys[ROUNDS][2];
} schedule;

static schedule schedule_of(rng_key key)
{
    vl none = { 0 };
    schedule s = { .stream = none + key.stream };
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
    for (int i = 0; i < ROUNDS; i++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        s.keys[i][0] = none + k0;
        s.keys[i][1] = none + k1;
    }
    return s;
}

/* Numbers of blocks first, first + 1, ... as rng_u32() gives them, in order. A word of philox lies
 * in the lower half of its 64 bits; what is in the upper half does not matter, so a product is also
 * its lower word. Lane 2 i holds the counter first + i, lane 2 i + 1 the one that is COUNTERS / 2
 * further: so unpacking puts the words in order. */
static inline void draw(vu u[2], const schedule *s, uint64_t first)
{
    enum { HALF = COUNTERS / 2 };
    static const uint64_t offsets[8] = { 0, HALF, 1, HALF + 1, 2, HALF + 2, 3, HALF + 3 };
    const vl none = { 0 }, m0 = none + 0xD2511F53u, m1 = none + 0xCD9E8D57u;
    vl x0, x1, x2 = s->stream, x3 = x2 >> 32;
    memcpy(&x0, offsets, sizeof x0);
    x0 += first;
    x1 = x0 >> 32;
    for (int i = 0; i < ROUNDS; i++) {
        vl p0 = WHOLE(mul_epu32, x0, m0), p1 = WHOLE(mul_epu32, x2, m1);
        x0 = (p1 >> 32) ^ x1 ^ s->keys[i][0];
        x2 = (p0 >> 32) ^ x3 ^ s->keys[i][1];
        x1 = p1;
        x3 = p0;
    }
    vl low = none + 0xFFFFFFFFu, even = (x0 & low) | x1 << 32, odd = (x2 & low) | x3 << 32;
    u[0] = (vu)WHOLE(unpacklo_epi64, even, odd);
    u[1] = (vu)WHOLE(unpackhi_epi64, even, odd);
}

typedef struct drop {
    tensor out, x;
    rng_key key;
    float keep;    /* 1 / (1 - p) */
    int32_t zeros; /* of the 2^24 uniform numbers, how many are below p */
} drop;

static void drop_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const drop *p = ctx;
    vf none = { 0 };
    schedule s = schedule_of(p->key);
    for (int64_t i = begin; i < end; i += NUMBERS) {
        vu u[2];
        draw(u, &s, (uint64_t)i / 4);
        for (int64_t j = 0; j < 2 && i + j * VEC_LANES < end; j++) {
            int64_t at = i + j * VEC_LANES;
            vf x = vec_load(p->x.data, at, end - at, p->x.dt);
            vec_store(p->out.data, at, end - at, p->out.dt,
                      vec_select((vi)(u[j] >> 8) < p->zeros, none, x * p->keep));
        }
    }
}

void OP(dropout)(device *d, tensor out, tensor x, rng_key key, float p)
{
    drop a = { out, x, key, 1.0f / (1.0f - p), (int32_t)__builtin_ceil((double)p * 0x1p24) };
    cpu_for(cpu_of(d), tensor_count(&x), RANGE, drop_range, &a);
}

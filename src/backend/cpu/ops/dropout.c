/* dropout: zeroes elements by counter-based random numbers. The mask depends on (key, index) only,
 * so forward, backward and recomputation make the same mask and none is stored. The numbers are
 * those of rng_uniform(); here Philox runs on a vector of counters at a time. */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/vec.h"

enum {
    COUNTERS = VEC_BYTES / 8, /* in a vector: one in each 64 bits */
    NUMBERS = 4 * COUNTERS,   /* random numbers of these: two vectors */
    ROUNDS = 10,
    RANGE = 4096
};

/* The round keys of one key. */
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

/* The numbers of counters first, first + 1, ..., in the order of rng_u32(). A 32-bit word of Philox
 * is the lower half of a 64-bit lane; the upper half is ignored, so that a 64-bit product can serve
 * as its own lower word. Lane 2 i holds counter first + i, lane 2 i + 1 counter
 * first + COUNTERS / 2 + i, so that unpacking puts the words in order. */
static inline void philox_vectors(vu u[2], const schedule *s, uint64_t first)
{
    enum { HALF = COUNTERS / 2 };
    static const uint64_t offsets[8] = { 0, HALF, 1, HALF + 1, 2, HALF + 2, 3, HALF + 3 };
    const vl none = { 0 }, m0 = none + 0xD2511F53u, m1 = none + 0xCD9E8D57u;
    vl x0, x1, x2 = s->stream, x3 = x2 >> 32;
    memcpy(&x0, offsets, sizeof x0);
    x0 += first;
    x1 = x0 >> 32;
    for (int i = 0; i < ROUNDS; i++) {
        vl p0 = vec_multiply_words(x0, m0), p1 = vec_multiply_words(x2, m1);
        x0 = (p1 >> 32) ^ x1 ^ s->keys[i][0];
        x2 = (p0 >> 32) ^ x3 ^ s->keys[i][1];
        x1 = p1;
        x3 = p0;
    }
    vl low = none + 0xFFFFFFFFu, even = (x0 & low) | x1 << 32, odd = (x2 & low) | x3 << 32;
    u[0] = (vu)vec_unpack_low(even, odd);
    u[1] = (vu)vec_unpack_high(even, odd);
}

typedef struct drop {
    tensor out, x;
    rng_key key;
    float keep;    /* 1 / (1 - p) */
    int32_t zeros; /* how many of the 2^24 uniform numbers are below p */
} drop;

static void dropout_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const drop *p = ctx;
    vf none = { 0 };
    vi zeros = vec_set_int(p->zeros);
    schedule s = schedule_of(p->key);
    for (int64_t i = begin; i < end; i += NUMBERS) {
        vu u[2];
        philox_vectors(u, &s, (uint64_t)i / 4);
        for (int64_t j = 0; j < 2 && i + j * VEC_LANES < end; j++) {
            int64_t at = i + j * VEC_LANES;
            vf x = vec_load(p->x.data, at, end - at, p->x.dt);
            vec_store(p->out.data, at, end - at, p->out.dt,
                      vec_select(vec_int_less((vi)(u[j] >> 8), zeros), none, x * p->keep));
        }
    }
}

void OP(dropout)(device *d, tensor out, tensor x, rng_key key, float p)
{
    drop a = { out, x, key, 1.0f / (1.0f - p), (int32_t)__builtin_ceil((double)p * 0x1p24) };
    cpu_for(cpu_of(d), tensor_count(&x), RANGE, dropout_range, &a);
}

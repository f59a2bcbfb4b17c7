#include "eval/pyrandom.h"

#include "base/mem.h"

enum { N = 624, M = 397 };

static void init_by_number(pyrandom *r, uint32_t s)
{
    r->state[0] = s;
    for (uint32_t i = 1; i < N; i++) {
        uint32_t before = r->state[i - 1];
        r->state[i] = 1812433253u * (before ^ (before >> 30)) + i;
    }
    r->next = N;
}

/* MT19937's init_by_array with a key of one word, which is how CPython takes a small integer. */
void pyrandom_seed(pyrandom *r, uint32_t seed)
{
    uint32_t *s = r->state, i = 1;
    init_by_number(r, 19650218u);
    for (int k = 0; k < N; k++) {
        s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1664525u)) + seed;
        if (++i >= N) {
            s[0] = s[N - 1];
            i = 1;
        }
    }
    for (int k = 0; k < N - 1; k++) {
        s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1566083941u)) - i;
        if (++i >= N) {
            s[0] = s[N - 1];
            i = 1;
        }
    }
    s[0] = 0x80000000u;
}

static void refill(pyrandom *r)
{
    uint32_t *s = r->state;
    for (int i = 0; i < N; i++) {
        uint32_t y = (s[i] & 0x80000000u) | (s[(i + 1) % N] & 0x7fffffffu);
        s[i] = s[(i + M) % N] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    r->next = 0;
}

uint32_t pyrandom_u32(pyrandom *r)
{
    if (r->next >= N)
        refill(r);
    uint32_t y = r->state[r->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

uint32_t pyrandom_below(pyrandom *r, uint32_t n)
{
    ASSERT(n > 0);
    int shift = __builtin_clz(n); /* bit_length(n) = 32 - shift */
    uint32_t drawn = pyrandom_u32(r) >> shift;
    while (drawn >= n)
        drawn = pyrandom_u32(r) >> shift;
    return drawn;
}

/* The largest population that CPython draws from a shrinking list rather than with a set of the
 * numbers seen: 21, plus the table size of a set of k numbers. */
static uint64_t list_limit(uint32_t k)
{
    uint64_t table = 1;
    while (table < 3 * (uint64_t)k)
        table *= 4;
    return 21 + (k > 5 ? table : 0);
}

static pesc_status sample_from_list(pyrandom *r, uint32_t n, uint32_t k, uint32_t *out)
{
    uint32_t *pool = mem_alloc(n, sizeof *pool);
    if (!pool)
        return fail_nomem("drawing few-shot examples", n * sizeof *pool);
    for (uint32_t i = 0; i < n; i++)
        pool[i] = i;
    for (uint32_t i = 0; i < k; i++) {
        uint32_t j = pyrandom_below(r, n - i);
        out[i] = pool[j];
        pool[j] = pool[n - i - 1];
    }
    mem_free(pool);
    return PESC_OK;
}

static bool is_drawn(const uint32_t *drawn, uint32_t n, uint32_t x)
{
    for (uint32_t i = 0; i < n; i++)
        if (drawn[i] == x)
            return true;
    return false;
}

pesc_status pyrandom_sample(pyrandom *r, uint32_t n, uint32_t k, uint32_t *out)
{
    ASSERT(k <= n);
    if (n <= list_limit(k))
        return k ? sample_from_list(r, n, k, out) : PESC_OK;
    for (uint32_t i = 0; i < k; i++) {
        do
            out[i] = pyrandom_below(r, n);
        while (is_drawn(out, i, out[i]));
    }
    return PESC_OK;
}

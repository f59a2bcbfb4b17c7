#include "backend/cuda_scratch.h"

#include "base/num.h"

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- products ---- */

size_t scratch_converted(int64_t n, dtype dt)
{
    return scratch_aligned((size_t)n * dtype_block_bytes(dt));
}

size_t scratch_fp8(int64_t rows, int64_t columns, int64_t weights)
{
    return SCRATCH_ALIGN + scratch_aligned((size_t)rows * sizeof(float)) +
           scratch_aligned((size_t)(rows * columns)) + scratch_aligned((size_t)weights) +
           2 * MATMUL_TERMS * SCRATCH_ALIGN; /* each term begins aligned */
}

int64_t scratch_split_k(int n_sm, int64_t n, int64_t k)
{
    int64_t blocks = larger(n_sm / num_divide_up(n, SPLIT_K_ROWS), 1);
    return num_min(num_min(blocks, SPLIT_K_MOST), num_divide_up(k, SPLIT_K_DEPTH));
}

/* Where k is split, parts times tiles are at most the multiprocessors. */
size_t scratch_split_k_bytes(int n_sm, int64_t tokens, int64_t n)
{
    int64_t sums = larger(n, num_min(n * SPLIT_K_MOST, (int64_t)n_sm * SPLIT_K_ROWS));
    return (size_t)(num_min(tokens, SPLIT_K_TOKENS) * sums) * sizeof(float);
}

size_t scratch_expert_order(void)
{
    return (1 + GROUPED_EXPERTS) * sizeof(int32_t);
}

/* ---- routing and rows ---- */

size_t scratch_sort(int64_t rows, int64_t experts)
{
    return rows <= SORT_ALONE
               ? 0
               : (size_t)(num_divide_up(rows, SORT_ROWS) * experts) * sizeof(int32_t);
}

size_t scratch_balance(int64_t experts)
{
    return (size_t)(BALANCE_PARTS * (2 * experts + 1)) * sizeof(float);
}

size_t scratch_columns(int64_t rows, int64_t n)
{
    int64_t slabs = num_min(num_divide_up(rows, COLUMN_ROWS), COLUMN_SLABS);
    return slabs <= 1 ? 0 : (size_t)(slabs * n) * sizeof(float);
}

size_t scratch_router(int64_t n)
{
    return (size_t)(ROUTER_CHUNKS * ROUTER_GROUP * n) * sizeof(float);
}

/* ---- attention ---- */

size_t scratch_tiles(int64_t tokens, int64_t seqs)
{
    enum { TILE_BYTES = 4 * sizeof(int32_t) };
    return scratch_aligned((size_t)(num_divide_up(tokens, ATTENTION_ROWS) + seqs) * TILE_BYTES);
}

size_t scratch_attention_stats(int64_t tokens, int64_t heads)
{
    return (size_t)(tokens * heads) * 4 * sizeof(float);
}

int64_t scratch_decode_keys(int64_t keys)
{
    int64_t each = num_divide_up(num_divide_up(keys, DECODE_PARTS), DECODE_KEYS) * DECODE_KEYS;
    return larger(each, DECODE_LEAST);
}

size_t scratch_decode(int64_t slots, int64_t heads, int64_t v_dim, int64_t keys)
{
    int64_t parts = num_divide_up(keys, scratch_decode_keys(keys));
    return (size_t)(slots * heads * parts) * (size_t)(2 + v_dim) * sizeof(float);
}

int64_t scratch_tile_keys(int n_sm, int64_t tokens, int64_t heads, int64_t keys)
{
    int64_t blocks = num_divide_up(tokens, ATTENTION_ROWS) * heads;
    int64_t parts = larger(num_min(TILE_BLOCKS * n_sm / blocks, TILE_PARTS), 1);
    int64_t each = num_divide_up(num_divide_up(keys, parts), DECODE_KEYS) * DECODE_KEYS;
    return larger(each, TILE_LEAST);
}

/* Where keys are split, there are no more parts of tiles than blocks wanted. */
size_t scratch_tile_parts(int n_sm, int64_t tokens, int64_t heads, int64_t v_dim, int64_t keys)
{
    int64_t parts = num_min(num_divide_up(keys, TILE_LEAST), TILE_PARTS);
    int64_t rows = num_min(tokens * heads * parts, (int64_t)TILE_BLOCKS * n_sm * ATTENTION_ROWS);
    return parts <= 1 ? 0 : (size_t)rows * (size_t)(2 + v_dim) * sizeof(float);
}

/* ---- training ---- */

enum { SQUARES_SUMS = 1024 }; /* parts of a buffer in one sumsq: each rounds up */

size_t scratch_squares(int64_t n)
{
    return (size_t)larger(num_divide_up(n, SQUARES_PART), 1) * sizeof(double);
}

size_t scratch_codes(void)
{
    return CODES_BYTES;
}

size_t scratch_means(int64_t matrices)
{
    return (size_t)matrices * sizeof(float);
}

/* ---- all of them ---- */

/* Weights that a product reads in another type, with room for each term to begin aligned, and a
 * bias. */
static size_t work_products(const work_limits *w)
{
    return scratch_converted(w->converted, w->act) + MATMUL_TERMS * SCRATCH_ALIGN +
           scratch_converted(w->widest, DT_F32);
}

/* rmsnorm_bwd after a router: what the router adds to dy is f32 before it is rounded, where neither
 * the norm itself nor router_dx (few experts, many tokens) computes it. */
static size_t work_router_bwd(const work_limits *w)
{
    bool few = w->experts <= ROUTER_DX_EXPERTS && w->dim % 4 == 0;
    int64_t tokens = few ? num_min(w->tokens, ROUTER_DX_TOKENS - 1) : w->tokens;
    bool rounded = w->train && w->experts && w->act != DT_F32;
    return rounded ? scratch_converted(tokens * w->dim, DT_F32) : 0;
}

static size_t work_attention(int n_sm, const work_limits *w)
{
    size_t list = scratch_tiles(w->tokens, w->seqs);
    size_t decode = scratch_decode(w->seqs, w->heads, w->v_dim, w->cached);
    size_t parts = scratch_tile_parts(n_sm, w->tokens, w->heads, w->v_dim, w->cached);
    size_t stats = w->train ? scratch_attention_stats(w->tokens, w->heads) : 0;
    size_t most = decode > parts ? decode : parts;
    return list + (most > stats ? most : stats);
}

size_t scratch_for_work(int n_sm, const work_limits *w)
{
    const size_t needs[] = {
        work_products(w),
        w->fp8_weights ? scratch_fp8(w->tokens, w->fp8_columns, w->fp8_weights) : 0,
        work_router_bwd(w),
        work_attention(n_sm, w),
        w->converted ? scratch_split_k_bytes(n_sm, w->tokens, w->widest) : 0,
        scratch_sort(w->tokens * w->k, w->experts),
        w->experts ? scratch_expert_order() : 0,
        w->train ? scratch_balance(w->experts) : 0,
        w->train ? scratch_columns(w->tokens * larger(w->heads, 1), w->widest) : 0,
        w->train && w->experts ? scratch_router(w->dim) : 0,
        w->trained ? scratch_squares(w->trained) + SQUARES_SUMS * sizeof(double) : 0,
        w->trained ? scratch_codes() : 0,
        scratch_means(w->quantised),
    };
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        bytes = needs[i] > bytes ? needs[i] : bytes;
    return bytes;
}

/* cuda_scratch: how many bytes of scratch the ops of a GPU need.
 *
 * One pure function for each op that needs any, of the shape it is called with; the op asks for
 * exactly that, and scratch_for_work() adds nothing but the largest of them at the limits of some
 * work. No function decreases when one of its arguments grows, so the limits bound every op within
 * them. The numbers that shape a kernel's scratch are here too, and the kernel takes them from
 * here.
 *
 * Plain C without CUDA's headers: the functions are tested on machines without a GPU. */
#ifndef PESC_BACKEND_CUDA_SCRATCH_H
#define PESC_BACKEND_CUDA_SCRATCH_H

#include "backend/backend.h"

enum {
    SCRATCH_ALIGN = 256,    /* every part of an op's scratch begins at such an address */
    MATMUL_TERMS = 6,       /* terms that one product sums in a single pass */
    FP8_TOKENS = 256,       /* rows of activations from which gemm_fp8 computes */
    SPLIT_K_ROWS = 256,     /* rows of w that a block of nf4_split_k has */
    SPLIT_K_DEPTH = 128,    /* of k, at a time */
    SPLIT_K_MOST = 16,      /* blocks that share one sum */
    SPLIT_K_TOKENS = 32,    /* rows of activations it takes */
    SORT_ALONE = 8192,      /* rows that one block sorts in one launch */
    SORT_ROWS = 2048,       /* rows of a block where there are more */
    BALANCE_PARTS = 64,     /* partial sums of the balance loss */
    COLUMN_SLABS = 256,     /* partial sums of a column: at most */
    COLUMN_ROWS = 64,       /* rows of a partial sum: at least */
    ROUTER_CHUNKS = 64,     /* partial sums of a router's gradient */
    ROUTER_GROUP = 8,       /* experts they are made for at a time */
    ROUTER_DX_EXPERTS = 16, /* router_dx: dX of a router; experts at most, tokens at least */
    ROUTER_DX_TOKENS = 256,
    ATTENTION_ROWS = 128, /* rows of a tile of attention */
    DECODE_KEYS = 64,     /* keys of a block of decoding */
    DECODE_PARTS = 32,    /* parts that the keys of one row are cut into: at most */
    DECODE_LEAST = 256,   /* keys of a part: at least */
    TILE_PARTS = 16,      /* parts that the keys of one tile are cut into: at most */
    TILE_LEAST = 512,     /* keys of such a part: at least */
    TILE_BLOCKS = 2,      /* parts of tiles for each multiprocessor: at most */
    SQUARES_PART = 16384, /* numbers of a partial sum of squares */
    GROUPED_EXPERTS = 1024,
    CODES_BYTES = 2 * 5136 /* decoding tables of 8-bit moments, signed and unsigned */
};

static inline size_t scratch_aligned(size_t bytes)
{
    return (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
}

/* n numbers of one operand, bias or result of a product as dt. */
size_t scratch_converted(int64_t n, dtype dt);

/* gemm_fp8 of `rows` rows: all columns of its activations, all numbers of its weights. */
size_t scratch_fp8(int64_t rows, int64_t columns, int64_t weights);

/* Partial sums of nf4_split_k: how many share a sum, and their bytes. */
int64_t scratch_split_k(int n_sm, int64_t n, int64_t k);
size_t scratch_split_k_bytes(int n_sm, int64_t tokens, int64_t n);

/* expert_sort of `rows` rows, balance, sum_rows and rmsnorm_bwd's dw, rmsnorm_bwd's drouter. */
size_t scratch_sort(int64_t rows, int64_t experts);
size_t scratch_balance(int64_t experts);
size_t scratch_columns(int64_t rows, int64_t n);
size_t scratch_router(int64_t n);

/* attention: the list of tiles; log-sum-exp and D of each row and head (backward on Hopper);
 * partial results of decoding `slots` rows against `keys` positions each. */
size_t scratch_tiles(int64_t tokens, int64_t seqs);
size_t scratch_attention_stats(int64_t tokens, int64_t heads);
int64_t scratch_decode_keys(int64_t keys); /* of a part */
size_t scratch_decode(int64_t slots, int64_t heads, int64_t v_dim, int64_t keys);
/* The same of tiles where `tokens` rows are few of them. */
int64_t scratch_tile_keys(int n_sm, int64_t tokens, int64_t heads, int64_t keys); /* of a part */
size_t scratch_tile_parts(int n_sm, int64_t tokens, int64_t heads, int64_t v_dim, int64_t keys);

/* sumsq, adamw with 8-bit moments, quantize_nf4 of a stack, grouped_matmul's order of experts. */
size_t scratch_squares(int64_t n);
size_t scratch_codes(void);
size_t scratch_means(int64_t matrices);
size_t scratch_expert_order(void);

/* The most that an op within these limits needs, on a GPU with n_sm multiprocessors. */
size_t scratch_for_work(int n_sm, const work_limits *w);

#endif

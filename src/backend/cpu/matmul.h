/* matmul: how the CPU multiplies matrices.
 *
 * Every product is out[m,n] = sum over k of a(m,k) b(n,k). Whatever their layout in memory, both
 * sides become blocks along k of 32-bit words: a word is one f32, or two bf16 neighbours in k where
 * the CPU multiplies such pairs. The a side is rows, the b side panels of lanes, which fill vectors
 * or tiles; what need not be packed is read where it lies (tiles.h, panels.h). Few rows meet many
 * weights when decoding: then lanes are multiplied as they are made.
 *
 * The promise: an element is the sum of its blocks in order of k, a block the sum of its words in
 * an order that the engine fixes, and how k is cut into blocks depends on k alone. So a row has the
 * same bits alone and in any batch, many or few, on any number of threads. An engine is one
 * instruction set and kind of word; between engines the bits may differ. (Orders: kernel_body.h,
 * kernel_amx.c.)
 *
 * oneDNN's sgemm is as fast (bench/matmul.c prints both) but keeps no such promise: its order
 * depends on the number of rows. */
#ifndef PESC_BACKEND_CPU_MATMUL_H
#define PESC_BACKEND_CPU_MATMUL_H

#include "backend/cpu/cpu.h"

enum {
    MM_K = 512,    /* most words of a block */
    MM_LANES = 32, /* columns of a panel */
    MM_FEW = 8,    /* rows that `few` takes */
    MM_WORDS = 16, /* words are packed in groups of so many, zeros after the last */
    MM_STRIP = 32, /* most rows of a strip: two tiles of */
    MM_TILE = 16,  /* rows */
    MM_TERMS = 4   /* most products that one is the sum of */
};

typedef uint32_t mm_word;
typedef enum mm_words {
    MM_F32,
    MM_BF16_AS_F32, /* one bf16 value, widened */
    MM_BF16_PAIR,   /* neighbours in k */
    MM_BF16_ALONG,  /* the same; another order of sums, see kernel_body.h */
    MM_BF16_FOURTH  /* k and k + 4 of each eight, as codes of NF4 are looked up; this order too */
} mm_words;

/* One side of a product as it lies in memory: n vectors of k elements. */
typedef struct mm_side {
    const void *data;    /* at any alignment */
    const float *scales; /* of nf4 */
    dtype dt;
    bool k_last; /* element (i,k) is number i*ld + k, else k*ld + i */
    int64_t ld, n, k;
} mm_side;

/* Vectors [i, i + n) of a side and their words [w, w + nw). */
typedef struct mm_box {
    int64_t i, n, w, nw;
} mm_box;

/* sums [n_rows][ld] of a panel of lanes over a block: added to what is there, or put there. `few`
 * takes any number of lanes (sums are written for whole panels) and all blocks of the rows at once:
 * rows [blocks][n_rows padded][MM_K], each block of `block` words but the last. */
typedef struct mm_tile {
    float *sums;
    int64_t ld;
    const mm_word *rows;  /* as pack_rows, or pack_few, makes them */
    const mm_word *lanes; /* as pack_lanes makes them; not for `few` */
    mm_words words;
    int64_t row; /* words from row to row; not for `few`, nor for AMX */
    bool apart;  /* rows are in order though lanes have the words of a sum together */
    int64_t n_rows, n_lanes, nw;
    bool add;         /* few: only where the engine has strips */
    int64_t block;    /* few */
    mm_word *scratch; /* few: 2 MiB; 64 KiB where the engine has strips */
} mm_tile;

/* out [n_rows][n] = scale * sums (+ bias) (+ out). */
typedef struct mm_out {
    void *out;
    dtype dt;
    int64_t ld, sums_ld;      /* elements from row to row */
    const float *sums, *bias; /* bias NULL: none */
    int64_t n_rows, n;
    float scale;
    bool accumulate;
} mm_out;

/* Rows as tiles of sixteen rows by sixteen words: as pack_rows makes them, or as a side lies. In
 * bytes: from row to row of a tile, to the tile of the next words, of the next rows, of the next
 * MM_K words. */
typedef struct mm_left {
    const char *at;
    int64_t row, words, rows, block;
    bool followed; /* by a strip that lies as this one does, and will be next */
} mm_left;

/* One term of a sum: rows, and lanes [panels][nw][MM_LANES]. */
typedef struct mm_term {
    mm_left left;
    const mm_word *lanes;
    int64_t nw;
} mm_term;

/* A strip of rows by some panels of lanes, straight to out. */
typedef struct mm_strip {
    mm_term terms[MM_TERMS];
    int n_terms;
    int64_t n_rows, n; /* at most MM_STRIP rows; lanes */
    float *sums;       /* [rows][sums_ld]: what is carried */
    int64_t sums_ld;
    bool add, more; /* there were terms before; there are some to come: nothing for out yet */
    bool turned;    /* rows are columns of out */
    mm_out to;      /* numbers of rows and columns, and sums, are not looked at */
} mm_strip;

typedef struct mm_engine {
    mm_words words, few_words, nf4_words; /* in general; with sides that `few` takes, and NF4 */
    int64_t rows;                         /* most rows of a tile */
    /* n rows of MM_K words, in an order that `tile` knows; i is a multiple of 16 */
    void (*pack_rows)(mm_word *dst, const mm_side *x, mm_words words, mm_box box);
    /* [nw][MM_LANES], n <= MM_LANES; lanes past n hold anything */
    void (*pack_lanes)(mm_word *dst, const mm_side *x, mm_words words, mm_box box);
    void (*tile)(const mm_tile *t);
    /* the same sums for up to MM_FEW rows, straight from x, if it takes such a side; all
     * three absent: it takes none */
    bool (*takes)(const mm_side *x, mm_words words);
    void (*pack_few)(mm_word *dst, const mm_side *x, mm_words words, mm_box box);
    void (*few)(const mm_tile *t, const mm_side *x, mm_words words, mm_box box);
    void (*store)(const mm_out *o);
    /* instead of tile and store; bits do not depend on where sums are cut, nor on which side is
     * left. Absent: there is no such thing */
    void (*strip)(const mm_strip *s);
    /* around many calls of tile or strip by one thread, which then cost less; may be absent */
    void (*begin)(void);
    void (*end)(void);
} mm_engine;

/* The engine of a device for activations of dtype f32 or bf16. */
const mm_engine *mm_engine_of(cpu_isa isa, dtype activations);

/* One product out [a.n, b.n], and a set of them that share everything but memory and a.n or k.
 * Where the engine has strips, or there are more than MM_FEW rows, others may be added to it. */
typedef struct mm_sides {
    mm_side a, b;
} mm_sides;
typedef struct mm_product {
    mm_side a, b;
    void *out;
    int64_t ld; /* of out */
    const mm_sides *more;
    int n_more;
} mm_product;
typedef struct mm_set {
    const mm_engine *engine;
    int64_t count;
    void (*get)(const void *ctx, int64_t i, mm_product *p);
    const void *ctx;
    tensor bias;
    dtype out_dt;
    float scale;
    bool accumulate;
} mm_set;
void mm_run(cpu_device *d, const mm_set *set);

/* A matrix [rows, cols] as a side: k runs along its columns (k_last) or along its rows. */
mm_side mm_side_of(const tensor *t, bool k_last);

/* Numbers [first, first + n) of a bias as f32, in `room`; NULL: there is none. */
const float *mm_bias(const tensor *bias, int64_t first, int64_t n, float *room);

/* Where row i, column j of out is. */
static inline void *mm_out_at(const mm_out *o, int64_t i, int64_t j)
{
    return (char *)o->out + (i * o->ld + j) * (o->dt == DT_F32 ? 4 : 2);
}

#endif

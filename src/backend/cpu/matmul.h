/* matmul: how the CPU multiplies matrices. docs/cpu-products.md explains it with an example, a
 * picture and a glossary; the words here are used as there.
 *
 * Every product is out[i,j] = sum over k of a(i,k) b(j,k), whatever the layout of its operands in
 * memory. Operands are read as 32-bit elements: one f32, or a pair of bf16 that are neighbours in k
 * where the CPU multiplies such pairs. Operand a is read by rows; operand b is packed into panels
 * of MM_NR columns, which fill SIMD vectors or AMX tiles. An operand that has the right form in
 * memory is not packed. Products of few rows (decode) read the weights directly.
 *
 * Guarantee: an output is the sum of its k blocks in order, a block is the sum of its elements in
 * an order that the engine determines, and how k is divided into blocks depends on k only. So a row
 * has the same bits alone and in any batch, on any number of threads. An engine is one instruction
 * set and one element format; between engines the bits may differ. (Order within a block:
 * kernel_split.h, kernel_amx.c.) */
#ifndef PESC_BACKEND_CPU_MATMUL_H
#define PESC_BACKEND_CPU_MATMUL_H

#include "backend/cpu/cpu.h"

enum {
    MM_KC = 512,             /* most elements of a k block */
    MM_NR = 32,              /* columns of a panel */
    MM_K_GROUP = 16,         /* packed k is padded with zeros to a multiple of this many elements */
    MM_K_STEP = 4,           /* of which a micro-kernel multiplies a multiple of this many */
    MM_FEW_ROWS = 8,         /* most rows of the few-rows kernel, */
    MM_FEW_ROWS_BLOCKS = 64, /* and of few_rows_blocks */
    MM_CACHE_LINE = 64,      /* bytes */
    MM_AMX_TILE = 16,        /* rows of an AMX tile */
    MM_AMX_ROWS = 32,        /* most rows of a row panel: two AMX tiles */
    MM_MAX_TERMS = 4,        /* most products that are summed into one result */
    MM_UNPACKED = 2 * MM_NR * MM_KC /* most values of a panel over one k block */
};

typedef uint32_t mm_element;
typedef enum mm_format {
    MM_F32,
    MM_BF16_WIDENED,    /* one bf16 value as f32 */
    MM_F32_SPLIT,       /* f32, summed in as many partial sums as a vector has lanes */
    MM_BF16_PAIR,       /* values 2e and 2e + 1 of k */
    MM_BF16_PAIR_SPLIT, /* the same pairs in partial sums: see kernel_split.h */
    MM_BF16_PAIR_NF4    /* values e and e + 4 of each eight, the order in which NF4 is decoded; with
                           SIMD also in partial sums */
} mm_format;

/* An operand in memory: n rows of k values. Row i of a is row i of out, row j of b column j. In one
 * of GGUF's block formats the rows of memory are whole blocks; only b can be. */
typedef struct mm_operand {
    const void *data;    /* at any alignment */
    const float *scales; /* of NF4 */
    dtype dt;
    bool k_contiguous; /* value (i,k) has index i*ld + k, else k*ld + i */
    int64_t ld, n, k;
} mm_operand;

/* A block of an operand: rows [row, row + n_rows) and, of each, elements [e, e + n_elements). */
typedef struct mm_block {
    int64_t row, n_rows, e, n_elements;
} mm_block;

/* A register tile: sums [n_rows][ld] of a panel over one k block, overwritten or added to.
 *
 * The few-rows kernel takes any number of columns (sums are written for whole panels) and all k
 * blocks of the rows at once: rows [blocks][n_rows, padded][MM_KC], each block of `block_elements`
 * but the last. */
typedef struct mm_tile {
    float *sums;
    int64_t ld;
    const mm_element *rows;  /* from pack_rows or pack_few_rows, or an operand's own memory */
    const mm_element *panel; /* from pack_panel; not for few rows */
    mm_format format;
    int64_t row_stride; /* elements from row to row; not for few rows, nor for AMX */
    bool rows_in_order; /* rows are not packed though the panel is grouped by partial sum */
    int64_t n_rows, n_columns, n_elements;
    bool add;
    struct packing_prefetch *next; /* memory that is prefetched meanwhile, */
    int64_t next_lines;            /* about so many cache lines of it; 0: none */
    int64_t block_elements;        /* few rows */
    mm_element *scratch;           /* few rows: 2 MiB; 64 KiB where the engine has row_panel */
} mm_tile;

/* out [n_rows][n] = scale * sums (+ bias) (+ out). */
typedef struct mm_epilogue {
    void *out;
    dtype dt;
    int64_t ld, sums_ld;      /* elements from row to row */
    const float *sums, *bias; /* bias NULL: none */
    int64_t n_rows, n;
    float scale;
    bool accumulate;
} mm_epilogue;

/* Rows as AMX tiles of 16 rows by 16 elements: packed by pack_rows, or in the operand's memory. All
 * strides are in bytes. */
typedef struct mm_tile_rows {
    const char *data;
    int64_t row_stride;     /* from row to row of a tile */
    int64_t element_stride; /* to the tile of the next 16 elements */
    int64_t tile_stride;    /* to the tile of the next 16 rows */
    int64_t block_stride;   /* to the tile of the next k block */
    bool prefetch_next;     /* the next row panel follows in memory and will be multiplied next */
} mm_tile_rows;

/* One product of a sum: rows, and packed columns [panels][n_elements][MM_NR]. */
typedef struct mm_term {
    mm_tile_rows rows;
    const mm_element *panels;
    int64_t n_elements;
} mm_term;

/* A row panel, at most MM_AMX_ROWS rows, times some panels, with the epilogue (AMX). */
typedef struct mm_row_panel {
    mm_term terms[MM_MAX_TERMS];
    int n_terms;
    int64_t n_rows, n_columns;
    float *sums; /* [rows][sums_ld]: carried from one part of k to the next */
    int64_t sums_ld;
    bool add;             /* begin with the carried sums */
    bool more;            /* k continues: carry the sums instead of storing out */
    bool transposed;      /* the rows are columns of out */
    mm_epilogue epilogue; /* where row 0 and column 0 go; its sums and sizes are not read */
} mm_row_panel;

/* The functions of one instruction set and element format. */
typedef struct mm_engine {
    mm_format format;          /* in general, */
    mm_format few_rows_format; /* where operand b suits the few-rows kernel, */
    mm_format nf4_format;      /* and where it is NF4 as well, */
    mm_format blocks_format;   /* or in one of GGUF's block formats */
    int64_t tile_rows;         /* most rows of a register tile */
    /* n_rows rows of MM_KC elements, in the order micro_kernel expects; block.row is a multiple of
     * 16 */
    void (*pack_rows)(mm_element *dst, const mm_operand *x, mm_format format, mm_block block);
    /* one panel [n_elements][MM_NR], block.n_rows <= MM_NR; columns beyond are undefined */
    void (*pack_panel)(mm_element *dst, const mm_operand *x, mm_format format, mm_block block);
    void (*micro_kernel)(const mm_tile *t);
    /* the same sums for up to MM_FEW_ROWS rows, with operand b unpacked, if it is supported; all
     * three NULL: none is. Where pack_few_rows is pack_rows, few_rows also takes one k block of an
     * operand in f32 or bf16 with strided k. */
    bool (*few_rows_supports)(const mm_operand *x, mm_format format);
    void (*pack_few_rows)(mm_element *dst, const mm_operand *x, mm_format format, mm_block block);
    void (*few_rows)(const mm_tile *t, const mm_operand *x, mm_format format, mm_block block);
    /* the same for weights in a block format, and for n_rows up to MM_FEW_ROWS_BLOCKS with at most
     * 512 rows times k blocks; NULL: they are packed */
    void (*few_rows_blocks)(const mm_tile *t, const mm_operand *x, mm_format format,
                            mm_block block);
    void (*epilogue)(const mm_epilogue *o);
    /* instead of micro_kernel and epilogue. Bits depend neither on where k is divided nor on which
     * operand is packed. NULL: the engine has none */
    void (*row_panel)(const mm_row_panel *s);
    /* the calling thread configures and releases its AMX tiles; NULL: nothing to do */
    void (*configure)(void);
    void (*release)(void);
    /* weights in a block format as f32: elements [first, first + n) of a row, multiples of 32 */
    void (*unpack)(dtype dt, const void *row, int64_t first, int64_t n, float *out);
} mm_engine;

/* The engine of a device for activations of dtype f32 or bf16. */
const mm_engine *mm_engine_of(cpu_isa isa, dtype activations);

typedef struct mm_operands {
    mm_operand a, b;
} mm_operands;

/* One product out [a.n, b.n]; the products `more` are terms of the same sum, before it. */
typedef struct mm_product {
    mm_operand a, b;
    void *out;
    int64_t ld; /* of out */
    const mm_operands *more;
    int n_more;
    tensor bias; /* [b.n]; no data: none */
} mm_product;

/* A group of products that are computed together: those of all experts (grouped GEMM), or of all
 * linears with one input; `get` describes product i. */
typedef struct mm_group {
    const mm_engine *engine;
    int64_t count;
    void (*get)(const void *ctx, int64_t i, mm_product *p);
    const void *ctx;
    dtype out_dt;
    float scale;
    bool accumulate;
} mm_group;
void mm_multiply(cpu_device *d, const mm_group *group);

/* A matrix [rows, cols] as an operand: k runs along its columns (k_contiguous) or its rows. */
mm_operand mm_operand_of(const tensor *t, bool k_contiguous);

/* Values [first, first + n) of a bias as f32 in `buffer`; NULL: there is no bias. */
const float *mm_bias(const tensor *bias, int64_t first, int64_t n, float *buffer);

/* Whether the elements of a k block are summed in partial sums (kernel_split.h). */
static inline bool mm_is_split(mm_format format)
{
    return format == MM_F32_SPLIT || format > MM_BF16_PAIR;
}

/* The address of row i, column j of out. */
static inline void *mm_out_at(const mm_epilogue *o, int64_t i, int64_t j)
{
    return (char *)o->out + (i * o->ld + j) * (o->dt == DT_F32 ? 4 : 2);
}

#endif

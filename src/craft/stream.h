/* stream: the numbers of many tensors, from where they come to files of safetensors or GGUF, piece
 * by piece. A row says where one tensor comes from; what it says is not checked again here. */
#ifndef PESC_CRAFT_STREAM_H
#define PESC_CRAFT_STREAM_H

#include "craft/redraw.h"
#include "format/peft.h"
#include "format/safetensors.h"

typedef enum stream_kind { STREAM_STORED, STREAM_ZERO, STREAM_UNIFORM } stream_kind;

/* A row that is woven with those beside it into one run of numbers: element (i, j) goes to
 * base + i / group * group_step + i % group * row_step + j * col_step (arch/fused.h). */
typedef struct stream_join {
    int64_t base, group, group_step, row_step, col_step;
    int64_t cols;     /* of the row; 1 where its elements are rows */
    int64_t elements; /* of the run */
    bool last;        /* the run is complete */
} stream_join;

/* What is read of a stored matrix: rows from `row` on, and of each as many columns as the tensor
 * has, from `col` on, times `scale`. */
typedef struct stream_cut {
    int64_t row, col;
    int64_t cols; /* of the stored matrix; 0: all of it is read, as it is */
    float scale;
} stream_cut;

/* A stored tensor, and the LoRA that is folded into it. */
typedef struct stream_part {
    const weight *stored;
    const peft_lora *lora; /* NULL: none */
} stream_part;

typedef struct stream_row {
    stream_kind kind;
    const weight *stored;
    stream_cut cut;
    const stream_part *mean; /* the tensor is the mean of these; NULL: it is not */
    int32_t n_mean;
    redraw_rule redraw;
    const int32_t *picked;  /* stored experts or rows, in the order of the tensor's; NULL: all */
    int64_t each;           /* elements of one of them, with `picked` */
    const int32_t *columns; /* stored columns, in the order of the tensor's; NULL: as they are */
    bool decay;             /* -exp of the numbers is written */
    rng_key key;            /* uniform: (2 u - 1) * bound, u the key's numbers */
    float bound;
    int64_t repeat;          /* uniform: so many rows side by side have the numbers of one row */
    dtype through;           /* nf4 or bf16: stored numbers are rounded so first; f32: not */
    bool double_quant;       /* with nf4 */
    const peft_lora *lora;   /* then scale B A is added; NULL: none */
    float plus;              /* is added to all numbers */
    float times;             /* stored numbers are multiplied by it; 0: they are not */
    int32_t permute_heads;   /* > 0: rows are written in GGUF's interleaved-RoPE order */
    const stream_join *join; /* NULL: none */
} stream_row;

typedef struct stream_plan {
    const char *dir, *stem; /* see safetensors.h */
    const stream_row *rows;
    const safetensors_spec *specs; /* plain, one a row */
    size_t n;
    const safetensors_spec *tensors; /* of the files: rows in order make them up; NULL: specs */
    size_t n_tensors;
    uint64_t bytes;    /* of all */
    const weights *ws; /* that the stored ones are in */
} stream_plan;

/* The dtypes that are written: f32, bf16 and f16. */
bool stream_plain(dtype dt);

/* Stored bytes are copied as they are where dtype and order allow, else converted through f32. */
pesc_status stream_write(const stream_plan *plan);

/* The same into anything that takes bytes, one tensor after the other (dir and stem are not looked
 * at). Specs may also have the dtypes of quants_writes(), with whole blocks in each row. */
typedef struct stream_sink {
    pesc_status (*write)(void *file, const void *bytes, size_t n);
    void *file;
} stream_sink;
pesc_status stream_into(const stream_plan *plan, stream_sink to);

/* The key of a tensor that is made when a model is crafted. */
rng_key stream_key(uint64_t seed, const char *name);

#endif

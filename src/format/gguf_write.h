/* gguf_write: a GGUF v3 file, written in one pass.
 *
 * Metadata first, then the list of all tensors, then their bytes in the same order. The header is
 * gathered in memory; the bytes of tensors go straight to the file, which appears under its name
 * only when it is complete. */
#ifndef PESC_FORMAT_GGUF_WRITE_H
#define PESC_FORMAT_GGUF_WRITE_H

#include "base/json.h"
#include "base/status.h"
#include "format/gguf_delta.h"
#include "tensor/dtype.h"
#include "tokenizer/tokenizer.h"

typedef struct gguf_writer gguf_writer;

/* Nothing is written before gguf_write_header(). */
pesc_status gguf_writer_open(gguf_writer **out, const char *path);
void gguf_writer_abort(gguf_writer *w); /* removes what was written; NULL is allowed */

/* Metadata. Lack of memory is reported by gguf_write_header(). */
void gguf_put_text(gguf_writer *w, const char *key, const char *text);
void gguf_put_u32(gguf_writer *w, const char *key, int64_t value);
void gguf_put_f32(gguf_writer *w, const char *key, double value);
void gguf_put_bool(gguf_writer *w, const char *key, bool value);
typedef int32_t (*gguf_each)(const void *ctx, int32_t i); /* value i of an array */
void gguf_put_i32s(gguf_writer *w, const char *key, gguf_each each, const void *ctx, int32_t n);
void gguf_put_bools(gguf_writer *w, const char *key, gguf_each each, const void *ctx, int32_t n);
/* tokenizer.ggml.* and the chat template; `v` as tokenizer_to_gguf() makes it. */
void gguf_put_vocab(gguf_writer *w, const gguf_vocab *v);

/* A tensor: dimensions in PyTorch's order, the last one whole blocks of dt, which is f32, f16, bf16
 * or one of quants_writes(). */
typedef struct gguf_spec {
    char name[64];
    dtype dt;
    int32_t nd;
    int64_t ne[4];
} gguf_spec;
void gguf_put_tensor(gguf_writer *w, const gguf_spec *spec);
uint64_t gguf_writer_bytes(const gguf_writer *w); /* of the whole file, as known so far */

/* Then the bytes of all tensors, in pieces of any size. */
pesc_status gguf_write_header(gguf_writer *w);
pesc_status gguf_write(gguf_writer *w, const void *bytes, size_t n);
pesc_status gguf_writer_finish(gguf_writer *w); /* also closes, whatever happens */

/* llama.cpp's name for the architecture of a Hugging Face model_type, whose mixtures are `experts`;
 * NULL: it has none. */
struct gguf_arch;
const struct gguf_arch *gguf_arch_written(const char *model_type, bool adapters, bool experts);
const char *gguf_arch_name(const struct gguf_arch *a);
bool gguf_arch_windows(const struct gguf_arch *a); /* it has a key for a sliding window */

/* GGUF's name of a tensor. *stacked: it is one of the experts that share a tensor of this name.
 * *heads: 'q' or 'k' where rows have to be permuted for interleaved RoPE by so many heads, else 0.
 * False: the architecture has no place for it. */
typedef struct gguf_place {
    char name[64];
    bool stacked, row; /* row: a matrix of one row, stored as a vector */
    bool joined;       /* its rows follow those of others in a tensor of this name */
    bool plus_one;     /* 1 is added */
    bool conv;         /* of a convolution: without the dimension of 1 in the middle */
    bool decay;        /* -exp of the numbers is stored */
    bool columns;      /* `rows` are those of the transpose */
    delta_rows rows;   /* in llama.cpp's order */
    char permuted;
} gguf_place;
bool gguf_place_of(gguf_place *out, const struct gguf_arch *a, const char *hf_name);

#endif

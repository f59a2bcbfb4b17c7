/* gguf_delta: the order in which llama.cpp stores the rows of a gated delta net.
 *
 * With k heads of keys, r of values for each: Hugging Face has those of one key side by side, head
 * j r + i is the i-th of key j; qwen35 and qwen35moe have them k apart, at i k + j. qwen3next keeps
 * that order, but stores as queries, keys, values and gates what Hugging Face's in_proj_qkvz has
 * one key after the other. */
#ifndef PESC_FORMAT_GGUF_DELTA_H
#define PESC_FORMAT_GGUF_DELTA_H

#include <stdint.h>

typedef struct gguf_delta {
    int64_t k_heads, v_heads, k_dim, v_dim;
} gguf_delta;

/* What the rows of a tensor are: queries, keys and values; values; or one for each head of these.
 */
typedef enum delta_rows {
    DELTA_ROWS_PLAIN,
    DELTA_ROWS_QKV,
    DELTA_ROWS_VALUES,
    DELTA_ROWS_HEADS
} delta_rows;

int64_t gguf_delta_count(const gguf_delta *d, delta_rows rows); /* of rows; not of plain ones */

/* Hugging Face's row that qwen35 has at i; and the row of in_proj_qkvz that qwen3next has at i of
 * attn_qkv followed by attn_gate. */
int64_t gguf_delta_tiled(const gguf_delta *d, delta_rows rows, int64_t i);
int64_t gguf_delta_grouped(const gguf_delta *d, int64_t i);

/* By the flags of a name (gguf_file.h). */
delta_rows gguf_delta_rows_of(uint32_t flags);

#endif

/* gguf_layout: how llama.cpp's tensors of gated delta nets are made of the model's: rows and
 * columns in another order, and attn_qkv and attn_gate of one in_proj_qkvz (format/gguf_delta.h).
 */
#ifndef PESC_CRAFT_GGUF_LAYOUT_H
#define PESC_CRAFT_GGUF_LAYOUT_H

#include "craft/tensor_plan.h"
#include "format/gguf_write.h"

typedef struct gguf_layout {
    gguf_delta d;
    int32_t *order[4]; /* by delta_rows: the model's row at each of llama.cpp's; that of DELTA_ROWS_
                          PLAIN: of in_proj_qkvz. NULL: the same */
} gguf_layout;

/* To be freed also when it failed. */
pesc_status gguf_layout_open(gguf_layout *l, const config *c);
void gguf_layout_free(gguf_layout *l);

/* Puts two tensors in the place of each in_proj_qkvz of a list. */
pesc_status gguf_layout_split(const gguf_layout *l, tensor_list *list);

/* Whether a LoRA is on in_proj_qkvz; the names and rows of what it is on in llama.cpp. */
typedef struct gguf_layout_part {
    char name[128];
    const int32_t *rows;
    int64_t n;
} gguf_layout_part;
bool gguf_layout_parts(const gguf_layout *l, const char *name, gguf_layout_part parts[2]);

/* The order of rows and columns of a tensor at its place. */
const int32_t *gguf_layout_rows(const gguf_layout *l, const gguf_place *place);
const int32_t *gguf_layout_columns(const gguf_layout *l, const gguf_place *place);

#endif

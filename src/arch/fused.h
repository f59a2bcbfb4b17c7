/* fused: tensors of files that hold several of a model's.
 *
 * A family's fused rules name them: q, k and v as one matrix, gate and up of an FFN, or the
 * matrices of all experts. Everywhere else a model has its own tensors under names of their own:
 * files are split when a configuration is read, and joined when a model is written.
 *
 * A fused tensor is [rows,cols], the rows of its parts; where parts have experts [E,rows,cols], and
 * [E,rows] where they are vectors. */
#ifndef PESC_ARCH_FUSED_H
#define PESC_ARCH_FUSED_H

#include "arch/family.h"
#include "format/peft.h"

/* Where the elements of a part are in a fused tensor, or in the share of it that one expert has:
 * element (i, j) of a part is at
 *     base + i / group * group_step + i % group * row_step + j * col_step. */
typedef struct fused_place {
    int64_t base, group, group_step, row_step, col_step;
    int64_t cols; /* of the part */
} fused_place;

static inline int64_t fused_at(const fused_place *p, int64_t element)
{
    int64_t i = element / p->cols, j = element % p->cols;
    return p->base + i / p->group * p->group_step + i % p->group * p->row_step + j * p->col_step;
}

/* The layout of one fused tensor of a layer. */
typedef struct fused_layout {
    const fused_rule *rule;
    int32_t layer;
    char name[128]; /* as files have it */
    int32_t nd;
    int64_t ne[4];
    int32_t n_parts, experts; /* experts: 1 where parts have none */
    int64_t share;            /* elements of one expert's */
    slot parts[3];            /* of the first expert */
    fused_place places[3];
    bool plain; /* the parts follow one another as they are */
} fused_layout;

/* False: the layer has no such tensors. */
bool fused_layout_of(fused_layout *out, const config *c, const fused_rule *rule, int32_t layer);

/* The rule by which a tensor is written as a part, and which part it is; NULL: it is none. */
const fused_rule *fused_rule_of(const family *f, const char *rule, int32_t *part);

/* Puts the parts of all fused tensors of a table in their place; a part that is there already, as
 * of a run that trained it, stays. PESC_SHAPE: a fused tensor has another shape. */
pesc_status fused_split(const config *c, weights *ws);

/* A PEFT directory for a model of this configuration: LoRA on a matrix that files hold fused is one
 * for each of its parts. */
pesc_status fused_open_lora(peft **out, const char *dir, const config *c);

/* The same of one that is open; and LoRA on stacks of experts (stacked_lora.h). */
pesc_status fused_split_loras(const config *c, peft *p);

/* Whether a fused tensor of a layer is one that a LoRA may be on: plain matrices under each other.
 */
bool fused_takes_lora(const fused_layout *l);

#endif

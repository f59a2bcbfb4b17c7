/* extra_experts: the experts of expert patches, and of LoRA on experts, beside an open model's own,
 * so that rows of different patches and of the model run in one forward.
 *
 * A layer holds a copy of each expert that a patch replaces, in the dtype of the layer's stack (of
 * one with a LoRA the model's own, with the LoRA added to it), and a table: row i of it says for
 * patch i which expert stands for the router's choice e, the patch's copy or the layer's own. The
 * choices of each row go through its row of the table before rows are sorted by expert; the grouped
 * products then run over the layer's experts and over the copies. So a row computes what it would
 * in a model with the patch applied: on a CPU bit for bit. The memory is that of the copies and the
 * tables.
 *
 * Only routed experts can differ from row to row. A patch that replaces shared experts or other
 * modules is refused. */
#ifndef PESC_ATTACH_EXTRA_EXPERTS_H
#define PESC_ATTACH_EXTRA_EXPERTS_H

#include "arch/model.h"
#include "format/patch.h"
#include "format/peft.h"

struct extra;

/* What served adapter i + 1 has, borrowed while it is opened: a patch, or LoRAs that fit the model;
 * the other is NULL. */
typedef struct extra_source {
    patch *const *patches; /* [n] */
    peft *const *loras;    /* [n] */
    int32_t n;
} extra_source;

/* *out is NULL where none replaces an expert. On failure *out is for extra_close() too. */
pesc_status extra_open(struct extra **out, pesc_model *m, const extra_source *from);
void extra_close(struct extra *x, pesc_model *m); /* NULL is allowed */

#endif

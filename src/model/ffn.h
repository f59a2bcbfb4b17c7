/* ffn: down(act(gate x) * up x), the plain FFN of a block and the shared one of a mixture. */
#ifndef PESC_MODEL_FFN_H
#define PESC_MODEL_FFN_H

#include "model/attention.h"
#include "model/linear.h"

typedef struct ffn_acts {
    tensor gate, up, glu;  /* [T,F] */
    tensor in_ax, down_ax; /* of gate and up, and of down: linear_set.ax */
} ffn_acts;

/* `share`: another slot's, whose glu this one uses too; NULL: its own. */
void ffn_layout(ffn_acts *a, arena *mem, const acts_plan *plan, int64_t width,
                const ffn_acts *share);
void ffn_layout_partial(ffn_acts *a, arena *mem, const acts_plan *plan);

/* Makes tensors that were laid out for the widest FFN as wide as this one. */
void ffn_fit(ffn_acts *a, int64_t width);

/* out [T,C] (absent: not wanted), x [T,C]. */
void ffn_fwd(const pass *p, const ffn *f, const ffn_acts *a, tensor out, tensor x);

/* Overwrites activations: `up` becomes its own gradient. Where glu is another layer's
 * (pass_lost_glu), glu_bwd computes it once more. flow as in linear_bwd. */
void ffn_bwd(const pass *p, const ffn *f, const ffn *g, const ffn_acts *a, linear_flow flow);

#endif

/* fold: a LoRA added to the weights it belongs to, so that a forward costs what it costs without.
 */
#ifndef PESC_ATTACH_FOLD_H
#define PESC_ATTACH_FOLD_H

#include "arch/model.h"

/* w += scale B A for every linear and full expert of m with a LoRA, which it then no longer has. w
 * is rounded once more. Quantised ones keep their LoRA. The weights must be the model's own, not a
 * mapped file's.
 */
pesc_status fold_loras(pesc_model *m);

/* w [O,I] += scale B A, f32 or bf16. The scratch of fold_reserve() must be there: for weights of up
 * to so many columns. */
void fold_lora(device *dev, const tensor *w, const lora *l);
pesc_status fold_reserve(device *dev, int64_t columns);

#endif

/* merge: a LoRA folded into the weights it stands on, W + scale B A. Adapters of PESC are no linear
 * map: they stay, and the result is a Camelidae model. */
#ifndef PESC_CRAFT_MERGE_H
#define PESC_CRAFT_MERGE_H

#include "craft/product.h"

/* How far the logits of weights stored in this dtype may be from those they were made from, of the
 * largest. In f32 that is rounding. 16 bits round so much that only a gross mistake shows. */
double merge_tolerance(dtype dt);

#endif

/* merge: a LoRA folded into the weights it stands on, W + scale B A. Adapters of PESC are no linear
 * map: they stay, and the result is a Camelidae model. */
#ifndef PESC_CRAFT_MERGE_H
#define PESC_CRAFT_MERGE_H

#include "craft/product.h"

/* Makes the product's recipe fold this LoRA in, into what the options say or what it was trained
 * on. *adapter must stay until the product is closed, and is then peft_close()d, even when this
 * failed. */
pesc_status merge_fold(product *p, const pesc_export_options *o, const char *lora_dir,
                       peft **adapter);

/* What writing the product may do to the logits: nothing, or with a LoRA folded in rounding to the
 * coarsest dtype that was written. */
verify_rounding merge_rounding(const product *p);

#endif

/* merge: a LoRA folded into the weights it stands on, W + scale B A. Adapters of PESC are no linear
 * map: they stay, and the result is a Camelidae model. */
#ifndef PESC_CRAFT_MERGE_H
#define PESC_CRAFT_MERGE_H

#include "craft/target.h"

/* Makes the tensor plan of the target fold this LoRA in, into what the options say or what it was
 * trained on. *adapter must stay until the target is closed, and is then peft_close()d, even when
 * this failed. */
pesc_status merge_fold(target_model *p, const pesc_export_options *o, const char *lora_dir,
                       peft **adapter);

#endif

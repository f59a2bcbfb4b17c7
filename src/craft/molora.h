/* molora: existing LoRAs of a dense model as the experts of a mixture (MoLE, arXiv 2404.13628).
 * Expert i of every layer is the LoRA that the i-th model has on the gate, up and down of its FFN;
 * what a model has none on adds nothing. The FFN itself stays the dense model's, routers are drawn.
 * Only pesc opens such a model with its experts. */
#ifndef PESC_CRAFT_MOLORA_H
#define PESC_CRAFT_MOLORA_H

#include "craft/target.h"

/* Configures the target and its plan. PESC_USAGE when a model has no LoRA on an FFN, when they have
 * several ranks, or when an FFN under them is not the dense model's. */
pesc_status molora_configure(target_model *p, const donors *d, int64_t top_k);

#endif

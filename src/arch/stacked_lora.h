/* stacked_lora: LoRA that PEFT puts on a parameter which holds a matrix for each expert
 * (target_parameters). Its A is those of all experts under each other, [E r, in], and column
 * j E + e of its B [out, E r] is column j of expert e's. */
#ifndef PESC_ARCH_STACKED_LORA_H
#define PESC_ARCH_STACKED_LORA_H

#include "arch/config.h"
#include "format/peft.h"

/* Puts one for each matrix of each expert in their place. Which parameter it is on follows from its
 * widths. PESC_SHAPE: it fits none. */
pesc_status stacked_split_loras(const config *c, peft *p);

#endif

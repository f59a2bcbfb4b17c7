/* peft_join: LoRA on the parts of a matrix that files hold fused, as PEFT has it: one LoRA of the
 * whole. A is those of the parts under each other, B has each part's in its own rows and columns,
 * so that the rank is the sum of theirs. */
#ifndef PESC_CRAFT_PEFT_JOIN_H
#define PESC_CRAFT_PEFT_JOIN_H

#include "arch/config.h"
#include "format/peft.h"

/* Joins what can be joined; *joined says whether anything was. */
pesc_status peft_join(peft *p, const config *c, bool *joined);

/* Writes targets, ranks and alphas anew into an adapter_config.json. */
pesc_status peft_join_describe(const peft *p, json_t *json);

#endif

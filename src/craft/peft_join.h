/* peft_join: LoRA on the parts of a matrix that files hold fused, as PEFT has it: one LoRA of the
 * whole. A is those of the parts under each other, B has each part's in its own rows and columns,
 * so that the rank is the sum of theirs.
 *
 * Experts that files hold in one tensor have one LoRA for all of them (arch/stacked_lora.h), of the
 * largest such rank: smaller ones have zeros beside them, and experts without one have zeros. */
#ifndef PESC_CRAFT_PEFT_JOIN_H
#define PESC_CRAFT_PEFT_JOIN_H

#include "arch/config.h"
#include "format/peft.h"

/* Joins what can be joined; *joined says whether anything was. */
pesc_status peft_join(peft *p, const config *c, bool *joined);

/* What LoRAs on experts have in common. */
typedef struct peft_stacks {
    const char *parameters[2]; /* that they are on, in transformers' order */
    int32_t n;                 /* of these; 0: there is no LoRA on such experts */
    int64_t rank;
    float scale;
} peft_stacks;

/* The same of experts. */
pesc_status peft_join_experts(peft *p, const config *c, peft_stacks *out);

/* What a matrix is called that single experts and other FFNs have a LoRA on; NULL: there is none.
 * PEFT takes all of that name for those of experts. */
const char *peft_join_confused(const peft *p);

/* Gives each expert without a LoRA one of zeros, where others of its layer have one: PEFT makes one
 * tensor of the experts of a layer. *filled says whether there was any. */
pesc_status peft_fill_experts(peft *p, const config *c, bool *filled);

/* Writes targets, ranks and alphas anew into an adapter_config.json. */
pesc_status peft_join_describe(const peft *p, const peft_stacks *stacks, json_t *json);

#endif

/* served_adapters: LoRAs and expert patches beside an open model, of which each sequence of a pass
 * may use one (token_seq.adapter), so that requests for different served adapters run in the same
 * forward.
 *
 * LoRA: every linear has one bank of all its LoRAs: their B side by side in one matrix. A x is
 * computed for the rows of each served adapter in columns of its own, the other columns are zero,
 * and the bank's B is a further term of the product with W, which all rows share. A zero adds
 * nothing to a sum, so what a row gets does not depend on the other rows: on a CPU, with
 * activations in f32 and LoRAs stored in f32, it is bit for bit what the model computes when it is
 * opened with that LoRA alone. A LoRA of the model itself stays applied to all rows.
 *
 * Expert patches: extra_experts.h. */
#ifndef PESC_ATTACH_SERVED_ADAPTERS_H
#define PESC_ATTACH_SERVED_ADAPTERS_H

#include "arch/model.h"

typedef enum adapter_kind { ADAPTER_LORA, ADAPTER_PATCH } adapter_kind;
typedef struct served_adapter {
    adapter_kind kind;
    const char *dir; /* a PEFT adapter, or an expert patch */
} served_adapter;

/* Reads n directories; served adapter i + 1 is all[i]. PESC_SHAPE: one does not fit the model;
 * PESC_UNSUPPORTED: a patch replaces what all rows share; PESC_USAGE: the model has served adapters
 * already, or a patch. Passes that are open cannot use them. */
pesc_status served_adapters_open(pesc_model *m, const served_adapter *all, size_t n);
void served_adapters_close(pesc_model *m); /* no pass may be open that uses them; none is fine */

#endif

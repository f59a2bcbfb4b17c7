/* specialists: LoRAs beside an open model, of which each sequence of a pass may use one
 * (token_seq.specialist), so that requests for different specialists run in the same forward.
 *
 * Every linear has one bank of all its LoRAs: their B side by side in one matrix. A x is computed
 * for the rows of each specialist in columns of its own, the other columns are zero, and the bank's
 * B is a second term of the product with W, which all rows share. A zero adds nothing to a sum, so
 * what a row gets does not depend on the other rows: on a CPU, with activations in f32 and LoRAs
 * stored in f32, it is bit for bit what the model computes when it is opened with that LoRA alone.
 */
#ifndef PESC_MODEL_SPECIALISTS_H
#define PESC_MODEL_SPECIALISTS_H

#include "model/model.h"

/* Reads n PEFT directories; specialist i + 1 is dirs[i]. PESC_SHAPE: one does not fit the model;
 * PESC_USAGE: the model has a LoRA or specialists already. Passes that are open cannot use them. */
pesc_status specialists_open(pesc_model *m, const char *const *dirs, size_t n);
void specialists_close(pesc_model *m); /* no pass may be open that uses them; none is fine */

#endif

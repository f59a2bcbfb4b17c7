/* start: how a run begins: how far it goes, what it is made from, and the checkpoint that it goes
 * on from. */
#ifndef PESC_TRAIN_START_H
#define PESC_TRAIN_START_H

#include "train/trainer.h"

/* How far the run goes: in positions of the data, and in steps; again when t->state is another. */
void start_length(pesc_trainer *t);
void start_warmup(pesc_trainer *t);

/* Fills in what checkpoints tell of the model, the tokenizer, the data and the options. All
 * processes must have those of rank 0: PESC_USAGE in all of them names the rank where something
 * differs, and what. */
pesc_status start_identify(pesc_trainer *t);

/* Reads and verifies what the run goes on from, if anything, and opens its logs. */
pesc_status start_run(pesc_trainer *t);

#endif

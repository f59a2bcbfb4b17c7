/* save: the checkpoints of a run, written by a thread while the run goes on.
 *
 * The weights that train and the moments are copied to host memory, and the thread writes the
 * copy: files, hashes, the rename and the removal of older checkpoints. One checkpoint is written
 * at a time: the next one waits for it. Without a thread, before the call returns, are written: the
 * last checkpoint of a run and that of a stop, checkpoints of several processes, which exchange
 * messages while they write, and those whose copy would take more than a quarter of the memory that
 * the host has left. */
#ifndef PESC_TRAIN_SAVE_H
#define PESC_TRAIN_SAVE_H

#include "train/trainer.h"

/* Before the first step of a run that saves before its end: opens the thread, which touches the
 * memory of the copies, because fresh memory would take the first copy longer than the step. */
void save_open(pesc_trainer *t);

/* Saves the finished step; the caller has settled the checkpoint before. wait: do not use the
 * thread. *saved: it is on the disk when the call returns. */
pesc_status save_step(pesc_trainer *t, bool wait, bool *saved);

/* Looks at the checkpoint that the thread writes, and waits for its end where asked to. True: it
 * is on the disk since this call. A failure becomes a notice. */
bool save_settle(pesc_trainer *t, bool wait);

/* The step of the newest checkpoint, with the one that is being written. */
int64_t save_newest(pesc_trainer *t);

/* Waits for the thread and ends it. */
void save_close(pesc_trainer *t);

#endif

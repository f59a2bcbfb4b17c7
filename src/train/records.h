/* records: the data of a run: opened, every record checked before the first step, and described in
 * RUN/records.json, by which a resumed run can tell which file has changed and need not check the
 * same records again. */
#ifndef PESC_TRAIN_RECORDS_H
#define PESC_TRAIN_RECORDS_H

#include "train/trainer.h"

/* Opens the training data and the validation data, if there is any. */
pesc_status records_open(pesc_trainer *t);

/* Replaces batch_tokens by the batch that has as many tokens on average, by a sample of the
 * training data. A notice tells the batch. */
pesc_status records_batch(pesc_trainer *t);

/* Reads every record, unless RUN/records.json tells that the same records were read before, and
 * leaves those of which training makes no sequence out of the data sets of all processes: a batch
 * is made of the others. Bad records are listed as notices, up to 20 of each data set; then
 * PESC_FORMAT. PESC_USAGE when no record has anything to train on within seq_len. Tells as notices
 * what becomes of records that are longer. Nothing is written. */
pesc_status records_check(pesc_trainer *t);

/* Writes RUN/records.json; the run directory must be there. */
pesc_status records_save(const pesc_trainer *t);

/* Appends how the training data differs from that of RUN/records.json, as a list of files; nothing
 * when it is the same or not known. */
void records_changed(const pesc_trainer *t, str *how);

#endif

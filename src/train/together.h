/* together: what the processes of a run agree on before its first step. */
#ifndef PESC_TRAIN_TOGETHER_H
#define PESC_TRAIN_TOGETHER_H

#include "train/trainer.h"

/* Whether all have the model, the tokenizer, the data and the options of rank 0; PESC_USAGE in all
 * of them names the rank where something differs, and what. Called when t->saver is filled. */
pesc_status together_check(pesc_trainer *t);

/* Resolves options that are chosen from memory, to values that suit every process: micro_tokens,
 * already chosen here, becomes the least of all, and grad_groups is chosen for `trained` elements.
 */
pesc_status together_choose(pesc_trainer *t, int64_t trained);

/* Notices where the bits are not those of one process, and where gradients could be sharded. */
void together_notice(const pesc_trainer *t, const gradient_shape *s);

/* grad_groups, or where it is auto the most groups, up to 8, whose partial sums of `trained`
 * elements take at most an eighth of a device in one process (a model that is too large for one
 * process has 8): the choice does not depend on the number of processes. */
int64_t together_choose_groups(const pesc_train_options *o, const device *dev,
                               const train_spec *spec, int64_t trained);

/* How the gradient of a step is added: by rounds where the weights of the model train and each
 * micro-batch can be a group of its own, whatever the number of processes. There is at least one
 * group for each process. */
gradient_shape together_shape(const pesc_train_options *o, const device *dev,
                              const train_spec *spec, int64_t trained);

/* Micro-batches of a step, at most. */
int64_t together_micros(const pesc_train_options *o);

#endif

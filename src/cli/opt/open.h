/* open: opens the model of a command with the options that all such commands take. */
#ifndef PESC_CLI_OPEN_H
#define PESC_CLI_OPEN_H

#include "cli/opt/opt.h"

typedef struct open_model {
    pesc_device *device;
    pesc_model *model;
    pesc_model *draft; /* of --draft; NULL: none */
    pesc_model_info info;
} open_model;

/* --checkpoint: each model of the options that is a run becomes its checkpoint. */
pesc_status open_checkpoints(options *o);

/* With the draft model that is asked for. Closed by open_free even when it failed. */
pesc_status open_from(open_model *m, const options *o);
/* The same with a device that works with other processes; NULL: it works alone. */
pesc_status open_among(open_model *m, const options *o, pesc_comm *all);
/* Where o->models are several and no dtype is given, all compute in that of the first run among
 * them, so that a base and its run are compared in one. */
pesc_status open_in_one_dtype(options *o);
/* "bf16" or "f32": in which the open model computes; a static text. Where a run computes as it was
 * trained, and its base alone would compute in another dtype here, that is said. */
pesc_status open_computes(const open_model *m, const options *o, const char **out);
/* The device of --device and --threads alone. */
pesc_status open_device(pesc_device **out, const options *o);
/* The same for a model that is going to be trained. */
pesc_status open_for_training(open_model *m, const options *o, const pesc_train_options *p,
                              pesc_comm *all);
void open_free(open_model *m);

/* The sampling of the options; what they do not give is the model's. */
pesc_status open_sampling(const open_model *m, const options *o, pesc_sample_options *out);

/* The model's tokenizer; fails when it has none. */
pesc_status open_tokenizer(const open_model *m, const options *o, const pesc_tokenizer **out);

#endif

/* runmodel: opens what the path of a model stands for. A run is its newest checkpoint; a checkpoint
 * is its base with what the run trained laid over it; anything else is a model on the disk
 * (format/hfdir.h). */
#ifndef PESC_RUN_RUNMODEL_H
#define PESC_RUN_RUNMODEL_H

#include "format/hfdir.h"
#include "format/patch.h"
#include "format/peft.h"
#include "run/runstate.h"

/* A path to open. `base` (NULL: none): the base of a run, where it is not found (runstate_resolve).
 */
typedef struct runmodel_where {
    const char *path, *base;
} runmodel_where;

/* Refuses a run whose base has changed (runbase_check), unless opened without weights. flags: of
 * hfdir.h. chain (NULL: not wanted): what the model is made up of, for runstate_chain_free() when
 * the call succeeded. */
pesc_status runmodel_open(hfdir **out, runstate_chain *chain, runmodel_where where, unsigned flags);

/* The tokenizer of a path (directory, tokenizer.json, tokenizer.model, .gguf, run); *out NULL with
 * PESC_OK when a directory has none. */
pesc_status runmodel_tokenizer(pesc_tokenizer **out, runmodel_where where);
pesc_status runmodel_chain_tokenizer(pesc_tokenizer **out, const runstate_chain *c);

/* Whether a checkpoint is an expert patch too. What it trained is then no part of its base,
 * whatever dtype is asked for that: so the run is the base with the patch in it. */
bool runmodel_is_patch(const char *checkpoint);

/* An expert patch: a directory that holds one, a checkpoint of method esft, or a run of it. */
pesc_status runmodel_patch(patch **out, const char *path);
/* How the run that trained it held its model; *found false: it is no run's. */
pesc_status runmodel_patch_held(runbase_held *out, const char *path);

/* How the outermost run of a chain held its model; *found false: there is none. Of a base that is a
 * run itself and was held in the same base_dtype, the experts were held as that run held them. */
pesc_status runmodel_chain_held(runbase_held *out, const runstate_chain *c);

/* The LoRA of `on` that a path holds: a PEFT directory, or a run or checkpoint that has trained a
 * LoRA on that model and nothing else. */
pesc_status runmodel_lora(peft **out, const char *path, const hfdir *on);

/* The identity of an open model as the base of a run. */
void runmodel_identify(const hfdir *h, runbase_identity *out);

#endif

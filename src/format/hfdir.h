/* hfdir: opens a model from a path: a Hugging Face directory, a Camelidae training output
 * (moe_model.bin and adapter_model/), a PEFT adapter, or a .gguf file. The one place that knows
 * which files make up a model; everything above sees a configuration object and a table of weights.
 *
 * Weights are looked for as transformers does: model.safetensors, its index, pytorch_model.bin, its
 * index; nothing else in the directory is read. A directory without weights but with an adapter
 * stands for the adapter's base_model_name_or_path, if that is a directory here. moe_model.bin adds
 * its tensors to the base's, and to the configuration what that does not say about experts. */
#ifndef PESC_FORMAT_HFDIR_H
#define PESC_FORMAT_HFDIR_H

#include "base/json.h"
#include "format/runstate.h"
#include "text/tokenizer.h"

typedef struct hfdir {
    char *path;             /* as given */
    runstate_chain chain;   /* what it is made up of */
    const char *root;       /* the plain model below it: the path itself unless that is a run */
    const char *checkpoint; /* the checkpoint that a run stands for; NULL: the path is no run */
    char *config_file;      /* for messages: ".../config.json" or the .gguf */
    json_t *config;         /* config.json, or its equal made from GGUF metadata */
    json_t *generation;     /* generation_config.json, or NULL */
    weights *ws;            /* NULL with HFDIR_NO_WEIGHTS, or for a configuration alone */
    char *lora_dir;         /* a PEFT directory that belongs to the model, or NULL */
    const char *format;     /* "safetensors", "torch", "gguf", "config" */
} hfdir;

/* A path to open. `base` (NULL: none): the base of a run, where it is not found (runstate_resolve).
 */
typedef struct hfdir_where {
    const char *path, *base;
} hfdir_where;

enum {
    HFDIR_NO_WEIGHTS = 1,
    HFDIR_CONFIG = 2 /* the path may also be a config.json, for a model without weights */
};
/* Refuses a run whose base has changed (runbase_check), unless opened without weights. */
pesc_status hfdir_open(hfdir **out, hfdir_where where, unsigned flags);
void hfdir_close(hfdir *h); /* NULL is allowed */

/* The LoRA that an open model is to have: the one in `given` (NULL: none), or its own; *out NULL:
 * neither. Both together are refused, because one of them would be lost. */
pesc_status hfdir_lora(const hfdir *h, const char *given, const char **out);

/* The identity of an open model as the base of a run. */
void hfdir_identify(const hfdir *h, runbase_identity *out);

/* The tokenizer of a path (directory, tokenizer.json, tokenizer.model, .gguf); *out NULL with
 * PESC_OK when a directory has none. */
pesc_status hfdir_tokenizer(pesc_tokenizer **out, hfdir_where where);
pesc_status hfdir_own_tokenizer(pesc_tokenizer **out, const hfdir *h); /* of an open model */

#endif

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
#include "format/weights.h"
#include "text/tokenizer.h"

typedef struct hfdir {
    char *path;         /* as given */
    char *root;         /* the plain model below it: the path itself unless that is a run */
    char *config_file;  /* for messages: ".../config.json" or the .gguf */
    json_t *config;     /* config.json, or its equal made from GGUF metadata */
    json_t *generation; /* generation_config.json, or NULL */
    weights *ws;        /* NULL when opened with HFDIR_NO_WEIGHTS */
    char *lora_dir;     /* a PEFT directory that belongs to the model, or NULL */
    const char *format; /* "safetensors", "torch", "gguf" */
} hfdir;

enum { HFDIR_NO_WEIGHTS = 1 };
pesc_status hfdir_open(hfdir **out, const char *path, unsigned flags);
void hfdir_close(hfdir *h); /* NULL is allowed */

/* The tokenizer of a path (directory, tokenizer.json, tokenizer.model, .gguf); *out NULL with
 * PESC_OK when a directory has none. */
pesc_status hfdir_tokenizer(pesc_tokenizer **out, const char *path);

#endif

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
#include "tokenizer/tokenizer.h"

typedef struct hfdir {
    char *path;         /* as the user gave it */
    char *top;          /* what that stands for: of a run its newest checkpoint; else as `root` */
    char *root;         /* the model on the disk that was opened */
    char *config_file;  /* for messages: ".../config.json" or the .gguf */
    bool text_part;     /* of a multimodal model: textpart.h */
    json_t *config;     /* config.json, or its equal made from GGUF metadata */
    json_t *generation; /* generation_config.json, or NULL */
    weights *ws;        /* NULL with HFDIR_NO_WEIGHTS, or for a configuration alone */
    char *lora_dir;     /* a PEFT directory that belongs to the model, or NULL */
    const char *format; /* "safetensors", "torch", "gguf", "config" */
} hfdir;

enum {
    HFDIR_NO_WEIGHTS = 1,
    HFDIR_CONFIG = 2 /* the path may also be a config.json, for a model without weights */
};
/* A model on the disk. A path that a user gives may also be a run: run/runmodel.h. */
pesc_status hfdir_open(hfdir **out, const char *path, unsigned flags);
void hfdir_close(hfdir *h); /* NULL is allowed */

/* The LoRA that an open model is to have: the one in `given` (NULL: none), or its own; *out NULL:
 * neither. Both together are refused, because one of them would be lost. */
pesc_status hfdir_lora(const hfdir *h, const char *given, const char **out);

/* The tokenizer of a path (directory, tokenizer.json, tokenizer.model, .gguf); *out NULL with
 * PESC_OK when a directory has none. */
pesc_status hfdir_tokenizer(pesc_tokenizer **out, const char *path);

/* ---- what a run lays over its base ---- */

/* Tensors of the file take the place of those of the same name, and are marked as trained; with
 * `patch` they note what they replace. A tied head that was stored beside the embeddings goes with
 * them. */
pesc_status hfdir_lay_over(hfdir *h, const char *file, bool patch);
/* What was trained so far counts as stored. */
void hfdir_forget_trained(hfdir *h);
/* The keys of a JSON object are added to the configuration. */
pesc_status hfdir_add_keys(hfdir *h, const char *file);
/* The LoRA in `dir` takes the place of the model's own. */
pesc_status hfdir_set_lora(hfdir *h, const char *dir);
pesc_status hfdir_set_names(hfdir *h, const char *path, const char *top);

#endif

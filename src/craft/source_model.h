/* source_model: the model that another one is made from: its configuration and the table of its
 * stored weights, opened without loading any. */
#ifndef PESC_CRAFT_SOURCE_MODEL_H
#define PESC_CRAFT_SOURCE_MODEL_H

#include "arch/config.h"
#include "chat/chat_formats.h"
#include "format/hfdir.h"
#include "run/runmodel.h"

typedef struct source_model {
    const char *path, *base; /* borrowed; base: runmodel_where.base */
    hfdir *dir;
    runstate_chain chain; /* what it is made up of */
    /* As read, but tie_embeddings says whether the files hold one matrix for both ends: a head
     * that is stored is the model's, whatever the key says. */
    config cfg;
    dtype usual;    /* what most bytes are stored in */
    bool quantised; /* a matrix is stored in neither f32, bf16 nor f16 */
} source_model;

/* Checks that the tensors fit the configuration. Closed by source_model_close even when it failed.
 */
pesc_status source_model_open(source_model *p, runmodel_where where);
void source_model_close(source_model *p);

/* PESC_USAGE for a model with a LoRA of its own, which what is made from the stored weights alone
 * would be without. */
pesc_status source_model_check_no_lora(const source_model *p);

/* Copies the tokenizer and generation_config.json to a new directory: `tok` when it is given,
 * else what the model brings; says so when there is none. */
pesc_status source_model_copy_tokenizer(const source_model *p, const char *tok, const char *dir);

/* The built-in chat format that a run was trained in; *out NULL: it was the model's own, or there
 * is no run. */
pesc_status source_model_format(const source_model *p, const chat_format **out);

#endif

/* target: a model in the making: what it is made from, its configuration and its tensor plan. The
 * steps that craft, merge and export share. */
#ifndef PESC_CRAFT_TARGET_H
#define PESC_CRAFT_TARGET_H

#include "craft/tensor_plan.h"
#include "craft/verify.h"
#include "format/patch.h"

typedef struct target_model {
    source_model from;
    const char *place; /* of the directory or file that is made; borrowed */
    io_draft *draft;   /* which is written here, */
    const char *dir;   /* in this directory, */
    const char *last;  /* and has this file when it is complete; NULL until then */
    char *file;        /* its config.json, for messages */
    json_t *json;      /* what will stand in it */
    config cfg;
    tensor_plan plan;
    pesc_load_options load; /* how the source is opened to compare with it, */
    bind_source held;       /* and how its weights are held then, where it is a run's model */
    device *dev;            /* that compares; borrowed */
    pesc_logit_check check; /* the comparison */
    const patch *applied;   /* that is being applied; NULL: none */
    pesc_status (*write_more)(
        const struct target_model *p); /* files of a target's own; NULL: none */
} target_model;

/* `place` must be free: see io_draft_open(). dtype as in tensor_plan_dtype(). The configuration is
 * left to the caller. Closed by target_close even when it failed. */
pesc_status target_open(target_model *p, runmodel_where model, const char *place,
                        const char *dtype_text);
void target_close(target_model *p);

/* What is made is made of the weights as the run that left a checkpoint held them, or held those
 * under the LoRA in it; nothing changes where `dir` was not left by a run. nf4: the weights of its
 * base are held in NF4, whatever the run did. */
pesc_status target_hold(target_model *p, const char *dir, bool nf4, bool double_quant);

/* What writing may do to the logits: nothing, or rounding to the coarsest dtype that is written. */
verify_rounding target_rounding(const target_model *p);

/* s: how all went. What is complete takes its place, also where it is only the comparison that
 * failed. */
pesc_status target_publish(target_model *p, pesc_status s);

/* Begins the configuration as a copy of the source's, forgetting what was there. */
pesc_status target_begin(target_model *p);
/* Reads it. *differs: the key of a fact of the dense part that it cannot say, or NULL. */
pesc_status target_read(target_model *p, const char **differs);
/* The same where it must be able to say them all. */
pesc_status target_read_same(target_model *p);
/* Begins and reads the configuration of a target of the source's own family. */
pesc_status target_same_family(target_model *p);

/* The weights, the tokenizer (from `tok`, or the source's) and, last, config.json. */
pesc_status target_write(target_model *p, const char *tok);

/* Compares the written model with its source, with the LoRA that was folded in. */
typedef struct target_check {
    bool wanted;
    const char *lora_dir; /* that the source is opened with; NULL: as the directory says */
    verify_rounding rounding;
} target_check;
pesc_status target_compare(target_model *p, const target_check *c);

#endif

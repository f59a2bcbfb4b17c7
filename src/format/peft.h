/* peft: a LoRA adapter directory as PEFT saves it: adapter_config.json and
 * adapter_model.safetensors (or .bin).
 *
 * Yields one row for each adapted linear: W x becomes W x + scale * B (A x). The reader checks
 * that every A has its B, that both have the rank the configuration gives to that module, and that
 * nothing else is in the file. What pesc does not apply is refused by name, never ignored
 * (peftfields.h). */
#ifndef PESC_FORMAT_PEFT_H
#define PESC_FORMAT_PEFT_H

#include "format/weights.h"

typedef struct peft_lora {
    const char *module;   /* "model.layers.0.self_attn.q_proj": the linear, without ".weight" */
    const weight *a;      /* [r, in] */
    const weight *b;      /* [out, r] */
    int64_t stacked_rank; /* > 0: r of each expert; it is on a parameter of all of them, and a and b
                             are [E r, in] and [out, E r] (arch/stacked_lora.h) */
    float scale;          /* alpha / r, or alpha / sqrt(r) with use_rslora */
} peft_lora;

typedef struct peft {
    char *dir;        /* as given */
    weights *ws;      /* owns names and bytes of all below */
    peft_lora *loras; /* in the order of the file */
    size_t n;
    char *base; /* base_model_name_or_path, or NULL */
} peft;

pesc_status peft_open(peft **out, const char *dir);
void peft_close(peft *p); /* NULL is allowed */

/* The LoRA of the linear whose weight has this name, which ends in ".weight"; NULL: none. */
const peft_lora *peft_find(const peft *p, const char *name);
/* Whether it is one of a linear [out, in]. */
bool peft_fits(const peft_lora *l, const int64_t ne[2]);
pesc_status peft_check_fit(const peft *p, const peft_lora *l, const int64_t ne[2]);

/* 16 hexadecimal digits over all numbers and scales. */
void peft_hash(const peft *p, char out[17]);

/* The base_model_name_or_path of an adapter_config.json, for mem_free(); NULL where it has none. */
pesc_status peft_base(char **out, const char *dir);

#endif

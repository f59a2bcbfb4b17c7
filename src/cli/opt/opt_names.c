/* opt_names: names that are not options: what other programs call them, and the nearest name. */
#include "cli/opt/opt.h"

#include "cli/command.h"

#include <stdio.h>
#include <string.h>

/* What people who come from transformers, peft, TRL, Axolotl, LLaMA-Factory, Unsloth, MLX or
 * llama.cpp type. Of several rows with one word, the first whose key the command takes counts. */
static const struct {
    const char *key, *value; /* value NULL: the user's */
    const char *theirs;      /* words separated by spaces */
} synonyms[] = {
    { "lr", NULL, "learning_rate" },
    { "epochs", NULL, "num_train_epochs num_epochs n_epochs" },
    { "steps", NULL, "max_steps num_steps" },
    { "batch", NULL,
      "per_device_train_batch_size train_batch_size global_batch_size batch_size "
      "gradient_accumulation_steps grad_accum_steps" },
    { "micro_tokens", NULL, "micro_batch_size" },
    { "seq_len", NULL,
      "max_seq_length max_seq_len sequence_len sequence_length seq_length max_length "
      "model_max_length cutoff_len block_size" },
    { "base_dtype", "nf4", "load_in_4bit quantization_bit" },
    { "method", "qlora", "qlora" },
    { "compute_dtype", "bf16", "bf16 fp16" },
    { "compute_dtype", "f32", "fp32" },
    { "compute_dtype", NULL, "torch_dtype precision bnb_4bit_compute_dtype" },
    { "double_quant", NULL, "bnb_4bit_use_double_quant" },
    { "lora_r", NULL, "lora_rank lora_dim rank r" },
    { "lora_alpha", NULL, "alpha lora_scale" },
    { "lora_dropout", NULL, "dropout" },
    { "lora_targets", NULL, "lora_target lora_target_modules target_modules lora_modules" },
    { "lora_layers", NULL, "num_layers layers_to_transform lora_layers_to_transform" },
    { "output", NULL, "output_dir out_dir save_dir outfile" },
    { "model", NULL, "model_name_or_path model_name model_path base_model pretrained" },
    { "tokenizer", NULL, "tokenizer_name" },
    { "lora", NULL, "adapter_path adapter_name_or_path peft_model" },
    { "data", NULL, "dataset datasets data_path train_file train_data train_files" },
    { "eval_data", NULL, "validation_file val_data valid_data eval_file eval_dataset" },
    { "format", NULL, "dataset_format" },
    { "template", NULL, "chat_template prompt_template" },
    { "chat_format", NULL, "chat_template" },
    { "warmup_steps", NULL, "warmup num_warmup_steps lr_warmup_steps" },
    { "warmup_ratio", NULL, "warmup_fraction warmup_proportion lr_warmup_ratio" },
    { "schedule", NULL, "lr_scheduler_type lr_scheduler scheduler lr_schedule" },
    { "clip", NULL, "max_grad_norm gradient_clipping grad_clip clip_grad_norm" },
    { "beta1", NULL, "adam_beta1" },
    { "beta2", NULL, "adam_beta2" },
    { "eps", NULL, "adam_epsilon" },
    { "optimizer", NULL, "optim optimiser" },
    { "packing", NULL, "sample_packing" },
    { "aux_coef", NULL, "router_aux_loss_coef aux_loss_coef" },
    { "experts", NULL, "num_experts n_experts" },
    { "top_k", NULL, "num_experts_per_tok topk" },
    { "save_every", NULL, "save_steps" },
    { "keep_checkpoints", NULL, "save_total_limit" },
    { "eval_every", NULL, "eval_steps steps_per_eval" },
    { "log_every", NULL, "logging_steps log_steps steps_per_report" },
    { "resume", NULL, "resume_from_checkpoint" },
    { "overwrite", NULL, "overwrite_output_dir force" },
    { "seed", NULL, "random_seed" },
    { "method", NULL, "finetuning_type fine_tune_type peft_type" },
    { "max_tokens", NULL, "max_new_tokens n_predict num_predict" },
    { "top_p", NULL, "topp" },
    { "repetition_penalty", NULL, "repeat_penalty" },
    { "stop", NULL, "stop_words stop_sequences" },
    { "system", NULL, "system_prompt" },
    { "ctx", NULL, "ctx_size context_length n_ctx" },
    { "limit", NULL, "num_samples" },
    { "tasks", NULL, "task" },
    { "config", NULL, "config_file" },
    { "threads", NULL, "num_threads" },
    { "device", "cuda", "cuda gpu" },
    { "device", NULL, "device_map" },
};

const char *opt_synonym(const command *c, const char *word, const char **value)
{
    opt_name key;
    snprintf(key, sizeof key, "%s", word);
    for (char *p = key; *p; p++)
        *p = *p == '-' ? '_' : *p;
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++)
        if (opt_lists(synonyms[i].theirs, key) && opt_find(c, synonyms[i].key)) {
            *value = synonyms[i].value;
            return synonyms[i].key;
        }
    return NULL;
}

/* Levenshtein distance; words over 63 bytes count as far apart. */
static int distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    int row[64];
    if (n > 63 || m > 63)
        return 64;
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int corner = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int change = corner + (a[i - 1] != b[j - 1]);
            int gap = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
            corner = row[j];
            row[j] = change < gap ? change : gap;
        }
    }
    return row[m];
}

const char *opt_nearest(const char *word, const char *const *candidates, size_t n)
{
    const char *best = NULL;
    int limit = (int)strlen(word) / 3 + 2;
    for (size_t i = 0; i < n; i++) {
        int d = distance(word, candidates[i]);
        if (d < limit) {
            limit = d;
            best = candidates[i];
        }
    }
    return best;
}

/* The key of the command nearest to the word. */
static const char *nearest_key(const command *c, const char *word)
{
    const char *best = NULL;
    for (const pesc_option *r = NULL; (r = opt_next(c, r));) {
        const char *pair[] = { best, r->key };
        const char *near = opt_nearest(word, best ? pair : &r->key, best ? 2 : 1);
        best = near ? near : best;
    }
    return best;
}

pesc_status opt_unknown(const options *o, const char *word, const char *where, opt_spelling as)
{
    const char *value = NULL, *key = opt_synonym(o->cmd, word, &value);
    const bool known = key, flag = as == OPT_AS_FLAG;
    opt_name name, plain;
    snprintf(plain, sizeof plain, "%s", word);
    for (char *p = plain; *p; p++)
        *p = *p == '-' ? '_' : *p;
    key = known ? key : nearest_key(o->cmd, plain);
    if (!key)
        return out_fail(PESC_USAGE, "%s: there is no such option; `pesc %s --help` lists them",
                        where, o->cmd->name);
    const char *shown = flag ? opt_flag(name, key) : key, *dashes = flag ? "--" : "";
    if (!known)
        return out_fail(PESC_USAGE, "%s: there is no such option; did you mean %s%s?", where,
                        dashes, shown);
    const char *meaning = opt_find(o->cmd, key)->help;
    return out_fail(PESC_USAGE, "%s: that is %s%s%s%s here: %.*s", where, dashes, shown,
                    value ? flag ? " " : ": " : "", value ? value : "", (int)strcspn(meaning, ";:"),
                    meaning);
}

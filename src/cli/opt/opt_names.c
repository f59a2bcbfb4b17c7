/* opt_names: names that are not options: what other programs call them, and the nearest name. */
#include "cli/opt/opt.h"

#include "cli/command.h"

#include <stdio.h>
#include <string.h>

/* What people who come from transformers, peft, TRL, Axolotl, LLaMA-Factory, Unsloth, MLX or
 * llama.cpp type. Of several rows for one word, the first whose key the command takes counts. */
static const struct {
    const char *theirs, *key, *value;
} synonyms[] = {
    { "learning_rate", "lr", NULL },
    { "num_train_epochs", "epochs", NULL },
    { "num_epochs", "epochs", NULL },
    { "n_epochs", "epochs", NULL },
    { "max_steps", "steps", NULL },
    { "num_steps", "steps", NULL },
    { "per_device_train_batch_size", "batch", NULL },
    { "train_batch_size", "batch", NULL },
    { "global_batch_size", "batch", NULL },
    { "batch_size", "batch", NULL },
    { "gradient_accumulation_steps", "batch", NULL },
    { "grad_accum_steps", "batch", NULL },
    { "micro_batch_size", "micro_tokens", NULL },
    { "max_seq_length", "seq_len", NULL },
    { "max_seq_len", "seq_len", NULL },
    { "sequence_len", "seq_len", NULL },
    { "sequence_length", "seq_len", NULL },
    { "seq_length", "seq_len", NULL },
    { "max_length", "seq_len", NULL },
    { "model_max_length", "seq_len", NULL },
    { "cutoff_len", "seq_len", NULL },
    { "block_size", "seq_len", NULL },
    { "load_in_4bit", "base_dtype", "nf4" },
    { "quantization_bit", "base_dtype", "nf4" },
    { "qlora", "method", "qlora" },
    { "bf16", "compute_dtype", "bf16" },
    { "fp16", "compute_dtype", "bf16" },
    { "fp32", "compute_dtype", "f32" },
    { "torch_dtype", "compute_dtype", NULL },
    { "precision", "compute_dtype", NULL },
    { "bnb_4bit_use_double_quant", "double_quant", NULL },
    { "bnb_4bit_compute_dtype", "compute_dtype", NULL },
    { "lora_rank", "lora_r", NULL },
    { "lora_dim", "lora_r", NULL },
    { "rank", "lora_r", NULL },
    { "r", "lora_r", NULL },
    { "alpha", "lora_alpha", NULL },
    { "lora_scale", "lora_alpha", NULL },
    { "dropout", "lora_dropout", NULL },
    { "lora_target", "lora_targets", NULL },
    { "lora_target_modules", "lora_targets", NULL },
    { "target_modules", "lora_targets", NULL },
    { "lora_modules", "lora_targets", NULL },
    { "num_layers", "lora_layers", NULL },
    { "layers_to_transform", "lora_layers", NULL },
    { "lora_layers_to_transform", "lora_layers", NULL },
    { "output_dir", "output", NULL },
    { "out_dir", "output", NULL },
    { "save_dir", "output", NULL },
    { "model_name_or_path", "model", NULL },
    { "model_name", "model", NULL },
    { "model_path", "model", NULL },
    { "base_model", "model", NULL },
    { "pretrained", "model", NULL },
    { "tokenizer_name", "tokenizer", NULL },
    { "adapter_path", "lora", NULL },
    { "adapter_name_or_path", "lora", NULL },
    { "peft_model", "lora", NULL },
    { "dataset", "data", NULL },
    { "datasets", "data", NULL },
    { "data_path", "data", NULL },
    { "train_file", "data", NULL },
    { "train_data", "data", NULL },
    { "train_files", "data", NULL },
    { "validation_file", "eval_data", NULL },
    { "val_data", "eval_data", NULL },
    { "valid_data", "eval_data", NULL },
    { "eval_file", "eval_data", NULL },
    { "eval_dataset", "eval_data", NULL },
    { "dataset_format", "format", NULL },
    { "chat_template", "template", NULL },
    { "chat_template", "chat_format", NULL },
    { "prompt_template", "template", NULL },
    { "warmup", "warmup_steps", NULL },
    { "num_warmup_steps", "warmup_steps", NULL },
    { "lr_warmup_steps", "warmup_steps", NULL },
    { "warmup_fraction", "warmup_ratio", NULL },
    { "warmup_proportion", "warmup_ratio", NULL },
    { "lr_warmup_ratio", "warmup_ratio", NULL },
    { "lr_scheduler_type", "schedule", NULL },
    { "lr_scheduler", "schedule", NULL },
    { "scheduler", "schedule", NULL },
    { "lr_schedule", "schedule", NULL },
    { "max_grad_norm", "clip", NULL },
    { "gradient_clipping", "clip", NULL },
    { "grad_clip", "clip", NULL },
    { "clip_grad_norm", "clip", NULL },
    { "adam_beta1", "beta1", NULL },
    { "adam_beta2", "beta2", NULL },
    { "adam_epsilon", "eps", NULL },
    { "optim", "optimizer", NULL },
    { "optimiser", "optimizer", NULL },
    { "sample_packing", "packing", NULL },
    { "router_aux_loss_coef", "aux_coef", NULL },
    { "aux_loss_coef", "aux_coef", NULL },
    { "num_experts", "experts", NULL },
    { "n_experts", "experts", NULL },
    { "num_experts_per_tok", "top_k", NULL },
    { "save_steps", "save_every", NULL },
    { "save_total_limit", "keep_checkpoints", NULL },
    { "eval_steps", "eval_every", NULL },
    { "steps_per_eval", "eval_every", NULL },
    { "logging_steps", "log_every", NULL },
    { "log_steps", "log_every", NULL },
    { "steps_per_report", "log_every", NULL },
    { "resume_from_checkpoint", "resume", NULL },
    { "overwrite_output_dir", "overwrite", NULL },
    { "force", "overwrite", NULL },
    { "random_seed", "seed", NULL },
    { "finetuning_type", "method", NULL },
    { "fine_tune_type", "method", NULL },
    { "peft_type", "method", NULL },
    { "max_new_tokens", "max_tokens", NULL },
    { "n_predict", "max_tokens", NULL },
    { "num_predict", "max_tokens", NULL },
    { "topk", "top_k", NULL },
    { "topp", "top_p", NULL },
    { "repeat_penalty", "repetition_penalty", NULL },
    { "stop_words", "stop", NULL },
    { "stop_sequences", "stop", NULL },
    { "system_prompt", "system", NULL },
    { "ctx_size", "ctx", NULL },
    { "context_length", "ctx", NULL },
    { "n_ctx", "ctx", NULL },
    { "num_samples", "limit", NULL },
    { "task", "tasks", NULL },
    { "outfile", "output", NULL },
    { "config_file", "config", NULL },
    { "num_threads", "threads", NULL },
    { "cuda", "device", "cuda" },
    { "gpu", "device", "cuda" },
    { "device_map", "device", NULL },
};

const char *opt_synonym(const command *c, const char *word, const char **value)
{
    opt_name key;
    snprintf(key, sizeof key, "%s", word);
    for (char *p = key; *p; p++)
        *p = *p == '-' ? '_' : *p;
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++)
        if (strcmp(synonyms[i].theirs, key) == 0 && opt_find(c, synonyms[i].key)) {
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

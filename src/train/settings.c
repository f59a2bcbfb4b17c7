#include "train/settings.h"

#include "base/args.h"
#include "base/json.h"
#include "base/log.h"
#include "base/options.h"
#include "run/runbase.h"

#include <stdio.h>
#include <string.h>

/* ---- presets ---- */

/* The settings of ESFT's paper, for the method itself and the two it is compared with. */
static pesc_status esft_preset(pesc_train_options *o)
{
    static const struct {
        const char *method;
        double lr;
    } rows[] = { { "esft", 1e-5 }, { "full", 3e-5 }, { "lora", 1e-4 } };
    size_t i = 0, n = sizeof rows / sizeof *rows;
    while (i < n && strcmp(o->method, rows[i].method) != 0)
        i++;
    if (i == n)
        return fail(PESC_USAGE,
                    "preset: esft is for method esft, full or lora, and has no settings for %s; "
                    "give one of these methods, or leave the preset out",
                    o->method);
    o->lr = rows[i].lr;
    o->lora_r = 8;
    o->lora_alpha = 16;
    o->lora_dropout = 0;
    o->aux_coef = 0;
    o->batch = 32;
    o->seq_len = 4096;
    o->batch_tokens = o->batch * o->seq_len; /* 32 sequences that records are packed into */
    o->steps = 500;
    o->max_epochs = 1000;
    o->warmup_steps = 0;
    o->clip = 1;
    o->weight_decay = 0.1;
    o->beta2 = 0.95;
    o->eval_every = 100;
    return PESC_OK;
}

pesc_status pesc_train_preset(pesc_train_options *opt, const char *name)
{
    status_clear();
    NEED_SIZED(opt);
    NEED(name);
    if (strcmp(name, "esft") == 0)
        return esft_preset(opt);
    if (strcmp(name, "paper") != 0 && strcmp(name, "published") != 0)
        return fail(PESC_USAGE, "preset: found \"%s\", expected paper, published or esft", name);
    pesc_train_options d = pesc_train_defaults();
    bool published = strcmp(name, "published") == 0;
    opt->adapter_scale = published ? 0.25 : d.adapter_scale;
    opt->aux_coef = published ? 0 : d.aux_coef;
    opt->loss = published ? "sequence" : d.loss;
    opt->packing = published ? false : d.packing;
    opt->over_length = published ? "truncate" : d.over_length;
    if (strcmp(opt->method, "pesc") == 0)
        opt->base_dtype = "nf4"; /* both train on a base that QLoRA has quantised */
    return PESC_OK;
}

/* ---- checking ---- */

static void resolve(pesc_train_options *o)
{
    if (!o->base_dtype && strcmp(o->method, "qlora") == 0)
        o->base_dtype = "nf4";
    if (!o->compute_dtype)
        o->compute_dtype = "f32";
}

/* Methods that change matrices of the base. */
static bool trains_base(const pesc_train_options *o)
{
    return strcmp(o->method, "full") == 0 || runbase_trains_experts(o->method);
}

/* Options that one objective has and the one asked for does not are not left unused in silence. */
static void note_unused(const pesc_train_options *o)
{
    const pesc_train_options d = pesc_train_defaults();
    const struct {
        const char *key, *of; /* of: the objectives that read it */
        double value, usual;
    } rows[] = {
        { "beta", "dpo ipo simpo kto", o->beta, d.beta },
        { "simpo_gamma", "simpo", o->simpo_gamma, d.simpo_gamma },
        { "orpo_lambda", "orpo", o->orpo_lambda, d.orpo_lambda },
        { "kto_desirable", "kto", o->kto_desirable, d.kto_desirable },
        { "kto_undesirable", "kto", o->kto_undesirable, d.kto_undesirable },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].value != rows[i].usual && !strstr(rows[i].of, o->objective))
            log_notice("%s %g is not used: it is for objective %s, and the run has %s", rows[i].key,
                       rows[i].value, rows[i].of, o->objective);
}

/* Options that do not go together. */
static pesc_status check_objective(const pesc_train_options *o)
{
    const struct {
        const char *key, *of; /* of: the objectives that read it */
        bool given;
    } rows[] = {
        { "label_smoothing", "dpo simpo", o->label_smoothing != 0 },
        { "sft_coef", "dpo ipo orpo simpo kto", o->sft_coef != 0 },
        { "metric_for_best_model", "dpo ipo orpo simpo kto",
          strcmp(o->metric_for_best_model, "loss") != 0 },
    };
    bool sft = strcmp(o->objective, "sft") == 0;
    note_unused(o);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given && !strstr(rows[i].of, sft ? "sft only" : o->objective))
            return fail(PESC_USAGE, "%s: is for objective %s, found %s; leave it out", rows[i].key,
                        rows[i].of, o->objective);
    if (!sft && strcmp(o->over_length, "split") == 0)
        return fail(PESC_USAGE,
                    "over_length: found split with objective %s, whose answers are "
                    "whole; expected drop, truncate or error",
                    o->objective);
    bool parts = strcmp(o->objective, "orpo") == 0 || strcmp(o->objective, "kto") == 0;
    if (parts && strcmp(o->reasoning, "mask") == 0)
        return fail(PESC_USAGE,
                    "reasoning: found mask with objective %s, which takes all that follows a "
                    "prompt as the answer; expected keep, last or drop",
                    o->objective);
    if (strcmp(o->objective, "kto") == 0 && o->batch < 2 && !o->batch_tokens)
        return fail(PESC_USAGE, "batch: found 1 with objective kto, which compares each prompt "
                                "with the answer to another one of its batch; give 2 or more");
    bool rates = strcmp(o->objective, "kto") == 0 &&
                 strcmp(o->metric_for_best_model, "rewards/accuracies") == 0;
    return rates ? fail(PESC_USAGE, "metric_for_best_model: found rewards/accuracies with "
                                    "objective kto, which has no pairs; give rewards/margins")
                 : PESC_OK;
}

pesc_status settings_take(pesc_train_options *out, const pesc_train_options *given)
{
    TRY(options_take(PESC_OPTIONS_TRAIN, out, given));
    TRY(options_check_utf8(PESC_OPTIONS_TRAIN, out)); /* they are going to be in run.yaml */
    resolve(out);
    if (!out->output)
        return fail(PESC_USAGE, "output: is missing; give the directory of the run");
    if (!out->n_data)
        return fail(PESC_USAGE, "data: is missing; give at least one file to train on");
    if (out->resume && out->overwrite)
        return fail(PESC_USAGE, "resume and overwrite: found both; resume continues the run, "
                                "overwrite starts a new one");
    if (out->steps == 0 && !(out->epochs > 0))
        return fail(PESC_USAGE, "epochs: found 0 and steps 0; one of them must say how long the "
                                "run is");
    if (out->grad_groups > 0 && out->grad_groups & (out->grad_groups - 1))
        return fail(PESC_USAGE, "grad_groups: found %lld, expected a power of two",
                    (long long)out->grad_groups);
    if (strcmp(out->shard, "none") != 0 && trains_base(out))
        return fail(PESC_USAGE,
                    "shard: found %s with method %s, which trains the base; it is for pesc, "
                    "qlora, lora and molora, which leave it frozen",
                    out->shard, out->method);
    if ((out->patience || out->eval_at_start) && !out->n_eval_data && !(out->val_split > 0))
        return fail(PESC_USAGE,
                    "%s: needs validation data, and there is none; give eval_data or val_split",
                    out->patience ? "patience" : "eval_at_start");
    TRY(check_objective(out));
    if (out->patience && !out->eval_every)
        return fail(PESC_USAGE, "patience: counts validations, and eval_every 0 has one at the end "
                                "only; give eval_every");
    return PESC_OK;
}

void settings_compute(pesc_train_options *o, dtype act)
{
    if (strcmp(o->compute_dtype, "auto") == 0)
        o->compute_dtype = act == DT_BF16 ? "bf16" : "f32";
}

void settings_load(const pesc_train_options *o, pesc_load_options *out)
{
    runbase_held held = { .double_quant = o->double_quant,
                          .whole_experts = runbase_trains_experts(o->method) };
    snprintf(held.base_dtype, sizeof held.base_dtype, "%s", o->base_dtype ? o->base_dtype : "");
    snprintf(held.compute_dtype, sizeof held.compute_dtype, "%s",
             o->compute_dtype ? o->compute_dtype : "");
    out->base_dtype = out->compute_dtype = NULL;
    runbase_load(&held, out);
    if (o->compute_dtype && strcmp(o->compute_dtype, "auto") == 0)
        out->compute_dtype = "auto";
    out->lora = o->lora;
    out->base = o->base;
    out->shard_base = strcmp(o->shard, "base") == 0;
    out->host_base = strcmp(o->shard, "host") == 0;
}

pesc_status pesc_train_load(const pesc_train_options *opt, pesc_load_options *out)
{
    pesc_train_options o;
    status_clear();
    NEED_SIZED(out);
    TRY(options_take(PESC_OPTIONS_TRAIN, &o, opt));
    resolve(&o);
    settings_load(&o, out);
    return PESC_OK;
}

/* ---- the record of a run ---- */

void settings_yaml(const pesc_train_options *o, const char *model, str *out)
{
    json_t *v = json_string(model); /* a JSON string is a YAML string */
    str_puts(out, "model: ");
    json_put(out, v, 0);
    str_putc(out, '\n');
    json_decref(v);
    options_yaml(PESC_OPTIONS_TRAIN, o, out);
}

/* Flags of options that do not decide the numbers with this schedule. */
static unsigned free_to_change(const char *schedule)
{
    return strcmp(schedule, "constant") == 0 ? PESC_OPTION_LENGTH : 0;
}

uint64_t settings_hash(const pesc_train_options *o)
{
    return options_hash(PESC_OPTIONS_TRAIN, o, free_to_change(o->schedule));
}

void settings_changed(const char *then, const char *now, str *out)
{
    char schedule[32];
    options_value(PESC_OPTIONS_TRAIN, now, "schedule", schedule, sizeof schedule);
    options_changed(PESC_OPTIONS_TRAIN, then, now, free_to_change(schedule), out);
}

#include "cli/tune.h"

#include "cli/command.h"
#include "cli/num.h"

#include <string.h>

#define AT(f) offsetof(pesc_train_options, f)

/* Rows whose value has the same type in both structs. */
static const struct {
    const char *row;
    size_t at;
} moves[] = {
    { "output", AT(output) },
    { "method", AT(method) },
    { "resume", AT(resume) },
    { "strict", AT(strict) },
    { "overwrite", AT(overwrite) },
    { "init-from", AT(init_from) },
    { "seed", AT(seed) },
    { "device", AT(device) },
    { "base-dtype", AT(base_dtype) },
    { "compute-dtype", AT(compute_dtype) },
    { "double-quant", AT(double_quant) },
    { "lora", AT(lora) },
    { "experts-config", AT(experts_config) },
    { "experts", AT(experts) },
    { "top-k", AT(top_k) },
    { "adapter-dim", AT(adapter_dim) },
    { "adapter-scale", AT(adapter_scale) },
    { "adapter-dropout", AT(adapter_dropout) },
    { "aux-coef", AT(aux_coef) },
    { "lora-r", AT(lora_r) },
    { "lora-alpha", AT(lora_alpha) },
    { "lora-dropout", AT(lora_dropout) },
    { "lora-targets", AT(lora_targets) },
    { "format", AT(format) },
    { "template", AT(chat_template) },
    { "over-length", AT(over_length) },
    { "seq-len", AT(seq_len) },
    { "packing", AT(packing) },
    { "shuffle", AT(shuffle) },
    { "epochs", AT(epochs) },
    { "steps", AT(steps) },
    { "batch", AT(batch) },
    { "micro-tokens", AT(micro_tokens) },
    { "lr", AT(lr) },
    { "schedule", AT(schedule) },
    { "warmup-steps", AT(warmup_steps) },
    { "warmup-ratio", AT(warmup_ratio) },
    { "clip", AT(clip) },
    { "weight-decay", AT(weight_decay) },
    { "beta1", AT(beta1) },
    { "beta2", AT(beta2) },
    { "eps", AT(eps) },
    { "optimizer", AT(optimizer) },
    { "loss", AT(loss) },
    { "save-every", AT(save_every) },
    { "keep-checkpoints", AT(keep_checkpoints) },
    { "eval-every", AT(eval_every) },
    { "log-every", AT(log_every) },
    { "verify-every", AT(verify_every) },
};

static size_t size_of(opt_type t)
{
    return t == OPT_BOOL   ? sizeof(bool)
           : t == OPT_INT  ? sizeof(int64_t)
           : t == OPT_REAL ? sizeof(double)
                           : sizeof(const char *);
}

static pesc_status read_keep(const options *o, int64_t *out)
{
    *out = -1;
    if (strcmp(o->keep, "auto") == 0 || num_int(o->keep, strlen(o->keep), 0, 65536, out))
        return PESC_OK;
    return out_fail(PESC_USAGE, "%s: --keep: found \"%s\", expected auto or a number of layers",
                    o->cmd->name, o->keep);
}

pesc_status tune_options(const options *o, pesc_train_options *out)
{
    *out = pesc_train_defaults();
    if (o->patch)
        return out_fail(PESC_USAGE,
                        "%s: --patch: what a patched model would train from is in no file; give "
                        "the run that made the patch as MODEL, or apply it first: pesc esft apply",
                        o->cmd->name);
    out->method = o->method;
    TRY(pesc_train_preset(out, o->preset));
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        const opt_row *r = opt_find(o->cmd, moves[i].row, '-');
        if (r && o->given[r - opt_rows])
            memcpy((char *)out + moves[i].at, (const char *)o + r->field, size_of(r->type));
    }
    out->data = o->data.items;
    out->n_data = o->data.n;
    out->eval_data = o->eval_data.items;
    out->n_eval_data = o->eval_data.n;
    return read_keep(o, &out->keep);
}

void tune_fill(options *o, const pesc_train_options *p)
{
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        const opt_row *r = opt_find(o->cmd, moves[i].row, '-');
        if (r && !o->given[r - opt_rows])
            memcpy((char *)o + r->field, (const char *)p + moves[i].at, size_of(r->type));
    }
}

pesc_status tune_check_experts(const options *o, const pesc_model_info *info)
{
    const struct {
        const char *row;
        double asked, has;
    } rows[] = {
        { "experts", (double)o->experts, (double)info->experts },
        { "top-k", (double)o->top_k, (double)info->top_k },
        { "adapter-dim", (double)o->adapter_dim, (double)info->adapter_dim },
        { "adapter-scale", o->adapter_scale, info->adapter_scale },
    };
    for (size_t i = 0; info->experts && i < sizeof rows / sizeof *rows; i++) {
        const opt_row *r = opt_find(o->cmd, rows[i].row, '-');
        if (o->given[r - opt_rows] && (float)rows[i].asked != (float)rows[i].has)
            return out_fail(PESC_USAGE,
                            "%s: --%s: found %g, but the model was made with %g; leave it out, or "
                            "craft another model",
                            o->cmd->name, rows[i].row, rows[i].asked, rows[i].has);
    }
    return PESC_OK;
}

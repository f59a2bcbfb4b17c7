#include "cli/opt/tune.h"

#include "cli/command.h"

#include <stdio.h>
#include <string.h>

static void copy_field(const pesc_option *r, void *to, const void *from)
{
    size_t n = r->kind == PESC_OPTION_BOOL ? sizeof(bool) : sizeof(int64_t);
    memcpy((char *)to + r->at, (const char *)from + r->at, n);
    if (r->kind == PESC_OPTION_LIST)
        memcpy((char *)to + r->count_at, (const char *)from + r->count_at, sizeof(size_t));
}
_Static_assert(sizeof(double) == sizeof(int64_t) && sizeof(char *) == sizeof(int64_t),
               "copy_field() takes all of these for 8 bytes");

/* A preset may set what has the last word over an option that was given: then it has not. */
static void let_given_win(const options *o, pesc_train_options *out)
{
    if (opt_given(o, "batch") && !opt_given(o, "batch_tokens"))
        out->batch_tokens = 0;
    if (opt_given(o, "epochs") && !opt_given(o, "steps"))
        out->steps = 0;
    if ((opt_given(o, "steps") || opt_given(o, "epochs")) && !opt_given(o, "max_epochs"))
        out->max_epochs = 0;
    if (opt_given(o, "warmup_ratio") && !opt_given(o, "warmup_steps"))
        out->warmup_steps = PESC_AUTO;
}

pesc_status tune_options(const options *o, pesc_train_options *out)
{
    *out = pesc_train_defaults();
    if (o->load.patch)
        return out_fail(
            PESC_USAGE,
            "%s: --patch: a run cannot start from a patched model, because no file holds "
            "its weights; give the run that made the patch as MODEL, or apply it first: "
            "pesc esft apply",
            o->cmd->name);
    out->method = o->train.method;
    out->device = o->device;
    if (o->preset)
        TRY(pesc_train_preset(out, o->preset));
    for (const pesc_option *r = NULL; (r = opt_next(o->cmd, r));)
        if (r->of == PESC_OPTIONS_TRAIN && o->given[opt_index(r)])
            copy_field(r, out, &o->train);
    let_given_win(o, out);
    if (!out->compute_dtype)
        out->compute_dtype = "auto";
    return PESC_OK;
}

/* The scale belongs to the model: craft has written it there. */
static void note_scale(const options *o, const pesc_model_info *info)
{
    pesc_train_options recipe = pesc_train_defaults();
    recipe.method = o->train.method;
    if (!o->preset || !info->adapter_dim || o->quiet ||
        pesc_train_preset(&recipe, o->preset) != PESC_OK ||
        recipe.adapter_scale == info->adapter_scale)
        return;
    fprintf(stderr,
            "pesc: note: --preset %s has adapter_scale %g, which has no effect here: the model was "
            "crafted with %g; craft it with --adapter-scale %g\n",
            o->preset, recipe.adapter_scale, info->adapter_scale, recipe.adapter_scale);
}

pesc_status tune_check_experts(const options *o, const pesc_model_info *info)
{
    const struct {
        const char *key;
        double asked, has;
    } rows[] = {
        { "experts", (double)o->train.experts, (double)info->experts },
        { "top_k", (double)o->train.top_k, (double)info->top_k },
        { "adapter_dim", (double)o->train.adapter_dim, (double)info->adapter_dim },
        { "adapter_scale", o->train.adapter_scale, info->adapter_scale },
    };
    opt_name flag;
    for (size_t i = 0; info->experts && i < sizeof rows / sizeof *rows; i++)
        if (opt_given(o, rows[i].key) && (float)rows[i].asked != (float)rows[i].has)
            return out_fail(PESC_USAGE,
                            "%s: --%s: found %g, but the model was made with %g; leave it out, or "
                            "craft another model",
                            o->cmd->name, opt_flag(flag, rows[i].key), rows[i].asked, rows[i].has);
    note_scale(o, info);
    return PESC_OK;
}

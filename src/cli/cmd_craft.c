/* cmd_craft: a sparse model from a dense one, with the proof that it computes the same. */
#include "cli/command.h"
#include "cli/made.h"
#include "cli/open.h"
#include "cli/replace.h"

#include <string.h>

static pesc_status make(const options *o, const char *dir, void *check)
{
    open_name device;
    pesc_craft_options c = pesc_craft_defaults();
    TRY(open_device_name(o, device));
    c.kind = o->kind;
    c.experts = o->experts;
    c.top_k = o->top_k;
    c.adapter_dim = o->adapter_dim;
    c.adapter_scale = o->adapter_scale;
    c.seed = o->seed;
    c.dtype = o->dtype;
    c.tokenizer = o->tokenizer;
    c.device = device;
    c.check = o->check;
    return pesc_craft(o->model, dir, &c, check);
}

pesc_status cmd_craft(const options *o)
{
    if (o->top_k > o->experts)
        return out_fail(PESC_USAGE,
                        "craft: --top-k: found %lld, expected at most %lld, the experts",
                        (long long)o->top_k, (long long)o->experts);
    pesc_logit_check check;
    TRY(replace_dir(o, make, &check));
    return made_report(o, &check, strcmp(o->kind, "pesc") == 0);
}

#include "craft/merge.h"

#include "arch/fused.h"
#include "base/args.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "base/str.h"
#include "craft/camelidae.h"

#include <string.h>

pesc_status merge_fold(target_model *p, const pesc_export_options *o, const char *lora_dir,
                       peft **adapter)
{
    TRY(fused_open_lora(adapter, lora_dir, &p->from.cfg));
    p->plan.lora = *adapter;
    bool nf4 = o->merge_base && strcmp(o->merge_base, "nf4-dequant") == 0;
    if (o->merge_base && !nf4) { /* what the files hold */
        p->plan.held = NULL;
        return PESC_OK;
    }
    return target_hold(p, lora_dir, nf4, o->double_quant);
}

static pesc_status merge(target_model *p, const pesc_export_options *o, peft **adapter)
{
    const char *lora_dir = NULL;
    TRY(hfdir_lora(p->from.dir, o->lora, &lora_dir));
    if (!lora_dir)
        return fail(PESC_USAGE,
                    "%s: has no LoRA to merge; give one with --lora DIR, or write the model as it "
                    "is with pesc export",
                    p->from.path);
    TRY(merge_fold(p, o, lora_dir, adapter));
    TRY(p->from.cfg.moe.kind == EXPERT_ADAPTER ? camelidae_configure(p, NULL, false)
                                               : target_same_family(p));
    TRY(target_write(p, o->tokenizer));
    return target_compare(p, &(target_check){ .wanted = o->check,
                                              .lora_dir = lora_dir,
                                              .rounding = target_rounding(p) });
}

pesc_status pesc_merge(pesc_device *dev, const char *model, const char *out_dir,
                       const pesc_export_options *opt, pesc_logit_check *check)
{
    status_clear();
    NEED(dev);
    NEED(model);
    NEED(out_dir);
    NEED_SIZED_OR_NULL(check);
    LOG_EVENTS(&dev->events);
    pesc_export_options o;
    target_model p = { 0 };
    TRY(options_take(PESC_OPTIONS_EXPORT, &o, opt));
    peft *adapter = NULL;
    pesc_status s = target_open(&p, (runmodel_where){ model, o.base }, out_dir, o.dtype);
    p.dev = dev;
    if (s == PESC_OK)
        s = target_publish(&p, merge(&p, &o, &adapter));
    if (check)
        ARGS_WRITE(check, &p.check);
    target_close(&p);
    peft_close(adapter);
    return s;
}

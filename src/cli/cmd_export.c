/* cmd_export: a model for other programs. */
#include "cli/command.h"
#include "cli/made.h"
#include "cli/open.h"
#include "cli/replace.h"

#include <stdio.h>
#include <string.h>

static pesc_status make(const options *o, const char *dir, void *check)
{
    open_name device;
    pesc_export_options e = pesc_export_defaults();
    TRY(open_device_name(o, device));
    e.lora = o->lora;
    e.merge_base = o->merge_base;
    e.double_quant = o->double_quant;
    e.dtype = o->dtype;
    e.tokenizer = o->tokenizer;
    e.device = device;
    e.check = o->check;
    return pesc_export(o->model, o->to, dir, &e, check);
}

/* A LoRA is no model of its own: all there is to say is how it compares. */
static void report_lora(const options *o, const pesc_logit_check *check)
{
    if (o->json) {
        out_begin(NULL, '{');
        out_text("path", o->output);
    } else {
        printf("%s: the LoRA of %s\n", o->output, o->lora ? o->lora : o->model);
    }
    made_compare(o, check, !o->dtype);
    if (o->json)
        out_end();
}

pesc_status cmd_export(const options *o)
{
    if (!o->to)
        return out_fail(PESC_USAGE, "export: --to is missing; expected hf, peft or camelidae");
    pesc_logit_check check;
    TRY(replace_dir(o, make, &check));
    if (strcmp(o->to, "peft") != 0)
        return made_report(o, &check, check.differ == 0); /* a LoRA that was folded in rounds */
    report_lora(o, &check);
    return PESC_OK;
}

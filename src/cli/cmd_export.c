/* cmd_export: a model for other programs. */
#include "cli/command.h"
#include "cli/made.h"
#include "cli/open.h"
#include "cli/replace.h"

#include <stdio.h>
#include <string.h>

static pesc_status make(const options *o, const char *dir, void *check)
{
    pesc_device *dev;
    TRY(open_device(&dev, o));
    pesc_status st = pesc_export(dev, o->model, o->to, dir, &o->export, check);
    pesc_device_close(dev);
    return st;
}

/* A LoRA is not a model of its own: only the comparison is reported. */
static void report_lora(const options *o, const made *m)
{
    if (o->json) {
        out_begin(NULL, '{');
        out_text("path", o->output);
    } else {
        printf("%s: the LoRA of %s\n", o->output, o->export.lora ? o->export.lora : o->model);
    }
    made_compare(o, m);
    if (o->json)
        out_end();
}

pesc_status cmd_export(const options *o)
{
    if (!o->to)
        return out_fail(PESC_USAGE, "export: --to is missing; expected hf, peft or camelidae");
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    TRY(replace_dir(o, make, &check));
    made m = { .check = &check, .exact = check.differ == 0, .dtype = o->export.dtype };
    if (strcmp(o->to, "peft") != 0)
        return made_report(o, &m); /* a LoRA that was folded in rounds */
    m.exact = !m.dtype;
    report_lora(o, &m);
    return PESC_OK;
}

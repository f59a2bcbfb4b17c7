/* cmd_export: a model for other programs. */
#include "cli/command.h"
#include "cli/show/made.h"
#include "cli/opt/open.h"
#include "cli/opt/output.h"

#include <stdio.h>
#include <string.h>

static pesc_status export_into(const options *o, const char *dir, void *check)
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

/* -o FILE.gguf with --to gguf; all else is a directory. */
static bool is_file(const options *o)
{
    static const char ending[] = ".gguf";
    size_t n = o->output ? strlen(o->output) : 0, m = sizeof ending - 1;
    return strcmp(o->to, "gguf") == 0 && n > m && strcmp(o->output + n - m, ending) == 0;
}

pesc_status cmd_export(const options *o)
{
    if (!o->to)
        return out_fail(PESC_USAGE,
                        "export: --to is missing; expected hf, peft, gguf or camelidae");
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    TRY(is_file(o) ? replace_file(o, export_into, &check) : replace_dir(o, export_into, &check));
    made m = { .check = &check, .exact = check.differ == 0, .dtype = o->export.dtype };
    if (strcmp(o->to, "peft") != 0)
        return made_report(o, &m); /* a LoRA that was folded in rounds */
    m.exact = !m.dtype;
    report_lora(o, &m);
    return PESC_OK;
}

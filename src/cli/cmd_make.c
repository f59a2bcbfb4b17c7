/* cmd_make: commands that write a model: `new`, `craft`, `merge` and `export`. */
#include "cli/command.h"
#include "cli/opt/open.h"
#include "cli/opt/output.h"
#include "cli/show/progress.h"

#include <stdio.h>
#include <string.h>

static pesc_status new_into(const options *o, const char *dir, void *ud)
{
    (void)ud;
    return pesc_new(o->config_json, dir, o->tokenizer, o->dtype, (uint64_t)o->seed,
                    progress_events());
}

pesc_status cmd_new(const options *o)
{
    TRY(replace_dir(o, new_into, NULL));
    pesc_model_info info = PESC_INIT(pesc_model_info);
    TRY(pesc_info(o->output, NULL, NULL, &info));
    if (o->json) {
        out_object(NULL, "path=%s family=%s params=%lu bytes=%lu", o->output, info.family,
                   info.params_total, info.bytes);
    } else {
        out_number params, bytes;
        printf("%s: %s, %s parameters, %s\n", o->output, info.family,
               out_count(params, info.params_total), out_bytes(bytes, info.bytes));
    }
    return PESC_OK;
}

/* ---- models made from another one, compared with it ---- */

/* --to NULL: the command is craft or merge. */
static pesc_status make_into(const options *o, const char *dir, void *check)
{
    pesc_device *dev;
    TRY(open_device(&dev, o));
    pesc_status st;
    if (o->to)
        st = pesc_export(dev, o->model, o->to, dir, &o->export, check);
    else if (o->cmd->run == cmd_craft)
        st = pesc_craft(dev, o->model, dir, &o->craft, check);
    else
        st = pesc_merge(dev, o->model, dir, &o->export, check);
    pesc_device_close(dev);
    return st;
}

pesc_status cmd_craft(const options *o)
{
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    TRY(replace_dir(o, make_into, &check));
    return made_report(o, &(made){ .check = &check,
                                   .exact = strcmp(o->craft.kind, "pesc") == 0,
                                   .dtype = o->craft.dtype });
}

pesc_status cmd_merge(const options *o)
{
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    TRY(replace_dir(o, make_into, &check));
    return made_report(o, &(made){ .check = &check });
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

/* -o FILE.gguf with --to gguf or gguf-lora; all else is a directory. */
static bool is_file(const options *o)
{
    static const char ending[] = ".gguf";
    size_t n = o->output ? strlen(o->output) : 0, m = sizeof ending - 1;
    return strncmp(o->to, "gguf", 4) == 0 && n > m && strcmp(o->output + n - m, ending) == 0;
}

pesc_status cmd_export(const options *o)
{
    if (!o->to)
        return out_fail(PESC_USAGE,
                        "export: --to is missing; expected hf, peft, gguf, camelidae or gguf-lora");
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    TRY(is_file(o) ? replace_file(o, make_into, &check) : replace_dir(o, make_into, &check));
    made m = { .check = &check, .exact = check.differ == 0, .dtype = o->export.dtype };
    if (strcmp(o->to, "peft") != 0 && strcmp(o->to, "gguf-lora") != 0)
        return made_report(o, &m); /* a LoRA that was folded in rounds */
    m.exact = !m.dtype;
    report_lora(o, &m);
    return PESC_OK;
}

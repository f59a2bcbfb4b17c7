/* cmd_new: a randomly initialised model of a configuration. */
#include "cli/command.h"
#include "cli/show/progress.h"
#include "cli/opt/output.h"

#include <stdio.h>

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
        out_begin(NULL, '{');
        out_text("path", o->output);
        out_text("family", info.family);
        out_int("params", (int64_t)info.params_total);
        out_int("bytes", (int64_t)info.bytes);
        out_end();
    } else {
        out_number params, bytes;
        printf("%s: %s, %s parameters, %s\n", o->output, info.family,
               out_count(params, info.params_total), out_bytes(bytes, info.bytes));
    }
    return PESC_OK;
}

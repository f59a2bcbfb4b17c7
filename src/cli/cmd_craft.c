/* cmd_craft: a sparse model from a dense one, with the proof that it computes the same. */
#include "cli/command.h"
#include "cli/made.h"
#include "cli/open.h"
#include "cli/replace.h"

#include <string.h>

static pesc_status make(const options *o, const char *dir, void *check)
{
    open_name device;
    pesc_craft_options c = o->craft;
    TRY(open_device_name(o, device));
    c.device = device;
    return pesc_craft(o->model, dir, &c, check);
}

pesc_status cmd_craft(const options *o)
{
    pesc_logit_check check;
    TRY(replace_dir(o, make, &check));
    return made_report(o, &(made){ .check = &check,
                                   .exact = strcmp(o->craft.kind, "pesc") == 0,
                                   .dtype = o->craft.dtype });
}

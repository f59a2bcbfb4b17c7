/* cmd_craft: a sparse model from a dense one, and the comparison of their logits. */
#include "cli/command.h"
#include "cli/show/made.h"
#include "cli/opt/open.h"
#include "cli/opt/output.h"

#include <string.h>

static pesc_status craft_into(const options *o, const char *dir, void *check)
{
    pesc_device *dev;
    TRY(open_device(&dev, o));
    pesc_status st = pesc_craft(dev, o->model, dir, &o->craft, check);
    pesc_device_close(dev);
    return st;
}

pesc_status cmd_craft(const options *o)
{
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    TRY(replace_dir(o, craft_into, &check));
    return made_report(o, &(made){ .check = &check,
                                   .exact = strcmp(o->craft.kind, "pesc") == 0,
                                   .dtype = o->craft.dtype });
}

/* cmd_merge: a LoRA folded into its base. */
#include "cli/command.h"
#include "cli/show/made.h"
#include "cli/opt/open.h"
#include "cli/opt/output.h"

static pesc_status merge_into(const options *o, const char *dir, void *check)
{
    pesc_device *dev;
    TRY(open_device(&dev, o));
    pesc_status st = pesc_merge(dev, o->model, dir, &o->export, check);
    pesc_device_close(dev);
    return st;
}

pesc_status cmd_merge(const options *o)
{
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    TRY(replace_dir(o, merge_into, &check));
    return made_report(o, &(made){ .check = &check });
}

/* cmd_merge: a LoRA folded into its base. */
#include "cli/command.h"
#include "cli/made.h"
#include "cli/open.h"
#include "cli/replace.h"

static pesc_status make(const options *o, const char *dir, void *check)
{
    open_name device;
    pesc_export_options e = o->export;
    TRY(open_device_name(o, device));
    e.device = device;
    return pesc_merge(o->model, dir, &e, check);
}

pesc_status cmd_merge(const options *o)
{
    pesc_logit_check check;
    TRY(replace_dir(o, make, &check));
    return made_report(o, &(made){ .check = &check });
}

/* apply: an expert patch folded into its base: a whole model whose patched tensors are the patch's,
 * in the dtype the base stores them in, and whose others are the base's bit for bit. */
#include "arch/param_group.h"
#include "attach/patched.h"
#include "base/args.h"
#include "craft/merge.h"
#include "run/runmodel.h"

/* Whether what is written holds the patch's numbers as the base with the patch in it holds them. */
static bool is_exact(const target_model *p, const patch *with)
{
    const source_model *from = &p->from;
    if (from->chain.n > 1) /* a run's own experts are stored in f32 */
        return false;
    for (slot s = slot_first(); slot_next(&from->cfg, &s);) {
        dtype dt = bind_find(&from->cfg, from->dir->ws, &s)->dt;
        bool stack = s.expert >= 0 && dt == DT_BF16; /* is held in it too */
        if (param_chosen(&with->cfg, &s) && dt != DT_F32 && !stack)
            return false;
    }
    return true;
}

/* The same as the base with the patch in it, but for rounding to the dtype that is written. */
static pesc_status compare_patched(const target_model *p, device *dev, const patch *with)
{
    pesc_logit_check found;
    verify_pair v = { .dev = dev,
                      .made_from = p->from.path,
                      .made = p->dir,
                      .written = p->place,
                      .rounding = is_exact(p, with) ? ROUNDING_NONE : ROUNDING_16,
                      .from_opt = pesc_load_defaults(),
                      .made_opt = pesc_load_defaults() };
    v.from_opt.base_dtype = "stored";
    v.from_opt.patch = with->dir;
    return verify_logits(&v, &found);
}

static pesc_status apply(target_model *p, device *dev, const patch *with)
{
    TRY(source_model_check_no_lora(&p->from));
    TRY(patched_check(with, &p->from.cfg, p->from.dir->ws, p->from.path));
    p->plan.over = with->ws;
    p->plan.held = NULL; /* the patch stands on what the files hold */
    TRY(target_same_family(p));
    TRY(target_write(p, NULL));
    TRY(weights_check(with->read));
    return dev ? compare_patched(p, dev, with) : PESC_OK;
}

static pesc_status check_only(const char *base_dir, const patch *with)
{
    source_model base = { 0 };
    pesc_status s = source_model_open(&base, (runmodel_where){ .path = base_dir });
    if (s == PESC_OK)
        s = patched_check(with, &base.cfg, base.dir->ws, base_dir);
    source_model_close(&base);
    return s;
}

pesc_status pesc_esft_apply(pesc_device *dev, const char *base_dir, const char *patch_dir,
                            const char *out_dir)
{
    status_clear();
    NEED(base_dir);
    NEED(patch_dir);
    target_model p = { 0 };
    patch *with = NULL;
    TRY(runmodel_patch(&with, patch_dir));
    pesc_status s;
    if (out_dir) {
        s = target_open(&p, (runmodel_where){ .path = base_dir }, out_dir, NULL);
        if (s == PESC_OK)
            s = target_publish(&p, apply(&p, dev, with));
        target_close(&p);
    } else {
        s = check_only(base_dir, with);
    }
    patch_close(with);
    return s;
}

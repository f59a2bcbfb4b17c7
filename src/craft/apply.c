/* apply: an expert patch folded into its base: a whole model whose patched tensors are the patch's,
 * in the dtype the base stores them in, and whose others are the base's bit for bit. */
#include "base/args.h"
#include "craft/configjson.h"
#include "craft/merge.h"
#include "craft/verify.h"
#include "model/swap.h"

static pesc_status configure(product *p)
{
    const char *differs = NULL;
    TRY(product_begin(p));
    TRY(configjson_own_names(p->json, &p->from.cfg));
    TRY(product_read(p, &differs));
    ASSERT(!differs); /* only spellings changed */
    return PESC_OK;
}

/* The same as the base with the patch in it: bit for bit where that is held in the dtype that was
 * written. */
static pesc_status compare(const product *p, device *dev, const char *patch_dir)
{
    pesc_logit_check found = { 0 };
    dtype held = p->from.usual;
    verify_pair v = { .dev = dev,
                      .made_from = p->from.path,
                      .made = p->dir,
                      .from_opt = pesc_load_defaults(),
                      .made_opt = pesc_load_defaults() };
    v.from_opt.patch = patch_dir;
    TRY(verify_logits(&v, &found));
    bool exact = p->how.dt == DT_COUNT && (held == DT_F32 || held == DT_BF16);
    if (found.max_diff <= (exact ? 0 : merge_tolerance(DT_BF16) * found.max_logit))
        return PESC_OK;
    return fail(PESC_NUMERIC,
                "%s: was written, but %llu of its %llu logits differ from those of %s with the "
                "patch, by up to %g; do not use it",
                p->dir, (unsigned long long)found.differ, (unsigned long long)found.logits,
                p->from.path, found.max_diff);
}

static pesc_status apply(product *p, device *dev, const patch *with)
{
    TRY(swap_check(with, &p->from.cfg, p->from.dir->ws, p->from.path));
    p->how.over = with->ws;
    TRY(configure(p));
    TRY(product_write(p, NULL));
    TRY(weights_check(with->read));
    return dev ? compare(p, dev, with->dir) : PESC_OK;
}

static pesc_status check_only(const char *base_dir, const patch *with)
{
    parent base = { 0 };
    pesc_status s = parent_open(&base, base_dir);
    if (s == PESC_OK)
        s = swap_check(with, &base.cfg, base.dir->ws, base_dir);
    parent_close(&base);
    return s;
}

pesc_status pesc_esft_apply(pesc_device *dev, const char *base_dir, const char *patch_dir,
                            const char *out_dir)
{
    status_clear();
    NEED(base_dir);
    NEED(patch_dir);
    product p = { 0 };
    patch *with = NULL;
    TRY(patch_open(&with, patch_dir));
    pesc_status s;
    if (out_dir) {
        s = product_open(&p, base_dir, out_dir, NULL);
        if (s == PESC_OK)
            s = apply(&p, dev, with);
        product_close(&p);
    } else {
        s = check_only(base_dir, with);
    }
    patch_close(with);
    return s;
}

/* apply: an expert patch folded into its base: a whole model whose patched tensors are the patch's,
 * in the dtype the base stores them in, and whose others are the base's bit for bit; and out again:
 * the base of such a model, which records it, or of a run of method esft. */
#include "arch/param_group.h"
#include "attach/patched.h"
#include "arch/bind.h"
#include "base/args.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/str.h"
#include "craft/merge.h"
#include "format/modeldir.h"
#include "run/runmodel.h"

#include <string.h>

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

/* In the directory of a model with a patch in it: where its base is, and what else than experts may
 * differ from it. */
#define APPLIED "esft_applied.json"
enum { MAX_APPLIED = 1 << 16 };

static pesc_status write_applied(const target_model *p)
{
    char *base = NULL;
    TRY(io_absolute(&base, p->from.path));
    json_t *v = json_pack("{s:s, s:b}", "base", base, "non_expert_modules",
                          p->applied->cfg.non_expert_modules);
    pesc_status s = v ? modeldir_write_json(p->dir, APPLIED, v) : fail_nomem(APPLIED, 256);
    json_decref(v);
    mem_free(base);
    return s;
}

static pesc_status apply(target_model *p, device *dev, const patch *with)
{
    TRY(source_model_check_no_lora(&p->from));
    TRY(patched_check(with, &p->from.cfg, p->from.dir->ws, p->from.path));
    p->plan.over = with->ws;
    p->plan.held = NULL; /* the patch stands on what the files hold */
    p->applied = with;
    p->write_more = write_applied;
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

/* ---- out again ---- */

/* Where the base of a tuned model is, by what the model records; for mem_free(). */
static pesc_status find_base(char **base, bool *others, const source_model *tuned)
{
    char *path = io_join(tuned->path, APPLIED);
    json_t *v = NULL;
    const char *recorded = NULL;
    *base = NULL;
    *others = false;
    bool there = path && io_kind_of(path) == IO_FILE;
    pesc_status s = !path   ? fail_nomem(APPLIED, 64)
                    : there ? json_read(&v, path, MAX_APPLIED)
                            : PESC_OK;
    if (s == PESC_OK && there)
        s = json_get_str((json_where){ v, path }, "base", true, &recorded);
    if (s == PESC_OK && there)
        s = json_get_bool((json_where){ v, path }, "non_expert_modules", true, others);
    if (s == PESC_OK && tuned->chain.n > 1)
        recorded = tuned->chain.dirs[1];
    if (s == PESC_OK && recorded && !(*base = mem_strdup(recorded)))
        s = fail_nomem(APPLIED, strlen(recorded));
    json_decref(v);
    mem_free(path);
    return s;
}

static bool same_numbers(const weight *a, const weight *b)
{
    return a->dt == b->dt && a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
}

/* Whether the tuned model is the base but for its experts (others: and all else too). */
static pesc_status check_tuned(const source_model *tuned, const source_model *base, bool others)
{
    TRY(bind_check(&base->cfg, tuned->dir->ws, tuned->path));
    for (slot s = slot_first(); !others && slot_next(&base->cfg, &s);) {
        param_group g = param_group_of(s.rule);
        const weight *a = bind_find(&base->cfg, tuned->dir->ws, &s);
        const weight *b = bind_find(&base->cfg, base->dir->ws, &s);
        if (g != PARAM_EXPERT && g != PARAM_SHARED && !same_numbers(a, b))
            return fail(PESC_USAGE,
                        "%s: its %s is not that of %s, and it is no expert: this is not the base "
                        "of the tuned model",
                        tuned->path, s.name, base->path);
    }
    return PESC_OK;
}

static pesc_status write_base(target_model *p, device *dev, const source_model *tuned, bool others)
{
    TRY(source_model_check_no_lora(&p->from));
    TRY(check_tuned(tuned, &p->from, others));
    p->plan.held = NULL;
    TRY(target_same_family(p));
    TRY(target_write(p, NULL));
    p->dev = dev;
    return target_compare(p, &(target_check){ .wanted = dev != NULL, .rounding = ROUNDING_NONE });
}

pesc_status pesc_esft_unapply(pesc_device *dev, const char *tuned_dir, const char *base_dir,
                              const char *out_dir)
{
    status_clear();
    NEED(tuned_dir);
    NEED(out_dir);
    target_model p = { 0 };
    source_model tuned = { 0 };
    char *recorded = NULL;
    bool others = false;
    bool run = runstate_kind_of(tuned_dir) != RUNSTATE_NEITHER; /* it is laid over its base */
    pesc_status s = source_model_open(&tuned, (runmodel_where){ tuned_dir, run ? base_dir : NULL });
    if (s == PESC_OK)
        s = find_base(&recorded, &others, &tuned);
    const char *base = base_dir && *base_dir ? base_dir : recorded;
    if (s == PESC_OK && !base)
        s = fail(PESC_USAGE,
                 "%s: does not record the model that its experts were tuned in; give it with "
                 "--base DIR",
                 tuned_dir);
    if (s == PESC_OK)
        s = target_open(&p, (runmodel_where){ .path = base }, out_dir, NULL);
    if (s == PESC_OK)
        s = target_publish(&p, write_base(&p, dev, &tuned, others));
    target_close(&p);
    source_model_close(&tuned);
    mem_free(recorded);
    return s;
}

#include "run/runmodel.h"

#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

/* ---- weights ---- */

void runmodel_identify(const hfdir *h, runbase_identity *out)
{
    /* a configuration made from GGUF metadata depends on the version of pesc */
    runbase_identify(out, strcmp(h->format, "gguf") == 0 ? NULL : h->config, h->ws);
}

/* What is open now is the base of the chain's run i. */
static pesc_status check_base(const hfdir *h, const runstate_chain *c, size_t i)
{
    runbase_identity now;
    runmodel_identify(h, &now);
    return runbase_check(&c->about[i].identity, &now, c->dirs[i], c->dirs[i + 1]);
}

bool runmodel_is_patch(const char *checkpoint)
{
    char *path = io_join(checkpoint, EXPERTCFG_FILE);
    bool is = path && io_kind_of(path) == IO_FILE;
    mem_free(path);
    return is;
}

/* What a checkpoint holds is laid over the model that is open. */
static pesc_status apply_checkpoint(hfdir *h, const char *dir, unsigned flags)
{
    char *keys = NULL, *trained = NULL, *adapter = NULL;
    pesc_status s = io_find(&keys, dir, RUNSTATE_CONFIG_KEYS);
    if (s == PESC_OK && keys)
        s = hfdir_add_keys(h, keys);
    if (s == PESC_OK)
        s = io_find(&trained, dir, RUNSTATE_TRAINED);
    if (s == PESC_OK)
        s = io_find(&adapter, dir, RUNSTATE_ADAPTER_CONFIG);
    if (s == PESC_OK && trained && !(flags & HFDIR_NO_WEIGHTS))
        s = hfdir_lay_over(h, trained, runmodel_is_patch(dir));
    if (s == PESC_OK && adapter) /* the outer run went on with the inner one's LoRA */
        s = hfdir_set_lora(h, dir);
    mem_free(keys);
    mem_free(trained);
    mem_free(adapter);
    return s;
}

static pesc_status open_chain(hfdir **out, const runstate_chain *c, unsigned flags)
{
    size_t last = c->n - 1;
    if (last && io_kind_of(c->dirs[last]) == IO_NONE)
        return runbase_missing(c->dirs[last - 1], c->dirs[last]);
    TRY(hfdir_open(out, c->dirs[last], flags));
    for (size_t i = last; i-- > 0;) {
        bool inner = i + 1 < last && runmodel_is_patch(c->dirs[i + 1]);
        if (!(flags & HFDIR_NO_WEIGHTS) && !inner)
            hfdir_forget_trained(*out); /* as its trainer, which asked for a dtype of its base */
        if (!(flags & HFDIR_NO_WEIGHTS))
            TRY(check_base(*out, c, i));
        TRY(apply_checkpoint(*out, c->dirs[i], flags));
    }
    return PESC_OK;
}

pesc_status runmodel_open(hfdir **out, runstate_chain *chain, runmodel_where where, unsigned flags)
{
    runstate_chain c;
    *out = NULL;
    TRY(runstate_resolve(&c, where.path, where.base));
    pesc_status s = open_chain(out, &c, flags);
    if (s == PESC_OK)
        s = hfdir_set_names(*out, where.path, c.dirs[0]);
    if (s != PESC_OK) {
        hfdir_close(*out);
        *out = NULL;
    }
    if (s == PESC_OK && chain)
        *chain = c;
    else
        runstate_chain_free(&c);
    return s;
}

/* ---- tokenizers ---- */

pesc_status runmodel_chain_tokenizer(pesc_tokenizer **out, const runstate_chain *c)
{
    *out = NULL;
    TRY(hfdir_tokenizer(out, c->dirs[c->n - 1]));
    /* a run that was trained with another template than its base carries that one */
    pesc_status s = PESC_OK;
    for (size_t i = c->n - 1; s == PESC_OK && *out && i-- > 0;)
        s = tokenizer_take_template(*out, c->dirs[i]);
    return s;
}

pesc_status runmodel_tokenizer(pesc_tokenizer **out, runmodel_where where)
{
    runstate_chain c;
    *out = NULL;
    TRY(runstate_resolve(&c, where.path, where.base));
    pesc_status s = runmodel_chain_tokenizer(out, &c);
    runstate_chain_free(&c);
    return s;
}

pesc_status pesc_tokenizer_open(pesc_tokenizer **out, const char *path, const pesc_events *ev)
{
    status_clear();
    NEED(out);
    *out = NULL;
    NEED(path);
    LOG_EVENTS(ev);
    TRY(runmodel_tokenizer(out, (runmodel_where){ .path = path }));
    if (!*out)
        return fail(PESC_IO, "%s: has neither tokenizer.json nor tokenizer.model", path);
    return PESC_OK;
}

void pesc_tokenizer_close(pesc_tokenizer *t)
{
    tokenizer_close(t);
}

/* ---- patches and LoRAs ---- */

/* The newest checkpoint of a run; NULL: the path is none, but what it stands for itself. */
static pesc_status newest_of(char **out, const char *path)
{
    *out = NULL;
    if (runstate_kind_of(path) != RUNSTATE_RUN)
        return PESC_OK;
    TRY(runstate_newest(path, RUNSTATE_SIZES, out));
    return *out ? PESC_OK : runstate_unsaved(path);
}

pesc_status runmodel_patch(patch **out, const char *path)
{
    char *newest;
    bool plain = runstate_kind_of(path) == RUNSTATE_NEITHER;
    *out = NULL;
    TRY(newest_of(&newest, path));
    /* a checkpoint holds moments too */
    pesc_status s = patch_open(out, newest ? newest : path, plain ? NULL : RUNSTATE_TRAINED);
    mem_free(newest);
    return s;
}

pesc_status runmodel_patch_held(runbase_held *out, const char *path)
{
    char *newest;
    TRY(newest_of(&newest, path));
    pesc_status s = runbase_read_held(out, newest ? newest : path);
    mem_free(newest);
    return s;
}

pesc_status runmodel_chain_held(runbase_held *out, const runstate_chain *c)
{
    *out = (runbase_held){ .double_quant = true };
    for (size_t i = c->n - 1; i-- > 0;) { /* from the innermost */
        const runbase_held base = *out;
        TRY(runbase_read_held(out, c->dirs[i]));
        if (base.found && strcmp(base.base_dtype, out->base_dtype) == 0)
            out->whole_experts = out->whole_experts || base.whole_experts;
    }
    return PESC_OK;
}

/* The outermost checkpoint of the chain holds a LoRA alone, and was trained on `on`. */
static pesc_status check_lora_of_run(const runstate_chain *c, const hfdir *on)
{
    char *trained = NULL;
    runbase_identity now;
    TRY(io_find(&trained, c->dirs[0], RUNSTATE_TRAINED));
    if (trained) {
        mem_free(trained);
        return fail(PESC_USAGE,
                    "%s: the run trained more than a LoRA, so it cannot be served beside its base; "
                    "serve the run itself as MODEL",
                    c->dirs[0]);
    }
    runmodel_identify(on, &now);
    return runbase_check(&c->about[0].identity, &now, c->dirs[0], on->path);
}

pesc_status runmodel_lora(peft **out, const char *path, const hfdir *on)
{
    runstate_chain c;
    *out = NULL;
    if (runstate_kind_of(path) == RUNSTATE_NEITHER)
        return peft_open(out, path);
    TRY(runstate_resolve(&c, path, NULL));
    pesc_status s = check_lora_of_run(&c, on);
    if (s == PESC_OK)
        s = peft_open(out, c.dirs[0]);
    runstate_chain_free(&c);
    return s;
}

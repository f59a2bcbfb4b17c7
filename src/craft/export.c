/* export: a model for other programs: one row a target. What a target cannot hold is refused, never
 * left out; a LoRA, which whole models have no place for, is folded into the weights. */
#include "arch/fused.h"
#include "base/args.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "base/str.h"
#include "craft/camelidae.h"
#include "craft/configjson.h"
#include "craft/card.h"
#include "craft/gguf_export.h"
#include "craft/gguf_lora.h"
#include "craft/hfadapters.h"
#include "craft/merge.h"
#include "craft/peft_join.h"
#include "craft/stream.h"
#include "craft/upcycle.h"
#include "format/gguf.h"
#include "format/modeldir.h"
#include "run/runbase.h"

#include <stdio.h>
#include <string.h>

/* ---- whole models ---- */

static pesc_status configure_hf(target_model *p)
{
    const config *c = &p->from.cfg;
    if (c->moe.kind == EXPERT_ADAPTER)
        return hfadapters_configure(p);
    if (c->moe.kind == EXPERT_LORA)
        return fail(PESC_USAGE,
                    "%s: is a mixture of LoRA, which is not linear and has a place in no other "
                    "program; pesc runs it as it is",
                    p->from.path);
    if (upcycle_only_here(c))
        return fail(PESC_USAGE,
                    "%s: has layers without experts, and a %s model of Hugging Face has experts in "
                    "every layer; pesc runs it as it is",
                    p->from.path, c->family);
    return target_same_family(p);
}

static pesc_status configure_camelidae(target_model *p)
{
    if (p->from.cfg.moe.kind != EXPERT_ADAPTER)
        return fail(PESC_USAGE,
                    "%s: has no adapters (PESC), so it is no Camelidae model; pesc craft makes one "
                    "of a dense model, --to hf writes it as it is",
                    p->from.path);
    return camelidae_configure(p, NULL, true);
}

static pesc_status export_model(target_model *p, const pesc_export_options *o,
                                pesc_status (*configure)(target_model *p))
{
    const char *lora_dir = NULL;
    peft *adapter = NULL;
    TRY(hfdir_lora(p->from.dir, o->lora, &lora_dir));
    TRY(configure(p));
    pesc_status s = lora_dir ? merge_fold(p, o, lora_dir, &adapter) : PESC_OK;
    if (s == PESC_OK)
        s = target_write(p, o->tokenizer);
    if (s == PESC_OK)
        s = target_compare(p, &(target_check){ .wanted = o->check,
                                               .lora_dir = lora_dir,
                                               .rounding = target_rounding(p) });
    peft_close(adapter);
    return s;
}

static pesc_status to_hf(target_model *p, const pesc_export_options *o)
{
    return export_model(p, o, configure_hf);
}

static pesc_status to_camelidae(target_model *p, const pesc_export_options *o)
{
    return export_model(p, o, configure_camelidae);
}

/* ---- the LoRA alone ---- */

enum { NAME = WEIGHTS_MAX_NAME + 48, MAX_CONFIG = 16 << 20 };

typedef struct lora_list {
    stream_row *rows;
    safetensors_spec *specs;
    char (*names)[NAME];
    size_t n;
    uint64_t bytes;
} lora_list;

static void add_matrix(lora_list *list, const peft_lora *l, const weight *w, const char *tail,
                       dtype dt)
{
    dtype stored = stream_plain(w->dt) ? w->dt : DT_F32;
    safetensors_spec *spec = &list->specs[list->n];
    snprintf(list->names[list->n], NAME, "base_model.model.%s.%s.weight", l->module, tail);
    *spec = (safetensors_spec){ .name = list->names[list->n],
                                .dt = dt != DT_COUNT ? dt : stored,
                                .nd = w->nd };
    memcpy(spec->ne, w->ne, sizeof spec->ne);
    list->rows[list->n++] = (stream_row){ .kind = STREAM_STORED, .stored = w };
    list->bytes += (uint64_t)weights_elements(w) * dtype_block_bytes(spec->dt);
}

static pesc_status write_matrices(const peft *adapter, const char *dir, dtype dt)
{
    size_t n = adapter->n * 2;
    lora_list list = { .rows = mem_alloc(n, sizeof *list.rows),
                       .specs = mem_alloc(n, sizeof *list.specs),
                       .names = mem_alloc(n, sizeof *list.names) };
    pesc_status s = list.rows && list.specs && list.names ? PESC_OK : fail_nomem(dir, n * NAME);
    for (size_t i = 0; s == PESC_OK && i < adapter->n; i++) {
        add_matrix(&list, &adapter->loras[i], adapter->loras[i].a, "lora_A", dt);
        add_matrix(&list, &adapter->loras[i], adapter->loras[i].b, "lora_B", dt);
    }
    if (s == PESC_OK)
        s = modeldir_check_room(dir, list.bytes + (1 << 20));
    if (s == PESC_OK)
        s = stream_write(&(stream_plan){ .dir = dir,
                                         .stem = "adapter_model",
                                         .rows = list.rows,
                                         .specs = list.specs,
                                         .n = list.n,
                                         .bytes = list.bytes,
                                         .ws = adapter->ws });
    mem_free(list.rows);
    mem_free(list.specs);
    mem_free(list.names);
    return s;
}

/* transformers opens a GGUF file as a file in a directory, which PEFT passes on. */
static pesc_status name_gguf_base(json_t *json, const target_model *p, const char *base)
{
    const char *slash = strrchr(base, '/');
    str dir = { 0 };
    if (slash)
        str_add(&dir, base, (size_t)(slash - base));
    else
        str_putc(&dir, '.');
    log_notice("%s: its base is a GGUF file; PEFT opens it with "
               "AutoPeftModelForCausalLM.from_pretrained(\"%s\", gguf_file=\"%s\")",
               p->place, p->place, slash ? slash + 1 : base);
    pesc_status s = str_ok(&dir)
                        ? configjson_set(json, "base_model_name_or_path", json_string(dir.p))
                        : fail_nomem(base, dir.n);
    str_free(&dir);
    return s;
}

/* As it was, with the base it belongs to; `joined` (NULL: none) has LoRAs of other ranks now. */
static pesc_status write_adapter_config(const target_model *p, const char *from, const peft *joined,
                                        const peft_stacks *stacks)
{
    const runstate_chain *c = &p->from.chain;
    const char *base = c->n > 1 ? c->dirs[1] : p->from.path;
    json_t *json = NULL;
    char *path = io_join(from, "adapter_config.json");
    pesc_status s = path ? json_read(&json, path, MAX_CONFIG) : fail_nomem(from, 0);
    bool is_gguf = false;
    if (s == PESC_OK && io_kind_of(base) == IO_FILE)
        s = gguf_is(base, &is_gguf);
    if (s == PESC_OK)
        s = is_gguf ? name_gguf_base(json, p, base)
                    : configjson_default(json, "base_model_name_or_path", json_string(base));
    if (s == PESC_OK)
        s = configjson_set(json, "inference_mode", json_true());
    if (s == PESC_OK && joined)
        s = peft_join_describe(joined, stacks, json);
    if (s == PESC_OK)
        s = modeldir_finish(p->dir, "adapter_config.json", json);
    json_decref(json);
    mem_free(path);
    return s;
}

/* A run whose weights are not all LoRA is no PEFT adapter: its base and the LoRA alone compute
 * something else. */
static pesc_status check_all_is_lora(const source_model *from)
{
    char *trained = NULL;
    if (from->chain.n < 2)
        return PESC_OK;
    TRY(io_find(&trained, from->chain.dirs[0], RUNSTATE_TRAINED));
    bool more = trained != NULL;
    mem_free(trained);
    if (more)
        return fail(
            PESC_USAGE,
            "%s: has trained more than LoRA (%s), which a PEFT directory cannot hold; write "
            "the whole model: pesc merge, or pesc export --to hf",
            from->path, RUNSTATE_TRAINED);
    return PESC_OK;
}

/* The base as the run held it, with the adapter that was written, against the run. */
static pesc_status compare_loras(target_model *p, const char *lora_dir, dtype dt)
{
    const runstate_chain *c = &p->from.chain;
    runbase_held held = { 0 };
    verify_pair v = { .dev = p->dev,
                      .made_from = p->from.path,
                      .made = c->n > 1 ? c->dirs[1] : p->from.path,
                      .written = p->place,
                      .rounding = dt == DT_COUNT ? ROUNDING_NONE
                                  : dt == DT_F32 ? ROUNDING_F32
                                                 : ROUNDING_16,
                      .from_opt = pesc_load_defaults(),
                      .made_opt = pesc_load_defaults() };
    v.from_opt.base = p->from.base;
    v.made_opt.base = c->n > 2 ? p->from.base : NULL;
    v.from_opt.lora = lora_dir;
    if (c->n > 1) {
        TRY(runmodel_chain_held(&held, c));
        runbase_load(&held, &v.made_opt);
    }
    v.made_opt.lora = p->dir;
    return verify_logits(&v, &p->check);
}

static pesc_status open_lora(const target_model *p, const pesc_export_options *o, const char *what,
                             peft **adapter)
{
    const char *lora_dir = NULL;
    TRY(hfdir_lora(p->from.dir, o->lora, &lora_dir));
    if (!lora_dir)
        return fail(PESC_USAGE, "%s: has no LoRA, and a %s holds nothing else%s", p->from.path,
                    what,
                    p->from.cfg.moe.kind == EXPERT_ADAPTER
                        ? "; its adapters (PESC) are part of --to camelidae"
                        : "");
    TRY(check_all_is_lora(&p->from));
    return fused_open_lora(adapter, lora_dir, &p->from.cfg);
}

static pesc_status to_gguf_lora(target_model *p, const pesc_export_options *o)
{
    peft *adapter = NULL;
    dtype dt = DT_F32;
    TRY(gguf_export_dtype(&p->from, o->dtype ? o->dtype : "f32", &dt));
    if (!stream_plain(dt))
        return fail(PESC_USAGE, "dtype: found \"%s\", expected f32, f16 or bf16", o->dtype);
    TRY(open_lora(p, o, "GGUF LoRA", &adapter));
    pesc_status s = gguf_lora_write(p, adapter, dt);
    peft_close(adapter);
    return s;
}

static pesc_status to_peft(target_model *p, const pesc_export_options *o)
{
    peft *adapter = NULL;
    dtype dt = o->dtype ? p->plan.dt : DT_COUNT;
    TRY(open_lora(p, o, "PEFT directory", &adapter));
    const char *lora_dir = adapter->dir;
    if (p->from.cfg.moe.kind == EXPERT_ADAPTER)
        log_notice("%s: its adapters and routers (PESC) are not in a PEFT directory: it belongs to "
                   "this very model",
                   p->from.path);
    bool joined = false;
    peft_stacks stacks = { 0 };
    pesc_status s = peft_join(adapter, &p->from.cfg, &joined);
    if (s == PESC_OK)
        s = peft_join_experts(adapter, &p->from.cfg, &stacks);
    bool filled = false;
    if (s == PESC_OK)
        s = peft_fill_experts(adapter, &p->from.cfg, &filled);
    joined = joined || stacks.n || filled;
    const char *confused = peft_join_confused(adapter);
    if (s == PESC_OK && confused)
        log_notice("%s: has LoRA on the %s of experts and of other FFNs, which PEFT 0.21 takes for "
                   "those of experts: pesc alone reads this adapter; for transformers, write the "
                   "whole model with pesc merge",
                   p->from.path, confused);
    if (s == PESC_OK)
        s = write_matrices(adapter, p->dir, dt);
    if (s == PESC_OK)
        s = modeldir_copy_template(lora_dir, p->dir);
    if (s == PESC_OK)
        s = card_write(p);
    if (s == PESC_OK)
        s = write_adapter_config(p, lora_dir, joined ? adapter : NULL, &stacks);
    if (joined && dt == DT_COUNT)
        dt = DT_F32; /* sums in another order */
    if (s == PESC_OK)
        p->last = "adapter_config.json";
    if (s == PESC_OK && o->check)
        s = compare_loras(p, lora_dir, dt);
    peft_close(adapter);
    return s;
}

/* ---- the door ---- */

static const struct {
    const char *name;
    pesc_status (*run)(target_model *p, const pesc_export_options *o);
    bool blocks; /* knows more dtypes than f32 and bf16 */
} targets[] = {
    { "hf", to_hf, false },        { "camelidae", to_camelidae, false }, { "peft", to_peft, false },
    { "gguf", gguf_export, true }, { "gguf-lora", to_gguf_lora, true },
};

pesc_status pesc_export(pesc_device *dev, const char *model, const char *to, const char *out_dir,
                        const pesc_export_options *opt, pesc_logit_check *check)
{
    status_clear();
    NEED(dev);
    NEED(model);
    NEED(to);
    NEED(out_dir);
    NEED_SIZED_OR_NULL(check);
    LOG_EVENTS(&dev->events);
    pesc_export_options o;
    target_model p = { 0 };
    size_t i = 0, n = sizeof targets / sizeof *targets;
    while (i < n && strcmp(targets[i].name, to) != 0)
        i++;
    if (i == n)
        return fail(PESC_USAGE, "to: found \"%s\", expected hf, peft, gguf, camelidae or gguf-lora",
                    to);
    TRY(options_take(PESC_OPTIONS_EXPORT, &o, opt));
    pesc_status s = target_open(&p, (runmodel_where){ model, o.base }, out_dir,
                                targets[i].blocks ? NULL : o.dtype);
    p.dev = dev;
    if (s == PESC_OK)
        s = target_publish(&p, targets[i].run(&p, &o));
    if (check)
        ARGS_WRITE(check, &p.check);
    target_close(&p);
    return s;
}

#include "craft/target.h"

#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "craft/card.h"
#include "craft/configjson.h"
#include "craft/stream.h"
#include "format/modeldir.h"

#include <stdio.h>
#include <string.h>

static bool is_run(const target_model *p)
{
    return p->from.chain.n > 1;
}

pesc_status target_open(target_model *p, runmodel_where model, const char *place,
                        const char *dtype_text)
{
    *p = (target_model){ .place = place };
    TRY(io_draft_open(&p->draft, place, str_ends(place, ".gguf") ? IO_FILE : IO_DIR));
    p->dir = io_draft_dir(p->draft);
    p->file = io_join(place, "config.json");
    if (!p->file)
        return fail_nomem(place, 0);
    TRY(source_model_open(&p->from, model));
    p->plan = (tensor_plan){ .from = &p->from, .target = &p->cfg, .dir = p->dir, .place = place };
    p->load = pesc_load_defaults();
    p->load.base = model.base;
    if (is_run(p))
        TRY(target_hold(p, p->from.chain.dirs[0], false, true));
    return tensor_plan_dtype(&p->from, dtype_text, &p->plan.dt);
}

pesc_status target_hold(target_model *p, const char *dir, bool nf4, bool double_quant)
{
    runbase_held run, chain;
    TRY(runbase_read_held(&run, dir));
    TRY(runmodel_chain_held(&chain, &p->from.chain));
    if (strcmp(chain.base_dtype, nf4 ? "nf4" : run.base_dtype) == 0)
        run.whole_experts = run.whole_experts || chain.whole_experts;
    bool as_trained = is_run(p) && !nf4;
    if (!run.found && !nf4)
        return PESC_OK;
    pesc_load_options o = p->load;
    o.base_dtype = nf4 ? "nf4" : NULL;
    o.double_quant = double_quant;
    o.whole_experts = run.whole_experts;
    runbase_load(&run, &o);
    p->held = (bind_source){ .ws = p->from.dir->ws, .path = p->from.path };
    holding_read(&p->held.how, NULL, &o);
    p->held.how.trained = as_trained;
    p->plan.held = &p->held;
    p->plan.double_quant = o.double_quant;
    if (!as_trained) /* else its run.yaml says it */
        p->load = o;
    return PESC_OK;
}

/* Where dtypes stay as stored, one tensor of 16 bits decides: a run's own tensors, in f32, may be
 * most of its bytes. */
verify_rounding target_rounding(const target_model *p)
{
    const weights *ws = p->from.dir->ws;
    bool f32 = p->plan.dt == DT_F32 || p->plan.dt == DT_COUNT, f16 = false;
    for (size_t i = 0; f32 && p->plan.dt == DT_COUNT && i < weights_count(ws); i++) {
        f32 = weights_at(ws, i)->dt == DT_F32;
        f16 = f16 || weights_at(ws, i)->dt == DT_F16;
    }
    bool rounded = p->held.how.base == DT_COUNT || p->held.how.base == DT_BF16;
    bool exact = !p->plan.held || f32 || (p->plan.dt == DT_COUNT && rounded && !f16);
    return !p->plan.lora && exact ? ROUNDING_NONE : f32 ? ROUNDING_F32 : ROUNDING_16;
}

void target_close(target_model *p)
{
    json_decref(p->json);
    config_free(&p->cfg);
    source_model_close(&p->from);
    mem_free(p->file);
    io_draft_close(p->draft);
}

pesc_status target_publish(target_model *p, pesc_status s)
{
    char why[1024];
    if (!p->last || (s != PESC_OK && s != PESC_NUMERIC))
        return s;
    snprintf(why, sizeof why, "%s", pesc_last_error());
    TRY(io_draft_publish(p->draft, p->last));
    return s == PESC_OK ? s : fail(s, "%s", why);
}

pesc_status target_begin(target_model *p)
{
    json_decref(p->json);
    p->json = NULL;
    TRY(configjson_from(&p->from, &p->json));
    dtype stored = stream_plain(p->from.usual) ? p->from.usual : DT_F32;
    return configjson_dtype(p->json, p->plan.dt != DT_COUNT ? p->plan.dt : stored);
}

pesc_status target_read(target_model *p, const char **differs)
{
    config_free(&p->cfg);
    return configjson_read(p->json, p->file, &p->from, &p->cfg, differs);
}

pesc_status target_read_same(target_model *p)
{
    const char *differs = NULL;
    TRY(target_read(p, &differs));
    if (differs)
        return fail(PESC_UNSUPPORTED,
                    "%s: its %s would be another one in the config.json that is written, in the "
                    "spelling of transformers 4; spell it so in the model's own, and try again",
                    p->from.dir->config_file, differs);
    return PESC_OK;
}

pesc_status target_same_family(target_model *p)
{
    TRY(target_begin(p));
    TRY(configjson_own_names(p->json, &p->from.cfg));
    return target_read_same(p);
}

/* A tokenizer without a template gets the one that the run was trained in. */
static pesc_status write_template(const target_model *p)
{
    const chat_format *f;
    tokenizer *t = NULL;
    TRY(source_model_format(&p->from, &f));
    if (!f)
        return PESC_OK;
    TRY(hfdir_tokenizer(&t, p->dir));
    bool wanted = t && !tokenizer_chat_template(t);
    tokenizer_close(t);
    const char *text;
    size_t n;
    chat_source(f, &text, &n);
    char *path = wanted ? io_join(p->dir, "chat_template.jinja") : NULL;
    pesc_status s = path ? io_write_file(path, text, n) : PESC_OK;
    if (wanted && !path)
        s = fail_nomem(p->dir, 0);
    mem_free(path);
    return s;
}

pesc_status target_write(target_model *p, const char *tok)
{
    if (p->from.quantised && p->plan.dt == DT_BF16)
        log_notice(
            "%s: its quantised weights (%s) are written as bf16, and the logits are compared "
            "with the source read as bf16; --dtype f32 rounds nothing",
            p->from.path, dtype_name(p->from.usual));
    TRY(tensor_plan_write(&p->plan));
    TRY(source_model_copy_tokenizer(&p->from, tok, p->dir));
    TRY(write_template(p));
    if (p->cfg.moe.kind == EXPERT_ADAPTER)
        TRY(modeldir_name_tokenizer(p->dir)); /* its model_type is not known to AutoTokenizer */
    if (p->write_more)
        TRY(p->write_more(p));
    TRY(card_write(p));
    TRY(modeldir_finish(p->dir, "config.json", p->json));
    p->last = "config.json";
    return PESC_OK;
}

pesc_status target_compare(target_model *p, const target_check *c)
{
    if (!c->wanted)
        return PESC_OK;
    verify_pair v = { .dev = p->dev,
                      .made_from = p->from.path,
                      .made = p->dir,
                      .written = p->place,
                      .rounding = c->rounding,
                      .from_opt = p->load,
                      .made_opt = pesc_load_defaults() };
    v.from_opt.lora = c->lora_dir;
    if (!p->plan.held)
        v.from_opt.base_dtype = p->plan.dt != DT_COUNT ? dtype_name(p->plan.dt) : "stored";
    return verify_logits(&v, &p->check);
}

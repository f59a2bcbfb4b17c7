#include "craft/gguf_export.h"

#include "arch/family.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "craft/card.h"
#include "craft/configjson.h"
#include "craft/gguf_layout.h"
#include "craft/ggufkeys.h"
#include "craft/merge.h"
#include "craft/modelfile.h"
#include "format/gguf_write.h"
#include "format/modeldir.h"

#include <string.h>

/* What can be asked for, and ggml's number of a file of mostly that type. */
static const struct {
    dtype dt;
    int32_t file_type;
} kinds[] = {
    { DT_F32, 0 },  { DT_F16, 1 },   { DT_BF16, 32 }, { DT_Q8_0, 7 },
    { DT_Q4_0, 2 }, { DT_Q4_K, 14 }, { DT_Q6_K, 18 },
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

pesc_status gguf_export_dtype(const source_model *p, const char *text, dtype *out)
{
    *out = p->quantised ? DT_BF16 : p->usual;
    if (!text || !*text)
        return PESC_OK;
    for (size_t i = 0; i < N_KINDS; i++)
        if (strcmp(dtype_name(kinds[i].dt), text) == 0) {
            *out = kinds[i].dt;
            return PESC_OK;
        }
    return fail(PESC_USAGE,
                "dtype: found \"%s\", expected f32, f16, bf16, q8_0, q4_0, q4_k or q6_k", text);
}

static int32_t file_type_of(dtype dt)
{
    size_t i = 0;
    while (kinds[i].dt != dt)
        i++;
    return kinds[i].file_type;
}

/* ---- what is written where ---- */

typedef struct job {
    target_model *p;
    dtype dt;
    const struct gguf_arch *arch;
    char *file, *modelfile, *name; /* paths of the two, and the name of the first */
    tokenizer *tok;                /* NULL: the model has none */
    gguf_vocab vocab;
    str template; /* of the vocabulary, where it is the run's */
    tensor_list list;
    gguf_layout layout;
    gguf_writer *w;
} job;

static void job_free(job *j)
{
    gguf_writer_abort(j->w);
    tensor_list_free(&j->list);
    gguf_layout_free(&j->layout);
    tokenizer_gguf_free(&j->vocab);
    tokenizer_close(j->tok);
    str_free(&j->template);
    mem_free(j->file);
    mem_free(j->modelfile);
    mem_free(j->name);
}

static pesc_status name_files(job *j)
{
    static const char ending[] = ".gguf";
    const char *place = j->p->place, *dir = j->p->dir, *slash = strrchr(place, '/');
    bool file = str_ends(place, ending);
    str beside = { 0 };
    j->name = mem_strdup(!file ? "model.gguf" : slash ? slash + 1 : place);
    if (file && j->name)
        str_add(&beside, j->name, strlen(j->name) - (sizeof ending - 1));
    str_puts(&beside, file ? ".Modelfile" : "Modelfile");
    j->modelfile = str_ok(&beside) ? io_join(dir, beside.p) : NULL;
    j->file = j->name ? io_join(dir, j->name) : NULL;
    str_free(&beside);
    return j->name && j->file && j->modelfile ? PESC_OK : fail_nomem(place, strlen(place));
}

/* ---- metadata ---- */

static bool among(const config *c, int64_t id)
{
    bool found = c->n_eos == 0;
    for (int32_t i = 0; i < c->n_eos; i++)
        found |= c->eos[i] == id;
    return found;
}

/* eos first, then what else ends an answer, under the names that GGUF has for a second and a third.
 */
static void put_ends(job *j, const config *c)
{
    static const char *const keys[] = { "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id" };
    size_t n = 0;
    for (int32_t i = 0; i < c->n_eos && n < 2; i++)
        if (c->eos[i] != j->vocab.eos)
            gguf_put_u32(j->w, keys[n++], c->eos[i]);
}

static void put_vocab(job *j)
{
    const config *c = &j->p->from.cfg;
    gguf_vocab *v = &j->vocab;
    if (!j->tok)
        *v = (gguf_vocab){ .model = "no_vocab", .bos = -1, .eos = -1, .pad = -1, .unk = -1 };
    if (v->bos < 0)
        v->bos = c->bos;
    if (v->pad < 0)
        v->pad = c->pad;
    if (v->eos < 0 || !among(c, v->eos))
        v->eos = c->n_eos ? c->eos[0] : v->eos;
    gguf_put_vocab(j->w, v);
    put_ends(j, c);
}

static const char *base_name(const char *path, char out[128])
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t at = n;
    while (at > 0 && path[at - 1] != '/')
        at--;
    n = n - at < 127 ? n - at : 127;
    memcpy(out, path + at, n);
    out[n] = '\0';
    return out;
}

static pesc_status put_metadata(job *j)
{
    enum { QUANTIZATION_VERSION = 2 };
    char name[128], licence[CARD_LICENCE];
    TRY(card_licence(&j->p->from, licence));
    const char *arch = gguf_arch_name(j->arch);
    gguf_put_text(j->w, "general.architecture", arch);
    gguf_put_text(j->w, "general.type", "model");
    gguf_put_text(j->w, "general.name", base_name(j->p->from.path, name));
    gguf_put_u32(j->w, "general.file_type", file_type_of(j->dt));
    gguf_put_u32(j->w, "general.quantization_version", QUANTIZATION_VERSION);
    if (*licence)
        gguf_put_text(j->w, "general.license", licence);
    ggufkeys_put(j->w, &j->p->from.cfg, arch);
    put_vocab(j);
    return PESC_OK;
}

/* ---- tensors ---- */

/* Of a tensor that holds a matrix, or a stack of them. */
static dtype type_of(const job *j, const gguf_place *place, int64_t cols)
{
    bool tied = j->p->from.cfg.tie_embeddings;
    bool head = strcmp(place->name, tied ? "token_embd.weight" : "output.weight") == 0;
    dtype dt = head && (j->dt == DT_Q4_0 || j->dt == DT_Q4_K) ? DT_Q6_K : j->dt;
    if (cols % (int64_t)dtype_block(dt) && cols % 32 == 0)
        dt = head || dt == DT_Q6_K || dt == DT_Q4_K ? DT_Q8_0 : dt;
    return cols % (int64_t)dtype_block(dt) ? DT_F16 : dt;
}

/* What is done to the numbers of a row on their way to its place. */
static void arrange(job *j, size_t i, const gguf_place *place)
{
    const config *c = &j->p->from.cfg;
    const safetensors_spec *s = &j->list.specs[i];
    const int32_t *rows = gguf_layout_rows(&j->layout, place);
    stream_row *row = &j->list.rows[i];
    row->plus = place->plus_one ? 1 : 0;
    row->decay = place->decay;
    row->columns = gguf_layout_columns(&j->layout, place);
    if (rows) {
        row->picked = rows;
        row->each = s->nd > 1 ? s->ne[s->nd - 1] : 1;
    }
    if (place->permuted)
        row->permute_heads = place->permuted == 'q' ? c->n_heads : c->n_kv_heads;
}

static gguf_spec spec_of(const job *j, const safetensors_spec *s, const gguf_place *place)
{
    bool plain = s->nd == 1 || place->row || place->conv || strstr(place->name, "_inp.") ||
                 str_ends(place->name, ".bias");
    gguf_spec spec = { .dt = plain ? DT_F32 : type_of(j, place, s->ne[s->nd - 1]),
                       .nd = place->row ? 1 : s->nd };
    memcpy(spec.name, place->name, sizeof spec.name);
    memcpy(spec.ne, s->ne + s->nd - spec.nd, (size_t)spec.nd * sizeof *spec.ne);
    if (place->conv && spec.nd == 3)
        spec.ne[--spec.nd - 1] = s->ne[2];
    return spec;
}

static pesc_status put_tensor(job *j, size_t i, size_t *next)
{
    gguf_place place, other;
    const safetensors_spec *s = &j->list.specs[i];
    if (!gguf_place_of(&place, j->arch, s->name))
        return fail(PESC_UNSUPPORTED, "%s: a GGUF file of architecture %s has no place for %s",
                    j->p->from.path, gguf_arch_name(j->arch), s->name);
    int64_t rows = 0;
    gguf_spec spec = spec_of(j, s, &place);
    for (*next = i; *next < j->list.n; ++*next) {
        safetensors_spec *t = &j->list.specs[*next];
        bool same = *next == i ||
                    ((place.stacked || place.joined) && gguf_place_of(&other, j->arch, t->name) &&
                     strcmp(other.name, place.name) == 0);
        if (!same)
            break;
        t->dt = spec.dt;
        rows += t->ne[0];
        arrange(j, *next, &place);
    }
    if (place.joined)
        spec.ne[0] = rows;
    if (place.stacked) {
        memmove(spec.ne + 1, spec.ne, (size_t)spec.nd++ * sizeof *spec.ne);
        spec.ne[0] = (int64_t)(*next - i);
    }
    gguf_put_tensor(j->w, &spec);
    return PESC_OK;
}

static pesc_status write_bytes(void *file, const void *bytes, size_t n)
{
    return gguf_write(file, bytes, n);
}

static pesc_status write_tensors(job *j)
{
    float factors[1 << 13];
    int32_t pairs = ggufkeys_rope_factors(&j->p->from.cfg, factors);
    gguf_spec freqs = { "rope_freqs.weight", DT_F32, 1, { pairs } };
    if (pairs)
        gguf_put_tensor(j->w, &freqs);
    for (size_t i = 0, next = 0; i < j->list.n; i = next)
        TRY(put_tensor(j, i, &next));
    uint64_t bytes = gguf_writer_bytes(j->w);
    TRY(modeldir_check_room(j->p->place, bytes + (1 << 20)));
    TRY(gguf_write_header(j->w));
    TRY(gguf_write(j->w, factors, (size_t)pairs * sizeof *factors));
    TRY(stream_into(&(stream_plan){ .rows = j->list.rows,
                                    .specs = j->list.specs,
                                    .n = j->list.n,
                                    .bytes = bytes,
                                    .ws = j->p->from.dir->ws },
                    (stream_sink){ write_bytes, j->w }));
    gguf_writer *w = j->w;
    j->w = NULL;
    return gguf_writer_finish(w);
}

/* ---- reading back ---- */

/* What the block, the router and its experts compute. */
static const char *mixture_difference(const config *a, const config *b)
{
    const topk_rule *x = &a->moe.topk, *y = &b->moe.topk;
    bool once = x->score_after_topk || x->renormalise; /* the same on softmax scores */
    bool other = y->score_after_topk || y->renormalise;
    if (a->norms != b->norms || a->moe.kind != b->moe.kind)
        return "block";
    if (a->embed_sqrt_dim != b->embed_sqrt_dim)
        return "mup_enabled";
    if (a->moe.kind == EXPERT_NONE)
        return NULL;
    return x->n_groups != y->n_groups || x->k_groups != y->k_groups ? "n_group"
           : x->scale != y->scale                                   ? "routed_scaling_factor"
           : x->score != y->score                                   ? "scoring_func"
           : x->sum_floor != y->sum_floor                           ? "moe_norm_min"
           : once != other                                          ? "norm_topk_prob"
           : a->moe.has_bias != b->moe.has_bias                     ? "bias of the router"
           : a->moe.shared_dim != b->moe.shared_dim                 ? "shared experts"
                                                                    : NULL;
}

/* The configuration that the file gives must say what the model's own says. */
static pesc_status check_facts(job *j)
{
    hfdir *h = NULL;
    const char *differs = NULL;
    target_model *p = j->p;
    pesc_status s = hfdir_open(&h, j->file, HFDIR_NO_WEIGHTS);
    config_free(&p->cfg);
    if (s == PESC_OK)
        s = configjson_read(h->config, j->file, &p->from, &p->cfg, &differs);
    hfdir_close(h);
    if (s == PESC_OK && !differs)
        differs = mixture_difference(&p->cfg, &p->from.cfg);
    for (int32_t i = 0; s == PESC_OK && i < p->cfg.n_layers; i++)
        if (config_layer_sparse(&p->cfg, i) != config_layer_sparse(&p->from.cfg, i))
            differs = "layers without experts";
    if (s == PESC_OK && differs)
        s = fail(PESC_UNSUPPORTED, "%s: a GGUF file of architecture %s has no place for its %s",
                 p->from.path, gguf_arch_name(j->arch), differs);
    return s;
}

static pesc_status compare(job *j, const char *lora_dir)
{
    target_model *p = j->p;
    bool exact = j->dt == DT_F32 || j->dt == DT_BF16;
    p->plan.dt = j->dt;
    verify_pair v = { .dev = p->dev,
                      .made_from = p->from.path,
                      .made = j->file,
                      .written = p->place,
                      .rounding = !exact                        ? ROUNDING_BLOCKS
                                  : p->from.cfg.norm_shift != 0 ? ROUNDING_16 /* 1 was added */
                                                                : target_rounding(p),
                      .from_opt = p->load,
                      .made_opt = pesc_load_defaults() };
    v.from_opt.lora = lora_dir;
    v.made_opt.base_dtype = j->dt == DT_BF16 ? "bf16" : "f32";
    if (!p->plan.held)
        v.from_opt.base_dtype = v.made_opt.base_dtype;
    return verify_logits(&v, &p->check);
}

/* ---- the whole ---- */

/* A tokenizer without a template gets the one that the run was trained in. */
static pesc_status take_template(job *j)
{
    const chat_format *f;
    const char *text;
    size_t n;
    TRY(source_model_format(&j->p->from, &f));
    if (!f || j->vocab.chat_template)
        return PESC_OK;
    chat_source(f, &text, &n);
    str_add(&j->template, text, n);
    j->vocab.chat_template = j->template.p;
    return str_ok(&j->template) ? PESC_OK : fail_nomem(f->name, n);
}

static pesc_status open_tokenizer(job *j, const char *tok)
{
    const source_model *from = &j->p->from;
    TRY(tok && *tok ? runmodel_tokenizer(&j->tok, (runmodel_where){ .path = tok })
                    : runmodel_chain_tokenizer(&j->tok, &from->chain));
    if (j->tok) {
        TRY(tokenizer_to_gguf(&j->vocab, j->tok, from->cfg.vocab));
        return take_template(j);
    }
    log_notice("%s: has no tokenizer, so none is written", from->path);
    return PESC_OK;
}

static pesc_status write_file(job *j, const pesc_export_options *o)
{
    target_model *p = j->p;
    const config *c = &p->from.cfg;
    j->arch = gguf_arch_written(c->fam->model_type, c->moe.kind == EXPERT_ADAPTER,
                                c->moe.kind == EXPERT_FFN);
    if (!j->arch)
        return fail(PESC_UNSUPPORTED, "%s: a %s model has no architecture in GGUF", p->from.path,
                    c->fam->name);
    TRY(ggufkeys_check(c, j->arch, p->from.path));
    TRY(open_tokenizer(j, o->tokenizer));
    TRY(tensor_plan_list(&j->list, &p->plan));
    TRY(gguf_layout_open(&j->layout, c));
    TRY(gguf_layout_split(&j->layout, &j->list));
    TRY(name_files(j));
    TRY(gguf_writer_open(&j->w, j->file));
    TRY(put_metadata(j));
    TRY(write_tensors(j));
    TRY(check_facts(j));
    TRY(modelfile_write(j->modelfile, &(modelfile){ .gguf = j->name,
                                                    .tok = j->tok,
                                                    .jinja = j->vocab.chat_template,
                                                    .generation = p->from.dir->generation }));
    ggufkeys_notice(c, p->from.path);
    const char *slash = strrchr(p->place, '/');
    TRY(card_write(p));
    if (!str_ends(p->place, ".gguf"))
        TRY(modeldir_list(p->dir, NULL));
    p->last = !str_ends(p->place, ".gguf") ? "model.gguf" : slash ? slash + 1 : p->place;
    return PESC_OK;
}

pesc_status gguf_export(target_model *p, const pesc_export_options *o)
{
    const char *lora_dir = NULL;
    peft *adapter = NULL;
    job j = { .p = p };
    TRY(hfdir_lora(p->from.dir, o->lora, &lora_dir));
    TRY(gguf_export_dtype(&p->from, o->dtype, &j.dt));
    TRY(target_begin(p));
    TRY(target_read_same(p));
    pesc_status s = lora_dir ? merge_fold(p, o, lora_dir, &adapter) : PESC_OK;
    if (s == PESC_OK)
        s = write_file(&j, o);
    if (s == PESC_OK && o->check)
        s = compare(&j, lora_dir);
    job_free(&j);
    peft_close(adapter);
    return s;
}

#include "arch/new.h"

#include "arch/fused.h"
#include "arch/info.h"
#include "base/args.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "format/modeldir.h"
#include "format/safetensors.h"
#include "tensor/bf16.h"

#include <math.h>
#include <string.h>

enum { CONFIG_BYTES = 1 << 20 };

/* FNV-1a: a stream for each name, whatever else the model has. */
static uint64_t name_hash(const char *s)
{
    uint64_t h = 0xcbf29ce484222325;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3;
    return h;
}

void new_values(const config *c, const slot *s, uint64_t seed, int64_t first, int64_t n, float *out)
{
    rng_key key = { seed, rng_stream(name_hash(s->name), 0, 0) };
    float bound = 1 / sqrtf((float)c->dim);
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)(first + i);
        switch (s->rule->init) {
        case INIT_NORMAL:
            out[i] = c->init_range * rng_normal(key, at);
            break;
        case INIT_UNIFORM:
            out[i] = bound * (2 * rng_uniform(key, at) - 1);
            break;
        case INIT_ONE:
            out[i] = 1;
            break;
        case INIT_ZERO:
            out[i] = 0;
            break;
        }
    }
}

/* ---- the weights ---- */

/* A tensor of the files: that of a slot, or a fused one, of which the slot is the first part. */
typedef struct stored_tensor {
    slot s;
    fused_layout l;
    bool fused;
} stored_tensor;

static bool next_tensor(const config *c, stored_tensor *t)
{
    while (slot_next(c, &t->s)) {
        int32_t part = 0;
        const fused_rule *r = t->s.layer < 0 ? NULL : fused_rule_of(c->fam, t->s.rule->name, &part);
        t->fused = r && fused_layout_of(&t->l, c, r, t->s.layer);
        if (!t->fused || (part == 0 && t->s.expert <= 0))
            return true;
    }
    return false;
}

/* The tensors in writing order; their names are in one block of memory. */
typedef struct plan {
    safetensors_spec *specs;
    char *names;
    size_t n;
} plan;

static pesc_status make_plan(plan *p, const config *c, dtype dt)
{
    enum { NAME = sizeof((slot *)0)->name };
    for (stored_tensor t = { .s = slot_first() }; p->n <= WEIGHTS_MAX && next_tensor(c, &t);)
        p->n++;
    if (p->n > WEIGHTS_MAX)
        return fail(PESC_UNSUPPORTED, "the model has more than %d tensors, the most pesc reads",
                    WEIGHTS_MAX);
    p->specs = mem_zalloc(p->n, sizeof *p->specs);
    p->names = mem_alloc(p->n, NAME);
    if (!p->specs || !p->names)
        return fail_nomem("planning a model", p->n * NAME);
    size_t i = 0;
    for (stored_tensor t = { .s = slot_first() }; next_tensor(c, &t); i++) {
        safetensors_spec *spec = &p->specs[i];
        memcpy(p->names + i * NAME, t.fused ? t.l.name : t.s.name, NAME);
        *spec = (safetensors_spec){ .name = p->names + i * NAME,
                                    .dt = dt,
                                    .nd = t.fused ? t.l.nd : t.s.nd };
        memcpy(spec->ne, t.fused ? t.l.ne : t.s.ne, (size_t)spec->nd * sizeof *spec->ne);
    }
    return PESC_OK;
}

/* Numbers are drawn by all cores, a span at a time, and written in order. */
enum { PIECE = 1 << 14, PIECES = 64, SPAN = PIECE * PIECES };

typedef struct filler {
    const config *c;
    const slot *s;
    uint64_t seed;
    int64_t first, n; /* of this span */
    dtype dt;
    float *f32;     /* SPAN */
    uint16_t *bf16; /* SPAN */
    const fused_place *place;
} filler;

static void fill_piece(void *ctx, int64_t piece, int worker)
{
    (void)worker;
    const filler *f = ctx;
    int64_t at = piece * PIECE, n = f->n - at < PIECE ? f->n - at : PIECE;
    new_values(f->c, f->s, f->seed, f->first + at, n, f->f32 + at);
    if (f->dt == DT_BF16)
        bf16_encode(f->bf16 + at, f->f32 + at, n);
}

/* Draws the slot's numbers a span at a time; `to` (NULL: the file) takes them as a part. */
static pesc_status write_slot(safetensors_writer *w, thread_pool *pool, filler *f, float *to)
{
    int64_t total = slot_count(f->s);
    for (f->first = 0; f->first < total; f->first += SPAN) {
        f->n = total - f->first < SPAN ? total - f->first : SPAN;
        thread_for(pool, (f->n + PIECE - 1) / PIECE, fill_piece, f);
        for (int64_t i = 0; to && i < f->n; i++)
            to[fused_at(f->place, f->first + i)] = f->f32[i];
        if (to)
            continue;
        const void *bytes = f->dt == DT_BF16 ? (const void *)f->bf16 : (const void *)f->f32;
        TRY(safetensors_write(w, bytes, (size_t)f->n * dtype_block_bytes(f->dt)));
    }
    return PESC_OK;
}

/* Parts that follow one another are written as they come, others are put in their places first. */
static pesc_status write_fused(safetensors_writer *w, thread_pool *pool, filler *f,
                               const fused_layout *l)
{
    float *share = l->plain ? NULL : mem_alloc((size_t)l->share, sizeof *share);
    pesc_status s =
        l->plain || share ? PESC_OK : fail_nomem(l->name, (size_t)l->share * sizeof *share);
    for (int32_t e = 0; s == PESC_OK && e < l->experts; e++) {
        for (int32_t i = 0; s == PESC_OK && i < l->n_parts; i++) {
            slot part = l->parts[i];
            if (part.expert >= 0)
                slot_set_expert(&part, e);
            f->s = &part;
            f->place = &l->places[i];
            s = write_slot(w, pool, f, share);
        }
        for (int64_t at = 0; s == PESC_OK && share && at < l->share; at += SPAN) {
            int64_t n = l->share - at < SPAN ? l->share - at : SPAN;
            bool bf16 = f->dt == DT_BF16;
            if (bf16)
                bf16_encode(f->bf16, share + at, n);
            s = safetensors_write(w, bf16 ? (const void *)f->bf16 : (const void *)(share + at),
                                  (size_t)n * dtype_block_bytes(f->dt));
        }
    }
    mem_free(share);
    return s;
}

static pesc_status write_slots(const char *dir, const plan *p, thread_pool *pool, filler *f)
{
    safetensors_writer *w = NULL;
    TRY(safetensors_writer_open(&w, &(safetensors_plan){ .dir = dir,
                                                         .stem = "model",
                                                         .specs = p->specs,
                                                         .n = p->n,
                                                         .shard_bytes = NEW_SHARD_BYTES }));
    pesc_status s = PESC_OK;
    for (stored_tensor t = { .s = slot_first() }; s == PESC_OK && next_tensor(f->c, &t);) {
        f->s = &t.s;
        s = t.fused ? write_fused(w, pool, f, &t.l) : write_slot(w, pool, f, NULL);
    }
    if (s == PESC_OK)
        return safetensors_writer_finish(w);
    safetensors_writer_abort(w);
    return s;
}

static pesc_status write_weights(const char *dir, const config *c, dtype dt, uint64_t seed)
{
    plan p = { 0 };
    thread_pool *pool = NULL;
    filler f = { .c = c, .seed = seed, .dt = dt };
    f.f32 = mem_alloc(SPAN, sizeof *f.f32);
    f.bf16 = mem_alloc(SPAN, sizeof *f.bf16);
    pesc_status s = f.f32 && f.bf16 ? PESC_OK : fail_nomem("writing a model", SPAN * sizeof *f.f32);
    if (s == PESC_OK)
        s = make_plan(&p, c, dt);
    if (s == PESC_OK)
        s = thread_pool_open(&pool, 0);
    if (s == PESC_OK)
        s = write_slots(dir, &p, pool, &f);
    thread_pool_close(pool);
    mem_free(f.f32);
    mem_free(f.bf16);
    mem_free(p.specs);
    mem_free(p.names);
    return s;
}

/* ---- the other files ---- */

/* The configuration as given, with the dtype that was written. */
static pesc_status write_config(const char *dir, json_t *json, dtype dt)
{
    const char *key = json_has(json, "dtype") ? "dtype" : "torch_dtype";
    const char *name = dt == DT_F32 ? "float32" : "bfloat16";
    json_object_del(json, "quantization_config"); /* what is written is not quantised */
    if (json_object_set_new(json, key, json_string(name)) != 0)
        return fail_nomem("writing config.json", 0);
    return modeldir_finish(dir, "config.json", json);
}

static pesc_status write_all(const char *dir, const config *c, json_t *json, dtype dt,
                             const char *tokenizer_path, uint64_t seed)
{
    if (tokenizer_path && *tokenizer_path)
        TRY(modeldir_copy_named_tokenizer(tokenizer_path, dir));
    TRY(write_weights(dir, c, dt, seed));
    return write_config(dir, json, dt);
}

pesc_status pesc_new(const char *config_path, const char *out_dir, const char *tokenizer_path,
                     const char *dtype_text, uint64_t seed, const pesc_events *ev)
{
    status_clear();
    NEED(config_path);
    NEED(out_dir);
    LOG_EVENTS(ev);
    bool bf16 = dtype_text && strcmp(dtype_text, "bf16") == 0;
    if (dtype_text && *dtype_text && !bf16 && strcmp(dtype_text, "f32") != 0)
        return fail(PESC_USAGE, "dtype: found \"%s\", expected f32 or bf16", dtype_text);
    io_draft *draft;
    TRY(io_draft_open(&draft, out_dir, IO_DIR));
    json_t *json = NULL;
    config c = { 0 };
    info_counts counts;
    char *inside = io_kind_of(config_path) == IO_DIR ? io_join(config_path, "config.json") : NULL;
    const char *file = inside ? inside : config_path;
    pesc_status s = json_read(&json, file, CONFIG_BYTES);
    if (s == PESC_OK)
        s = config_read(&c, &(config_source){ .json = json, .file = file });
    if (s == PESC_OK)
        s = info_count(&c, file, &counts);
    if (s == PESC_OK)
        s = write_all(io_draft_dir(draft), &c, json, bf16 ? DT_BF16 : DT_F32, tokenizer_path, seed);
    if (s == PESC_OK)
        s = io_draft_publish(draft, "config.json");
    io_draft_close(draft);
    config_free(&c);
    json_decref(json);
    mem_free(inside);
    return s;
}

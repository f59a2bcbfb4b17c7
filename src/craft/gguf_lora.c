#include "craft/gguf_lora.h"

#include "arch/family.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/str.h"
#include "craft/card.h"
#include "craft/gguf_layout.h"
#include "craft/stream.h"
#include "format/gguf.h"
#include "format/gguf_write.h"
#include "format/modeldir.h"

#include <stdio.h>
#include <string.h>

enum { NAME_ROOM = 8 }; /* of a tensor's name, for what follows it */

typedef struct lora_file {
    target_model *p;
    const struct gguf_arch *arch;
    const char *name; /* of the file in the draft */
    char *path;
    gguf_writer *w;
    stream_row *rows; /* A and B of each LoRA, twice where llama.cpp has two tensors for it */
    safetensors_spec *specs;
    size_t n;
    gguf_layout layout;
} lora_file;

/* llama.cpp multiplies by alpha / r, with one alpha for the whole file. */
static float alpha_of(const peft *adapter)
{
    const peft_lora *first = &adapter->loras[0];
    float alpha = first->scale * (float)first->a->ne[0];
    return alpha != 0 ? alpha : (float)first->a->ne[0];
}

static void add_matrix(lora_file *f, const gguf_place *place, const weight *m, int64_t rows,
                       const char *tail, dtype dt)
{
    gguf_spec spec = { .dt = dt, .nd = m->nd };
    snprintf(spec.name, sizeof spec.name, "%.*s.%s", (int)sizeof spec.name - NAME_ROOM, place->name,
             tail);
    memcpy(spec.ne, m->ne, sizeof spec.ne);
    spec.ne[0] = rows;
    gguf_put_tensor(f->w, &spec);
    f->specs[f->n] = (safetensors_spec){ .name = m->name, .dt = dt, .nd = m->nd };
    memcpy(f->specs[f->n].ne, spec.ne, sizeof spec.ne);
    f->rows[f->n++] = (stream_row){ .kind = STREAM_STORED, .stored = m };
}

/* A LoRA on a tensor of llama.cpp's. rows: of it, in the order of the tensor's; NULL: as they are.
 */
static pesc_status add_placed(lora_file *f, const peft_lora *l, const gguf_layout_part *at,
                              float alpha, dtype dt)
{
    gguf_place place;
    const config *c = &f->p->from.cfg;
    if (!gguf_place_of(&place, f->arch, at->name) ||
        strlen(place.name) + NAME_ROOM > sizeof place.name)
        return fail(PESC_UNSUPPORTED,
                    "%s: a GGUF file of architecture %s has no place for a LoRA on %s",
                    f->p->from.path, gguf_arch_name(f->arch), l->module);
    if (place.stacked)
        return fail(PESC_UNSUPPORTED,
                    "%s: has a LoRA on a single expert (%s), which a GGUF LoRA has no place for; "
                    "write the whole model: pesc export --to gguf",
                    f->p->from.path, l->module);
    const int32_t *rows = at->rows ? at->rows : gguf_layout_rows(&f->layout, &place);
    add_matrix(f, &place, l->a, l->a->ne[0], "lora_a", dt);
    f->rows[f->n - 1].columns = gguf_layout_columns(&f->layout, &place);
    add_matrix(f, &place, l->b, at->rows ? at->n : l->b->ne[0], "lora_b", dt);
    stream_row *b = &f->rows[f->n - 1];
    float own = l->scale * (float)l->a->ne[0];
    b->picked = own != 0 ? rows : NULL;
    b->each = l->b->ne[1];
    b->times = own != alpha ? own / alpha : 0;
    if (own == 0)
        b->kind = STREAM_ZERO;
    if (place.permuted)
        b->permute_heads = place.permuted == 'q' ? c->n_heads : c->n_kv_heads;
    return PESC_OK;
}

static pesc_status add_lora(lora_file *f, const peft_lora *l, float alpha, dtype dt)
{
    gguf_layout_part parts[2] = { 0 };
    char name[WEIGHTS_MAX_NAME + 16];
    snprintf(name, sizeof name, "%s.weight", l->module);
    bool two = gguf_layout_parts(&f->layout, name, parts);
    if (!two)
        snprintf(parts[0].name, sizeof parts[0].name, "%.120s", name);
    TRY(add_placed(f, l, &parts[0], alpha, dt));
    return two ? add_placed(f, l, &parts[1], alpha, dt) : PESC_OK;
}

static pesc_status put_metadata(lora_file *f, float alpha)
{
    char licence[CARD_LICENCE];
    TRY(card_licence(&f->p->from, licence));
    gguf_put_text(f->w, "general.type", "adapter");
    gguf_put_text(f->w, "general.architecture", gguf_arch_name(f->arch));
    gguf_put_text(f->w, "adapter.type", "lora");
    gguf_put_f32(f->w, "adapter.lora.alpha", (double)alpha);
    if (*licence)
        gguf_put_text(f->w, "general.license", licence);
    return PESC_OK;
}

static pesc_status write_bytes(void *file, const void *bytes, size_t n)
{
    return gguf_write(file, bytes, n);
}

static pesc_status write_tensors(lora_file *f, const peft *adapter, dtype dt)
{
    float alpha = alpha_of(adapter);
    TRY(put_metadata(f, alpha));
    for (size_t i = 0; i < adapter->n; i++)
        TRY(add_lora(f, &adapter->loras[i], alpha, dt));
    uint64_t bytes = gguf_writer_bytes(f->w);
    TRY(modeldir_check_room(f->p->place, bytes + (1 << 20)));
    TRY(gguf_write_header(f->w));
    TRY(stream_into(
        &(stream_plan){
            .rows = f->rows, .specs = f->specs, .n = f->n, .bytes = bytes, .ws = adapter->ws },
        (stream_sink){ write_bytes, f->w }));
    gguf_writer *w = f->w;
    f->w = NULL;
    return gguf_writer_finish(w);
}

/* The header that was written is read again. */
static pesc_status read_back(const lora_file *f)
{
    gguf *g = NULL;
    pesc_status s = gguf_open(&g, f->path);
    gguf_close(g);
    return s;
}

static pesc_status write_file(lora_file *f, const peft *adapter, dtype dt)
{
    const config *c = &f->p->from.cfg;
    f->arch = c->moe.kind == EXPERT_ADAPTER || c->moe.kind == EXPERT_LORA
                  ? NULL
                  : gguf_arch_written(c->fam->model_type, false, c->moe.kind == EXPERT_FFN);
    if (!f->arch)
        return fail(PESC_UNSUPPORTED,
                    "%s: is a %s model, which llama.cpp does not run, so it has no GGUF LoRA; "
                    "--to peft writes it for Hugging Face",
                    f->p->from.path, c->fam->name);
    if (adapter->n == 0)
        return fail(PESC_USAGE, "%s: has no matrices", adapter->dir);
    TRY(gguf_layout_open(&f->layout, c));
    f->rows = mem_alloc(adapter->n * 4, sizeof *f->rows); /* in_proj_qkvz is two */
    f->specs = mem_alloc(adapter->n * 4, sizeof *f->specs);
    f->path = io_join(f->p->dir, f->name);
    if (!f->rows || !f->specs || !f->path)
        return fail_nomem(f->name, adapter->n * sizeof *f->rows);
    TRY(gguf_writer_open(&f->w, f->path));
    TRY(write_tensors(f, adapter, dt));
    return read_back(f);
}

pesc_status gguf_lora_write(target_model *p, const peft *adapter, dtype dt)
{
    const char *slash = strrchr(p->place, '/');
    bool file = str_ends(p->place, ".gguf");
    lora_file f = { .p = p };
    f.name = !file ? "lora.gguf" : slash ? slash + 1 : p->place;
    pesc_status s = write_file(&f, adapter, dt);
    if (s == PESC_OK)
        s = card_write(p);
    if (s == PESC_OK && !file)
        s = modeldir_list(p->dir, NULL);
    if (s == PESC_OK)
        p->last = f.name;
    gguf_writer_abort(f.w);
    gguf_layout_free(&f.layout);
    mem_free(f.rows);
    mem_free(f.specs);
    mem_free(f.path);
    return s;
}

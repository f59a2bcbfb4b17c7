#include "craft/tensor_plan.h"

#include "arch/bind.h"
#include "base/mem.h"
#include "base/str.h"
#include "craft/fused_list.h"
#include "format/modeldir.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BLOCK(field) offsetof(block, field)

/* What the source has no tensor for, by the field it fills. */
static const struct made {
    expert_kind kind;
    size_t field;
    stream_kind how;
    size_t copy_of; /* STREAM_STORED: the field of the dense layer; of a zero shared expert that
                       which it has where it is a copy too */
} made[] = {
    { EXPERT_ADAPTER, BLOCK(moe.router), STREAM_UNIFORM, 0 },
    { EXPERT_ADAPTER, BLOCK(moe.down), STREAM_UNIFORM, 0 },
    { EXPERT_ADAPTER, BLOCK(moe.up), STREAM_ZERO, 0 },
    { EXPERT_FFN, BLOCK(moe.router), STREAM_UNIFORM, 0 },
    { EXPERT_FFN, BLOCK(moe.gate), STREAM_STORED, BLOCK(ffn.gate.w) },
    { EXPERT_FFN, BLOCK(moe.up), STREAM_STORED, BLOCK(ffn.up.w) },
    { EXPERT_FFN, BLOCK(moe.down), STREAM_STORED, BLOCK(ffn.down.w) },
    { EXPERT_FFN, BLOCK(moe.shared.gate.w), STREAM_ZERO, BLOCK(ffn.gate.w) },
    { EXPERT_FFN, BLOCK(moe.shared.up.w), STREAM_ZERO, BLOCK(ffn.up.w) },
    { EXPERT_FFN, BLOCK(moe.shared.down.w), STREAM_ZERO, BLOCK(ffn.down.w) },
    { EXPERT_FFN, BLOCK(moe.shared_gate), STREAM_ZERO, 0 },
    { EXPERT_FFN, BLOCK(moe.router_bias), STREAM_ZERO, 0 },
    { EXPERT_LORA, BLOCK(moe.router), STREAM_UNIFORM, 0 },
    { EXPERT_LORA, BLOCK(moe.lora_gate.a), STREAM_STORED, BLOCK(ffn.gate.w) },
    { EXPERT_LORA, BLOCK(moe.lora_gate.b), STREAM_STORED, BLOCK(ffn.gate.w) },
    { EXPERT_LORA, BLOCK(moe.lora_up.a), STREAM_STORED, BLOCK(ffn.up.w) },
    { EXPERT_LORA, BLOCK(moe.lora_up.b), STREAM_STORED, BLOCK(ffn.up.w) },
    { EXPERT_LORA, BLOCK(moe.lora_down.a), STREAM_STORED, BLOCK(ffn.down.w) },
    { EXPERT_LORA, BLOCK(moe.lora_down.b), STREAM_STORED, BLOCK(ffn.down.w) },
};

_Static_assert(sizeof *((tensor_list *)0)->names == sizeof((slot *)0)->name, "names of slots fit");

void tensor_list_free(tensor_list *s)
{
    mem_free(s->rows);
    mem_free(s->specs);
    mem_free(s->names);
}

/* ---- one tensor ---- */

/* The slot of a field of a layer of the source, which has it. */
static slot slot_of_field(const source_model *p, int32_t layer, size_t field)
{
    slot s = slot_first();
    s.layer = layer;
    while (slot_next(&p->cfg, &s) && s.layer == layer)
        if (s.rule->offset == field)
            return s;
    ASSERT(false);
    return s;
}

/* The FFN's matrix that a made tensor is a copy of: the source's, or the one of the expert's donor.
 */
static void copy_ffn(const tensor_plan *r, const slot *s, size_t field, stream_row *row)
{
    slot of = slot_of_field(r->from, s->layer, field);
    const donors *d = r->copies.from;
    stream_part part = { .stored = bind_find(&r->from->cfg, r->from->dir->ws, &of) };
    if (d && s->expert >= 0)
        part = donors_part(&d->list[s->expert / r->copies.granularity], &of);
    row->stored = part.stored;
    row->lora = part.lora;
}

bool tensor_plan_ffn(const slot *s)
{
    const size_t field = s->rule->offset;
    return field == BLOCK(ffn.gate.w) || field == BLOCK(ffn.up.w) || field == BLOCK(ffn.down.w);
}

/* A or B of the LoRA that the expert's donor has on a linear of the FFN; zero where it has none. */
static void take_lora(const tensor_plan *r, const slot *s, size_t field, stream_row *row)
{
    slot of = slot_of_field(r->from, s->layer, field);
    const peft_lora *l = peft_find(r->copies.from->list[s->expert].lora, of.name);
    const size_t at = s->rule->offset;
    const bool is_a =
        at == BLOCK(moe.lora_gate.a) || at == BLOCK(moe.lora_up.a) || at == BLOCK(moe.lora_down.a);
    row->kind = l ? STREAM_STORED : STREAM_ZERO;
    row->stored = l ? is_a ? l->a : l->b : NULL;
    row->times = l && !is_a && l->scale != r->copies.lora_scale ? l->scale : 0;
}

/* The part of the source's matrix that an expert has, and its units that are drawn anew. */
static void cut_expert(const tensor_plan *r, const slot *s, stream_row *row)
{
    const expert_copies *c = &r->copies;
    const int64_t width = r->target->moe.expert_dim, shard = s->expert % c->granularity;
    const bool down = s->rule->offset == BLOCK(moe.down);
    char name[64];
    if (c->granularity > 1 || (down && c->down != 1))
        row->cut = (stream_cut){ .row = down ? 0 : shard * width,
                                 .col = down ? shard * width : 0,
                                 .cols = row->stored->ne[1],
                                 .scale = down ? c->down : 1 };
    snprintf(name, sizeof name, "units of expert %d of layer %d", s->expert, s->layer);
    row->redraw = (redraw_rule){ .units = stream_key(r->seed, name),
                                 .numbers = row->key,
                                 .n = redraw_count(c->reinit, width),
                                 .columns = down };
}

static void copy_shared(const tensor_plan *r, const slot *s, stream_row *row)
{
    row->kind = STREAM_STORED;
    if (s->rule->offset == BLOCK(moe.shared.down.w) && r->copies.shared_down != 1)
        row->cut = (stream_cut){ .cols = s->ne[1], .scale = r->copies.shared_down };
}

static void fill_made(const tensor_plan *r, const slot *s, stream_row *row)
{
    size_t i = 0, n = sizeof made / sizeof *made;
    while (i < n && (made[i].kind != r->target->moe.kind || made[i].field != s->rule->offset))
        i++;
    ASSERT(i < n); /* all else is in any dense source whose facts agree with the target's */
    row->kind = made[i].how;
    row->bound = 1 / sqrtf((float)r->target->dim);
    row->key = stream_key(r->seed, s->name);
    row->repeat = r->copies.granularity; /* the shards of a copy have one row of the router */
    if (row->kind == STREAM_STORED && made[i].kind == EXPERT_LORA) {
        take_lora(r, s, made[i].copy_of, row);
        return;
    }
    if (row->kind == STREAM_ZERO && r->copies.shared && made[i].copy_of)
        copy_shared(r, s, row);
    if (row->kind == STREAM_STORED)
        copy_ffn(r, s, made[i].copy_of, row);
    if (made[i].how == STREAM_STORED)
        cut_expert(r, s, row);
}

/* Norms, biases and routers keep their dtype: all of pesc reads them as f32. A stack of which some
 * experts were trained is written in bf16 where the others are stored so. */
static dtype written_dtype(const tensor_plan *r, const slot *s, const stream_row *row,
                           const tensor_list *list)
{
    if (r->dt != DT_COUNT && !(s->rule->flags & RULE_F32))
        return r->dt;
    const weight *own = bind_find(&r->from->cfg, r->from->dir->ws, s);
    if (s->rule->need & FACT_MOLORA && !own)
        return DT_F32;                   /* as a LoRA is trained */
    if (r->copies.from && row->stored) { /* a run's own tensors are f32, whatever the base's are */
        dtype base = own ? own->dt : r->from->usual;
        return stream_plain(base) ? base : DT_F32;
    }
    dtype dt = row->stored ? row->stored->dt : r->dt != DT_COUNT ? r->dt : r->from->usual;
    dt = stream_plain(dt) ? dt : DT_F32;
    return dt == DT_F32 && r->held && s->expert >= 0 ? list->stored : dt;
}

static void write_name(const tensor_plan *r, const slot *s, char *out)
{
    static const char expert[] = ".experts.expert_", bare[] = ".experts.";
    const char *at = r->bare_experts ? strstr(s->name, expert) : NULL;
    size_t head = at ? (size_t)(at - s->name) : 0, skip = at ? strlen(expert) : 0;
    size_t n = at ? strlen(bare) : 0;
    memcpy(out, s->name, head);
    memcpy(out + head, bare, n);
    memcpy(out + head + n, s->name + head + skip, strlen(s->name + head + skip) + 1);
}

/* ---- the list of tensors ---- */

/* What the source holds a stored tensor in, where that rounds it. */
static dtype rounded_through(const tensor_plan *r, const slot *s, const stream_row *row,
                             tensor_list *list)
{
    const bind_source stored = { .how = { .base = DT_COUNT }, .ws = r->held->ws };
    if (s->expert <= 0) {
        list->held = bind_dtype(&r->from->cfg, r->held, s);
        list->stored = bind_dtype(&r->from->cfg, &stored, s);
    }
    bool rounds = list->held == DT_NF4 || list->held == DT_BF16;
    return rounds && list->held != row->stored->dt ? list->held : DT_F32;
}

/* The experts that the target has of the source's: a matrix is another one's, a tensor of numbers
 * for all experts, such as the router, has the rows of those alone. */
static void pick_experts(const tensor_plan *r, const slot *s, stream_row *row)
{
    const int64_t n = r->target->moe.topk.n_experts;
    if (s->layer < 0 || !config_layer_sparse(r->target, s->layer))
        return;
    const int32_t *picked = r->picked + s->layer * n;
    slot of = *s;
    if (s->expert >= 0) {
        slot_set_expert(&of, picked[s->expert]);
        row->stored = bind_find(&r->from->cfg, r->from->dir->ws, &of);
    } else if (strchr(s->rule->shape, 'E')) {
        row->picked = picked;
        row->each = slot_count(s) / n;
    }
}

static pesc_status add_slot(tensor_list *list, const tensor_plan *r, const slot *s)
{
    stream_row *row = &list->rows[list->n];
    *row = (stream_row){ .kind = STREAM_STORED };
    row->stored = bind_find(&r->from->cfg, r->from->dir->ws, s);
    if (r->picked)
        pick_experts(r, s, row);
    bool kept = r->target->moe.kind == EXPERT_LORA && tensor_plan_ffn(s);
    if (row->stored && r->copies.from && !kept)
        donors_fill(r->copies.from, s, row);
    if (!row->stored)
        fill_made(r, s, row);
    bool adapted = s->rule->flags & RULE_LINEAR || s->rule->need & FACT_EXPERT;
    const peft_lora *l = r->lora && adapted ? peft_find(r->lora, s->name) : NULL;
    if (l)
        TRY(peft_check_fit(r->lora, l, s->ne));
    row->lora = l ? l : row->lora;
    list->n_folded += l != NULL;
    if (r->held && row->stored)
        row->through = rounded_through(r, s, row, list);
    row->double_quant = r->double_quant;

    safetensors_spec *spec = &list->specs[list->n];
    write_name(r, s, list->names[list->n]);
    *spec = (safetensors_spec){ .name = list->names[list->n],
                                .dt = written_dtype(r, s, row, list),
                                .nd = s->nd };
    memcpy(spec->ne, s->ne, (size_t)s->nd * sizeof *s->ne);
    const weight *over = r->over ? bind_find(r->target, r->over, s) : NULL;
    row->stored = over ? over : row->stored;
    size_t bytes;
    if (!dtype_bytes(spec->dt, (uint64_t)slot_count(s), &bytes) ||
        __builtin_add_overflow(list->bytes, bytes, &list->bytes))
        return fail(PESC_USAGE, "%s: a model of so many parameters cannot be written", r->place);
    list->n++;
    return PESC_OK;
}

static pesc_status unused_lora(const tensor_plan *r, const tensor_list *list)
{
    str names = { 0 };
    size_t shown = 0;
    for (size_t i = 0; i < r->lora->n && shown < 4; i++) {
        bool used = false;
        for (size_t j = 0; j < list->n && !used; j++)
            used = list->rows[j].lora == &r->lora->loras[i];
        if (!used)
            str_printf(&names, "%s%.100s", shown++ ? ", " : "", r->lora->loras[i].module);
    }
    pesc_status s =
        fail(PESC_SHAPE, "%s: %zu of its LoRAs are on no linear of %s: %s%s", r->lora->dir,
             r->lora->n - list->n_folded, r->from->path, str_ok(&names) && names.p ? names.p : "",
             r->lora->n - list->n_folded > shown ? ", ..." : "");
    str_free(&names);
    return s;
}

pesc_status tensor_plan_list(tensor_list *list, const tensor_plan *r)
{
    *list = (tensor_list){ 0 };
    size_t n = 0;
    for (slot s = slot_first(); n <= WEIGHTS_MAX && slot_next(r->target, &s);)
        n++;
    if (n > WEIGHTS_MAX)
        return fail(PESC_USAGE,
                    "%s: the model would have more than %d tensors, the most pesc reads", r->place,
                    WEIGHTS_MAX);
    list->rows = mem_alloc(n, sizeof *list->rows);
    list->specs = mem_alloc(n, sizeof *list->specs);
    list->names = mem_alloc(n, sizeof *list->names);
    if (!list->rows || !list->specs || !list->names)
        return fail_nomem("planning a model", n * sizeof *list->names);
    for (slot s = slot_first(); slot_next(r->target, &s);)
        TRY(add_slot(list, r, &s));
    return r->lora && list->n_folded < r->lora->n ? unused_lora(r, list) : PESC_OK;
}

pesc_status tensor_plan_write(const tensor_plan *r)
{
    enum { OTHER_FILES = 64 << 20 }; /* headers, tokenizer, configuration */
    tensor_list list;
    fused_list files = { 0 };
    pesc_status s = tensor_plan_list(&list, r);
    if (s == PESC_OK)
        s = fused_list_make(&files, &list, r->target);
    if (s == PESC_OK)
        s = modeldir_check_room(r->place, files.bytes + OTHER_FILES);
    if (s == PESC_OK)
        s = stream_write(&(stream_plan){ .dir = r->dir,
                                         .stem = "model",
                                         .rows = files.rows,
                                         .specs = files.specs,
                                         .n = files.n,
                                         .tensors = files.tensors,
                                         .n_tensors = files.n_tensors,
                                         .bytes = files.bytes,
                                         .ws = r->from->dir->ws });
    fused_list_free(&files);
    tensor_list_free(&list);
    return s;
}

pesc_status tensor_plan_dtype(const source_model *p, const char *text, dtype *out)
{
    static const dtype known[] = { DT_F32, DT_BF16 };
    *out = p->quantised ? DT_BF16 : DT_COUNT;
    if (!text || !*text)
        return PESC_OK;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(dtype_name(known[i]), text) == 0) {
            *out = known[i];
            return PESC_OK;
        }
    return fail(PESC_USAGE, "dtype: found \"%s\", expected f32 or bf16", text);
}

#include "arch/fused.h"

#include "arch/stacked_lora.h"
#include "base/mem.h"
#include "base/str.h"
#include "tensor/quants.h"

#include <stdio.h>
#include <string.h>

/* ---- where parts are ---- */

/* Rows and columns of a part, or of one expert's. */
static int64_t part_rows(const fused_rule *r, const slot *s)
{
    return r->flags & FUSED_VECTORS ? s->ne[1] : s->ne[0];
}

static int64_t part_cols(const fused_rule *r, const slot *s)
{
    return r->flags & FUSED_VECTORS || s->nd < 2 ? 1 : s->ne[1];
}

static fused_place place_of(const fused_layout *l, int64_t rows, int64_t before, int32_t part)
{
    const uint32_t flags = l->rule->flags;
    int64_t cols = part_cols(l->rule, &l->parts[0]), mine = part_rows(l->rule, &l->parts[part]);
    int64_t step = flags & FUSED_ALTERNATE ? l->n_parts : 1;
    int64_t first = flags & FUSED_ALTERNATE ? part : before;
    bool transposed = flags & FUSED_TRANSPOSED;
    return (fused_place){ .base = first * (transposed ? 1 : cols),
                          .group = mine,
                          .group_step = rows * cols,
                          .row_step = step * (transposed ? 1 : cols),
                          .col_step = transposed ? rows : 1,
                          .cols = cols };
}

bool fused_layout_of(fused_layout *l, const config *c, const fused_rule *rule, int32_t layer)
{
    int64_t rows = 0, before = 0;
    *l = (fused_layout){ .rule = rule, .layer = layer, .experts = 1 };
    for (; l->n_parts < 3 && rule->parts[l->n_parts]; l->n_parts++) {
        slot *s = &l->parts[l->n_parts];
        if (!slot_of_rule(c, layer, rule->parts[l->n_parts], s))
            return false;
        rows += part_rows(rule, s);
    }
    const slot *first = &l->parts[0];
    const bool stacked = first->expert >= 0 || rule->flags & FUSED_VECTORS;
    int64_t cols = part_cols(rule, first);
    if (first->expert >= 0)
        l->experts = config_experts(c)->topk.n_experts;
    snprintf(l->name, sizeof l->name, "model.layers.%d.%s", layer, rule->name);
    if (stacked)
        l->ne[l->nd++] = config_experts(c)->topk.n_experts;
    l->ne[l->nd++] = rule->flags & FUSED_TRANSPOSED ? cols : rows;
    if (first->nd == 2 && !(rule->flags & FUSED_VECTORS))
        l->ne[l->nd++] = rule->flags & FUSED_TRANSPOSED ? rows : cols;
    l->share = rows * cols * (rule->flags & FUSED_VECTORS ? config_experts(c)->topk.n_experts : 1);
    l->plain = (rule->flags & ~(uint32_t)FUSED_UNWRITTEN) == 0;
    for (int32_t i = 0; i < l->n_parts; i++) {
        l->places[i] = place_of(l, rows, before, i);
        before += part_rows(rule, &l->parts[i]);
    }
    return true;
}

const fused_rule *fused_rule_of(const family *f, const char *rule, int32_t *part)
{
    for (const fused_rule *r = f->fused; r && r->name; r++)
        for (*part = 0; *part < 3 && r->parts[*part]; ++*part)
            if (!(r->flags & FUSED_UNWRITTEN) && strcmp(r->parts[*part], rule) == 0)
                return r;
    return NULL;
}

/* ---- splitting ---- */

/* What a part is read from. */
typedef struct source {
    weight whole;
    fused_place at;
} source;

static pesc_status read_part(const weight *w, int64_t first, int64_t n, float *out)
{
    const source *s = w->parts;
    while (n > 0) {
        int64_t j = first % s->at.cols, from = fused_at(&s->at, first);
        int64_t take = s->at.col_step == 1 && s->at.cols - j < n ? s->at.cols - j : n;
        take = s->at.col_step == 1 ? take : 1;
        TRY(weights_read_f32(&s->whole, from, take, out));
        first += take;
        out += take;
        n -= take;
    }
    return PESC_OK;
}

/* A part that is contiguous is used where it lies, others are put together when they are read. */
static pesc_status add_part(weights *ws, const weight *whole, const fused_layout *l, const slot *s,
                            int32_t part)
{
    fused_place at = l->places[part];
    const int64_t expert = s->expert < 0 ? 0 : s->expert;
    const size_t unit = dtype_block_bytes(whole->dt), block = dtype_block(whole->dt);
    weight w = { .name = s->name, .dt = whole->dt, .nd = s->nd, .file = whole->file };
    memcpy(w.ne, s->ne, sizeof s->ne);
    at.base += expert * l->share;
    w.bytes = (size_t)slot_count(s) / block * unit;
    if (l->plain && !whole->read) {
        w.data = whole->data + (size_t)at.base / block * unit; /* rows are whole blocks */
        return weights_add_part(ws, &w);
    }
    source *from = weights_take(ws, sizeof *from);
    if (!from)
        return fail_nomem(whole->file, sizeof *from);
    *from = (source){ *whole, at };
    w.data = whole->data;
    w.bytes = 0; /* shared with the other parts */
    w.unpermute_heads = -1;
    w.read = read_part;
    w.parts = from;
    return weights_add_part(ws, &w);
}

static void shape_text(str *s, int32_t nd, const int64_t *ne)
{
    for (int32_t i = 0; i < nd; i++)
        str_printf(s, "%s%lld", i ? "," : "", (long long)ne[i]);
}

static pesc_status check_shape(const weight *w, const fused_layout *l)
{
    str is = { 0 }, want = { 0 };
    if (w->nd == l->nd && memcmp(w->ne, l->ne, (size_t)l->nd * sizeof *l->ne) == 0 &&
        (dtype_block(w->dt) == 1 || (l->plain && quants_is(w->dt))))
        return PESC_OK;
    shape_text(&is, w->nd, w->ne);
    shape_text(&want, l->nd, l->ne);
    pesc_status s =
        fail(PESC_SHAPE, "%s: tensor %s: is %s [%s], expected plain numbers [%s]", w->file, w->name,
             dtype_name(w->dt), str_ok(&is) ? is.p : "", str_ok(&want) ? want.p : "");
    str_free(&is);
    str_free(&want);
    return s;
}

static pesc_status split(weights *ws, const fused_layout *l, const weight *whole)
{
    TRY(check_shape(whole, l));
    for (int32_t part = 0; part < l->n_parts; part++)
        for (int32_t e = 0; e < l->experts; e++) {
            slot s = l->parts[part];
            if (s.expert >= 0)
                slot_set_expert(&s, e);
            if (!weights_find(ws, s.name))
                TRY(add_part(ws, whole, l, &s, part));
        }
    return PESC_OK;
}

/* The tensor that is split leaves the table, so what is kept of it must not be the table's. */
static pesc_status split_rule(const config *c, weights *ws, const fused_rule *r, int32_t layer)
{
    fused_layout l;
    char name[128];
    snprintf(name, sizeof name, "model.layers.%d.%s", layer, r->name);
    const weight *w = weights_find(ws, name);
    if (!w || !fused_layout_of(&l, c, r, layer))
        return PESC_OK;
    weight whole = *w;
    char *copy = weights_take(ws, sizeof name);
    if (!copy)
        return fail_nomem(whole.file, sizeof name);
    memcpy(copy, name, sizeof name);
    whole.name = copy;
    return split(ws, &l, &whole);
}

/* Whether split_rule() has split a tensor of this name. */
static bool is_split(const config *c, const char *name)
{
    static const char prefix[] = "model.layers.";
    fused_layout l;
    char digits[16];
    long long layer = 0;
    const char *at = str_starts(name, prefix) ? name + sizeof prefix - 1 : "",
               *end = strchr(at, '.');
    snprintf(digits, sizeof digits, "%.*s", (int)(end ? end - at : 0), at);
    if (!end || !str_to_i64(digits, 0, (long long)c->n_layers - 1, &layer))
        return false;
    for (const fused_rule *r = c->fam->fused; r->name; r++)
        if (strcmp(end + 1, r->name) == 0 && fused_layout_of(&l, c, r, (int32_t)layer))
            return true;
    return false;
}

static pesc_status drop_split(const config *c, weights *ws)
{
    size_t n = weights_count(ws);
    unsigned char *drop = mem_zalloc(n, 1);
    if (!drop)
        return fail_nomem("a table of weights", n);
    for (size_t i = 0; i < n; i++)
        drop[i] = is_split(c, weights_at(ws, i)->name);
    weights_drop(ws, drop);
    mem_free(drop);
    return PESC_OK;
}

pesc_status fused_split(const config *c, weights *ws)
{
    bool any = false;
    for (size_t i = 0; c->fam->fused && !any && i < weights_count(ws); i++)
        any = is_split(c, weights_at(ws, i)->name);
    if (!any)
        return PESC_OK;
    TRY(weights_keep_stored(ws));
    for (int32_t layer = 0; layer < c->n_layers; layer++)
        for (const fused_rule *r = c->fam->fused; r->name; r++)
            TRY(split_rule(c, ws, r, layer));
    return drop_split(c, ws);
}

/* ---- LoRA ---- */

bool fused_takes_lora(const fused_layout *l)
{
    return l->plain && l->nd == 2 && l->parts[0].rule->flags & RULE_LINEAR;
}

/* The name of a tensor as a LoRA names its linear. */
static bool names_module(const char *name, const char *module)
{
    size_t n = strlen(name) - strlen(".weight");
    return strncmp(name, module, n) == 0 && !module[n];
}

/* The rows of B that are a part's, after the rows before it; A is that of all. */
static pesc_status part_lora(peft *p, const peft_lora *whole, const slot *s, int64_t before,
                             peft_lora *out)
{
    const int64_t rank = whole->b->ne[1];
    const size_t n = strlen(s->name) - strlen(".weight"), unit = dtype_block_bytes(whole->b->dt);
    char *name = weights_take(p->ws, n + 1);
    weight *b = weights_take(p->ws, sizeof *b);
    if (!name || !b)
        return fail_nomem(p->dir, sizeof *b);
    memcpy(name, s->name, n);
    name[n] = '\0';
    *b = *whole->b;
    b->ne[0] = s->ne[0];
    b->data += (size_t)(before * rank) * unit;
    b->bytes = (size_t)(s->ne[0] * rank) * unit;
    *out = (peft_lora){ .module = name, .a = whole->a, .b = b, .scale = whole->scale };
    return PESC_OK;
}

static pesc_status split_lora(peft *p, size_t i, const fused_layout *l)
{
    const peft_lora whole = p->loras[i];
    int64_t before = 0;
    if (whole.b->nd != 2 || whole.b->ne[0] != l->ne[0] || whole.b->read)
        return fail(PESC_SHAPE, "%s: module %s: lora_B has %lld rows, expected %lld", p->dir,
                    whole.module, whole.b->nd == 2 ? (long long)whole.b->ne[0] : -1LL,
                    (long long)l->ne[0]);
    peft_lora *more = mem_grow(p->loras, p->n + (size_t)l->n_parts - 1, sizeof *p->loras);
    if (!more)
        return fail_nomem(p->dir, p->n * sizeof *more);
    p->loras = more;
    for (int32_t part = 0; part < l->n_parts; part++) {
        size_t at = part ? p->n++ : i;
        TRY(part_lora(p, &whole, &l->parts[part], before, &p->loras[at]));
        before += l->parts[part].ne[0];
    }
    return PESC_OK;
}

pesc_status fused_split_loras(const config *c, peft *p)
{
    fused_layout l;
    TRY(stacked_split_loras(c, p));
    for (int32_t layer = 0; c->fam->fused && layer < c->n_layers; layer++)
        for (const fused_rule *r = c->fam->fused; r->name; r++) {
            if (!fused_layout_of(&l, c, r, layer) || !fused_takes_lora(&l))
                continue;
            for (size_t i = 0, n = p->n; i < n; i++)
                if (names_module(l.name, p->loras[i].module))
                    TRY(split_lora(p, i, &l));
        }
    return PESC_OK;
}

pesc_status fused_open_lora(peft **out, const char *dir, const config *c)
{
    TRY(peft_open(out, dir));
    pesc_status s = fused_split_loras(c, *out);
    if (s == PESC_OK)
        return PESC_OK;
    peft_close(*out);
    *out = NULL;
    return s;
}

#include "arch/stacked_lora.h"

#include "arch/param_group.h"
#include "arch/shape.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

/* One of a layer's, and how its rows are those of gate and up. */
typedef struct stack {
    peft_lora whole;
    int32_t layer;
    int64_t rank, width; /* of one expert's matrix: its r and rows */
    bool pair, alternate;
} stack;

static int32_t layer_of(const char *module)
{
    static const char prefix[] = "model.layers.";
    char digits[16];
    long long layer = -1;
    if (!str_starts(module, prefix))
        return -1;
    module += sizeof prefix - 1;
    snprintf(digits, sizeof digits, "%.*s", (int)strcspn(module, "."), module);
    return str_to_i64(digits, 0, INT32_MAX, &layer) ? (int32_t)layer : -1;
}

static bool gate_and_up_alternate(const family *f)
{
    bool found = false;
    for (const fused_rule *r = f->fused; r && r->name; r++)
        found |= strstr(r->name, "gate_up") && r->flags & FUSED_ALTERNATE;
    return found;
}

static pesc_status measure(const config *c, const peft *p, const peft_lora *l, stack *out)
{
    const int64_t experts = config_experts(c)->topk.n_experts,
                  width = config_experts(c)->expert_dim;
    const int64_t in = l->a->ne[1], rows = l->b->ne[0];
    *out = (stack){ .whole = *l,
                    .layer = layer_of(l->module),
                    .rank = l->stacked_rank,
                    .pair = in == c->dim && rows == 2 * width,
                    .alternate = gate_and_up_alternate(c->fam) };
    out->width = out->pair ? width : c->dim;
    bool down = in == width && rows == c->dim;
    bool sparse = out->layer >= 0 && out->layer < c->n_layers &&
                  config_experts(c)->kind == EXPERT_FFN && config_layer_sparse(c, out->layer);
    if (sparse && (out->pair || down) && l->a->ne[0] == experts * out->rank)
        return PESC_OK;
    return fail(PESC_SHAPE,
                "%s: module %s: its LoRA is [%lld,%lld] and [%lld,%lld], which fits the experts of "
                "no layer: expected rank %lld for each of %lld experts",
                p->dir, l->module, (long long)l->a->ne[0], (long long)in, (long long)rows,
                (long long)l->b->ne[1], (long long)out->rank, (long long)experts);
}

/* The rows of A and the columns of B that are an expert's. `b` is all of B, `part` 1 for up. */
static pesc_status cut(peft *p, const stack *s, const slot *at, int32_t part, const float *b,
                       peft_lora *out)
{
    const int64_t r = s->rank, all = s->whole.b->ne[1], experts = all / r;
    const size_t n = strlen(at->name) - strlen(".weight"), numbers = (size_t)(s->width * r);
    char *name = weights_take(p->ws, n + 1);
    weight *wa = weights_take(p->ws, sizeof *wa), *wb = weights_take(p->ws, sizeof *wb);
    float *x = weights_take(p->ws, numbers * sizeof *x);
    if (!name || !wa || !wb || !x)
        return fail_nomem(p->dir, numbers * sizeof *x);
    memcpy(name, at->name, n);
    name[n] = '\0';
    for (int64_t i = 0; i < s->width; i++) {
        int64_t row = !s->pair ? i : s->alternate ? 2 * i + part : part * s->width + i;
        for (int64_t j = 0; j < r; j++)
            x[i * r + j] = b[row * all + j * experts + at->expert];
    }
    *wa = *s->whole.a;
    wa->bytes /= (size_t)experts;
    wa->data += (size_t)at->expert * wa->bytes;
    wa->ne[0] = r;
    *wb = (weight){ .name = s->whole.b->name,
                    .dt = DT_F32,
                    .nd = 2,
                    .ne = { s->width, r },
                    .data = (const unsigned char *)x,
                    .bytes = numbers * sizeof *x,
                    .file = s->whole.b->file };
    *out = (peft_lora){ .module = name, .a = wa, .b = wb, .scale = s->whole.scale };
    return PESC_OK;
}

/* The first expert's takes the place of the whole, the others are added. */
static pesc_status split(const config *c, peft *p, size_t i, const stack *s)
{
    const size_t cells = (size_t)weights_elements(s->whole.b);
    const size_t more = (size_t)config_experts(c)->topk.n_experts * (s->pair ? 2 : 1);
    float *b = mem_alloc(cells, sizeof *b);
    peft_lora *grown = mem_grow(p->loras, p->n + more, sizeof *grown);
    p->loras = grown ? grown : p->loras;
    pesc_status st = b && grown ? weights_read_f32(s->whole.b, 0, (int64_t)cells, b)
                                : fail_nomem(p->dir, cells * sizeof *b);
    bool first = true;
    slot at = { .layer = s->layer, .expert = -1, .row = -1 };
    while (st == PESC_OK && slot_next(c, &at) && at.layer == s->layer) {
        const size_t offset = at.rule->offset;
        bool up = offset == offsetof(block, moe.up), gate = offset == offsetof(block, moe.gate);
        bool down = offset == offsetof(block, moe.down);
        if (!param_full_expert(at.rule) || (s->pair ? !up && !gate : !down))
            continue;
        st = cut(p, s, &at, up, b, &p->loras[first ? i : p->n]);
        p->n += !first;
        first = false;
    }
    mem_free(b);
    return st;
}

pesc_status stacked_split_loras(const config *c, peft *p)
{
    for (size_t i = 0, n = p->n; i < n; i++) {
        stack s;
        if (!p->loras[i].stacked_rank)
            continue;
        TRY(measure(c, p, &p->loras[i], &s));
        TRY(split(c, p, i, &s));
    }
    return PESC_OK;
}

#include "craft/peft_join.h"

#include "arch/fused.h"
#include "base/mem.h"
#include "base/str.h"
#include "craft/configjson.h"

#include <string.h>

/* The LoRAs of the parts of one fused matrix; NULL: a part has none. */
typedef struct parts {
    const peft_lora *of[3];
    int64_t rank, in; /* of all together */
} parts;

static peft_lora *find(const peft *p, const slot *s)
{
    size_t n = strlen(s->name) - strlen(".weight");
    for (size_t i = 0; i < p->n; i++)
        if (strncmp(p->loras[i].module, s->name, n) == 0 && !p->loras[i].module[n])
            return &p->loras[i];
    return NULL;
}

static parts parts_of(const peft *p, const fused_layout *l)
{
    parts out = { .in = l->ne[1] };
    for (int32_t i = 0; i < l->n_parts; i++) {
        out.of[i] = find(p, &l->parts[i]);
        out.rank += out.of[i] ? out.of[i]->a->ne[0] : 0;
    }
    return out;
}

/* An empty f32 matrix of the adapter's table. */
static weight *new_matrix(peft *p, int64_t rows, int64_t cols, float **numbers)
{
    size_t n = (size_t)(rows * cols);
    weight *w = weights_take(p->ws, sizeof *w);
    *numbers = weights_take(p->ws, n * sizeof **numbers);
    if (!w || !*numbers)
        return NULL;
    memset(*numbers, 0, n * sizeof **numbers);
    *w = (weight){ .name = "",
                   .dt = DT_F32,
                   .nd = 2,
                   .ne = { rows, cols },
                   .data = (const unsigned char *)*numbers,
                   .bytes = n * sizeof **numbers,
                   .file = p->dir };
    return w;
}

/* The scale of the whole is that of the first part; B takes what others differ by. */
static pesc_status fill(const parts *q, const fused_layout *l, float scale, float *a, float *b)
{
    int64_t row = 0, rank = 0;
    for (int32_t i = 0; i < l->n_parts; row += l->parts[i++].ne[0]) {
        const peft_lora *part = q->of[i];
        if (!part)
            continue;
        const int64_t r = part->a->ne[0];
        TRY(weights_read_f32(part->a, 0, r * q->in, a + rank * q->in));
        for (int64_t j = 0; j < l->parts[i].ne[0]; j++) {
            float *to = b + (row + j) * q->rank + rank;
            TRY(weights_read_f32(part->b, j * r, r, to));
            for (int64_t k = 0; k < r && part->scale != scale; k++)
                to[k] *= part->scale / scale;
        }
        rank += r;
    }
    return PESC_OK;
}

/* Puts the whole in the place of its first part, and takes the others out. */
static pesc_status join(peft *p, const fused_layout *l, const parts *q)
{
    size_t first = SIZE_MAX, kept = 0;
    const size_t n = strlen(l->name) - strlen(".weight");
    float *a_numbers, *b_numbers, scale = 0;
    for (int32_t i = 0; i < l->n_parts && scale == 0; i++)
        scale = q->of[i] ? q->of[i]->scale : 0;
    scale = scale == 0 ? 1 : scale;
    weight *a = new_matrix(p, q->rank, q->in, &a_numbers);
    weight *b = new_matrix(p, l->ne[0], q->rank, &b_numbers);
    char *name = weights_take(p->ws, n + 1);
    if (!a || !b || !name)
        return fail_nomem(p->dir, (size_t)(l->ne[0] * q->rank) * sizeof(float));
    memcpy(name, l->name, n);
    name[n] = '\0';
    TRY(fill(q, l, scale, a_numbers, b_numbers));
    const size_t n_before = p->n;
    for (size_t i = 0; i < n_before; i++) {
        const peft_lora *at = &p->loras[i];
        bool part = at == q->of[0] || at == q->of[1] || at == q->of[2];
        if (part && first != SIZE_MAX)
            continue;
        if (part)
            first = kept;
        p->loras[kept++] = *at;
    }
    p->n = kept;
    p->loras[first] = (peft_lora){ .module = name, .a = a, .b = b, .scale = scale };
    return PESC_OK;
}

/* What is joined fits its linears, and the LoRAs of a layer's experts have one rank and scale. */
static pesc_status check_fit(const peft *p, const config *c)
{
    const peft_lora *first = NULL;
    for (slot s = slot_first(); slot_next(c, &s);) {
        bool expert = s.expert >= 0 && s.nd == 2;
        if (!str_ends(s.name, ".weight") || !(expert || s.rule->flags & RULE_LINEAR))
            continue;
        const peft_lora *own = find(p, &s);
        if (own)
            TRY(peft_check_fit(p, own, s.ne));
        if (!expert)
            continue;
        first = s.expert == 0 || !first ? own : first;
        if (own && (own->a->ne[0] != first->a->ne[0] || own->scale != first->scale))
            return fail(PESC_UNSUPPORTED,
                        "%s: the experts of a layer differ in their LoRA, %s from the first; "
                        "expected one rank and scale for all of them that have one",
                        p->dir, s.name);
    }
    return PESC_OK;
}

pesc_status peft_join(peft *p, const config *c, bool *joined)
{
    fused_layout l;
    *joined = false;
    TRY(check_fit(p, c));
    for (int32_t layer = 0; c->fam->fused && layer < c->n_layers; layer++)
        for (const fused_rule *r = c->fam->fused; r->name; r++) {
            if (!fused_layout_of(&l, c, r, layer) || !fused_takes_lora(&l))
                continue;
            parts q = parts_of(p, &l);
            if (!q.rank)
                continue;
            TRY(join(p, &l, &q));
            *joined = true;
        }
    return PESC_OK;
}

/* ---- experts ---- */

enum { MAX_STACKS = 2 }; /* gate and up, down */

typedef struct found_stacks {
    const fused_rule *rules[MAX_STACKS];
    peft_stacks in_common;
} found_stacks;

/* Of a parameter that transformers has: files may hold the same under a name of their own. */
static bool is_parameter(const fused_rule *r)
{
    const bool stack = str_starts(r->name, "experts.") || strstr(r->name, ".experts.");
    return stack && str_ends(r->name, "_proj") && !(r->flags & FUSED_VECTORS);
}

static const peft_lora *of_expert(const peft *p, const fused_layout *l, int32_t part, int32_t e)
{
    slot s = l->parts[part];
    slot_set_expert(&s, e);
    return find(p, &s);
}

/* The LoRA of the first expert that has one; NULL: none has. */
static const peft_lora *first_of(const peft *p, const fused_layout *l, int32_t part)
{
    const peft_lora *found = NULL;
    for (int32_t e = 0; !found && e < l->experts; e++)
        found = of_expert(p, l, part, e);
    return found;
}

static int64_t rank_of(const peft *p, const fused_layout *l)
{
    int64_t rank = 0;
    for (int32_t i = 0; i < l->n_parts; i++) {
        const peft_lora *first = first_of(p, l, i);
        rank += first ? first->a->ne[0] : 0;
    }
    return rank;
}

/* The rules that a LoRA is on somewhere. */
static found_stacks find_stacks(const peft *p, const config *c)
{
    found_stacks out = { 0 };
    peft_stacks *q = &out.in_common;
    for (const fused_rule *r = c->fam->fused; r && r->name && q->n < MAX_STACKS; r++) {
        int64_t most = 0;
        for (int32_t layer = 0; is_parameter(r) && layer < c->n_layers; layer++) {
            fused_layout l;
            int64_t rank = fused_layout_of(&l, c, r, layer) ? rank_of(p, &l) : 0;
            most = rank > most ? rank : most;
            for (int32_t i = 0; rank && i < l.n_parts && q->scale == 0; i++) {
                const peft_lora *first = first_of(p, &l, i);
                q->scale = first ? first->scale : 0;
            }
        }
        if (most) {
            out.rules[q->n] = r;
            q->parameters[q->n++] = r->name;
        }
        q->rank = most > q->rank ? most : q->rank;
    }
    q->scale = q->scale == 0 ? 1 : q->scale;
    return out;
}

/* Where the numbers of one expert's part go. */
typedef struct expert_part {
    const fused_layout *l;
    int32_t part, expert;
    int64_t rank, before; /* of all parts; taken by parts before */
    float *a, *b;
} expert_part;

static pesc_status fill_expert(const peft_lora *from, const expert_part *to, float scale)
{
    const fused_layout *l = to->l;
    const int64_t r = from->a->ne[0], in = from->a->ne[1], rows = from->b->ne[0];
    const bool alternate = l->rule->flags & FUSED_ALTERNATE;
    float *b = mem_alloc((size_t)(rows * r), sizeof *b);
    pesc_status s = b ? weights_read_f32(from->b, 0, rows * r, b)
                      : fail_nomem("LoRAs of experts", (size_t)(rows * r) * sizeof *b);
    if (s == PESC_OK)
        s = weights_read_f32(from->a, 0, r * in, to->a + (to->expert * to->rank + to->before) * in);
    for (int64_t i = 0; s == PESC_OK && i < rows; i++) {
        int64_t row = alternate ? i * l->n_parts + to->part : to->part * rows + i;
        for (int64_t k = 0; k < r; k++)
            to->b[(row * to->rank + to->before + k) * l->experts + to->expert] =
                b[i * r + k] * (from->scale / scale);
    }
    mem_free(b);
    return s;
}

/* PEFT wraps the module that holds a parameter once for each of them: the last is the outer one. */
static pesc_status stack(peft *p, const peft_stacks *q, const fused_layout *l, bool outer,
                         peft_lora *out)
{
    const slot *first = &l->parts[0];
    const int64_t ranks = l->experts * q->rank;
    const size_t n = (size_t)(strrchr(l->name, '.') - l->name);
    static const char inner[] = ".base_layer";
    expert_part to = { .l = l, .rank = q->rank };
    weight *a = new_matrix(p, ranks, first->ne[1], &to.a);
    weight *b = new_matrix(p, first->ne[0] * l->n_parts, ranks, &to.b);
    char *name = weights_take(p->ws, n + sizeof inner);
    if (!a || !b || !name)
        return fail_nomem(p->dir, (size_t)(ranks * first->ne[1]) * sizeof(float));
    memcpy(name, l->name, n);
    memcpy(name + n, outer ? "" : inner, outer ? 1 : sizeof inner);
    for (; to.expert < l->experts; to.expert++)
        for (to.part = 0, to.before = 0; to.part < l->n_parts; to.part++) {
            const peft_lora *from = of_expert(p, l, to.part, to.expert);
            if (!from)
                continue;
            TRY(fill_expert(from, &to, q->scale));
            to.before += from->a->ne[0];
        }
    *out =
        (peft_lora){ .module = name, .a = a, .b = b, .stacked_rank = q->rank, .scale = q->scale };
    return PESC_OK;
}

static bool on_expert(const peft_lora *l)
{
    return strstr(l->module, ".experts.") != NULL;
}

pesc_status peft_join_experts(peft *p, const config *c, peft_stacks *out)
{
    const found_stacks found = find_stacks(p, c);
    const peft_stacks *q = &found.in_common;
    size_t n = 0, kept = 0;
    *out = *q;
    if (!q->n)
        return PESC_OK;
    peft_lora *made = mem_alloc((size_t)(c->n_layers * MAX_STACKS), sizeof *made);
    pesc_status s = made ? PESC_OK : fail_nomem(p->dir, (size_t)c->n_layers * sizeof *made);
    for (int32_t layer = 0; s == PESC_OK && layer < c->n_layers; layer++)
        for (int32_t i = 0; s == PESC_OK && i < q->n; i++) {
            fused_layout l;
            if (fused_layout_of(&l, c, found.rules[i], layer) && rank_of(p, &l))
                s = stack(p, q, &l, i + 1 == q->n, &made[n++]);
        }
    for (size_t i = 0; s == PESC_OK && i < p->n; i++)
        if (!on_expert(&p->loras[i]))
            p->loras[kept++] = p->loras[i];
    if (s == PESC_OK) { /* there were as many or more: one for each expert */
        memcpy(p->loras + kept, made, n * sizeof *made);
        p->n = kept + n;
    }
    mem_free(made);
    return s;
}

static const char *last_part(const peft_lora *l)
{
    const char *dot = strrchr(l->module, '.');
    return dot ? dot + 1 : l->module;
}

const char *peft_join_confused(const peft *p)
{
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; strstr(p->loras[i].module, ".experts.0.") && k < p->n; k++)
            if (!on_expert(&p->loras[k]) &&
                strcmp(last_part(&p->loras[i]), last_part(&p->loras[k])) == 0)
                return last_part(&p->loras[k]);
    return NULL;
}

/* The LoRA of the first expert that has one, of the matrix that a slot is the first expert's of. */
static const peft_lora *first_of_stack(const peft *p, const config *c, slot s)
{
    const peft_lora *found = NULL;
    for (int32_t e = 0; !found && e < slot_moe(c, &s)->topk.n_experts; e++) {
        slot_set_expert(&s, e);
        found = find(p, &s);
    }
    return found;
}

/* like: of another expert. */
static pesc_status add_zeros(peft *p, const slot *s, const peft_lora *like)
{
    const size_t n = strlen(s->name) - strlen(".weight");
    const peft_lora from = *like; /* the list may move */
    float *numbers;
    char *name = weights_take(p->ws, n + 1);
    weight *a = new_matrix(p, from.a->ne[0], from.a->ne[1], &numbers);
    weight *b = new_matrix(p, from.b->ne[0], from.b->ne[1], &numbers);
    peft_lora *grown = mem_grow(p->loras, p->n + 1, sizeof *grown);
    p->loras = grown ? grown : p->loras;
    if (!name || !a || !b || !grown)
        return fail_nomem(p->dir, n);
    memcpy(name, s->name, n);
    name[n] = '\0';
    p->loras[p->n++] = (peft_lora){ .module = name, .a = a, .b = b, .scale = from.scale };
    return PESC_OK;
}

pesc_status peft_fill_experts(peft *p, const config *c, bool *filled)
{
    bool any = false;
    *filled = false;
    for (slot s = slot_first(); slot_next(c, &s);) {
        if (s.expert < 0 || s.nd != 2 || !str_ends(s.name, ".weight"))
            continue;
        if (s.expert == 0)
            any = first_of_stack(p, c, s) != NULL;
        if (!any || find(p, &s))
            continue;
        TRY(add_zeros(p, &s, first_of_stack(p, c, s)));
        *filled = true;
    }
    return PESC_OK;
}

/* ---- adapter_config.json ---- */

static bool has(const json_t *list, const char *text)
{
    const json_t *v;
    size_t i;
    bool found = false;
    json_array_foreach(list, i, v) found |= strcmp(json_string_value(v), text) == 0;
    return found;
}

/* target_parameters, with the rank and alpha of what no pattern names. */
static pesc_status describe_experts(const peft_stacks *q, json_t *json)
{
    json_t *list = json_array();
    bool ok = list != NULL;
    for (int32_t i = 0; ok && i < q->n; i++)
        ok = json_array_append_new(list, json_string(q->parameters[i])) == 0;
    ok = json_object_set_new(json, "target_parameters", list) == 0 && ok;
    ok = json_object_set_new(json, "r", json_integer(q->rank)) == 0 && ok;
    double alpha = (double)q->scale * (double)q->rank;
    ok = json_object_set_new(json, "lora_alpha", json_real(alpha)) == 0 && ok;
    return ok ? PESC_OK : fail_nomem("adapter_config.json", (size_t)q->n);
}

/* Whether the configuration's own rank and alpha, which hold where no pattern matches, are a
 * LoRA's.
 */
static bool is_usual(const json_t *json, const peft_lora *l, double alpha)
{
    return json_integer_value(json_object_get(json, "r")) == l->a->ne[0] &&
           json_number_value(json_object_get(json, "lora_alpha")) == alpha;
}

pesc_status peft_join_describe(const peft *p, const peft_stacks *stacks, json_t *json)
{
    json_t *targets = json_array(), *ranks = json_object(), *alphas = json_object();
    bool ok = targets && ranks && alphas;
    for (size_t i = 0; ok && i < p->n; i++) {
        const peft_lora *l = &p->loras[i];
        const char *last = last_part(l);
        double alpha = (double)l->scale * (double)l->a->ne[0];
        if (l->stacked_rank)
            continue;
        bool usual = !stacks->n && is_usual(json, l, alpha);
        ok = (usual || (json_object_set_new(ranks, l->module, json_integer(l->a->ne[0])) == 0 &&
                        json_object_set_new(alphas, l->module, json_real(alpha)) == 0)) &&
             (has(targets, last) || json_array_append_new(targets, json_string(last)) == 0);
    }
    ok = json_object_set_new(json, "target_modules", targets) == 0 && ok;
    ok = json_object_set_new(json, "rank_pattern", ranks) == 0 && ok;
    ok = json_object_set_new(json, "alpha_pattern", alphas) == 0 && ok;
    ok = json_object_set_new(json, "use_rslora", json_false()) == 0 && ok;
    if (!ok)
        return fail_nomem("adapter_config.json", p->n);
    return stacks->n ? describe_experts(stacks, json) : PESC_OK;
}

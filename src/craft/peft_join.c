#include "craft/peft_join.h"

#include "arch/fused.h"
#include "base/mem.h"
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

pesc_status peft_join(peft *p, const config *c, bool *joined)
{
    fused_layout l;
    *joined = false;
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

static bool has(const json_t *list, const char *text)
{
    const json_t *v;
    size_t i;
    bool found = false;
    json_array_foreach(list, i, v) found |= strcmp(json_string_value(v), text) == 0;
    return found;
}

pesc_status peft_join_describe(const peft *p, json_t *json)
{
    json_t *targets = json_array(), *ranks = json_object(), *alphas = json_object();
    bool ok = targets && ranks && alphas;
    for (size_t i = 0; ok && i < p->n; i++) {
        const peft_lora *l = &p->loras[i];
        const char *dot = strrchr(l->module, '.'), *last = dot ? dot + 1 : l->module;
        double alpha = (double)l->scale * (double)l->a->ne[0];
        ok = json_object_set_new(ranks, l->module, json_integer(l->a->ne[0])) == 0 &&
             json_object_set_new(alphas, l->module, json_real(alpha)) == 0 &&
             (has(targets, last) || json_array_append_new(targets, json_string(last)) == 0);
    }
    ok = json_object_set_new(json, "target_modules", targets) == 0 && ok;
    ok = json_object_set_new(json, "rank_pattern", ranks) == 0 && ok;
    ok = json_object_set_new(json, "alpha_pattern", alphas) == 0 && ok;
    ok = json_object_set_new(json, "use_rslora", json_false()) == 0 && ok;
    return ok ? PESC_OK : fail_nomem("adapter_config.json", p->n);
}

#include "train/totals.h"

#include "base/mem.h"

#include <string.h>

/* A record: this, then the choices i64 [layers, experts], then f and P f32 [layers, 2, experts]. */
typedef struct micro_record {
    double ce, z;
    int64_t finite;
    preference_sums preferences;
} micro_record;

pesc_status totals_open(step_totals *r, const pesc_model *m)
{
    const config *c = &m->shape.cfg;
    *r = (step_totals){ .experts = c->moe.topk.n_experts };
    r->sparse = mem_alloc((size_t)c->n_layers, sizeof *r->sparse);
    if (!r->sparse)
        return fail_nomem("routing shares", (size_t)c->n_layers * sizeof *r->sparse);
    for (int32_t l = 0; l < c->n_layers; l++)
        if (m->shape.w.blocks[l].sparse)
            r->sparse[r->layers++] = l;
    size_t n = (size_t)r->layers * (size_t)r->experts;
    r->records.bytes = sizeof(micro_record) + n * (sizeof(int64_t) + 2 * sizeof(float));
    r->shares = mem_zalloc(n + 1, sizeof *r->shares);
    r->chosen = mem_zalloc(n + 1, sizeof *r->chosen);
    r->balance = mem_zalloc(2 * n + 1, sizeof *r->balance);
    return r->shares && r->chosen && r->balance ? PESC_OK : fail_nomem("routing shares", n * 8);
}

void totals_close(step_totals *r)
{
    mem_free(r->sparse);
    mem_free(r->records.list);
    mem_free(r->shares);
    mem_free(r->chosen);
    mem_free(r->balance);
    *r = (step_totals){ 0 };
}

pesc_status totals_begin(step_totals *r, int32_t micros)
{
    if (micros <= r->cap)
        return PESC_OK;
    char *more = mem_grow(r->records.list, (size_t)micros, r->records.bytes);
    if (!more)
        return fail_nomem("the results of a step", (size_t)micros * r->records.bytes);
    r->records.list = more;
    r->cap = micros;
    return PESC_OK;
}

static micro_record *record_at(const step_totals *r, int32_t micro)
{
    return (micro_record *)(void *)(r->records.list + (size_t)micro * r->records.bytes);
}

static int64_t *choices_of(micro_record *at)
{
    return (int64_t *)(void *)(at + 1);
}

static float *balance_of(const step_totals *r, micro_record *at)
{
    return (float *)(void *)(choices_of(at) + (ptrdiff_t)r->layers * r->experts);
}

void totals_put(step_totals *r, int32_t micro, const train_output *got,
                const preference_sums *preferences)
{
    micro_record *to = record_at(r, micro);
    memset(to, 0, r->records.bytes);
    to->ce = got->ce;
    to->z = got->z;
    to->finite = got->finite;
    to->preferences = *preferences;
    for (int32_t l = 0; l < r->layers; l++) {
        ptrdiff_t layer = r->sparse[l], e = r->experts;
        if (got->counts)
            memcpy(choices_of(to) + l * e, got->counts + layer * e, (size_t)e * sizeof(int64_t));
        if (got->balance)
            memcpy(balance_of(r, to) + l * 2 * e, got->balance + layer * (2 * e + 2),
                   (size_t)(2 * e) * sizeof(float));
    }
}

static void share_out(step_totals *r)
{
    for (int32_t l = 0; l < r->layers; l++) {
        const int64_t *chosen = r->chosen + (ptrdiff_t)l * r->experts;
        int64_t sum = 0;
        for (int32_t e = 0; e < r->experts; e++)
            sum += chosen[e];
        for (int32_t e = 0; e < r->experts; e++)
            r->shares[l * r->experts + e] = sum ? (float)((double)chosen[e] / (double)sum) : 0;
    }
}

void totals_add(step_totals *r, const batch *b)
{
    double tokens = (double)batch_tokens(b);
    int32_t n = r->layers * r->experts;
    r->ce = r->z = 0;
    r->finite = true;
    r->preferences = (preference_sums){ 0 };
    memset(r->chosen, 0, (size_t)n * sizeof *r->chosen);
    memset(r->balance, 0, 2 * (size_t)n * sizeof *r->balance);
    for (int32_t i = 0; i < batch_micros(b); i++) {
        micro_record *from = record_at(r, i);
        double part = (double)batch_micro(b, i).n_tokens / tokens;
        r->ce += from->ce;
        preference_sums_add(&r->preferences, &from->preferences);
        r->z += part * from->z;
        r->finite = r->finite && from->finite;
        for (int32_t k = 0; k < n; k++)
            r->chosen[k] += choices_of(from)[k];
        for (int32_t k = 0; k < 2 * n; k++)
            r->balance[k] += part * (double)balance_of(r, from)[k];
    }
    share_out(r);
}

double totals_loss(const step_totals *r, int32_t micro)
{
    return record_at(r, micro)->ce;
}

const preference_sums *totals_preferences(const step_totals *r, int32_t micro)
{
    return &record_at(r, micro)->preferences;
}

double totals_aux(const step_totals *r)
{
    double sum = 0;
    for (int32_t l = 0; l < r->layers; l++) {
        const double *f = r->balance + (ptrdiff_t)l * 2 * r->experts, *p = f + r->experts;
        for (int32_t e = 0; e < r->experts; e++)
            sum += r->experts * f[e] * p[e];
    }
    return r->layers ? sum / r->layers : 0;
}

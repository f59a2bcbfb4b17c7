#include "train/micros.h"

#include "base/mem.h"

#include <string.h>

/* A record: this, then the choices i64 [layers, experts], then f and P f32 [layers, 2, experts]. */
typedef struct record {
    double ce;
    int64_t finite;
} record;

void micros_open(micro_results *r, const int32_t *sparse, int32_t layers, int32_t experts)
{
    size_t n = (size_t)layers * (size_t)experts;
    *r = (micro_results){ .sparse = sparse,
                          .layers = layers,
                          .experts = experts,
                          .bytes = sizeof(record) + n * (sizeof(int64_t) + 2 * sizeof(float)) };
}

void micros_close(micro_results *r)
{
    mem_free(r->list);
    *r = (micro_results){ 0 };
}

pesc_status micros_begin(micro_results *r, int32_t micros)
{
    if (micros <= r->cap)
        return PESC_OK;
    char *more = mem_grow(r->list, (size_t)micros, r->bytes);
    if (!more)
        return fail_nomem("the results of a step", (size_t)micros * r->bytes);
    r->list = more;
    r->cap = micros;
    return PESC_OK;
}

static record *record_at(const micro_results *r, int32_t micro)
{
    return (record *)(void *)(r->list + (size_t)micro * r->bytes);
}

static int64_t *choices_of(const micro_results *r, record *at)
{
    (void)r;
    return (int64_t *)(void *)(at + 1);
}

static float *balance_of(const micro_results *r, record *at)
{
    return (float *)(void *)(choices_of(r, at) + (ptrdiff_t)r->layers * r->experts);
}

void micros_put(micro_results *r, int32_t micro, const train_output *got)
{
    record *to = record_at(r, micro);
    memset(to, 0, r->bytes);
    to->ce = got->ce;
    to->finite = got->finite;
    for (int32_t l = 0; l < r->layers; l++) {
        ptrdiff_t layer = r->sparse[l], e = r->experts;
        if (got->counts)
            memcpy(choices_of(r, to) + l * e, got->counts + layer * e, (size_t)e * sizeof(int64_t));
        if (got->balance)
            memcpy(balance_of(r, to) + l * 2 * e, got->balance + layer * (2 * e + 1),
                   (size_t)(2 * e) * sizeof(float));
    }
}

pesc_status micros_exchange(micro_results *r, const gradient *g, int32_t micros)
{
    comm *c = g->comm;
    for (int32_t at = 0, n; c && at < micros; at += n) {
        for (int32_t k = n = 0; k < comm_size(c); k++) { /* a record of each, or all that follow */
            micro_range m = gradient_micros(g, micros, k);
            int32_t first = m.step > 1 ? at + k : m.first, count = m.step > 1 ? 1 : m.end - m.first;
            count = first < micros ? count : 0;
            g->recv[k] = (peer_part){ record_at(r, first), (size_t)count * r->bytes };
            n += count;
        }
        TRY(comm_all_gather(c, "the losses of a step", g->recv));
    }
    return PESC_OK;
}

void micros_add(const micro_results *r, int32_t micro, double part, micro_sums *sums)
{
    record *from = record_at(r, micro);
    int32_t n = sums->chosen ? r->layers * r->experts : 0;
    sums->ce += from->ce;
    sums->finite = sums->finite && from->finite;
    for (int32_t i = 0; i < n; i++)
        sums->chosen[i] += choices_of(r, from)[i];
    for (int32_t i = 0; i < 2 * n; i++)
        sums->balance[i] += part * (double)balance_of(r, from)[i];
}

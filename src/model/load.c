#include "model/load.h"

#include "base/mem.h"

#include <string.h>

enum { CHUNK = 1 << 20 }; /* elements */

/* On a host device both buffers are one. */
typedef struct loader {
    device *dev;
    bool host;      /* the device's memory is the host's */
    float *staging; /* on the device: a chunk, or the largest matrix to quantise */
    float *chunk;   /* on the host: CHUNK elements; NULL on a host device */
    bool double_quant;
} loader;

static bool finite_all(const float *x, int64_t n)
{
    const uint32_t exponent = 0x7F800000; /* all ones: infinity or NaN */
    uint32_t bad = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, sizeof u);
        bad |= (u & exponent) == exponent;
    }
    return !bad;
}

static pesc_status read_finite(const weight *w, int64_t first, int64_t n, float *out)
{
    TRY(weights_read_f32(w, first, n, out));
    if (!finite_all(out, n))
        return fail(PESC_FORMAT,
                    "%s: tensor %s: holds a number that is not finite among elements %lld to %lld",
                    w->file, w->name, (long long)first, (long long)(first + n - 1));
    return PESC_OK;
}

static tensor flat(void *data, dtype dt, int64_t n)
{
    return (tensor){ .data = data, .dt = dt, .nd = 1, .ne = { n } };
}

/* Elements [first, first + n) as f32 at `to` on the device. */
static pesc_status read_to(loader *l, const weight *w, int64_t first, int64_t n, float *to)
{
    if (l->host)
        return read_finite(w, first, n, to);
    TRY(read_finite(w, first, n, l->chunk));
    l->dev->op->upload(l->dev, to, l->chunk, (size_t)n * sizeof *to);
    return PESC_OK;
}

static pesc_status convert(loader *l, const weight *w, tensor t)
{
    int64_t total = tensor_count(&t);
    for (int64_t first = 0; first < total; first += CHUNK) {
        int64_t n = total - first < CHUNK ? total - first : CHUNK;
        if (t.dt == DT_F32) {
            TRY(read_to(l, w, first, n, (float *)t.data + first));
        } else if (t.dt == DT_NF4) {
            TRY(read_to(l, w, first, n, l->staging + first));
        } else {
            TRY(read_to(l, w, first, n, l->staging));
            l->dev->op->convert(l->dev, flat((uint16_t *)t.data + first, t.dt, n),
                                flat(l->staging, DT_F32, n));
        }
    }
    if (t.dt == DT_NF4) {
        tensor x = { .data = l->staging, .dt = DT_F32, .nd = 2, .ne = { t.ne[0], t.ne[1] } };
        l->dev->op->quantize_nf4(l->dev, t, x, l->double_quant);
    }
    return PESC_OK;
}

/* A matrix stored in NF4 keeps its codes. */
static pesc_status copy_nf4(loader *l, const weight *w, tensor t)
{
    size_t bytes = tensor_bytes(&t);
    if (l->host)
        return weights_read_nf4(w, t.data);
    void *span = mem_alloc(bytes, 1);
    if (!span)
        return fail_nomem(w->name, bytes);
    pesc_status s = weights_read_nf4(w, span);
    if (s == PESC_OK)
        l->dev->op->upload(l->dev, t.data, span, bytes);
    mem_free(span);
    return s;
}

static pesc_status load(loader *l, const weight *w, tensor t)
{
    if (w->dt == DT_NF4 && t.dt == DT_NF4)
        return copy_nf4(l, w, t);
    if (w->dt == t.dt && !w->unpermute_heads) {
        l->dev->op->upload(l->dev, t.data, w->data, tensor_bytes(&t));
        return PESC_OK;
    }
    return convert(l, w, t);
}

static int64_t staging_elements(pesc_model *m, const bind_source *src)
{
    int64_t most = CHUNK;
    for (slot s = slot_first(); slot_next(&m->cfg, &s);) {
        const weight *w = s.rule->flags & RULE_QUANT ? bind_find(&m->cfg, src->ws, &s) : NULL;
        if (w && w->dt != DT_NF4 && bind_dtype(src, s.rule, w) == DT_NF4 && slot_count(&s) > most)
            most = slot_count(&s);
    }
    return most;
}

static pesc_status load_all(loader *l, pesc_model *m, const bind_source *src)
{
    for (slot s = slot_first(); slot_next(&m->cfg, &s);) {
        const weight *w = bind_find(&m->cfg, src->ws, &s);
        tensor t = bind_tensor(m, &s);
        if (t.data != (const void *)w->data)
            TRY(load(l, w, t));
    }
    for (size_t i = 0; i < m->n_loras; i++) {
        TRY(load(l, src->lora->loras[i].a, m->loras[i].a));
        TRY(load(l, src->lora->loras[i].b, m->loras[i].b));
    }
    TRY(weights_check(src->ws));
    return m->dev->op->sync(m->dev);
}

pesc_status load_weights(pesc_model *m, const bind_source *src)
{
    loader l = { .dev = m->dev,
                 .host = m->dev->op->host_memory(m->dev),
                 .double_quant = src->double_quant };
    void *staging = NULL;
    size_t bytes = (size_t)staging_elements(m, src) * sizeof *l.staging;
    TRY(m->dev->op->alloc(m->dev, bytes, &staging));
    l.staging = staging;
    pesc_status s = PESC_OK;
    if (!l.host && !(l.chunk = mem_alloc(CHUNK, sizeof *l.chunk)))
        s = fail_nomem("loading the weights", CHUNK * sizeof *l.chunk);
    if (s == PESC_OK)
        s = load_all(&l, m, src);
    m->dev->op->free(m->dev, staging);
    mem_free(l.chunk);
    return s;
}

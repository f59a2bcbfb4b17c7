#include "arch/load.h"

#include "base/io.h"
#include "base/mem.h"
#include "tensor/quants.h"

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
    ASSERT(!quants_is(t.dt));
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

/* A matrix that stays in blocks is copied row by row, because a row may have another place. */
static pesc_status copy_blocks(const weight *w, tensor t)
{
    size_t bytes = tensor_bytes(&t) / (size_t)t.ne[0];
    for (int64_t i = 0; i < t.ne[0]; i++)
        memcpy((char *)t.data + (size_t)i * bytes, weights_row(w, i), bytes);
    return weights_check_blocks(w);
}

static pesc_status load(loader *l, const weight *w, tensor t)
{
    if (w->dt == t.dt && quants_is(t.dt))
        return copy_blocks(w, t);
    if (w->dt == DT_NF4 && t.dt == DT_NF4)
        return copy_nf4(l, w, t);
    if (w->dt == t.dt && !w->unpermute_heads) {
        l->dev->op->upload(l->dev, t.data, w->data, tensor_bytes(&t));
        if (l->host)
            io_map_drop(w->data, w->bytes);
        return PESC_OK;
    }
    return convert(l, w, t);
}

static int64_t staging_elements(const load_item *items, size_t n)
{
    int64_t most = CHUNK;
    for (size_t i = 0; i < n; i++) {
        bool quantised = items[i].w->dt != DT_NF4 && items[i].to.dt == DT_NF4;
        if (quantised && tensor_count(&items[i].to) > most)
            most = tensor_count(&items[i].to);
    }
    return most;
}

pesc_status load_items(device *dev, const load_item *items, size_t n, bool double_quant)
{
    loader l = { .dev = dev, .host = dev->op->host_memory(dev), .double_quant = double_quant };
    void *staging = NULL;
    TRY(dev->op->reserve(dev, dev->op->scratch_bytes(dev, &(work_limits){ .quantised = 1 })));
    TRY(dev->op->alloc(dev, (size_t)staging_elements(items, n) * sizeof *l.staging, &staging));
    l.staging = staging;
    pesc_status s = PESC_OK;
    if (!l.host && !(l.chunk = mem_alloc(CHUNK, sizeof *l.chunk)))
        s = fail_nomem("loading the weights", CHUNK * sizeof *l.chunk);
    for (size_t i = 0; s == PESC_OK && i < n; i++)
        s = load(&l, items[i].w, items[i].to);
    if (s == PESC_OK)
        s = dev->op->sync(dev);
    dev->op->free(dev, staging);
    mem_free(l.chunk);
    return s;
}

/* Adds the items of the slots of a layer that are kept by shards, or with layer -1 of all others.
 */
static size_t add_items(pesc_model *m, const bind_source *src, int32_t layer, load_item *items)
{
    size_t n = 0;
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);) {
        bool sharded = m->hook && layer_hook_has(&s);
        if (sharded ? s.layer != layer : layer >= 0)
            continue;
        load_item i = { bind_find(&m->shape.cfg, src->ws, &s), bind_tensor(&m->shape.w, &s) };
        if (i.to.data != (const void *)i.w->data)
            items[n++] = i;
    }
    for (size_t i = 0; layer < 0 && i < m->shape.n_loras; i++) {
        items[n++] = (load_item){ src->lora->loras[i].a, m->shape.loras[i].a };
        items[n++] = (load_item){ src->lora->loras[i].b, m->shape.loras[i].b };
    }
    return n;
}

/* Blocks that are used in the file are not read here, but for their scales. */
static pesc_status check_in_place(pesc_model *m, const bind_source *src)
{
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);) {
        const weight *w = bind_find(&m->shape.cfg, src->ws, &s);
        tensor t = bind_tensor(&m->shape.w, &s);
        if (quants_is(t.dt) && t.data == (const void *)w->data)
            TRY(weights_check_blocks(w));
    }
    return PESC_OK;
}

pesc_status load_weights(pesc_model *m, const bind_source *src)
{
    size_t most = m->shape.n_loras * 2;
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);)
        most++;
    load_item *items = mem_alloc(most, sizeof *items);
    if (!items)
        return fail_nomem("loading the weights", most * sizeof *items);
    pesc_status s = check_in_place(m, src);
    if (s == PESC_OK)
        s = load_items(m->dev, items, add_items(m, src, -1, items), m->double_quant);
    for (int32_t i = 0; s == PESC_OK && m->hook && i < m->shape.cfg.n_layers; i++) {
        s = load_items(m->dev, items, add_items(m, src, i, items), m->double_quant);
        if (s == PESC_OK)
            s = m->hook->keep(m->hook, i);
    }
    mem_free(items);
    return s == PESC_OK ? weights_check(src->ws) : s;
}

#include "attach/layer_stream.h"

#include "backend/memory.h"
#include "base/mem.h"

typedef struct layer_stream {
    layer_hook hook; /* its first member */
    device *dev;     /* borrowed */
    device *side;    /* copies layers while dev computes; mark b: buffer b is filled */
    int32_t n_layers;
    unsigned char *buffers[2];
    unsigned char *kept; /* all layers, in memory of the host that both devices access */
    int32_t held[2];     /* the layer that is in each buffer, or will be; -1: none */
} layer_stream;

static layer_stream *of(layer_hook *h)
{
    return (layer_stream *)(void *)h;
}

static unsigned char *span(const layer_hook *h, int32_t layer)
{
    return ((const layer_stream *)(const void *)h)->buffers[layer % 2];
}

static void layout(layer_hook *h, arena *a)
{
    layer_stream *s = of(h);
    size_t most = layer_hook_largest(h->bytes, s->n_layers);
    for (int i = 0; i < 2; i++)
        s->buffers[i] = arena_take(a, most);
}

static unsigned char *kept(const layer_stream *s, int32_t layer)
{
    return s->kept + layer_hook_kept(s->hook.bytes, layer, 1);
}

static pesc_status take_host(layer_stream *s)
{
    size_t bytes = layer_hook_kept(s->hook.bytes, s->n_layers, 1);
    uint64_t there = memory_host_available();
    void *p;
    if (bytes > there)
        return fail(PESC_NOMEM,
                    "shard: host needs %.2f GiB of the host's memory for the layers of the base, "
                    "and %.2f are free; base_dtype nf4 needs less",
                    (double)bytes / (1 << 30), (double)there / (1 << 30));
    TRY(s->dev->op->alloc_host(s->dev, bytes, &p));
    s->kept = p;
    return PESC_OK;
}

static pesc_status keep(layer_hook *h, int32_t layer)
{
    layer_stream *s = of(h);
    if (!s->kept)
        TRY(take_host(s));
    s->dev->op->copy(s->dev, kept(s, layer), s->buffers[layer % 2], h->bytes[layer]);
    return s->dev->op->sync(s->dev);
}

/* Begins to copy a layer unless it is there. All work on what its buffer holds must have been given
 * to the device. */
static void want(layer_stream *s, int32_t layer)
{
    int b = layer % 2;
    if (s->held[b] == layer)
        return;
    s->held[b] = layer;
    s->dev->op->mark(s->dev, b);
    s->side->op->follow(s->side, s->dev, b);
    s->side->op->copy(s->side, s->buffers[b], kept(s, layer), s->hook.bytes[layer]);
    s->side->op->mark(s->side, b);
}

static void before(layer_hook *h, int32_t layer, int32_t next)
{
    layer_stream *s = of(h);
    want(s, layer);
    s->dev->op->follow(s->dev, s->side, layer % 2);
    if (next >= 0)
        want(s, next);
}

static pesc_status check(layer_hook *h)
{
    return of(h)->side->op->sync(of(h)->side);
}

static void close_stream(layer_hook *h)
{
    layer_stream *s = of(h);
    if (s->side)
        s->side->op->close(s->side);
    s->dev->op->free(s->dev, s->kept);
    mem_free(h->bytes);
    mem_free(h);
}

pesc_status layer_stream_open(layer_hook **out, const pesc_model *m)
{
    *out = NULL;
    layer_stream *s = mem_zalloc(1, sizeof *s);
    if (!s)
        return fail_nomem("a base in the host's memory", sizeof *s);
    s->dev = m->dev;
    s->n_layers = m->shape.cfg.n_layers;
    s->held[0] = s->held[1] = -1;
    s->hook = (layer_hook){ .bytes = mem_zalloc((size_t)s->n_layers, sizeof *s->hook.bytes),
                            .layout = layout,
                            .span = span,
                            .keep = keep,
                            .before = before,
                            .check = check,
                            .close = close_stream };
    *out = &s->hook;
    if (!s->hook.bytes)
        return fail_nomem("a base in the host's memory",
                          (size_t)s->n_layers * sizeof *s->hook.bytes);
    return s->dev->op->open_side(s->dev, &s->side);
}

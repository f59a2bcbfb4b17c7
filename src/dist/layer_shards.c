#include "dist/layer_shards.h"

#include "base/mem.h"
#include "dist/traffic.h"
#include "dist/wire.h"

enum { PIECE = 16 << 20 }; /* bytes that one rank sends to another at a time */

typedef struct layer_shards {
    layer_hook hook; /* its first member */
    device *dev;     /* borrowed */
    traffic *traffic;
    wire wire;
    int32_t n_layers;
    unsigned char *buffers[2], *kept;
    int32_t held[2];      /* the layer that is in each buffer, or will be; -1: none */
    int64_t gathering[2]; /* number of the exchange that fills it; -1: none */
} layer_shards;

static layer_shards *of(layer_hook *h)
{
    return (layer_shards *)(void *)h;
}

static unsigned char *span(const layer_hook *h, int32_t layer)
{
    return ((const layer_shards *)(const void *)h)->buffers[layer % 2];
}

static void layout(layer_hook *h, arena *a)
{
    layer_shards *s = of(h);
    size_t most = layer_hook_largest(h->bytes, s->n_layers);
    s->kept = arena_take(a, layer_hook_kept(h->bytes, s->n_layers, comm_size(s->wire.comm)));
    for (int i = 0; i < 2; i++)
        s->buffers[i] = arena_take(a, most);
}

/* ---- parts ---- */

/* A rank's part of the span of a layer. */
static peer_part part_of(const layer_shards *s, int32_t layer, int32_t rank)
{
    size_t each = layer_hook_part(s->hook.bytes[layer], comm_size(s->wire.comm));
    size_t first = (size_t)rank * each, left = s->hook.bytes[layer];
    left = left > first ? left - first : 0;
    return (peer_part){ s->buffers[layer % 2] + first, left < each ? left : each };
}

static unsigned char *own_part(const layer_shards *s, int32_t layer)
{
    return s->kept + layer_hook_kept(s->hook.bytes, layer, comm_size(s->wire.comm));
}

static pesc_status keep(layer_hook *h, int32_t layer)
{
    layer_shards *s = of(h);
    peer_part own = part_of(s, layer, comm_rank(s->wire.comm));
    if (own.bytes)
        s->dev->op->copy(s->dev, own_part(s, layer), own.at, own.bytes);
    return s->dev->op->sync(s->dev);
}

/* The bytes [at, at + PIECE) of a part. */
static peer_part piece(peer_part p, size_t at)
{
    size_t left = p.bytes > at ? p.bytes - at : 0;
    return (peer_part){ (char *)p.at + at, left < PIECE ? left : PIECE };
}

/* On the thread of the exchanges, when the last layer that was in the buffer has computed. */
static pesc_status gather(void *ctx, int64_t i)
{
    layer_shards *s = ctx;
    device *side = s->wire.dev;
    int32_t layer = (int32_t)i, size = comm_size(s->wire.comm), me = comm_rank(s->wire.comm);
    size_t each = layer_hook_part(s->hook.bytes[layer], size);
    peer_part own = part_of(s, layer, me);
    peer_part *parts = mem_alloc(2 * (size_t)size, sizeof *parts);
    if (!parts)
        return fail_nomem("a layer of the base", (size_t)size * sizeof *parts);
    pesc_status st = s->dev->op->wait_mark(s->dev, MARK_LAYERS + layer % 2);
    if (st == PESC_OK && own.bytes)
        side->op->copy(side, own.at, own_part(s, layer), own.bytes);
    own.at = own_part(s, layer);
    for (size_t at = 0; st == PESC_OK && at < each; at += PIECE) {
        for (int32_t r = 0; r < size; r++) {
            parts[r] = piece(part_of(s, layer, r), at);
            parts[size + r] = piece(own, at);
        }
        parts[me] = parts[size + me] = (peer_part){ 0 };
        st = wire_exchange(&s->wire, "a layer of the base", parts + size, parts);
    }
    mem_free(parts);
    return st == PESC_OK ? side->op->sync(side) : st;
}

/* Begins to gather a layer unless it is there. All work on what its buffer holds must have been
 * given to the device. */
static void want(layer_shards *s, int32_t layer)
{
    int b = layer % 2;
    if (s->held[b] == layer)
        return;
    s->held[b] = layer;
    s->dev->op->mark(s->dev, MARK_LAYERS + b);
    s->gathering[b] = traffic_add(s->traffic, gather, s, layer);
}

static void before(layer_hook *h, int32_t layer, int32_t next)
{
    layer_shards *s = of(h);
    want(s, layer);
    (void)traffic_wait(s->traffic, s->gathering[layer % 2]);
    if (next >= 0)
        want(s, next);
}

static pesc_status check(layer_hook *h)
{
    return traffic_wait(of(h)->traffic, -1);
}

static void close_shards(layer_hook *h)
{
    traffic_close(of(h)->traffic);
    wire_close(&of(h)->wire);
    mem_free(h->bytes);
    mem_free(h);
}

traffic *layer_shards_traffic(layer_hook *h)
{
    return of(h)->traffic;
}

pesc_status layer_shards_open(layer_hook **out, pesc_model *m, comm *c)
{
    *out = NULL;
    layer_shards *s = mem_zalloc(1, sizeof *s);
    if (!s)
        return fail_nomem("a sharded base", sizeof *s);
    s->dev = m->dev;
    s->n_layers = m->shape.cfg.n_layers;
    s->held[0] = s->held[1] = -1;
    s->gathering[0] = s->gathering[1] = -1;
    s->hook = (layer_hook){ .bytes = mem_zalloc((size_t)s->n_layers, sizeof *s->hook.bytes),
                            .layout = layout,
                            .span = span,
                            .keep = keep,
                            .before = before,
                            .check = check,
                            .close = close_shards };
    *out = &s->hook;
    if (!s->hook.bytes)
        return fail_nomem("a sharded base", (size_t)s->n_layers * sizeof *s->hook.bytes);
    TRY(traffic_open(&s->traffic, m->dev));
    return wire_open(&s->wire, traffic_device(s->traffic), c, PIECE);
}

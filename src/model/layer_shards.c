#include "model/layer_shards.h"

#include "base/mem.h"
#include "model/traffic.h"
#include "model/wire.h"

enum { ALIGN = 64, PIECE = 16 << 20 }; /* bytes; PIECE: that one rank sends to another at a time */

struct layer_shards {
    device *dev;      /* borrowed, like traffic */
    traffic *traffic; /* of the model */
    wire wire;
    int32_t n_layers;
    size_t *bytes; /* [n_layers]: of each span */
    unsigned char *buffers[2], *kept;
    int32_t held[2];      /* the layer that is in each buffer, or will be; -1: none */
    int64_t gathering[2]; /* number of the exchange that fills it; -1: none */
};

bool layer_shards_has(const slot *s)
{
    return s->layer >= 0 && s->rule->flags & RULE_QUANT && !(s->rule->flags & RULE_TRAIN);
}

/* Bytes that each process keeps of a span. */
static size_t part_bytes(size_t span, int64_t processes)
{
    size_t n = (size_t)processes, each = (span + n - 1) / n;
    return (each + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t largest(const size_t *layers, int32_t n)
{
    size_t most = 0;
    for (int32_t i = 0; i < n; i++)
        most = layers[i] > most ? layers[i] : most;
    return most;
}

/* Where the part of a layer begins in `kept`; with n_layers, the bytes of all. */
static size_t kept_at(const size_t *layers, int32_t layer, int64_t processes)
{
    size_t at = 0;
    for (int32_t i = 0; i < layer; i++)
        at += part_bytes(layers[i], processes);
    return at;
}

uint64_t layer_shards_bytes(const size_t *layers, int32_t n, int64_t processes)
{
    return kept_at(layers, n, processes) + 2 * (uint64_t)largest(layers, n);
}

uint64_t layer_shards_kept(const layer_shards *s)
{
    return kept_at(s->bytes, s->n_layers, comm_size(s->wire.comm));
}

uint64_t layer_shards_whole(const layer_shards *s)
{
    return kept_at(s->bytes, s->n_layers, 1);
}

/* ---- opening ---- */

pesc_status layer_shards_open(layer_shards **out, pesc_model *m, size_t **layers)
{
    layer_shards *s = *out = mem_zalloc(1, sizeof *s);
    if (!s)
        return fail_nomem("a sharded base", sizeof *s);
    s->dev = m->dev;
    s->n_layers = m->shape.cfg.n_layers;
    s->held[0] = s->held[1] = -1;
    s->gathering[0] = s->gathering[1] = -1;
    s->bytes = *layers = mem_zalloc((size_t)s->n_layers, sizeof *s->bytes);
    if (!s->bytes)
        return fail_nomem("a sharded base", (size_t)s->n_layers * sizeof *s->bytes);
    TRY(traffic_of(&s->traffic, m));
    return wire_open(&s->wire, traffic_device(s->traffic), m->dev->comm, PIECE);
}

void layer_shards_close(layer_shards *s)
{
    if (!s)
        return;
    wire_close(&s->wire);
    mem_free(s->bytes);
    mem_free(s);
}

void layer_shards_layout(layer_shards *s, arena *a)
{
    size_t most = largest(s->bytes, s->n_layers);
    s->kept = arena_take(a, layer_shards_kept(s));
    for (int i = 0; i < 2; i++)
        s->buffers[i] = arena_take(a, most);
}

unsigned char *layer_shards_buffer(const layer_shards *s, int32_t layer)
{
    return s->buffers[layer % 2];
}

/* ---- parts ---- */

/* A rank's part of the span of a layer. */
static comm_part part_of(const layer_shards *s, int32_t layer, int32_t rank)
{
    size_t each = part_bytes(s->bytes[layer], comm_size(s->wire.comm));
    size_t first = (size_t)rank * each, left = s->bytes[layer];
    left = left > first ? left - first : 0;
    return (comm_part){ layer_shards_buffer(s, layer) + first, left < each ? left : each };
}

static unsigned char *own_part(const layer_shards *s, int32_t layer)
{
    return s->kept + kept_at(s->bytes, layer, comm_size(s->wire.comm));
}

pesc_status layer_shards_keep(layer_shards *s, int32_t layer)
{
    comm_part own = part_of(s, layer, comm_rank(s->wire.comm));
    if (own.bytes)
        s->dev->op->copy(s->dev, own_part(s, layer), own.at, own.bytes);
    return s->dev->op->sync(s->dev);
}

/* The bytes [at, at + PIECE) of a part. */
static comm_part piece(comm_part p, size_t at)
{
    size_t left = p.bytes > at ? p.bytes - at : 0;
    return (comm_part){ (char *)p.at + at, left < PIECE ? left : PIECE };
}

/* On the thread of the exchanges, when the last layer that was in the buffer has computed. */
static pesc_status gather(void *ctx, int64_t i)
{
    layer_shards *s = ctx;
    device *side = s->wire.dev;
    int32_t layer = (int32_t)i, size = comm_size(s->wire.comm), me = comm_rank(s->wire.comm);
    size_t each = part_bytes(s->bytes[layer], size);
    comm_part own = part_of(s, layer, me);
    comm_part *parts = mem_alloc(2 * (size_t)size, sizeof *parts);
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
        parts[me] = parts[size + me] = (comm_part){ 0 };
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

void layer_shards_use(layer_shards *s, int32_t layer, int32_t next)
{
    want(s, layer);
    (void)traffic_wait(s->traffic, s->gathering[layer % 2]);
    if (next >= 0)
        want(s, next);
}

pesc_status layer_shards_check(const layer_shards *s)
{
    return traffic_wait(s->traffic, -1);
}

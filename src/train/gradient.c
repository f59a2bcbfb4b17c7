#include "train/gradient.h"

#include "base/mem.h"
#include "model/memory.h"

int32_t gradient_partial(int64_t groups, int64_t micros, int64_t processes)
{
    int64_t own = (groups + processes - 1) / processes;
    int32_t levels = 0;
    own = own < micros ? own : micros;
    while (((int64_t)1 << levels) < own)
        levels++;
    return levels;
}

/* ---- memory ---- */

static void layout(gradient *g, arena *a)
{
    for (int32_t i = 0; i < g->partial; i++)
        g->sums[i] = tensor_take1(a, DT_F32, g->p->n);
    if (g->shards.comm)
        g->pieces = tensor_take1(a, DT_F32, comm_size(g->shards.comm) * g->piece);
}

static pesc_status open_memory(gradient *g)
{
    static const memory_need need = { "partial sums of gradients", "grad_groups 1 needs none" };
    device *dev = g->p->m->dev;
    arena a = { 0 };
    size_t size = (size_t)comm_size(g->shards.comm);
    layout(g, &a);
    if (a.used)
        TRY(memory_take(&a, dev, &need, &g->memory));
    g->bytes = a.size;
    layout(g, &a);
    g->send = mem_zalloc(size, sizeof *g->send);
    g->recv = mem_zalloc(size, sizeof *g->recv);
    if (!g->send || !g->recv)
        return fail_nomem("gradients", size * sizeof *g->send);
    return shard_wire_open(&g->wire, dev, g->shards.comm, (size_t)g->piece * sizeof(float));
}

pesc_status gradient_open(gradient **out, params *p, int32_t groups, int64_t micros)
{
    comm *c = p->m->dev->comm;
    *out = NULL;
    gradient *g = mem_zalloc(1, sizeof *g);
    if (!g)
        return fail_nomem("gradients", sizeof *g);
    g->p = p;
    g->shards = shards_of(c, p->n);
    g->groups = groups;
    g->partial = gradient_partial(groups, micros, comm_size(c));
    int64_t piece = comm_size(c) > 16 ? 16 * SHARD_PIECE / comm_size(c) : SHARD_PIECE;
    g->piece = p->n < piece ? p->n : piece; /* all pieces together stay small */
    pesc_status s = open_memory(g);
    if (s == PESC_OK)
        *out = g;
    else
        gradient_close(g);
    return s;
}

void gradient_close(gradient *g)
{
    if (!g)
        return;
    if (g->memory)
        g->p->m->dev->op->free(g->p->m->dev, g->memory);
    shard_wire_close(&g->wire);
    mem_free(g->send);
    mem_free(g->recv);
    mem_free(g);
}

/* ---- the tree over groups ---- */

static micro_range micros_of(const gradient *g, int64_t micros, int64_t first, int64_t end)
{
    return (micro_range){ (int32_t)(first * micros / g->groups),
                          (int32_t)(end * micros / g->groups) };
}

static micro_range groups_of(const gradient *g, int64_t rank)
{
    int64_t size = comm_size(g->shards.comm);
    return (micro_range){ (int32_t)(rank * g->groups / size),
                          (int32_t)((rank + 1) * g->groups / size) };
}

micro_range gradient_micros(const gradient *g, int32_t micros, int32_t rank)
{
    micro_range r = groups_of(g, rank);
    return micros_of(g, micros, r.first, r.end);
}

typedef struct summing {
    gradient *g;
    int32_t micros;
    gradient_fn fn;
    void *ctx;
    int32_t level; /* partial sums in use */
} summing;

/* Leaves the sum over groups [first, end) in p->grad. */
static pesc_status sum_groups(summing *s, int32_t first, int32_t end)
{
    gradient *g = s->g;
    device *dev = g->p->m->dev;
    int32_t middle = first + (end - first + 1) / 2;
    micro_range all = micros_of(g, s->micros, first, end);
    micro_range left = micros_of(g, s->micros, first, middle);
    if (all.first == all.end)
        return PESC_OK;
    if (end - first == 1)
        return s->fn(s->ctx, all);
    if (left.first == left.end)
        return sum_groups(s, middle, end);
    TRY(sum_groups(s, first, middle));
    if (left.end == all.end)
        return PESC_OK;
    if (s->level >= g->partial)
        return fail(PESC_NOMEM,
                    "a step has %d micro-batches, more than was planned for; raise micro_tokens, "
                    "or set grad_groups to 1",
                    s->micros);
    tensor kept = g->sums[s->level++];
    dev->op->copy(dev, kept.data, g->p->grad.data, tensor_bytes(&kept));
    TRY(sum_groups(s, middle, end));
    dev->op->add(dev, g->p->grad, kept, 1);
    s->level--;
    return PESC_OK;
}

/* ---- the tree over processes ---- */

static tensor piece_of(gradient *g, int32_t rank, shard_range own)
{
    int32_t me = comm_rank(g->shards.comm);
    tensor t = { .dt = DT_F32, .nd = 1, .ne = { own.end - own.first } };
    t.data = rank == me ? (float *)g->p->grad.data + own.first
                        : (float *)g->pieces.data + rank * g->piece;
    return t;
}

/* Adds the pieces of ranks [first, end) into that of the first of them that has one, which is
 * returned; -1: none has. */
static int32_t sum_ranks(gradient *g, int32_t first, int32_t end, shard_range own, int32_t micros)
{
    device *dev = g->p->m->dev;
    if (end - first == 1) {
        micro_range r = gradient_micros(g, micros, first);
        return r.end > r.first ? first : -1;
    }
    int32_t middle = first + (end - first + 1) / 2;
    int32_t left = sum_ranks(g, first, middle, own, micros);
    int32_t right = sum_ranks(g, middle, end, own, micros);
    if (left >= 0 && right >= 0)
        dev->op->add(dev, piece_of(g, left, own), piece_of(g, right, own), 1);
    return left >= 0 ? left : right;
}

/* The part [at, at + piece) of a rank's slice. */
static shard_range piece_range(const gradient *g, int32_t rank, int64_t at)
{
    shard_range s = shards_slice(&g->shards, rank);
    int64_t first = s.first + at, end = first + g->piece;
    first = first < s.end ? first : s.end;
    return (shard_range){ first, end < s.end ? end : s.end };
}

static pesc_status reduce_piece(gradient *g, int64_t at, int32_t micros)
{
    device *dev = g->p->m->dev;
    int32_t size = comm_size(g->shards.comm), me = comm_rank(g->shards.comm);
    shard_range own = piece_range(g, me, at);
    micro_range mine = gradient_micros(g, micros, me);
    for (int32_t r = 0; r < size; r++) {
        shard_range theirs = piece_range(g, r, at);
        micro_range m = gradient_micros(g, micros, r);
        size_t out = (size_t)(theirs.end - theirs.first) * sizeof(float);
        size_t in = (size_t)(own.end - own.first) * sizeof(float);
        g->send[r] =
            (comm_part){ (float *)g->p->grad.data + theirs.first, mine.end > mine.first ? out : 0 };
        g->recv[r] = (comm_part){ piece_of(g, r, own).data, m.end > m.first ? in : 0 };
    }
    TRY(shard_wire_exchange(&g->wire, "the gradients of a step", g->send, g->recv));
    if (own.end == own.first)
        return PESC_OK;
    int32_t sum = sum_ranks(g, 0, size, own, micros);
    tensor from = piece_of(g, sum, own), to = piece_of(g, me, own);
    if (sum != me)
        dev->op->copy(dev, to.data, from.data, tensor_bytes(&to));
    return PESC_OK;
}

static pesc_status reduce(gradient *g, int32_t micros)
{
    int64_t most = 0;
    for (int32_t r = 0; r < comm_size(g->shards.comm); r++) {
        shard_range s = shards_slice(&g->shards, r);
        most = s.end - s.first > most ? s.end - s.first : most;
    }
    for (int64_t at = 0; at < most; at += g->piece)
        TRY(reduce_piece(g, at, micros));
    return PESC_OK;
}

pesc_status gradient_sum(gradient *g, int32_t micros, gradient_fn fn, void *ctx)
{
    summing s = { g, micros, fn, ctx, 0 };
    micro_range own = groups_of(g, comm_rank(g->shards.comm));
    TRY(sum_groups(&s, own.first, own.end));
    return g->shards.comm ? reduce(g, micros) : PESC_OK;
}

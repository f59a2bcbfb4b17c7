#include "train/gradient.h"

#include "base/clock.h"
#include "base/mem.h"
#include "model/memory.h"

#include <stdlib.h>
#include <time.h>

int32_t gradient_partial(int64_t groups, int64_t micros, int64_t processes)
{
    int64_t own = (groups + processes - 1) / processes;
    int32_t levels = 0;
    if (micros < groups) /* some groups are empty, evenly spread */
        own = (own * micros + groups - 1) / groups;
    while (((int64_t)1 << levels) < own)
        levels++;
    return levels;
}

/* ---- memory ---- */

static void layout(gradient *g, arena *a)
{
    for (int32_t i = 0; i < g->partial; i++)
        g->sums[i] = tensor_take1(a, DT_F32, g->p->n);
    if (g->comm)
        g->pieces = tensor_take1(a, DT_F32, comm_size(g->comm) * g->piece);
}

static pesc_status open_memory(gradient *g)
{
    static const memory_need need = { "partial sums of gradients", "grad_groups 1 needs none" };
    device *dev = g->p->m->dev;
    arena a = { 0 };
    size_t size = (size_t)comm_size(g->comm);
    layout(g, &a);
    if (a.used)
        TRY(memory_take(&a, dev, &need, &g->memory));
    g->bytes = a.size;
    layout(g, &a);
    g->send = mem_zalloc(size, sizeof *g->send);
    g->recv = mem_zalloc(size, sizeof *g->recv);
    if (!g->send || !g->recv)
        return fail_nomem("gradients", size * sizeof *g->send);
    if (!g->comm)
        return PESC_OK;
    TRY(traffic_of(&g->traffic, g->p->m));
    return wire_open(&g->wire, traffic_device(g->traffic), g->comm,
                     (size_t)g->piece * sizeof(float));
}

/* Seconds that PESC_BUCKET_DELAY asks for. */
static double read_delay(void)
{
    const char *text = getenv("PESC_BUCKET_DELAY");
    double ms = text ? strtod(text, NULL) : 0;
    return ms > 0 && ms < 60000 ? ms / 1000 : 0;
}

pesc_status gradient_open(gradient **out, params *p, int32_t groups, int64_t micros)
{
    comm *c = p->m->dev->comm;
    *out = NULL;
    gradient *g = mem_zalloc(1, sizeof *g);
    if (!g)
        return fail_nomem("gradients", sizeof *g);
    g->p = p;
    g->comm = c;
    g->delay = read_delay();
    g->last = -1;
    g->groups = groups;
    g->partial = gradient_partial(groups, micros, comm_size(c));
    int64_t piece = comm_size(c) > 16 ? 16 * SHARD_PIECE / comm_size(c) : SHARD_PIECE;
    g->piece = p->shards.segment < piece ? p->shards.segment : piece; /* all together stay small */
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
    if (g->traffic) /* after a failure an exchange may still run */
        (void)traffic_wait(g->traffic, g->last);
    if (g->memory)
        g->p->m->dev->op->free(g->p->m->dev, g->memory);
    wire_close(&g->wire);
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
    int64_t size = comm_size(g->comm);
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
    gradient_fn fn;
    void *ctx;
} summing;

/* Leaves the sum over groups [first, end) in p->grad. With `last`, of the groups that hold the last
 * micro-batch, what is kept is not added yet: bucket by bucket, that is done later. */
static pesc_status sum_groups(const summing *s, int32_t first, int32_t end, bool last)
{
    gradient *g = s->g;
    device *dev = g->p->m->dev;
    int32_t middle = first + (end - first + 1) / 2;
    micro_range all = micros_of(g, g->micros, first, end);
    micro_range left = micros_of(g, g->micros, first, middle);
    if (all.first == all.end)
        return PESC_OK;
    if (end - first == 1)
        return s->fn(s->ctx, all);
    if (left.first == left.end)
        return sum_groups(s, middle, end, last);
    TRY(sum_groups(s, first, middle, last && left.end == all.end));
    if (left.end == all.end)
        return PESC_OK;
    if (g->level >= g->partial)
        return fail(PESC_NOMEM,
                    "a step has %d micro-batches, more than was planned for; raise micro_tokens, "
                    "or set grad_groups to 1",
                    g->micros);
    tensor kept = g->sums[g->level++];
    dev->op->copy(dev, kept.data, g->p->grad.data, tensor_bytes(&kept));
    TRY(sum_groups(s, middle, end, last));
    if (last)
        return PESC_OK;
    dev->op->add(dev, g->p->grad, kept, 1);
    g->level--;
    return PESC_OK;
}

pesc_status gradient_sum(gradient *g, int32_t micros, gradient_fn fn, void *ctx)
{
    summing s = { g, fn, ctx };
    micro_range own = groups_of(g, comm_rank(g->comm));
    g->micros = micros;
    g->level = g->sent = g->buckets = 0;
    return sum_groups(&s, own.first, own.end, true);
}

/* ---- the tree over processes: on the thread of the exchanges ---- */

/* The part [first, end) of a flat buffer that rounds [at, at + piece) of a rank's segment are. */
static shard_range piece_range(const gradient *g, int32_t rank, int32_t round, int64_t at)
{
    shard_range s = shards_own_range(&g->p->shards, rank, round);
    int64_t first = s.first + at, end = first + g->piece;
    first = first < s.end ? first : s.end;
    return (shard_range){ first, end < s.end ? end : s.end };
}

static tensor piece_of(gradient *g, int32_t rank, shard_range own)
{
    int32_t me = comm_rank(g->comm);
    tensor t = { .dt = DT_F32, .nd = 1, .ne = { own.end - own.first } };
    t.data = rank == me ? (float *)g->p->grad.data + own.first
                        : (float *)g->pieces.data + rank * g->piece;
    return t;
}

/* Adds the pieces of ranks [first, end) into that of the first of them that has one, which is
 * returned; -1: none has. */
static int32_t sum_ranks(gradient *g, int32_t first, int32_t end, shard_range own)
{
    device *side = g->wire.dev;
    if (end - first == 1) {
        micro_range r = gradient_micros(g, g->micros, first);
        return r.end > r.first ? first : -1;
    }
    int32_t middle = first + (end - first + 1) / 2;
    int32_t left = sum_ranks(g, first, middle, own);
    int32_t right = sum_ranks(g, middle, end, own);
    if (left >= 0 && right >= 0)
        side->op->add(side, piece_of(g, left, own), piece_of(g, right, own), 1);
    return left >= 0 ? left : right;
}

static pesc_status reduce_piece(gradient *g, int32_t round, int64_t at)
{
    device *side = g->wire.dev;
    int32_t size = comm_size(g->comm), me = comm_rank(g->comm);
    shard_range own = piece_range(g, me, round, at);
    micro_range mine = gradient_micros(g, g->micros, me);
    for (int32_t r = 0; r < size; r++) {
        shard_range theirs = piece_range(g, r, round, at);
        micro_range m = gradient_micros(g, g->micros, r);
        size_t out = (size_t)(theirs.end - theirs.first) * sizeof(float);
        size_t in = (size_t)(own.end - own.first) * sizeof(float);
        g->send[r] =
            (comm_part){ (float *)g->p->grad.data + theirs.first, mine.end > mine.first ? out : 0 };
        g->recv[r] = (comm_part){ piece_of(g, r, own).data, m.end > m.first ? in : 0 };
    }
    TRY(wire_exchange(&g->wire, "the gradients of a step", g->send, g->recv));
    if (own.end == own.first)
        return PESC_OK;
    int32_t sum = sum_ranks(g, 0, size, own);
    tensor from = piece_of(g, sum, own), to = piece_of(g, me, own);
    if (sum != me)
        side->op->copy(side, to.data, from.data, tensor_bytes(&to));
    return PESC_OK;
}

static pesc_status reduce_bucket(void *ctx, int64_t bucket)
{
    gradient *g = ctx;
    device *dev = g->p->m->dev, *side = g->wire.dev;
    TRY(dev->op->wait_mark(dev, MARK_BUCKETS + (int)bucket));
    /* a process that waits for another's backward does not exchange yet */
    TRY(comm_barrier(g->comm, "the gradients of a step"));
    g->began[bucket] = clock_seconds();
    struct timespec delay = { (time_t)g->delay,
                              (long)(1e9 * (g->delay - (double)(time_t)g->delay)) };
    if (g->delay > 0)
        nanosleep(&delay, NULL);
    for (int32_t r = bucket ? g->ends[bucket - 1] : 0; r < g->ends[bucket]; r++)
        for (int64_t at = 0; at < g->p->shards.segment; at += g->piece)
            TRY(reduce_piece(g, r, at));
    TRY(side->op->sync(side));
    g->ended[bucket] = clock_seconds();
    return PESC_OK;
}

/* ---- buckets ---- */

/* Adds what is kept of the groups to the segments at the places [first, end) of the order. */
static void add_kept(gradient *g, int32_t first, int32_t end)
{
    const shards *s = &g->p->shards;
    device *dev = g->p->m->dev;
    for (int32_t level = g->level - 1; level >= 0; level--)
        for (int32_t i = first, next; i < end; i = next) {
            shard_range r = shards_segment(s, s->order[i]);
            for (next = i + 1; next < end && s->order[next] == s->order[next - 1] + 1; next++)
                r.end = shards_segment(s, s->order[next]).end;
            dev->op->add(dev, shards_part(g->p->grad, r, 1), shards_part(g->sums[level], r, 1), 1);
        }
}

/* Hands over all rounds whose gradients are complete after backward of `layer`. */
static void send_ready(gradient *g, int32_t layer)
{
    const shards *s = &g->p->shards;
    device *dev = g->p->m->dev;
    int32_t size = comm_size(s->comm), end = g->sent, place = 0;
    for (; end < shards_rounds(s); end++) {
        place = (end + 1) * size < s->n_segments ? (end + 1) * size : s->n_segments;
        if (s->ready[place - 1] < layer)
            break;
    }
    if (end == g->sent)
        return;
    place = end * size < s->n_segments ? end * size : s->n_segments;
    add_kept(g, g->sent * size, place);
    g->sent = end;
    if (!g->traffic)
        return;
    dev->op->mark(dev, MARK_BUCKETS + g->buckets);
    g->ends[g->buckets] = end;
    g->last = traffic_add(g->traffic, reduce_bucket, g, g->buckets++);
}

void gradient_layer_done(gradient *g, int32_t layer)
{
    int32_t n = g->p->m->cfg.n_layers, most = TRAFFIC_BUCKETS - 2; /* and head and embeddings */
    int32_t every = (n + most - 1) / most;
    if (g->traffic && (n - layer) % every == 0)
        send_ready(g, layer);
}

static gradient_time measure(const gradient *g, double finished)
{
    double all = 0, after = 0;
    for (int32_t i = 0; i < g->buckets; i++) {
        double from = g->began[i] > finished ? g->began[i] : finished;
        all += g->ended[i] - g->began[i];
        after += g->ended[i] > from ? g->ended[i] - from : 0;
    }
    return (gradient_time){ all, all > 0 ? 1 - after / all : 0 };
}

pesc_status gradient_finish(gradient *g, gradient_time *time)
{
    double finished = clock_seconds();
    *time = (gradient_time){ 0 };
    for (int32_t i = g->p->m->cfg.n_layers; i >= 0; i--) /* buckets are the same everywhere, */
        gradient_layer_done(g, i);                       /* also without a micro-batch */
    send_ready(g, -1);
    if (!g->traffic)
        return PESC_OK;
    TRY(traffic_wait(g->traffic, g->last));
    *time = measure(g, finished);
    return PESC_OK;
}

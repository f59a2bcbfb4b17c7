#include "train/gradient.h"

#include "backend/memory.h"
#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>
#include <time.h>

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* Partial sums of a process. The tree has a level more than there are sums to wait for; by rounds
 * the sum of the highest level becomes the gradient, and so there is at least one. */
static int32_t sums_of(const gradient_shape *s)
{
    bool sharded = s->rounds && s->processes > 1;
    int64_t own = ceil_div(s->groups, s->processes);
    int32_t levels = 0;
    if (s->micros < s->groups) /* some groups are empty */
        own = sharded ? ceil_div(s->micros, s->processes) : ceil_div(own * s->micros, s->groups);
    while (((int64_t)1 << levels) < own)
        levels++;
    return sharded && !levels ? 1 : levels;
}

/* Elements of a partial sum. */
static int64_t sum_elements(const gradient_shape *s, int64_t n)
{
    return s->rounds && s->processes > 1 ? shards_most(n, s->processes) : n;
}

uint64_t gradient_bytes(const gradient_shape *s, int64_t n)
{
    return (uint64_t)sums_of(s) * (uint64_t)sum_elements(s, n) * sizeof(float);
}

/* ---- memory ---- */

static void layout(gradient *g, arena *a)
{
    for (int32_t i = 0; i < g->partial; i++)
        g->sums[i] = tensor_take1(a, DT_F32, sum_elements(&g->shape, g->p->n));
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

pesc_status gradient_open(gradient **out, params *p, const gradient_shape *shape)
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
    g->shape = *shape;
    g->partial = sums_of(shape);
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

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* By rounds the micro-batches fill the groups from the first on, else they are spread evenly. */
static micro_range micros_of(const gradient *g, int64_t micros, int64_t first, int64_t end)
{
    int64_t groups = g->shape.groups;
    if (g->shape.rounds)
        return (micro_range){ (int32_t)least(first, micros), (int32_t)least(end, micros), 1 };
    return (micro_range){ (int32_t)(first * micros / groups), (int32_t)(end * micros / groups), 1 };
}

static micro_range groups_of(const gradient *g, int64_t rank)
{
    int64_t size = comm_size(g->comm), groups = g->shape.groups;
    return (micro_range){ (int32_t)(rank * groups / size), (int32_t)((rank + 1) * groups / size),
                          1 };
}

micro_range gradient_micros(const gradient *g, int32_t micros, int32_t rank)
{
    if (g->p->stages)
        return (micro_range){ rank, micros, comm_size(g->comm) };
    micro_range r = groups_of(g, rank);
    return micros_of(g, micros, r.first, r.end);
}

static pesc_status too_many(const gradient *g)
{
    return fail(PESC_NOMEM,
                "a step has %d micro-batches, more than was planned for; raise micro_tokens, "
                "or set grad_groups to 1",
                g->micros);
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
    if (end - first == 1) {
        params_start_grad(g->p);
        return s->fn(s->ctx, all);
    }
    if (left.first == left.end)
        return sum_groups(s, middle, end, last);
    TRY(sum_groups(s, first, middle, last && left.end == all.end));
    if (left.end == all.end)
        return PESC_OK;
    if (g->level >= g->partial)
        return too_many(g);
    tensor kept = g->sums[g->level++];
    dev->op->copy(dev, kept.data, g->p->grad.data, tensor_bytes(&kept));
    TRY(sum_groups(s, middle, end, last));
    if (last)
        return PESC_OK;
    dev->op->add(dev, g->p->grad, kept, 1);
    g->level--;
    return PESC_OK;
}

/* ---- the tree over processes: on the thread of the exchanges ---- */

/* Elements [first, end) of the flat buffers, and where this process has its own gradients of them.
 */
typedef struct span {
    shard_range flat;
    float *data;
} span;

/* A piece of a span: of every rank's segment of a round those elements from `at` on. */
typedef struct piece {
    const gradient_bucket *b;
    span of;
    int32_t round;
    int64_t at;
} piece;

static shard_range piece_range(const gradient *g, const piece *p, int32_t rank)
{
    int32_t i = shards_own(&g->p->shards, rank, p->round);
    if (i < 0)
        return (shard_range){ 0, 0 };
    shard_range s = shards_segment(&g->p->shards, i);
    s.first = least(s.first + p->at, s.end);
    s.end = least(s.first + g->piece, s.end);
    s.first = s.first > p->of.flat.first ? s.first : p->of.flat.first;
    s.end = least(s.end, p->of.flat.end);
    return s.first < s.end ? s : (shard_range){ 0, 0 };
}

static float *own_data(const piece *p, shard_range r)
{
    return r.first < r.end ? p->of.data + (r.first - p->of.flat.first) : NULL;
}

static tensor piece_of(gradient *g, const piece *p, int32_t rank, shard_range own)
{
    tensor t = { .dt = DT_F32, .nd = 1, .ne = { own.end - own.first } };
    t.data =
        rank == comm_rank(g->comm) ? own_data(p, own) : (float *)g->pieces.data + rank * g->piece;
    return t;
}

/* Whether a rank has computed something of this bucket. */
static bool takes_part(const gradient *g, const piece *p, int32_t rank)
{
    if (g->p->stages)
        return (int64_t)p->b->round * comm_size(g->comm) + rank < g->micros;
    return micro_count(gradient_micros(g, g->micros, rank)) > 0;
}

/* Adds the pieces of ranks [first, end) into that of the first of them that has one, which is
 * returned; -1: none has. */
static int32_t sum_ranks(gradient *g, const piece *p, int32_t first, int32_t end, shard_range own)
{
    device *side = g->wire.dev;
    if (end - first == 1)
        return takes_part(g, p, first) ? first : -1;
    int32_t middle = first + (end - first + 1) / 2;
    int32_t left = sum_ranks(g, p, first, middle, own);
    int32_t right = sum_ranks(g, p, middle, end, own);
    if (left >= 0 && right >= 0)
        side->op->add(side, piece_of(g, p, left, own), piece_of(g, p, right, own), 1);
    return left >= 0 ? left : right;
}

/* The sum over a round joins those of the rounds before: bit k of the round's number says whether
 * the sum of 2^k rounds waits on level k. The last round meets all that wait; the highest level
 * then has the gradient. */
static void join_rounds(gradient *g, const piece *p, tensor x, shard_range own)
{
    const shards *s = &g->p->shards;
    device *side = g->wire.dev;
    int32_t round = p->b->round, top = 0, level = 0, segment = (int32_t)(own.first / s->segment);
    int64_t at = shards_at(s, segment) + own.first - shards_segment(s, segment).first;
    shard_range mine = { at, at + own.end - own.first };
    while (round >> top > 1)
        top++;
    for (; p->b->last ? level < top : round >> level & 1; level++)
        if (round >> level & 1)
            side->op->add(side, x, shards_part(g->sums[level], mine, 1), 1);
    tensor to = shards_part(g->sums[level], mine, 1);
    if (p->b->last && round)
        side->op->add(side, to, x, 1);
    else
        side->op->copy(side, to.data, x.data, tensor_bytes(&to));
}

static pesc_status reduce_piece(gradient *g, const piece *p)
{
    device *side = g->wire.dev;
    int32_t size = comm_size(g->comm), me = comm_rank(g->comm);
    shard_range own = piece_range(g, p, me);
    size_t in = (size_t)(own.end - own.first) * sizeof(float), any = 0;
    for (int32_t r = 0; r < size; r++) {
        shard_range theirs = piece_range(g, p, r);
        size_t out = (size_t)(theirs.end - theirs.first) * sizeof(float);
        g->send[r] = (peer_part){ own_data(p, theirs), takes_part(g, p, me) ? out : 0 };
        g->recv[r] = (peer_part){ piece_of(g, p, r, own).data, takes_part(g, p, r) ? in : 0 };
        any += out;
    }
    if (!any)
        return PESC_OK;
    TRY(wire_exchange(&g->wire, "the gradients of a step", g->send, g->recv));
    if (!in)
        return PESC_OK;
    int32_t sum = sum_ranks(g, p, 0, size, own);
    tensor from = piece_of(g, p, sum, own), to = piece_of(g, p, me, own);
    if (g->p->stages)
        join_rounds(g, p, from, own);
    else if (sum != me)
        side->op->copy(side, to.data, from.data, tensor_bytes(&to));
    return PESC_OK;
}

/* Rounds [first, end) of the segments of a span. */
static pesc_status reduce_span(gradient *g, const gradient_bucket *b, span of, shard_range rounds)
{
    for (int64_t r = rounds.first; r < rounds.end; r++)
        for (int64_t at = 0; at < g->p->shards.segment; at += g->piece)
            TRY(reduce_piece(g, &(piece){ b, of, (int32_t)r, at }));
    return PESC_OK;
}

static pesc_status reduce_all(gradient *g, const gradient_bucket *b)
{
    const params *p = g->p;
    float *grad = p->grad.data;
    if (!p->stages)
        return reduce_span(g, b, (span){ { 0, p->n }, grad }, (shard_range){ b->first, b->end });
    for (size_t i = 0; i < p->n_runs; i++) {
        const grad_run *r = &p->runs[i];
        if (r->stage == b->stage)
            TRY(reduce_span(g, b, (span){ r->flat, grad + r->at },
                            (shard_range){ 0, shards_rounds(&p->shards) }));
    }
    return PESC_OK;
}

static pesc_status reduce_bucket(void *ctx, int64_t i)
{
    gradient *g = ctx;
    gradient_bucket *b = &g->jobs[i % TRAFFIC_BUCKETS];
    device *dev = g->p->m->dev, *side = g->wire.dev;
    TRY(dev->op->wait_mark(dev, MARK_BUCKETS + (int)(i % TRAFFIC_BUCKETS)));
    /* a process that waits for another's backward does not exchange yet */
    TRY(comm_barrier(g->comm, "the gradients of a step"));
    b->began = clock_seconds();
    struct timespec delay = { (time_t)g->delay,
                              (long)(1e9 * (g->delay - (double)(time_t)g->delay)) };
    if (g->delay > 0)
        nanosleep(&delay, NULL);
    TRY(reduce_all(g, b));
    TRY(side->op->sync(side));
    b->ended = clock_seconds();
    return PESC_OK;
}

/* ---- buckets ---- */

static void hand_over(gradient *g, gradient_bucket b)
{
    device *dev = g->p->m->dev;
    int32_t place = (int32_t)(g->buckets % TRAFFIC_BUCKETS);
    dev->op->mark(dev, MARK_BUCKETS + place);
    g->jobs[place] = b;
    g->last = g->jobs[place].number = traffic_add(g->traffic, reduce_bucket, g, g->buckets++);
}

/* Waits for the first `n` buckets of the step. What passes of an exchange from now on, it is waited
 * for. */
static pesc_status wait_buckets(gradient *g, int64_t n)
{
    double now = clock_seconds();
    if (n <= g->counted)
        return PESC_OK;
    TRY(traffic_wait(g->traffic, g->jobs[(n - 1) % TRAFFIC_BUCKETS].number));
    for (; g->counted < n; g->counted++) {
        const gradient_bucket *b = &g->jobs[g->counted % TRAFFIC_BUCKETS];
        double from = b->began > now ? b->began : now;
        g->seconds += b->ended - b->began;
        g->exposed += b->ended > from ? b->ended - from : 0;
    }
    return PESC_OK;
}

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
    if (g->traffic)
        hand_over(g, (gradient_bucket){ .first = g->sent, .end = end });
    g->sent = end;
}

/* ---- rounds ---- */

/* Hands over the stages before `end`, which every process does, computed or not; the place of the
 * next one is then zeroed, when the stage that had it has been taken out. A failure of an exchange
 * is returned at the end of the round. */
static void finish_stages(gradient *g, int32_t end)
{
    params *p = g->p;
    bool last = (int64_t)(g->round + 1) * comm_size(g->comm) >= g->micros;
    while (g->stage < end) {
        if (p->stages[g->stage].n) {
            hand_over(g, (gradient_bucket){ .stage = g->stage, .round = g->round, .last = last });
            g->taken[g->stage % 2] = g->buckets;
        }
        if (++g->stage == p->n_stages)
            return;
        (void)wait_buckets(g, g->taken[g->stage % 2]);
        params_start_stage(p, g->stage);
    }
}

static pesc_status sum_rounds(gradient *g, gradient_fn fn, void *ctx)
{
    int32_t size = comm_size(g->comm), rounds = (int32_t)ceil_div(g->micros, size);
    if ((rounds - 1) >> g->partial)
        return too_many(g);
    for (g->round = 0; g->round < rounds; g->round++) {
        int32_t micro = g->round * size + comm_rank(g->comm);
        TRY(wait_buckets(g, g->buckets));
        g->stage = 0;
        params_start_stage(g->p, 0);
        if (micro < g->micros)
            TRY(fn(ctx, (micro_range){ micro, micro + 1, 1 }));
        finish_stages(g, g->p->n_stages);
    }
    return PESC_OK;
}

/* ---- a step ---- */

pesc_status gradient_sum(gradient *g, int32_t micros, gradient_fn fn, void *ctx)
{
    summing s = { g, fn, ctx };
    micro_range own = groups_of(g, comm_rank(g->comm));
    g->micros = micros;
    g->level = g->sent = 0;
    g->buckets = g->counted = g->taken[0] = g->taken[1] = 0;
    g->seconds = g->exposed = 0;
    return g->p->stages ? sum_rounds(g, fn, ctx) : sum_groups(&s, own.first, own.end, true);
}

void gradient_layer_done(gradient *g, int32_t layer)
{
    int32_t n = g->p->m->shape.cfg.n_layers,
            most = TRAFFIC_BUCKETS - 2; /* and head and embeddings */
    int32_t every = (n + most - 1) / most;
    if (g->p->stages)
        finish_stages(g, n - layer + 1);
    else if (g->traffic && (n - layer) % every == 0)
        send_ready(g, layer);
}

/* By groups; buckets are the same everywhere, also without a micro-batch. */
static void send_rest(gradient *g)
{
    for (int32_t i = g->p->m->shape.cfg.n_layers; i >= 0; i--)
        gradient_layer_done(g, i);
    send_ready(g, -1);
}

pesc_status gradient_finish(gradient *g, gradient_time *time)
{
    int32_t top = 0;
    *time = (gradient_time){ 0 };
    if (!g->p->stages)
        send_rest(g);
    if (!g->traffic)
        return PESC_OK;
    TRY(wait_buckets(g, g->buckets));
    *time = (gradient_time){ g->seconds, g->seconds > 0 ? 1 - g->exposed / g->seconds : 0 };
    while ((g->round - 1) >> top > 1) /* rounds are one more than the number of the last */
        top++;
    if (g->p->stages)
        g->p->own_grad = g->sums[top];
    return PESC_OK;
}

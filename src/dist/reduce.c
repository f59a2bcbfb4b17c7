#include "dist/reduce.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "dist/publish.h"
#include "backend/memory.h"
#include "dist/layer_shards.h"

#include <stdlib.h>
#include <time.h>

/* What the thread of the exchanges has to do, and when it did it. */
typedef struct bucket {
    int32_t first, end;   /* by groups: rounds of segments */
    int32_t stage, round; /* by rounds */
    bool last;            /* it is the last round */
    int64_t number;       /* of the exchange */
    double began, ended;  /* clock_seconds() */
} bucket;

typedef struct reduction {
    reducer door; /* first: train knows it by this */
    gradient *g;  /* borrowed, like p and comm */
    params *p;
    comm *comm;
    traffic *traffic; /* of the sharded base, if there is one, else its own */
    partition parts;  /* of the flat buffers */
    publisher *publisher;
    tensor pieces; /* f32 [size, piece]: of the other processes */
    int64_t piece; /* elements */
    wire wire;
    peer_part *send, *recv; /* [size] */
    void *memory;
    double delay; /* seconds */

    /* of the current step */
    int32_t sent;             /* by groups: rounds of segments that were handed over */
    int32_t round, stage;     /* by rounds: the current ones */
    int64_t taken[2];         /* by rounds: buckets up to the last stage with an even, odd number */
    int64_t buckets, counted; /* handed over, and those whose time was counted */
    bucket jobs[TRAFFIC_BUCKETS]; /* bucket i is in place i % TRAFFIC_BUCKETS */
    double seconds, exposed;      /* of exchanges, and while backward waited for them */
    int64_t last;                 /* number of the last exchange */
} reduction;

/* ---- the tree over processes: on the thread of the exchanges ---- */

/* Elements of the flat buffers, and where this process has its own gradients of them. */
typedef struct span {
    flat_range flat;
    float *data;
} span;

/* A piece of a span: of every rank's segment of a round those elements from `at` on. */
typedef struct piece {
    const bucket *b;
    span of;
    int32_t round;
    int64_t at;
} piece;

static flat_range piece_range(const reduction *r, const piece *p, int32_t rank)
{
    int32_t i = partition_own(&r->parts, rank, p->round);
    if (i < 0)
        return (flat_range){ 0, 0 };
    flat_range s = partition_segment(&r->parts, i);
    s.first = s.first + p->at < s.end ? s.first + p->at : s.end;
    s.end = s.first + r->piece < s.end ? s.first + r->piece : s.end;
    return flat_within(s, p->of.flat);
}

static float *own_data(const piece *p, flat_range r)
{
    return r.first < r.end ? p->of.data + (r.first - p->of.flat.first) : NULL;
}

static tensor piece_of(reduction *r, const piece *p, int32_t rank, flat_range own)
{
    tensor t = { .dt = DT_F32, .nd = 1, .ne = { own.end - own.first } };
    t.data =
        rank == comm_rank(r->comm) ? own_data(p, own) : (float *)r->pieces.data + rank * r->piece;
    return t;
}

/* Whether a rank has computed something of this bucket. */
static bool takes_part(const reduction *r, const piece *p, int32_t rank)
{
    if (r->p->stages)
        return (int64_t)p->b->round * comm_size(r->comm) + rank < r->g->micros;
    return micro_count(gradient_range(&r->g->shape, r->g->micros, rank)) > 0;
}

/* Adds the pieces of ranks [first, end) into that of the first of them that has one, which is
 * returned; -1: none has. */
static int32_t sum_ranks(reduction *r, const piece *p, int32_t first, int32_t end, flat_range own)
{
    device *side = r->wire.dev;
    if (end - first == 1)
        return takes_part(r, p, first) ? first : -1;
    int32_t middle = first + (end - first + 1) / 2;
    int32_t left = sum_ranks(r, p, first, middle, own);
    int32_t right = sum_ranks(r, p, middle, end, own);
    if (left >= 0 && right >= 0)
        side->op->add(side, piece_of(r, p, left, own), piece_of(r, p, right, own), 1);
    return left >= 0 ? left : right;
}

/* The sum over a round joins those of the rounds before: bit k of the round's number says whether
 * the sum of 2^k rounds waits on level k. The last round meets all that wait; the highest level
 * then has the gradient. */
static void join_rounds(reduction *r, const piece *p, tensor x, flat_range own)
{
    const partition *s = &r->parts;
    device *side = r->wire.dev;
    int32_t round = p->b->round, top = 0, level = 0, segment = (int32_t)(own.first / s->segment);
    int64_t at = partition_at(s, segment) + own.first - partition_segment(s, segment).first;
    flat_range mine = { at, at + own.end - own.first };
    while (round >> top > 1)
        top++;
    for (; p->b->last ? level < top : round >> level & 1; level++)
        if (round >> level & 1)
            side->op->add(side, x, flat_part(r->g->sums[level], mine, 1), 1);
    tensor to = flat_part(r->g->sums[level], mine, 1);
    if (p->b->last && round)
        side->op->add(side, to, x, 1);
    else
        side->op->copy(side, to.data, x.data, tensor_bytes(&to));
}

static pesc_status reduce_piece(reduction *r, const piece *p)
{
    device *side = r->wire.dev;
    int32_t size = comm_size(r->comm), me = comm_rank(r->comm);
    flat_range own = piece_range(r, p, me);
    size_t in = (size_t)(own.end - own.first) * sizeof(float), any = 0;
    for (int32_t k = 0; k < size; k++) {
        flat_range theirs = piece_range(r, p, k);
        size_t out = (size_t)(theirs.end - theirs.first) * sizeof(float);
        r->send[k] = (peer_part){ own_data(p, theirs), takes_part(r, p, me) ? out : 0 };
        r->recv[k] = (peer_part){ piece_of(r, p, k, own).data, takes_part(r, p, k) ? in : 0 };
        any += out;
    }
    if (!any)
        return PESC_OK;
    TRY(wire_exchange(&r->wire, "the gradients of a step", r->send, r->recv));
    if (!in)
        return PESC_OK;
    int32_t sum = sum_ranks(r, p, 0, size, own);
    tensor from = piece_of(r, p, sum, own), to = piece_of(r, p, me, own);
    if (r->p->stages)
        join_rounds(r, p, from, own);
    else if (sum != me)
        side->op->copy(side, to.data, from.data, tensor_bytes(&to));
    return PESC_OK;
}

/* Rounds [first, end) of the segments of a span. */
static pesc_status reduce_span(reduction *r, const bucket *b, span of, flat_range rounds)
{
    for (int64_t k = rounds.first; k < rounds.end; k++)
        for (int64_t at = 0; at < r->parts.segment; at += r->piece)
            TRY(reduce_piece(r, &(piece){ b, of, (int32_t)k, at }));
    return PESC_OK;
}

static pesc_status reduce_all(reduction *r, const bucket *b)
{
    const params *p = r->p;
    float *grad = p->grad.data;
    if (!p->stages)
        return reduce_span(r, b, (span){ { 0, p->n }, grad }, (flat_range){ b->first, b->end });
    for (size_t i = 0; i < p->n_runs; i++) {
        const grad_run *run = &p->runs[i];
        if (run->stage == b->stage)
            TRY(reduce_span(r, b, (span){ run->flat, grad + run->at },
                            (flat_range){ 0, partition_rounds(&r->parts) }));
    }
    return PESC_OK;
}

static pesc_status reduce_bucket(void *ctx, int64_t i)
{
    reduction *r = ctx;
    bucket *b = &r->jobs[i % TRAFFIC_BUCKETS];
    device *dev = r->p->m->dev, *side = r->wire.dev;
    TRY(dev->op->wait_mark(dev, MARK_BUCKETS + (int)(i % TRAFFIC_BUCKETS)));
    /* a process that waits for another's backward does not exchange yet */
    TRY(comm_barrier(r->comm, "the gradients of a step"));
    b->began = clock_seconds();
    struct timespec delay = { (time_t)r->delay,
                              (long)(1e9 * (r->delay - (double)(time_t)r->delay)) };
    if (r->delay > 0)
        nanosleep(&delay, NULL);
    TRY(reduce_all(r, b));
    TRY(side->op->sync(side));
    b->ended = clock_seconds();
    return PESC_OK;
}

/* ---- buckets ---- */

static void hand_over(reduction *r, bucket b)
{
    device *dev = r->p->m->dev;
    int32_t place = (int32_t)(r->buckets % TRAFFIC_BUCKETS);
    dev->op->mark(dev, MARK_BUCKETS + place);
    r->jobs[place] = b;
    r->last = r->jobs[place].number = traffic_add(r->traffic, reduce_bucket, r, r->buckets++);
}

/* Waits for all buckets up to number `n` of the step. What passes of an exchange from now on, it is
 * waited for. */
static pesc_status wait_buckets(reduction *r, int64_t n)
{
    double now = clock_seconds();
    if (n <= r->counted)
        return PESC_OK;
    TRY(traffic_wait(r->traffic, r->jobs[(n - 1) % TRAFFIC_BUCKETS].number));
    for (; r->counted < n; r->counted++) {
        const bucket *b = &r->jobs[r->counted % TRAFFIC_BUCKETS];
        double from = b->began > now ? b->began : now;
        r->seconds += b->ended - b->began;
        r->exposed += b->ended > from ? b->ended - from : 0;
    }
    return PESC_OK;
}

/* ---- by groups: the exchange of a step, while the last pass goes through backward ---- */

/* Adds the partial sums that wait to the segments at the places [first, end) of the order. */
static void add_waiting(reduction *r, int32_t first, int32_t end)
{
    const partition *s = &r->parts;
    for (int32_t i = first, next; i < end; i = next) {
        flat_range part = partition_segment(s, s->order[i]);
        for (next = i + 1; next < end && s->order[next] == s->order[next - 1] + 1; next++)
            part.end = partition_segment(s, s->order[next]).end;
        gradient_add_waiting(r->g, part);
    }
}

/* Hands over all rounds whose gradients are complete after backward of `layer`. */
static void send_ready(reduction *r, int32_t layer)
{
    const partition *s = &r->parts;
    int32_t size = comm_size(s->comm), end = r->sent, place = 0;
    for (; end < partition_rounds(s); end++) {
        place = (end + 1) * size < s->n_segments ? (end + 1) * size : s->n_segments;
        if (s->ready[place - 1] < layer)
            break;
    }
    if (end == r->sent)
        return;
    place = end * size < s->n_segments ? end * size : s->n_segments;
    add_waiting(r, r->sent * size, place);
    hand_over(r, (bucket){ .first = r->sent, .end = end });
    r->sent = end;
}

/* Buckets are of so many layers that there are enough marks, with those of head and embeddings. */
static void send_layer(reduction *r, int32_t layer)
{
    int32_t n = r->p->m->shape.cfg.n_layers, most = TRAFFIC_BUCKETS - 2;
    int32_t every = (n + most - 1) / most;
    if ((n - layer) % every == 0)
        send_ready(r, layer);
}

/* Passes over the layers that this process takes part in: its own, and with a sharded base as many
 * as the process that has most. */
static int32_t passes_of(const reduction *r)
{
    int32_t most = 0;
    for (int32_t k = 0; k < comm_size(r->comm); k++) {
        int32_t n = micro_count(gradient_range(&r->g->shape, r->g->micros, k));
        bool counts = r->p->m->hook || k == comm_rank(r->comm);
        most = counts && n > most ? n : most;
    }
    return most;
}

/* Brings this process' part of each layer of a sharded base to a pass of others that have more
 * micro-batches. */
static void idle_pass(reduction *r, bool last)
{
    layer_hook *h = r->p->m->hook;
    int32_t n = r->p->m->shape.cfg.n_layers, lowest = r->p->mirror.facts.first_layer;
    for (int32_t i = 0; i < n; i++)
        h->before(h, i, i + 1 < n ? i + 1 : -1);
    if (r->g->train && last)
        send_layer(r, n);
    for (int32_t i = n - 1; r->g->train && i >= lowest; i--) {
        h->before(h, i, i > lowest ? i - 1 : -1);
        if (last)
            send_layer(r, i);
    }
}

static pesc_status idle_passes(reduction *r)
{
    int32_t passes = passes_of(r), rank = comm_rank(r->comm);
    int32_t own = micro_count(gradient_range(&r->g->shape, r->g->micros, rank));
    for (int32_t i = own; i < passes; i++)
        idle_pass(r, i + 1 == passes);
    return own < passes ? r->p->m->hook->check(r->p->m->hook) : PESC_OK;
}

/* Buckets are the same in all processes, also in one without a micro-batch. */
static void send_rest(reduction *r)
{
    for (int32_t i = r->p->m->shape.cfg.n_layers; i >= 0; i--)
        send_layer(r, i);
    send_ready(r, -1);
}

/* ---- by rounds: an exchange for each stage of each micro-batch ---- */

static int32_t rounds_of(const reduction *r)
{
    int32_t size = comm_size(r->comm);
    return (r->g->micros + size - 1) / size;
}

/* Hands over the stages before `end`, which every process does, computed or not; the place of the
 * next one is then zeroed, when the stage that had it has been taken out. A failure of an exchange
 * is returned at the end of the step. */
static void finish_stages(reduction *r, int32_t end)
{
    params *p = r->p;
    bool last = r->round + 1 == rounds_of(r);
    while (r->stage < end) {
        if (p->stages[r->stage].n) {
            hand_over(r, (bucket){ .stage = r->stage, .round = r->round, .last = last });
            r->taken[r->stage % 2] = r->buckets;
        }
        if (++r->stage == p->n_stages)
            return;
        (void)wait_buckets(r, r->taken[r->stage % 2]);
        params_start_stage(p, r->stage);
    }
}

/* The window is ready for the next micro-batch. */
static void end_round(reduction *r)
{
    finish_stages(r, r->p->n_stages);
    (void)wait_buckets(r, r->buckets);
    r->round++;
    r->stage = 0;
    params_start_stage(r->p, 0);
}

/* The last round's highest level has the gradient. */
static void take_sum(reduction *r)
{
    int32_t top = 0, last = rounds_of(r) - 1;
    while (last >> top > 1)
        top++;
    r->p->own_grad = r->g->sums[top];
}

/* ---- a step ---- */

static void layer_done(reducer *door, int32_t layer)
{
    reduction *r = (reduction *)(void *)door;
    int32_t n = r->p->m->shape.cfg.n_layers, rank = comm_rank(r->comm);
    micro_range own = gradient_range(&r->g->shape, r->g->micros, rank);
    bool last = r->g->micro + own.step >= own.end && micro_count(own) == passes_of(r);
    if (r->p->stages && layer < 0)
        end_round(r);
    else if (r->p->stages)
        finish_stages(r, n - layer + 1);
    else if (last && layer >= 0)
        send_layer(r, layer);
}

/* Every process receives the records of the others' micro-batches. */
static pesc_status gather_records(reduction *r, const micro_records *m)
{
    int32_t micros = r->g->micros;
    for (int32_t at = 0, n; at < micros; at += n) {
        for (int32_t k = n = 0; k < comm_size(r->comm); k++) { /* one of each, or all that follow */
            micro_range own = gradient_range(&r->g->shape, micros, k);
            int32_t first = own.step > 1 ? at + k : own.first;
            int32_t count = own.step > 1 ? 1 : own.end - own.first;
            count = first < micros ? count : 0;
            r->recv[k] =
                (peer_part){ m->list + (size_t)first * m->bytes, (size_t)count * m->bytes };
            n += count;
        }
        TRY(comm_all_gather(r->comm, "the losses of a step", r->recv));
    }
    return PESC_OK;
}

static pesc_status end_gradients(reduction *r, gradient_time *time)
{
    while (r->p->stages && r->round < rounds_of(r)) /* the others have a micro-batch more */
        end_round(r);
    if (!r->p->stages)
        send_rest(r);
    TRY(wait_buckets(r, r->buckets));
    TRY(traffic_wait(r->traffic, -1)); /* a failure that nothing has waited for yet */
    *time = (gradient_time){ r->seconds, r->seconds > 0 ? 1 - r->exposed / r->seconds : 0 };
    if (r->p->stages)
        take_sum(r);
    r->sent = r->round = 0;
    r->buckets = r->counted = r->taken[0] = r->taken[1] = 0;
    r->seconds = r->exposed = 0;
    return PESC_OK;
}

static pesc_status finish(reducer *door, const micro_records *m, gradient_time *time)
{
    reduction *r = (reduction *)(void *)door;
    TRY(idle_passes(r));
    if (r->g->train)
        TRY(end_gradients(r, time));
    return gather_records(r, m);
}

static pesc_status publish(reducer *door)
{
    return publisher_run(((reduction *)(void *)door)->publisher);
}

/* ---- opening ---- */

static void notice(const gradient_shape *s, const train_spec *spec)
{
    long long size = s->processes, wanted = s->wanted;
    if (s->groups != wanted)
        log_notice("%lld processes are more than grad_groups %lld: the gradient of a step is added "
                   "in %lld groups, so the bits will not be those of a run with fewer processes",
                   size, wanted, (long long)s->groups);
    else if (size & (size - 1))
        log_notice("%lld processes are not a power of two: the bits will not be those of a run "
                   "with another number of processes",
                   size);
    if (!gradient_of_model(spec) || s->rounds)
        return;
    if (s->micros == INT64_MAX)
        log_notice("over_length split has no largest number of micro-batches of a step: gradients "
                   "are whole in each process instead of sharded");
    else
        log_notice("a step may have more micro-batches than grad_groups %lld: gradients are whole "
                   "in each process instead of sharded; a larger grad_groups, or larger "
                   "micro-batches (micro_tokens), would need less memory",
                   wanted);
}

/* Seconds that PESC_BUCKET_DELAY asks for. */
static double read_delay(void)
{
    const char *text = getenv("PESC_BUCKET_DELAY");
    double ms = text ? strtod(text, NULL) : 0;
    return ms > 0 && ms < 60000 ? ms / 1000 : 0;
}

static pesc_status open_memory(reduction *r)
{
    static const memory_need need = { "gradients of other processes", "fewer processes need less" };
    size_t size = (size_t)comm_size(r->comm);
    arena a = { 0 };
    r->pieces = tensor_take1(&a, DT_F32, (int64_t)size * r->piece);
    TRY(memory_take(&a, r->p->m->dev, &need, &r->memory));
    r->pieces = tensor_take1(&a, DT_F32, (int64_t)size * r->piece);
    r->g->bytes += a.size;
    r->send = mem_zalloc(size, sizeof *r->send);
    r->recv = mem_zalloc(size, sizeof *r->recv);
    if (!r->send || !r->recv)
        return fail_nomem("gradients", size * sizeof *r->send);
    if (r->p->m->hook)
        r->traffic = layer_shards_traffic(r->p->m->hook);
    else
        TRY(traffic_open(&r->traffic, r->p->m->dev));
    return wire_open(&r->wire, traffic_device(r->traffic), r->comm,
                     (size_t)r->piece * sizeof(float));
}

static void close_reduction(reducer *door)
{
    reduction *r = (reduction *)(void *)door;
    if (r->traffic) /* after a failure an exchange may still run */
        (void)traffic_wait(r->traffic, r->last);
    if (!r->p->m->hook)
        traffic_close(r->traffic);
    if (r->memory)
        r->p->m->dev->op->free(r->p->m->dev, r->memory);
    publisher_close(r->publisher);
    wire_close(&r->wire);
    mem_free(r->send);
    mem_free(r->recv);
    mem_free(r);
}

pesc_status reduce_open(reducer **out, gradient *g, comm *c)
{
    *out = NULL;
    reduction *r = mem_zalloc(1, sizeof *r);
    if (!r)
        return fail_nomem("gradients", sizeof *r);
    r->door = (reducer){ layer_done, finish, publish, close_reduction };
    r->g = g;
    r->p = g->p;
    r->comm = c;
    r->parts = partition_of(g->p, c);
    r->delay = read_delay();
    r->last = -1;
    int64_t most = comm_size(c) > 16 ? 16 * PARTITION_PIECE / comm_size(c) : PARTITION_PIECE;
    r->piece = r->parts.segment < most ? r->parts.segment : most; /* all together stay small */
    notice(&g->shape, &g->p->spec);
    pesc_status s = open_memory(r);
    if (s == PESC_OK)
        s = publisher_open(&r->publisher, g->p, &r->parts);
    if (s == PESC_OK && g->p->stages)
        params_start_stage(g->p, 0);
    if (s == PESC_OK)
        *out = &r->door;
    else
        close_reduction(&r->door);
    return s;
}

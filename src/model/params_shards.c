/* What a process keeps of params where there are several: the master weights of its segments, whole
 * copies of what forward reads, and a window of gradients. */
#include "model/params.h"

#include "base/mem.h"

#include <stdlib.h>

/* A part of a parameter that forward reads in f32, which one process owns. */
typedef struct exact_piece {
    int64_t at, n;    /* in the flat buffers */
    int64_t exact_at; /* in `exact` */
    int64_t own_at;   /* in its owner's master weights */
    int32_t owner;
} exact_piece;

int64_t params_bytes(const params_size *z, dtype act_dt, int64_t processes)
{
    bool sharded = params_shards_master(z->own, act_dt, processes);
    int64_t master = sharded ? shards_most(z->n, processes) + z->n_exact : z->n;
    return (master + z->n_grad) * 4 + (z->flat && act_dt == DT_BF16 ? z->n_work * 2 : 0);
}

/* ---- who owns what ---- */

static int by_owner(const void *a, const void *b)
{
    const exact_piece *x = a, *y = b;
    return x->owner != y->owner ? (x->owner > y->owner) - (x->owner < y->owner)
                                : (x->at > y->at) - (x->at < y->at);
}

/* The parts of a parameter by segment, at most SHARD_PIECE elements each; out NULL: counts them. */
static size_t cut_pieces(const params *p, const param *q, exact_piece *out)
{
    const shards *s = &p->shards;
    tensor t = params_grad(p, q);
    shard_range all = { q->at, q->at + tensor_count(&t) };
    size_t n = 0;
    for (int64_t at = all.first, end; at < all.end; at = end, n++) {
        int64_t i = at / s->segment;
        end = shards_within(s, i, all).end;
        end = end - at < SHARD_PIECE ? end : at + SHARD_PIECE;
        if (out)
            out[n] = (exact_piece){ .at = at,
                                    .n = end - at,
                                    .exact_at = q->exact_at + at - q->at,
                                    .own_at = shards_at(s, i) + at - shards_segment(s, i).first,
                                    .owner = shards_owner(s, i) };
    }
    return n;
}

static pesc_status divide_exact(params *p)
{
    p->n_pieces = 0;
    for (size_t i = 0; p->sharded && i < p->n_list; i++)
        p->n_pieces += p->list[i].exact_at >= 0 ? cut_pieces(p, &p->list[i], NULL) : 0;
    p->pieces = mem_zalloc(p->n_pieces + 1, sizeof *p->pieces);
    if (!p->pieces)
        return fail_nomem("the list of what trains", p->n_pieces * sizeof *p->pieces);
    for (size_t i = 0, at = 0; p->sharded && i < p->n_list; i++)
        at += p->list[i].exact_at >= 0 ? cut_pieces(p, &p->list[i], p->pieces + at) : 0;
    qsort(p->pieces, p->n_pieces, sizeof *p->pieces, by_owner);
    return PESC_OK;
}

/* ---- the window ---- */

bool params_take_stages(params *p, const config *c)
{
    p->n_stages = c->n_layers + 2;
    if (p->spec.window)
        p->stages = mem_zalloc((size_t)p->n_stages, sizeof *p->stages);
    return p->stages || !p->spec.window;
}

void params_place_stages(params *p, const config *c)
{
    grad_stage *s = p->stages;
    int32_t n = c->tie_embeddings ? p->n_stages - 1 : p->n_stages; /* those that share */
    int64_t most = 0;
    p->n_grad = p->n;
    if (!s)
        return;
    int64_t before = n < p->n_stages ? s[n].n : 0;
    for (int32_t i = 0; i < n; i++) {
        int64_t two = s[i].n + (i + 1 < n ? s[i + 1].n : 0);
        most = two > most ? two : most;
    }
    for (int32_t i = 0; i < n; i++)
        s[i].at = before + (i % 2 ? most - s[i].n : 0);
    p->n_grad = before + most;
}

/* The next place of the stage of parameter i, which `used` counts by stage. */
static void place_grad(params *p, size_t i, int64_t *used)
{
    param *q = &p->list[i];
    shard_range flat = { q->at, i + 1 < p->n_list ? p->list[i + 1].at : p->n };
    int32_t stage = params_stage(p, q);
    grad_run *last = p->n_runs ? &p->runs[p->n_runs - 1] : NULL;
    q->grad_at = p->stages[stage].at + used[stage];
    used[stage] += flat.end - flat.first;
    if (last && last->stage == stage)
        last->flat.end = flat.end;
    else
        p->runs[p->n_runs++] = (grad_run){ flat, q->grad_at, stage };
}

static pesc_status place_grads(params *p)
{
    params_place_stages(p, &p->m->shape.cfg);
    for (size_t i = 0; i < p->n_list; i++)
        p->list[i].grad_at = p->list[i].at;
    if (!p->stages)
        return PESC_OK;
    int64_t *used = mem_zalloc((size_t)p->n_stages, sizeof *used);
    p->runs = mem_alloc(p->n_list, sizeof *p->runs);
    bool fine = used && p->runs;
    for (size_t i = 0; fine && i < p->n_list; i++)
        place_grad(p, i, used);
    mem_free(used);
    return fine ? PESC_OK : fail_nomem("the window of gradients", p->n_list * sizeof *p->runs);
}

static void zero_stage(params *p, const grad_stage *s)
{
    if (s->n)
        p->m->dev->op->zero(p->m->dev, (float *)p->grad.data + s->at, (size_t)s->n * sizeof(float));
}

void params_start_stage(params *p, int32_t stage)
{
    bool tied = p->m->shape.cfg.tie_embeddings;
    int32_t last = p->n_stages - 1;
    if (stage < last || !tied)
        zero_stage(p, &p->stages[stage]);
    if (stage == 0 && tied)
        zero_stage(p, &p->stages[last]);
}

pesc_status params_divide(params *p)
{
    p->shards = shards_of(p);
    TRY(divide_exact(p));
    return place_grads(p);
}

/* ---- values ---- */

static void put_range(device *dev, tensor to, int64_t at, tensor x, shard_range r)
{
    tensor from = shards_part(x, r, 1);
    to = shards_part(to, (shard_range){ at, at + r.end - r.first }, 1);
    dev->op->convert(dev, to, from);
}

void params_put(params *p, const param *q, int64_t first, tensor x)
{
    const shards *s = &p->shards;
    device *dev = p->m->dev;
    shard_range all = { 0, tensor_count(&x) }, flat = { q->at + first, q->at + first + all.end };
    for (int64_t i = flat.first / s->segment; p->sharded && i * s->segment < flat.end; i++) {
        shard_range r = shards_within(s, i, flat);
        int64_t own = shards_at(s, i) + r.first - shards_segment(s, i).first;
        if (shards_owner(s, i) == comm_rank(s->comm))
            put_range(dev, p->master, own, x,
                      (shard_range){ r.first - flat.first, r.end - flat.first });
    }
    if (!p->sharded)
        put_range(dev, p->master, flat.first, x, all);
    if (p->work.data && params_has_copy(p, q))
        put_range(dev, p->work, q->work_at + first, x, all);
    if (p->exact.data && q->exact_at >= 0)
        put_range(dev, p->exact, q->exact_at + first, x, all);
}

/* ---- after an update ---- */

/* Consecutive parameters with a copy are consecutive in both buffers, so a run of them is one call.
 */
static void refresh_copies(params *p)
{
    device *dev = p->m->dev;
    for (size_t i = 0, end; i < p->n_list; i = end + 1) {
        for (end = i; end < p->n_list && params_has_copy(p, &p->list[end]);)
            end++;
        int64_t stop = end < p->n_list ? p->list[end].at : p->n;
        shard_range run = { p->list[i].at, stop };
        if (end > i)
            put_range(dev, p->work, p->list[i].work_at, p->master, run);
    }
}

void params_refresh(params *p)
{
    if (p->work.data)
        refresh_copies(p);
    params_write_back(p);
}

void params_write_back(params *p)
{
    device *dev = p->m->dev;
    for (size_t i = 0; p->spec.own && i < p->n_list; i++)
        if (p->list[i].into.data) /* master is whole */
            dev->op->convert(dev, p->list[i].into, params_master(p, &p->list[i]));
}

static peer_part part_of(tensor t, int64_t at, int64_t n)
{
    return (peer_part){ (float *)t.data + at, (size_t)n * sizeof(float) };
}

/* The next piece of each rank travels at a time. `next`: [size], of each rank; *more: some had one.
 */
static pesc_status exchange_pieces(params *p, wire *w, size_t *next, peer_part *all, bool *more)
{
    const shards *s = &p->shards;
    device *dev = p->m->dev;
    int32_t size = comm_size(s->comm), me = comm_rank(s->comm);
    peer_part own = { 0 };
    *more = false;
    for (int32_t r = 0; r < size; r++) {
        const exact_piece *e = &p->pieces[next[r]];
        bool has = next[r] < p->n_pieces && e->owner == r;
        all[r] = has ? part_of(p->exact, e->exact_at, e->n) : (peer_part){ 0 };
        next[r] += has;
        *more = *more || has;
        if (has && r == me) {
            own = part_of(p->master, e->own_at, e->n);
            dev->op->copy(dev, all[r].at, own.at, own.bytes);
            own = all[r];
        }
    }
    for (int32_t r = 0; r < size; r++)
        all[size + r] = own;
    return *more ? wire_exchange(w, "the updated weights", all + size, all) : PESC_OK;
}

static pesc_status gather_exact(params *p, wire *w)
{
    int32_t size = comm_size(p->shards.comm);
    peer_part *all = mem_alloc(2 * (size_t)size, sizeof *all);
    size_t *next = mem_zalloc((size_t)size, sizeof *next);
    pesc_status s = all && next ? PESC_OK : fail_nomem("the updated weights", (size_t)size);
    for (size_t i = p->n_pieces; next && i-- > 0;)
        next[p->pieces[i].owner] = i;
    for (bool more = true; s == PESC_OK && more;)
        s = exchange_pieces(p, w, next, all, &more);
    mem_free(all);
    mem_free(next);
    return s;
}

pesc_status params_gather(params *p, wire *w)
{
    TRY(shards_gather(&p->shards, w, "the updated weights", p->sharded ? p->work : p->master));
    if (p->sharded)
        return gather_exact(p, w);
    if (params_work_whole(p) && !p->shards.comm)
        params_write_back(p);
    else
        params_refresh(p);
    return PESC_OK;
}

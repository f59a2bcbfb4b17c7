#include "train/optimizer.h"

#include "backend/code8.h"
#include "backend/memory.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

/* Takes the moments' tensors from `moments`, which may be the same arena as `near`. */
static void layout(optimizer *o, arena *near, arena *moments, int64_t n, bool eight_bit)
{
    dtype dt = eight_bit ? DT_U8 : DT_F32;
    int64_t blocks = (n + CODE8_BLOCK - 1) / CODE8_BLOCK;
    o->m = tensor_take1(moments, dt, n);
    o->v = tensor_take1(moments, dt, n);
    if (eight_bit) {
        o->m_scale = tensor_take1(moments, DT_F32, blocks);
        o->v_scale = tensor_take1(moments, DT_F32, blocks);
    }
    o->sumsq = tensor_take1(near, DT_F32, 1);
    o->squares = tensor_take1(near, DT_F32, SHARD_SEGMENTS);
}

uint64_t optimizer_bytes(int64_t n, bool eight_bit)
{
    optimizer o = { 0 };
    arena a = { 0 };
    layout(&o, &a, &a, n, eight_bit);
    return a.used;
}

static pesc_status open_memory(optimizer *o)
{
    static const memory_need need = { "the optimiser", "optimizer adamw8 needs less" };
    device *dev = o->p->m->dev;
    arena near = { 0 }, host = { 0 }, *moments = o->opt.paged ? &host : &near;
    const shards *all = &o->p->shards;
    int64_t n = shards_elements(all, comm_rank(all->comm));
    layout(o, &near, moments, n, o->opt.eight_bit);
    TRY(dev->op->reserve(dev, dev->op->scratch_bytes(dev, &(work_limits){ .trained = o->p->n })));
    TRY(memory_take(&near, dev, &need, &o->memory));
    if (o->opt.paged) {
        TRY(dev->op->alloc_host(dev, host.used, &o->paged));
        host = (arena){ .base = o->paged, .size = host.used };
        dev->op->zero(dev, o->paged, host.size);
    }
    layout(o, &near, moments, n, o->opt.eight_bit);
    o->bytes = near.size;
    o->paged_bytes = host.size;
    dev->op->zero(dev, o->memory, o->bytes);
    return wire_open(&o->wire, dev, all->comm, SHARD_PIECE * sizeof(float));
}

pesc_status optimizer_open(optimizer **out, params *p, const optimizer_options *opt)
{
    *out = NULL;
    optimizer *o = mem_zalloc(1, sizeof *o);
    if (!o)
        return fail_nomem("the optimiser", sizeof *o);
    o->p = p;
    o->opt = *opt;
    pesc_status s = open_memory(o);
    if (s == PESC_OK)
        *out = o;
    else
        optimizer_close(o);
    return s;
}

void optimizer_close(optimizer *o)
{
    if (!o)
        return;
    device *dev = o->p->m->dev;
    if (o->memory)
        dev->op->free(dev, o->memory);
    if (o->paged)
        dev->op->free(dev, o->paged);
    wire_close(&o->wire);
    mem_free(o);
}

/* Every rank's sums of squares by round, to those of all segments. */
static pesc_status gather_squares(optimizer *o, const float *own, float all[SHARD_SEGMENTS])
{
    const shards *s = &o->p->shards;
    int32_t size = comm_size(s->comm), rounds = shards_rounds(s);
    float by_rank[SHARD_SEGMENTS] = { 0 };
    peer_part *parts = o->wire.recv;
    for (int32_t r = 0, at = 0; r < size; at += shards_count(s, r++)) {
        parts[r] = (peer_part){ by_rank + at, (size_t)shards_count(s, r) * sizeof *by_rank };
        if (r == comm_rank(s->comm))
            memcpy(parts[r].at, own, parts[r].bytes);
    }
    TRY(comm_all_gather(s->comm, "the norm of the gradient", parts));
    for (int32_t i = 0; i < rounds; i++)
        for (int32_t r = 0; r < size && shards_own(s, r, i) >= 0; r++)
            all[shards_own(s, r, i)] = ((const float *)parts[r].at)[i];
    return PESC_OK;
}

/* What this process has of the gradient of a step: elements `flat`, which are `own` of its own. */
static tensor gradient_part(const params *p, shard_range flat, shard_range own)
{
    return p->own_grad.data ? shards_part(p->own_grad, own, 1) : shards_part(p->grad, flat, 1);
}

/* The sums of squares of this process's segments, by round. Whole segments that follow each other
 * are one op; the last of all may be shorter. */
static void sum_own(optimizer *o)
{
    device *dev = o->p->m->dev;
    const shards *s = &o->p->shards;
    for (int32_t round = 0, n = shards_count(s, comm_rank(s->comm)); round < n;) {
        int32_t first = round;
        shard_range r = shards_run(s, &round);
        int64_t count = (r.end - r.first) / s->segment, at = first * s->segment;
        int64_t whole = count * s->segment;
        if (count)
            dev->op->sumsq(dev, shards_part(o->squares, (shard_range){ first, first + count }, 1),
                           gradient_part(o->p, (shard_range){ r.first, r.first + whole },
                                         (shard_range){ at, at + whole }));
        if (r.first + whole < r.end)
            dev->op->sumsq(dev, shards_part(o->squares, (shard_range){ round - 1, round }, 1),
                           gradient_part(o->p, (shard_range){ r.first + whole, r.end },
                                         (shard_range){ at + whole, at + r.end - r.first }));
    }
}

/* The sums of squares of all segments, each from the process that has it. */
static pesc_status sum_segments(optimizer *o, float all[SHARD_SEGMENTS])
{
    device *dev = o->p->m->dev;
    const shards *s = &o->p->shards;
    int32_t n = shards_count(s, comm_rank(s->comm));
    float own[SHARD_SEGMENTS];
    sum_own(o);
    if (n)
        TRY(dev->op->download(dev, own, o->squares.data, (size_t)n * sizeof *own));
    if (s->comm)
        return gather_squares(o, own, all);
    memcpy(all, own, (size_t)n * sizeof *own);
    return PESC_OK;
}

pesc_status optimizer_norm(optimizer *o, double *norm)
{
    device *dev = o->p->m->dev;
    float all[SHARD_SEGMENTS] = { 0 }, whole;
    double sum = 0;
    TRY(sum_segments(o, all));
    for (int32_t i = 0; i < o->p->shards.n_segments; i++)
        sum += (double)all[i];
    whole = (float)sum;
    dev->op->upload(dev, o->sumsq.data, &whole, sizeof whole);
    *norm = sqrt((double)whole);
    return dev->op->sync(dev);
}

pesc_status optimizer_finite(optimizer *o, bool *finite)
{
    device *dev = o->p->m->dev;
    float sum = 0;
    tensor one = shards_part(o->squares, (shard_range){ 0, 1 }, 1);
    if (tensor_count(&o->p->master))
        dev->op->sumsq(dev, one, o->p->master);
    else
        dev->op->zero(dev, one.data, sizeof sum);
    TRY(dev->op->download(dev, &sum, one.data, sizeof sum));
    int64_t bad = !isfinite(sum);
    TRY(peers_most(dev->peers, "checking the weights", &bad));
    *finite = !bad;
    return PESC_OK;
}

pesc_status optimizer_step(optimizer *o, double lr, int64_t step)
{
    device *dev = o->p->m->dev;
    const shards *s = &o->p->shards;
    const params *p = o->p;
    bool whole = params_work_whole(p);
    adamw a = { .sumsq = o->sumsq,
                .clip = (float)o->opt.clip,
                .lr = (float)lr,
                .beta1 = (float)o->opt.beta1,
                .beta2 = (float)o->opt.beta2,
                .eps = (float)o->opt.eps,
                .weight_decay = (float)o->opt.weight_decay,
                .step = (int32_t)step };
    for (int32_t round = 0; round < shards_count(s, comm_rank(s->comm));) {
        int64_t at = round * s->segment;
        shard_range r = shards_run(s, &round), own = { at, at + r.end - r.first };
        a.w = shards_part(p->master, p->sharded ? own : r, 1);
        a.grad = gradient_part(p, r, own);
        a.copy = whole ? shards_part(p->work, r, 1) : (tensor){ 0 };
        a.m = shards_part(o->m, own, 1);
        a.v = shards_part(o->v, own, 1);
        if (o->opt.eight_bit) {
            a.m_scale = shards_part(o->m_scale, own, CODE8_BLOCK);
            a.v_scale = shards_part(o->v_scale, own, CODE8_BLOCK);
        }
        dev->op->adamw(dev, &a);
    }
    return params_gather(o->p, &o->wire);
}

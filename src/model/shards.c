#include "model/shards.h"

#include "base/mem.h"
#include "model/params.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 256, USUAL = 64, LARGE = 1 << 16 };

/* ---- who owns what ---- */

typedef struct place {
    int32_t ready, segment;
} place;

static int first_ready(const void *a, const void *b)
{
    const place *x = a, *y = b;
    return x->ready != y->ready ? (x->ready < y->ready) - (x->ready > y->ready)
                                : (x->segment > y->segment) - (x->segment < y->segment);
}

/* Where one process owns everything the order is that of the buffer. */
static void put_in_order(shards *s, const params *p)
{
    place all[SHARD_SEGMENTS];
    for (int32_t i = 0; i < s->n_segments; i++)
        all[i] = (place){ p->m->shape.cfg.n_layers, i };
    for (size_t i = 0; i < p->n_list; i++) {
        const param *q = &p->list[i];
        int64_t end = i + 1 < p->n_list ? p->list[i + 1].at : p->n;
        for (int64_t k = q->at / s->segment; k * s->segment < end; k++)
            all[k].ready = q->ready < all[k].ready ? q->ready : all[k].ready;
    }
    if (s->comm)
        qsort(all, (size_t)s->n_segments, sizeof *all, first_ready);
    for (int32_t i = 0; i < s->n_segments; i++) {
        s->order[i] = (uint16_t)all[i].segment;
        s->place[all[i].segment] = (uint16_t)i;
        s->ready[i] = all[i].ready;
    }
}

/* Elements of a segment of a buffer of n. */
static int64_t segment_of(int64_t n)
{
    int64_t wanted = n / LARGE < USUAL ? USUAL : n / LARGE;
    wanted = wanted < SHARD_SEGMENTS ? wanted : SHARD_SEGMENTS;
    int64_t segment = (n + wanted - 1) / wanted;
    return segment < SHARD_LEAST ? SHARD_LEAST : (segment + BLOCK - 1) / BLOCK * BLOCK;
}

int64_t shards_most(int64_t n, int64_t processes)
{
    int64_t segment = segment_of(n), segments = (n + segment - 1) / segment;
    int64_t most = (segments + processes - 1) / processes * segment;
    return most < n ? most : n;
}

shards shards_of(const params *p)
{
    shards s = { .comm = p->m->dev->comm, .n = p->n, .segment = segment_of(p->n) };
    s.n_segments = (int32_t)((s.n + s.segment - 1) / s.segment);
    put_in_order(&s, p);
    return s;
}

shard_range shards_segment(const shards *s, int64_t i)
{
    int64_t first = i * s->segment, end = first + s->segment;
    return (shard_range){ first, end < s->n ? end : s->n };
}

shard_range shards_within(const shards *s, int64_t i, shard_range of)
{
    shard_range r = shards_segment(s, i);
    r.first = r.first > of.first ? r.first : of.first;
    r.end = r.end < of.end ? r.end : of.end;
    return r.first < r.end ? r : (shard_range){ of.first, of.first };
}

int32_t shards_rounds(const shards *s)
{
    return shards_count(s, 0);
}

int32_t shards_count(const shards *s, int32_t rank)
{
    int32_t size = comm_size(s->comm);
    return (s->n_segments - rank + size - 1) / size;
}

int64_t shards_elements(const shards *s, int32_t rank)
{
    int64_t all = shards_count(s, rank) * s->segment;
    return all < s->n ? all : s->n;
}

int32_t shards_own(const shards *s, int32_t rank, int32_t round)
{
    int32_t at = round * comm_size(s->comm) + rank;
    return at < s->n_segments ? s->order[at] : -1;
}

shard_range shards_own_range(const shards *s, int32_t rank, int32_t round)
{
    int32_t i = shards_own(s, rank, round);
    return i < 0 ? (shard_range){ 0, 0 } : shards_segment(s, i);
}

int32_t shards_owner(const shards *s, int64_t segment)
{
    return s->place[segment] % comm_size(s->comm);
}

int64_t shards_at(const shards *s, int64_t segment)
{
    return s->place[segment] / comm_size(s->comm) * s->segment;
}

shard_range shards_run(const shards *s, int32_t *round)
{
    int32_t rank = comm_rank(s->comm);
    shard_range r = shards_own_range(s, rank, *round);
    for (++*round; *round < shards_count(s, rank); ++*round) {
        shard_range next = shards_own_range(s, rank, *round);
        if (next.first != r.end)
            break;
        r.end = next.end;
    }
    return r;
}

tensor shards_part(tensor flat, shard_range r, int64_t per)
{
    int64_t first = r.first / per, end = (r.end + per - 1) / per;
    tensor t = { .dt = flat.dt, .nd = 1, .ne = { end > first ? end - first : 0 } };
    t.data = (char *)flat.data + (size_t)first * dtype_block_bytes(flat.dt);
    return t;
}

/* ---- between processes ---- */

/* The part of a rank's segment of a round that begins at `at` and has `most` elements. */
static peer_part piece(const shards *s, tensor flat, int32_t rank, int32_t round, shard_range of)
{
    shard_range a = shards_own_range(s, rank, round);
    int64_t n = a.end - a.first, end = of.end < n ? of.end : n;
    size_t each = dtype_block_bytes(flat.dt);
    return (peer_part){ (char *)flat.data + (size_t)(a.first + of.first) * each,
                        end > of.first ? (size_t)(end - of.first) * each : 0 };
}

pesc_status shards_gather(const shards *s, wire *w, const char *what, tensor flat)
{
    int32_t size = comm_size(s->comm), own = comm_rank(s->comm);
    int64_t step = (int64_t)(w->most / dtype_block_bytes(flat.dt));
    peer_part *all = mem_alloc(2 * (size_t)size, sizeof *all);
    if (!all)
        return fail_nomem(what, (size_t)size * sizeof *all);
    pesc_status st = PESC_OK;
    for (int32_t round = 0; s->comm && round < shards_rounds(s); round++)
        for (int64_t at = 0; st == PESC_OK && at < s->segment; at += step) {
            for (int32_t r = 0; r < size; r++) {
                all[r] = piece(s, flat, r, round, (shard_range){ at, at + step });
                all[size + r] = piece(s, flat, own, round, (shard_range){ at, at + step });
            }
            st = wire_exchange(w, what, all + size, all);
        }
    mem_free(all);
    return st;
}

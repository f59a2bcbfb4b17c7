#include "dist/partition.h"

#include "base/mem.h"

#include <stdlib.h>

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

partition partition_of(const params *p, comm *c)
{
    place all[FLAT_SEGMENTS];
    partition s = { .comm = c, .n = p->n, .segment = p->segment };
    s.n_segments = (int32_t)((s.n + s.segment - 1) / s.segment);
    for (int32_t i = 0; i < s.n_segments; i++)
        all[i] = (place){ p->m->shape.cfg.n_layers, i };
    for (size_t i = 0; i < p->n_list; i++) {
        const param *q = &p->list[i];
        int64_t end = i + 1 < p->n_list ? p->list[i + 1].at : p->n;
        for (int64_t k = q->at / s.segment; k * s.segment < end; k++)
            all[k].ready = q->ready < all[k].ready ? q->ready : all[k].ready;
    }
    qsort(all, (size_t)s.n_segments, sizeof *all, first_ready);
    for (int32_t i = 0; i < s.n_segments; i++) {
        s.order[i] = (uint16_t)all[i].segment;
        s.place[all[i].segment] = (uint16_t)i;
        s.ready[i] = all[i].ready;
    }
    return s;
}

flat_range partition_segment(const partition *s, int64_t i)
{
    int64_t first = i * s->segment, end = first + s->segment;
    return (flat_range){ first, end < s->n ? end : s->n };
}

/* Segments of a rank. */
static int32_t count(const partition *s, int32_t rank)
{
    int32_t size = comm_size(s->comm);
    return (s->n_segments - rank + size - 1) / size;
}

int32_t partition_rounds(const partition *s)
{
    return count(s, 0);
}

int32_t partition_own(const partition *s, int32_t rank, int32_t round)
{
    int32_t at = round * comm_size(s->comm) + rank;
    return at < s->n_segments ? s->order[at] : -1;
}

flat_range partition_own_range(const partition *s, int32_t rank, int32_t round)
{
    int32_t i = partition_own(s, rank, round);
    return i < 0 ? (flat_range){ 0, 0 } : partition_segment(s, i);
}

int32_t partition_owner(const partition *s, int64_t segment)
{
    return s->place[segment] % comm_size(s->comm);
}

int64_t partition_at(const partition *s, int64_t segment)
{
    return s->place[segment] / comm_size(s->comm) * s->segment;
}

/* Segments that follow each other, in the flat buffers and among the own, are one range. */
pesc_status partition_divide(const partition *s, params *p)
{
    int32_t rank = comm_rank(s->comm), n = count(s, rank);
    int64_t kept = n * s->segment;
    p->n_kept = kept < s->n ? kept : s->n;
    p->n_own = 0;
    p->own = mem_alloc((size_t)n + 1, sizeof *p->own);
    if (!p->own)
        return fail_nomem("the list of what trains", (size_t)n * sizeof *p->own);
    for (int32_t round = 0; round < n; round++) {
        flat_range r = partition_own_range(s, rank, round);
        own_range *last = p->n_own ? &p->own[p->n_own - 1] : NULL;
        if (last && last->flat.end == r.first)
            last->flat.end = r.end;
        else
            p->own[p->n_own++] = (own_range){ r, round * s->segment };
    }
    return PESC_OK;
}

/* ---- between processes ---- */

/* The part of a rank's segment of a round that begins at `at` and has `most` elements. */
static peer_part piece(const partition *s, tensor flat, int32_t rank, int32_t round, flat_range of)
{
    flat_range a = partition_own_range(s, rank, round);
    int64_t n = a.end - a.first, end = of.end < n ? of.end : n;
    size_t each = dtype_block_bytes(flat.dt);
    return (peer_part){ (char *)flat.data + (size_t)(a.first + of.first) * each,
                        end > of.first ? (size_t)(end - of.first) * each : 0 };
}

pesc_status partition_gather(const partition *s, wire *w, const char *what, tensor flat)
{
    int32_t size = comm_size(s->comm), own = comm_rank(s->comm);
    int64_t step = (int64_t)(w->most / dtype_block_bytes(flat.dt));
    peer_part *all = mem_alloc(2 * (size_t)size, sizeof *all);
    if (!all)
        return fail_nomem(what, (size_t)size * sizeof *all);
    pesc_status st = PESC_OK;
    for (int32_t round = 0; round < partition_rounds(s); round++)
        for (int64_t at = 0; st == PESC_OK && at < s->segment; at += step) {
            for (int32_t r = 0; r < size; r++) {
                all[r] = piece(s, flat, r, round, (flat_range){ at, at + step });
                all[size + r] = piece(s, flat, own, round, (flat_range){ at, at + step });
            }
            st = wire_exchange(w, what, all + size, all);
        }
    mem_free(all);
    return st;
}

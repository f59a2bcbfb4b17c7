#include "dist/publish.h"

#include "base/mem.h"

#include <stdlib.h>

static const char what[] = "the updated weights";

/* A part of a parameter that forward reads in f32, which one process owns. */
typedef struct exact_piece {
    int64_t at, n;    /* in the flat buffers */
    int64_t exact_at; /* in `exact` */
    int64_t own_at;   /* in its owner's master weights */
    int32_t owner;
} exact_piece;

struct publisher {
    params *p; /* borrowed, like parts */
    const partition *parts;
    wire wire;
    exact_piece *pieces; /* [n_pieces]: of all of `exact`, by owner */
    size_t n_pieces;
    peer_part *all; /* [2 * size] */
    size_t *next;   /* [size] */
};

/* ---- opening ---- */

static int by_owner(const void *a, const void *b)
{
    const exact_piece *x = a, *y = b;
    return x->owner != y->owner ? (x->owner > y->owner) - (x->owner < y->owner)
                                : (x->at > y->at) - (x->at < y->at);
}

/* The parts of a parameter by segment, at most PARTITION_PIECE elements each; out NULL: counts
 * them. */
static size_t cut_pieces(const publisher *w, const param *q, exact_piece *out)
{
    const partition *s = w->parts;
    tensor t = params_grad(w->p, q);
    flat_range all = { q->at, q->at + tensor_count(&t) };
    size_t n = 0;
    for (int64_t at = all.first, end; at < all.end; at = end, n++) {
        int64_t i = at / s->segment;
        end = flat_within(partition_segment(s, i), all).end;
        end = end - at < PARTITION_PIECE ? end : at + PARTITION_PIECE;
        if (out)
            out[n] =
                (exact_piece){ .at = at,
                               .n = end - at,
                               .exact_at = q->exact_at + at - q->at,
                               .own_at = partition_at(s, i) + at - partition_segment(s, i).first,
                               .owner = partition_owner(s, i) };
    }
    return n;
}

static pesc_status cut_exact(publisher *w)
{
    const params *p = w->p;
    for (size_t i = 0; p->divided && i < p->n_list; i++)
        w->n_pieces += p->list[i].exact_at >= 0 ? cut_pieces(w, &p->list[i], NULL) : 0;
    w->pieces = mem_zalloc(w->n_pieces + 1, sizeof *w->pieces);
    if (!w->pieces)
        return fail_nomem(what, w->n_pieces * sizeof *w->pieces);
    for (size_t i = 0, at = 0; p->divided && i < p->n_list; i++)
        at += p->list[i].exact_at >= 0 ? cut_pieces(w, &p->list[i], w->pieces + at) : 0;
    qsort(w->pieces, w->n_pieces, sizeof *w->pieces, by_owner);
    return PESC_OK;
}

static pesc_status open_all(publisher *w)
{
    size_t size = (size_t)comm_size(w->parts->comm);
    w->all = mem_alloc(2 * size, sizeof *w->all);
    w->next = mem_alloc(size, sizeof *w->next);
    if (!w->all || !w->next)
        return fail_nomem(what, size * sizeof *w->all);
    TRY(cut_exact(w));
    return wire_open(&w->wire, w->p->m->dev, w->parts->comm, PARTITION_PIECE * sizeof(float));
}

pesc_status publisher_open(publisher **out, params *p, const partition *parts)
{
    *out = NULL;
    publisher *w = mem_zalloc(1, sizeof *w);
    if (!w)
        return fail_nomem(what, sizeof *w);
    w->p = p;
    w->parts = parts;
    pesc_status s = open_all(w);
    if (s == PESC_OK)
        *out = w;
    else
        publisher_close(w);
    return s;
}

void publisher_close(publisher *w)
{
    if (!w)
        return;
    wire_close(&w->wire);
    mem_free(w->pieces);
    mem_free(w->all);
    mem_free(w->next);
    mem_free(w);
}

/* ---- after an update ---- */

static peer_part part_of(tensor t, int64_t at, int64_t n)
{
    return (peer_part){ (float *)t.data + at, (size_t)n * sizeof(float) };
}

/* The next piece of each rank travels at a time; *more: some had one. */
static pesc_status exchange_pieces(publisher *w, bool *more)
{
    const params *p = w->p;
    device *dev = p->m->dev;
    int32_t size = comm_size(w->parts->comm), me = comm_rank(w->parts->comm);
    peer_part own = { 0 };
    *more = false;
    for (int32_t r = 0; r < size; r++) {
        const exact_piece *e = &w->pieces[w->next[r]];
        bool has = w->next[r] < w->n_pieces && e->owner == r;
        w->all[r] = has ? part_of(p->exact, e->exact_at, e->n) : (peer_part){ 0 };
        w->next[r] += has;
        *more = *more || has;
        if (has && r == me) {
            own = part_of(p->master, e->own_at, e->n);
            dev->op->copy(dev, w->all[r].at, own.at, own.bytes);
            own = w->all[r];
        }
    }
    for (int32_t r = 0; r < size; r++)
        w->all[size + r] = own;
    return *more ? wire_exchange(&w->wire, what, w->all + size, w->all) : PESC_OK;
}

static pesc_status gather_exact(publisher *w)
{
    for (int32_t r = 0; r < comm_size(w->parts->comm); r++)
        w->next[r] = 0;
    for (size_t i = w->n_pieces; i-- > 0;)
        w->next[w->pieces[i].owner] = i;
    for (bool more = true; more;)
        TRY(exchange_pieces(w, &more));
    return PESC_OK;
}

pesc_status publisher_run(publisher *w)
{
    params *p = w->p;
    TRY(partition_gather(w->parts, &w->wire, what, p->divided ? p->work : p->master));
    if (p->divided)
        return gather_exact(w);
    params_refresh(p);
    return PESC_OK;
}

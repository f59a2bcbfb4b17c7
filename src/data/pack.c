#include "data/pack.h"

#include "base/mem.h"

#include <string.h>

/* Where a micro-batch begins in the packer's arrays. */
typedef struct mark {
    size_t seq, token, target;
    int32_t group;
} mark;

struct packer {
    pack_limits lim;
    /* all micro-batches, one after the other */
    int32_t *ids, *rows, *targets;
    float *weights;
    size_t n_tokens, n_targets, cap_tokens;
    token_seq *seqs;
    pack_span *spans;
    mark *marks; /* [n_marks]: there are never more micro-batches than sequences */
    size_t n_seqs, n_marks, cap_seqs;
};

pesc_status pack_open(packer **out, pack_limits lim)
{
    *out = mem_zalloc(1, sizeof **out);
    if (!*out)
        return fail_nomem("a batch", sizeof **out);
    (*out)->lim = lim;
    return PESC_OK;
}

void pack_close(packer *p)
{
    if (!p)
        return;
    void *const all[] = { p->ids, p->rows, p->targets, p->weights, p->seqs, p->spans, p->marks };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    mem_free(p);
}

void pack_clear(packer *p)
{
    p->n_tokens = p->n_targets = p->n_seqs = p->n_marks = 0;
}

/* Makes an array hold n elements; keeps what is in it. */
static pesc_status grow(void **p, size_t n, size_t size)
{
    void *q = mem_grow(*p, n, size);
    if (!q)
        return fail_nomem("a batch", n * size);
    *p = q;
    return PESC_OK;
}

static pesc_status reserve(packer *p, size_t tokens)
{
    size_t need = p->n_tokens + tokens;
    if (need > p->cap_tokens) {
        size_t cap = need * 2;
        TRY(grow((void **)&p->ids, cap, sizeof *p->ids));
        TRY(grow((void **)&p->rows, cap, sizeof *p->rows));
        TRY(grow((void **)&p->targets, cap, sizeof *p->targets));
        TRY(grow((void **)&p->weights, cap, sizeof *p->weights));
        p->cap_tokens = cap;
    }
    if (p->n_seqs == p->cap_seqs) {
        size_t cap = p->cap_seqs ? p->cap_seqs * 2 : 64;
        TRY(grow((void **)&p->seqs, cap, sizeof *p->seqs));
        TRY(grow((void **)&p->spans, cap, sizeof *p->spans));
        TRY(grow((void **)&p->marks, cap, sizeof *p->marks));
        p->cap_seqs = cap;
    }
    return PESC_OK;
}

/* Sequences and tokens of the last micro-batch. */
static size_t last_seqs(const packer *p)
{
    return p->n_marks ? p->n_seqs - p->marks[p->n_marks - 1].seq : 0;
}

static int32_t last_tokens(const packer *p)
{
    return p->n_marks ? (int32_t)(p->n_tokens - p->marks[p->n_marks - 1].token) : 0;
}

int32_t pack_room(const packer *p)
{
    int32_t used = last_tokens(p);
    bool full = last_seqs(p) >= (size_t)p->lim.max_seqs || used >= p->lim.max_tokens;
    return full ? 0 : p->lim.max_tokens - used;
}

/* One more sequence begins no second micro-batch. */
static bool fits(const packer *p, const pack_item *item)
{
    return last_seqs(p) == 0 || (item->n + item->follows <= pack_room(p) &&
                                 item->group == p->marks[p->n_marks - 1].group);
}

pesc_status pack_add(packer *p, const pack_item *item)
{
    ASSERT(item->n > 0 && item->n_next <= item->n);
    TRY(reserve(p, (size_t)item->n));
    if (p->n_marks == 0 || !fits(p, item))
        p->marks[p->n_marks++] = (mark){ p->n_seqs, p->n_tokens, p->n_targets, item->group };
    const mark *m = &p->marks[p->n_marks - 1];
    pack_span *span = &p->spans[p->n_seqs];
    *span = (pack_span){ .first = (int32_t)(p->n_tokens - m->token),
                         .first_target = (int32_t)(p->n_targets - m->target),
                         .tag = item->tag };
    for (int32_t i = 0; i < item->n_next; i++)
        if (item->next[i] >= 0) {
            p->rows[p->n_targets] = span->first + i;
            p->targets[p->n_targets++] = item->next[i];
            span->n_targets++;
        }
    memcpy(p->ids + p->n_tokens, item->ids, (size_t)item->n * sizeof *p->ids);
    p->seqs[p->n_seqs++] = (token_seq){
        .n = item->n, .past = item->past, .kv_seq = item->kv_seq, .whole = item->whole
    };
    p->n_tokens += (size_t)item->n;
    return PESC_OK;
}

pesc_status pack_flush(packer *p, pack_run run, void *ud)
{
    if (pack_count(p) == 0)
        return PESC_OK;
    const micro_batch b = pack_at(p, 0);
    TRY(run(ud, &b));
    pack_clear(p);
    return PESC_OK;
}

pesc_status pack_push(packer *p, const pack_item *item, pack_run run, void *ud)
{
    if (!fits(p, item))
        TRY(pack_flush(p, run, ud));
    return pack_add(p, item);
}

int32_t pack_count(const packer *p)
{
    return (int32_t)p->n_marks;
}

micro_batch pack_at(packer *p, int32_t i)
{
    const mark here = p->marks[i];
    bool last = (size_t)i + 1 == p->n_marks;
    const mark end = last ? (mark){ p->n_seqs, p->n_tokens, p->n_targets, 0 } : p->marks[i + 1];
    size_t at = here.token; /* the arrays may have moved since the sequences were added */
    for (size_t s = here.seq; s < end.seq; at += (size_t)p->seqs[s++].n)
        p->seqs[s].ids = p->ids + at;
    return (micro_batch){ .seqs = p->seqs + here.seq,
                          .spans = p->spans + here.seq,
                          .n_seqs = (int32_t)(end.seq - here.seq),
                          .n_tokens = (int32_t)(end.token - here.token),
                          .rows = p->rows + here.target,
                          .targets = p->targets + here.target,
                          .weights = p->weights + here.target,
                          .n_targets = (int32_t)(end.target - here.target),
                          .group = here.group };
}

int64_t pack_tokens(const packer *p)
{
    return (int64_t)p->n_tokens;
}

int64_t pack_targets(const packer *p)
{
    return (int64_t)p->n_targets;
}

int64_t pack_seqs(const packer *p)
{
    return (int64_t)p->n_seqs;
}

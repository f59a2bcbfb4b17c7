#include "train/batch.h"

#include "base/mem.h"

#include <string.h>

struct batch {
    dataset *data; /* borrowed */
    batch_options opt;
    /* the step's sequences, one after the other */
    int32_t *ids, *labels;
    size_t n_tokens, cap_tokens;
    int32_t *lengths;
    size_t n_seqs, cap_seqs;
    /* its forwards: slices of the arrays below */
    micro_batch *micros;
    size_t n_micros;
    token_seq *seqs;
    int32_t *rows, *targets;
    float *weights;
    size_t n_targets;
};

pesc_status batch_open(batch **out, dataset *data, batch_options opt)
{
    *out = mem_zalloc(1, sizeof **out);
    if (!*out)
        return fail_nomem("a batch", sizeof **out);
    (*out)->data = data;
    (*out)->opt = opt;
    return PESC_OK;
}

void batch_close(batch *b)
{
    if (!b)
        return;
    void *const all[] = { b->ids,  b->labels, b->lengths, b->micros,
                          b->seqs, b->rows,   b->targets, b->weights };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    mem_free(b);
}

/* Makes an array hold n elements; keeps what is in it. */
static pesc_status fit(void **p, size_t n, size_t size)
{
    void *q = mem_grow(*p, n, size);
    if (!q)
        return fail_nomem("a batch", n * size);
    *p = q;
    return PESC_OK;
}

static pesc_status add_sequence(batch *b, const sequence *s)
{
    size_t need = b->n_tokens + (size_t)s->n;
    if (need > b->cap_tokens) {
        size_t cap = need * 2;
        TRY(fit((void **)&b->ids, cap, sizeof *b->ids));
        TRY(fit((void **)&b->labels, cap, sizeof *b->labels));
        TRY(fit((void **)&b->rows, cap, sizeof *b->rows));
        TRY(fit((void **)&b->targets, cap, sizeof *b->targets));
        TRY(fit((void **)&b->weights, cap, sizeof *b->weights));
        b->cap_tokens = cap;
    }
    if (b->n_seqs == b->cap_seqs) {
        size_t cap = b->cap_seqs ? b->cap_seqs * 2 : 64;
        TRY(fit((void **)&b->lengths, cap, sizeof *b->lengths));
        TRY(fit((void **)&b->seqs, cap, sizeof *b->seqs));
        TRY(fit((void **)&b->micros, cap, sizeof *b->micros));
        b->cap_seqs = cap;
    }
    memcpy(b->ids + b->n_tokens, s->ids, (size_t)s->n * sizeof *b->ids);
    memcpy(b->labels + b->n_tokens, s->labels, (size_t)s->n * sizeof *b->labels);
    b->lengths[b->n_seqs++] = s->n;
    b->n_tokens = need;
    return PESC_OK;
}

static int32_t count_targets(const int32_t *labels, int32_t n)
{
    int32_t count = 0;
    for (int32_t i = 1; i < n; i++)
        count += labels[i] >= 0;
    return count;
}

/* Fills sequence s, whose tokens begin at `at`, into the forward m. */
static void place(batch *b, micro_batch *m, size_t s, size_t at, int64_t all_targets)
{
    int32_t n = b->lengths[s], own = count_targets(b->labels + at, n);
    double w = b->opt.loss == LOSS_TOKEN ? 1.0 / (double)all_targets
                                         : 1.0 / ((double)b->n_seqs * (double)own);
    m->seqs[m->n_seqs++] = (token_seq){ .ids = b->ids + at, .n = n };
    for (int32_t i = 1; i < n; i++)
        if (b->labels[at + (size_t)i] >= 0) {
            m->rows[m->n_targets] = m->n_tokens + i - 1;
            m->targets[m->n_targets] = b->labels[at + (size_t)i];
            m->weights[m->n_targets++] = (float)w;
        }
    m->n_tokens += n;
}

static void pack(batch *b)
{
    size_t at = 0;
    int64_t all = 0;
    for (size_t s = 0; s < b->n_seqs; at += (size_t)b->lengths[s++])
        all += count_targets(b->labels + at, b->lengths[s]);
    at = b->n_micros = b->n_targets = 0;
    micro_batch *m = NULL;
    for (size_t s = 0; s < b->n_seqs; at += (size_t)b->lengths[s++]) {
        if (!m || !b->opt.packing || m->n_tokens + b->lengths[s] > b->opt.micro_tokens) {
            m = &b->micros[b->n_micros++];
            *m = (micro_batch){ .seqs = b->seqs + s,
                                .rows = b->rows + b->n_targets,
                                .targets = b->targets + b->n_targets,
                                .weights = b->weights + b->n_targets };
        }
        int32_t before = m->n_targets;
        place(b, m, s, at, all);
        b->n_targets += (size_t)(m->n_targets - before);
    }
}

pesc_status batch_load(batch *b, uint64_t first, int32_t count)
{
    b->n_tokens = b->n_seqs = 0;
    for (int32_t i = 0; i < count; i++) {
        const sequence *list;
        size_t n;
        TRY(dataset_at(b->data, first + (uint64_t)i, &list, &n));
        for (size_t j = 0; j < n; j++)
            TRY(add_sequence(b, &list[j]));
    }
    pack(b);
    return PESC_OK;
}

int32_t batch_micros(const batch *b)
{
    return (int32_t)b->n_micros;
}

const micro_batch *batch_micro(const batch *b, int32_t i)
{
    return &b->micros[i];
}

int64_t batch_tokens(const batch *b)
{
    return (int64_t)b->n_tokens;
}

int64_t batch_targets(const batch *b)
{
    return (int64_t)b->n_targets;
}

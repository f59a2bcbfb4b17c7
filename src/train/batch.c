#include "train/batch.h"

#include "base/mem.h"

struct batch {
    dataset *data; /* borrowed */
    packer *pack;
    loss_kind loss;
    packer *ahead;        /* the records of the next load */
    uint64_t ahead_first; /* which they are */
    int32_t ahead_count;  /* 0: none are read */
};

pesc_status batch_open(batch **out, dataset *data, batch_options opt)
{
    *out = NULL;
    batch *b = mem_zalloc(1, sizeof *b);
    if (!b)
        return fail_nomem("a batch", sizeof *b);
    b->data = data;
    b->loss = opt.loss;
    pack_limits lim = { .max_tokens = opt.micro_tokens,
                        .max_seqs = opt.packing ? opt.micro_tokens : 1 };
    pesc_status s = pack_open(&b->pack, lim);
    if (s == PESC_OK)
        s = pack_open(&b->ahead, lim);
    if (s == PESC_OK)
        *out = b;
    else
        batch_close(b);
    return s;
}

void batch_close(batch *b)
{
    if (!b)
        return;
    pack_close(b->pack);
    pack_close(b->ahead);
    mem_free(b);
}

static void weigh(const batch *b)
{
    double targets = (double)batch_targets(b), seqs = (double)pack_seqs(b->pack);
    for (int32_t i = 0; i < batch_micros(b); i++) {
        micro_batch m = batch_micro(b, i);
        for (int32_t s = 0; s < m.n_seqs; s++) {
            const pack_span *at = &m.spans[s];
            double w = b->loss == LOSS_TOKEN ? 1.0 / targets : 1.0 / (seqs * (double)at->n_targets);
            for (int32_t k = 0; k < at->n_targets; k++)
                m.weights[at->first_target + k] = (float)w;
        }
    }
}

static pesc_status read_records(const batch *b, packer *to, uint64_t first, int32_t count)
{
    pack_clear(to);
    for (int32_t i = 0; i < count; i++) {
        const sequence *list;
        size_t n;
        TRY(dataset_at(b->data, first + (uint64_t)i, &list, &n));
        for (size_t j = 0; j < n; j++) /* the first token has nothing before it that predicts it */
            TRY(pack_add(to, &(pack_item){ .ids = list[j].ids,
                                           .n = list[j].n,
                                           .next = list[j].labels + 1,
                                           .n_next = list[j].n - 1 }));
    }
    return PESC_OK;
}

void batch_read_ahead(batch *b, uint64_t first, int32_t count)
{
    bool fine = read_records(b, b->ahead, first, count) == PESC_OK;
    b->ahead_first = first;
    b->ahead_count = fine ? count : 0;
}

int32_t batch_ahead(const batch *b)
{
    return b->ahead_count;
}

pesc_status batch_load(batch *b, uint64_t first, int32_t count)
{
    if (b->ahead_count != count || b->ahead_first != first)
        TRY(read_records(b, b->ahead, first, count));
    packer *ready = b->ahead;
    b->ahead = b->pack;
    b->pack = ready;
    b->ahead_count = 0;
    weigh(b);
    return PESC_OK;
}

int32_t batch_micros(const batch *b)
{
    return pack_count(b->pack);
}

micro_batch batch_micro(const batch *b, int32_t i)
{
    return pack_at(b->pack, i);
}

int64_t batch_tokens(const batch *b)
{
    return pack_tokens(b->pack);
}

int64_t batch_targets(const batch *b)
{
    return pack_targets(b->pack);
}

#include "train/batch.h"

#include "base/mem.h"

#include <string.h>

/* The records of a step. */
typedef struct contents {
    packer *pack, *mismatched; /* NULL: none */
    batch_answer *answers;     /* of the sequences, in their order */
    size_t n, cap;
    int32_t *groups; /* [n_groups]: of the records, while they are read */
    size_t n_groups;
    batch_counts counts;
} contents;

struct batch {
    dataset *data; /* borrowed */
    batch_options opt;
    contents now;
    contents ahead;       /* the records of the next load */
    uint64_t ahead_first; /* which they are */
    int32_t ahead_count;  /* 0: none are read */
};

static pesc_status open_contents(contents *c, const batch *b, pack_limits lim)
{
    TRY(pack_open(&c->pack, lim));
    return b->opt.mismatched ? pack_open(&c->mismatched, lim) : PESC_OK;
}

pesc_status batch_open(batch **out, dataset *data, batch_options opt)
{
    *out = NULL;
    batch *b = mem_zalloc(1, sizeof *b);
    if (!b)
        return fail_nomem("a batch", sizeof *b);
    b->data = data;
    b->opt = opt;
    int32_t together = dataset_how(data)->wanted == RECORD_PAIR ? 2 : 1;
    pack_limits lim = { .max_tokens = opt.micro_tokens,
                        .max_seqs = opt.packing ? opt.micro_tokens : together };
    pesc_status s = open_contents(&b->now, b, lim);
    if (s == PESC_OK)
        s = open_contents(&b->ahead, b, lim);
    if (s == PESC_OK)
        *out = b;
    else
        batch_close(b);
    return s;
}

static void close_contents(contents *c)
{
    pack_close(c->pack);
    pack_close(c->mismatched);
    mem_free(c->answers);
    mem_free(c->groups);
}

void batch_close(batch *b)
{
    if (!b)
        return;
    close_contents(&b->now);
    close_contents(&b->ahead);
    mem_free(b);
}

static void weigh(const batch *b)
{
    double targets = (double)batch_targets(b), seqs = (double)pack_seqs(b->now.pack);
    for (int32_t i = 0; i < batch_micros(b); i++) {
        micro_batch m = batch_micro(b, i);
        for (int32_t s = 0; s < m.n_seqs; s++) {
            const pack_span *at = &m.spans[s];
            double w =
                b->opt.loss == LOSS_TOKEN ? 1.0 / targets : 1.0 / (seqs * (double)at->n_targets);
            for (int32_t k = 0; k < at->n_targets; k++)
                m.weights[at->first_target + k] = (float)w;
        }
    }
}

static pesc_status add_answer(contents *to, const batch_answer *a)
{
    if (to->n == to->cap) {
        size_t cap = to->cap * 2 + 64;
        batch_answer *p = mem_grow(to->answers, cap, sizeof *p);
        if (!p)
            return fail_nomem("a batch", cap * sizeof *p);
        to->answers = p;
        to->cap = cap;
    }
    to->answers[to->n++] = *a;
    return PESC_OK;
}

/* Where the answer is among what a sequence predicts: its targets, or all its tokens. */
static batch_answer answer_of(const sequence *s, bool whole)
{
    batch_answer a = { .record = s->record, .role = s->role, .n = dataset_targets(s) };
    for (int32_t i = 1; whole && s->labels[i] < 0; i++)
        a.first++;
    return a;
}

static void count(batch_counts *c, const batch_answer *a, int64_t targets)
{
    bool chosen = a->role == ANSWER_CHOSEN;
    c->chosen += chosen;
    c->rejected += a->role == ANSWER_REJECTED;
    c->chosen_tokens += chosen ? a->n : 0;
    c->chosen_targets += chosen ? targets : 0;
}

/* follows: tokens of the other answer of the pair, which comes after this one. */
static pesc_status add_sequence(const batch *b, contents *to, const sequence *s, int32_t follows,
                                int32_t group)
{
    bool whole = b->opt.whole_chosen && s->role == ANSWER_CHOSEN;
    batch_answer a = answer_of(s, whole);
    count(&to->counts, &a, whole ? s->n - 1 : a.n);
    /* the first token has nothing before it that predicts it */
    TRY(pack_add(to->pack, &(pack_item){ .ids = s->ids,
                                         .n = s->n,
                                         .next = (whole ? s->ids : s->labels) + 1,
                                         .n_next = s->n - 1,
                                         .follows = follows,
                                         .group = group,
                                         .tag = to->n }));
    return add_answer(to, &a);
}

static pesc_status add_mismatched(const batch *b, contents *to, uint64_t index)
{
    sequence s;
    TRY(dataset_mismatched(b->data, index, b->opt.mismatched, &s));
    return pack_add(
        to->mismatched,
        &(pack_item){
            .ids = s.ids, .n = s.n, .next = s.labels + 1, .n_next = s.n - 1, .tag = index });
}

static pesc_status add_record(const batch *b, contents *to, uint64_t position, int32_t group)
{
    const sequence *list;
    size_t n;
    TRY(dataset_at(b->data, position, &list, &n));
    for (size_t j = 0; j < n; j++) {
        bool pair = list[j].role == ANSWER_CHOSEN && j + 1 < n;
        TRY(add_sequence(b, to, &list[j], pair ? list[j + 1].n : 0, group));
    }
    return n && to->mismatched ? add_mismatched(b, to, list[0].record) : PESC_OK;
}

/* The groups of the records from position `first` on: 1 + their domain. */
static pesc_status find_groups(const batch *b, contents *to, uint64_t first, int32_t count)
{
    const expertcfg *of = b->opt.domains;
    if ((size_t)count > to->n_groups) {
        int32_t *more = mem_grow(to->groups, (size_t)count, sizeof *more);
        if (!more)
            return fail_nomem("a batch", (size_t)count * sizeof *more);
        to->groups = more;
        to->n_groups = (size_t)count;
    }
    for (int32_t i = 0; i < count; i++) {
        const uint64_t index = dataset_record(b->data, first + (uint64_t)i);
        const char *name;
        size_t number, d = 0;
        TRY(dataset_domain(b->data, index, &number, &name));
        while (d < of->n_domains && strcmp(of->domains[d], name) != 0)
            d++;
        to->groups[i] = d < of->n_domains ? (int32_t)d + 1 : 0;
    }
    return PESC_OK;
}

/* Domain by domain, so that each fills micro-batches of its own. */
static pesc_status read_domains(const batch *b, contents *to, uint64_t first, int32_t count)
{
    const int32_t groups = (int32_t)b->opt.domains->n_domains + 1;
    TRY(find_groups(b, to, first, count));
    for (int32_t g = 0; g < groups; g++)
        for (int32_t i = 0; i < count; i++)
            if (to->groups[i] == g)
                TRY(add_record(b, to, first + (uint64_t)i, g));
    return PESC_OK;
}

static pesc_status read_records(const batch *b, contents *to, uint64_t first, int32_t count)
{
    pack_clear(to->pack);
    if (to->mismatched)
        pack_clear(to->mismatched);
    to->n = 0;
    to->counts = (batch_counts){ 0 };
    if (b->opt.domains)
        return read_domains(b, to, first, count);
    for (int32_t i = 0; i < count; i++)
        TRY(add_record(b, to, first + (uint64_t)i, 0));
    return PESC_OK;
}

void batch_read_ahead(batch *b, uint64_t first, int32_t count)
{
    bool fine = read_records(b, &b->ahead, first, count) == PESC_OK;
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
        TRY(read_records(b, &b->ahead, first, count));
    contents ready = b->ahead;
    b->ahead = b->now;
    b->now = ready;
    b->ahead_count = 0;
    weigh(b);
    return PESC_OK;
}

int32_t batch_micros(const batch *b)
{
    return pack_count(b->now.pack);
}

micro_batch batch_micro(const batch *b, int32_t i)
{
    return pack_at(b->now.pack, i);
}

int64_t batch_tokens(const batch *b)
{
    return pack_tokens(b->now.pack);
}

int64_t batch_targets(const batch *b)
{
    return pack_targets(b->now.pack);
}

const batch_answer *batch_answer_of(const batch *b, const pack_span *span)
{
    return &b->now.answers[span->tag];
}

batch_counts batch_count(const batch *b)
{
    return b->now.counts;
}

int32_t batch_mismatched_micros(const batch *b)
{
    return b->now.mismatched ? pack_count(b->now.mismatched) : 0;
}

micro_batch batch_mismatched(const batch *b, int32_t i)
{
    return pack_at(b->now.mismatched, i);
}

/* pairs: which of two answers a model finds more likely. Of several processes each scores every
 * size-th pair; then all have the scores of all and add them up in the order of the file. */
#include "base/args.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "data/dataset.h"
#include "infer/score.h"
#include "infer/session.h"

#include <math.h>

static const char what[] = "an evaluation of pairs";

/* Of a pair: the chosen answer, then the rejected one; count 0: it is too long. */
typedef struct pair_score {
    score of[2];
} pair_score;

typedef struct pairs {
    pesc_session *s;
    peers *peers; /* NULL: one process */
    dataset *data;
    uint64_t n;
    pair_score *scores; /* [n], by rank: those of rank 0, those of rank 1 ... */
} pairs;

static uint64_t first_of(const pairs *p, int32_t rank)
{
    return (uint64_t)rank * p->n / (uint64_t)peers_size(p->peers);
}

static pesc_status score_pair(const pairs *p, scorer *with, uint64_t index)
{
    const sequence *q;
    size_t n;
    TRY(dataset_samples(p->data, index, &q, &n));
    if (!dataset_trains(q, n))
        return fail(PESC_FORMAT, "pair %llu: an answer is empty", (unsigned long long)index + 1);
    if (q[0].n > p->s->n_ctx || q[1].n > p->s->n_ctx)
        return PESC_OK;
    for (size_t i = 0; i < 2; i++)
        TRY(scorer_add(with, q[i].ids, q[i].labels + 1, q[i].n - 1, &p->scores[index].of[i]));
    return PESC_OK;
}

static pesc_status score_own(const pairs *p)
{
    scorer *with = NULL;
    int32_t rank = peers_rank(p->peers);
    uint64_t first = first_of(p, rank), end = first_of(p, rank + 1);
    pesc_status s = scorer_open(&with, p->s->model, p->s->n_ctx);
    for (uint64_t i = first; s == PESC_OK && i < end; i++) {
        s = score_pair(p, with, i);
        log_progress("scoring pairs", i - first, end - first);
    }
    if (s == PESC_OK)
        s = scorer_flush(with);
    if (s == PESC_OK)
        log_progress("scoring pairs", end - first, end - first);
    scorer_close(with);
    return s;
}

static pesc_status exchange(const pairs *p)
{
    size_t size = (size_t)peers_size(p->peers);
    peer_part *parts = mem_alloc(size, sizeof *parts);
    if (!parts)
        return fail_nomem(what, size * sizeof *parts);
    for (size_t r = 0; r < size; r++) {
        uint64_t first = first_of(p, (int32_t)r), end = first_of(p, (int32_t)r + 1);
        parts[r] = (peer_part){ p->scores + first, (end - first) * sizeof *p->scores };
    }
    pesc_status s = peers_gather(p->peers, what, parts);
    mem_free(parts);
    return s;
}

static void conclude(const pairs *p, pesc_pairs_report *r)
{
    double right = 0, right_norm = 0;
    for (uint64_t i = 0; i < p->n; i++) {
        const score *c = &p->scores[i].of[0], *j = &p->scores[i].of[1];
        if (!c->count) {
            r->too_long++;
            continue;
        }
        double chosen = -c->sum, rejected = -j->sum;
        double norm = chosen / (double)c->count - rejected / (double)j->count;
        r->pairs++;
        right += chosen > rejected;
        right_norm += norm > 0;
        r->margin_norm += norm;
        r->logp_chosen += chosen;
        r->logp_rejected += rejected;
    }
    double n = (double)r->pairs;
    r->accuracy = right / n;
    r->accuracy_stderr = sqrt(r->accuracy * (1 - r->accuracy) / n);
    r->accuracy_norm = right_norm / n;
    r->margin_norm /= n;
    r->logp_chosen /= n;
    r->logp_rejected /= n;
    r->margin = r->logp_chosen - r->logp_rejected;
}

static pesc_status run(pairs *p, const char *file, const pesc_eval_options *o)
{
    const pesc_model *m = p->s->model;
    dataset_options d = { .paths = &file,
                          .n_paths = 1,
                          .wanted = RECORD_PAIR,
                          .seq_len = p->s->n_ctx,
                          DATASET_RECORDS(o),
                          DATASET_MODEL(m) };
    TRY(dataset_open(&p->data, &d));
    p->n = dataset_count(p->data);
    if (o->limit && p->n > (uint64_t)o->limit)
        p->n = (uint64_t)o->limit;
    p->scores = mem_zalloc(p->n ? p->n : 1, sizeof *p->scores);
    if (!p->scores)
        return fail_nomem(what, p->n * sizeof *p->scores);
    TRY(peers_agree(p->peers, what, score_own(p)));
    return exchange(p);
}

pesc_status pesc_eval_pairs(pesc_session *s, const char *file, const pesc_eval_options *opt,
                            pesc_pairs_report *out)
{
    status_clear();
    NEED(s);
    NEED(file);
    NEED_SIZED(out);
    DEVICE_CALL(s->model->dev);
    pesc_eval_options o;
    pesc_pairs_report r = { 0 };
    pairs p = { .s = s, .peers = s->model->dev->peers };
    double began = clock_seconds();
    ARGS_CLEAR(out);
    TRY(options_take(PESC_OPTIONS_EVAL, &o, opt));
    pesc_status st = run(&p, file, &o);
    if (st == PESC_OK)
        conclude(&p, &r);
    r.seconds = clock_seconds() - began;
    ARGS_WRITE(out, &r);
    dataset_close(p.data);
    mem_free(p.scores);
    return st;
}

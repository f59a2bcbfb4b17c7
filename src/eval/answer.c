#include "eval/answer.h"

#include "base/mem.h"
#include "infer/session.h"

#include <math.h>

typedef struct slot {
    question q;
    size_t fed; /* of q.ids */
    bool busy;
} slot;

typedef struct answerer {
    pesc_model *m;
    const answer_source *from;
    slot *slots;
    int32_t n_slots, n_ctx;
    int32_t most; /* tokens of a forward */
    kvcache *kv;
    pass *pass;
    float *logits; /* [slots, V] */
    bool no_more;  /* questions */
    /* the next forward */
    token_seq *seqs;
    int32_t *rows;  /* of slots whose last token is in it */
    slot **waiting; /* these slots */
    int32_t n_seqs, n_rows, n_tokens;
} answerer;

/* ---- slots ---- */

static pesc_status fill(answerer *a, slot *l)
{
    if (l->busy || a->no_more)
        return PESC_OK;
    bool more = true;
    l->q.ids.n = 0;
    TRY(a->from->next(a->from->ud, &l->q, &more));
    a->no_more = !more;
    l->busy = more;
    l->fed = 0;
    kvcache_truncate(a->kv, (int32_t)(l - a->slots), 0);
    return PESC_OK;
}

static pesc_status finish(answerer *a, slot *l)
{
    l->busy = false;
    return a->from->done(a->from->ud, &l->q);
}

/* The most likely token; ties go to the lowest id. */
static pesc_status most_likely(const float *logits, int32_t n, int32_t *id)
{
    *id = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!isfinite(logits[i]))
            return fail(PESC_NUMERIC, "the logit of token %d is not finite", i);
        if (logits[i] > logits[*id])
            *id = i;
    }
    return PESC_OK;
}

static pesc_status choose(answerer *a, slot *l, const float *logits)
{
    question *q = &l->q;
    int32_t id;
    TRY(most_likely(logits, a->m->cfg.vocab, &id));
    if (id == q->end || session_ends(a->m, id))
        return finish(a, l);
    TRY(id_list_add(&q->ids, id));
    bool full = q->ids.n - q->n_prompt >= (size_t)q->max_tokens || q->ids.n >= (size_t)a->n_ctx;
    return full ? finish(a, l) : PESC_OK;
}

/* ---- forwards ---- */

static void feed(answerer *a, slot *l)
{
    size_t left = l->q.ids.n - l->fed, room = (size_t)(a->most - a->n_tokens);
    int32_t n = (int32_t)(left < room ? left : room);
    if (!l->busy || n == 0)
        return;
    a->seqs[a->n_seqs++] = (token_seq){ .ids = l->q.ids.ids + l->fed,
                                        .n = n,
                                        .past = (int32_t)l->fed,
                                        .kv_seq = (int32_t)(l - a->slots) };
    l->fed += (size_t)n;
    a->n_tokens += n;
    if (l->fed < l->q.ids.n)
        return;
    a->rows[a->n_rows] = a->n_tokens - 1;
    a->waiting[a->n_rows++] = l;
}

static pesc_status forward(answerer *a)
{
    tensor logits;
    size_t vocab = (size_t)a->m->cfg.vocab;
    device *dev = a->m->dev;
    TRY(pass_set(a->pass, a->seqs, a->n_seqs, a->rows, a->n_rows));
    TRY(model_fwd(a->m, a->pass, &logits));
    if (a->n_rows)
        TRY(dev->op->download(dev, a->logits, logits.data,
                              (size_t)a->n_rows * vocab * sizeof *a->logits));
    for (int32_t i = 0; i < a->n_rows; i++)
        TRY(choose(a, a->waiting[i], a->logits + (size_t)i * vocab));
    return PESC_OK;
}

static pesc_status run(answerer *a)
{
    for (;;) {
        a->n_seqs = a->n_rows = a->n_tokens = 0;
        for (int32_t i = 0; i < a->n_slots; i++) {
            TRY(fill(a, &a->slots[i]));
            feed(a, &a->slots[i]);
        }
        if (a->n_seqs == 0)
            return PESC_OK;
        TRY(forward(a));
    }
}

static pesc_status open_all(answerer *a)
{
    size_t n = (size_t)a->n_slots;
    pass_limits lim = { .max_tokens = a->most, .max_seqs = a->n_slots, .max_out = a->n_slots };
    a->slots = mem_zalloc(n, sizeof *a->slots);
    a->seqs = mem_alloc(n, sizeof *a->seqs);
    a->rows = mem_alloc(n, sizeof *a->rows);
    a->waiting = mem_alloc(n, sizeof *a->waiting);
    a->logits = mem_alloc(n * (size_t)a->m->cfg.vocab, sizeof *a->logits);
    if (!a->slots || !a->seqs || !a->rows || !a->waiting || !a->logits)
        return fail_nomem("answers", n * (size_t)a->m->cfg.vocab * sizeof *a->logits);
    TRY(kvcache_open(&a->kv, a->m->dev, &a->m->cfg, a->m->act_dt, a->n_slots, a->n_ctx,
                     (int64_t)a->n_slots * a->n_ctx));
    return pass_open(&a->pass, a->m, lim, a->kv);
}

pesc_status answer_all(pesc_model *m, int32_t slots, int32_t n_ctx, const answer_source *from)
{
    answerer a = { .m = m, .from = from, .n_slots = slots, .n_ctx = n_ctx };
    a.most = m->dev->head_rows > slots ? m->dev->head_rows : slots;
    pesc_status s = open_all(&a);
    if (s == PESC_OK)
        s = run(&a);
    pass_close(a.pass);
    kvcache_close(a.kv);
    for (int32_t i = 0; a.slots && i < slots; i++)
        mem_free(a.slots[i].q.ids.ids);
    mem_free(a.slots);
    mem_free(a.seqs);
    mem_free(a.rows);
    mem_free(a.waiting);
    mem_free(a.logits);
    return s;
}

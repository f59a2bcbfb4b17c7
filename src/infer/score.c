#include "infer/score.h"

#include "base/args.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "data/pack.h"

#include <math.h>

enum { DEFAULT_WINDOW = 2048, CACHED = 64 }; /* CACHED: sequences of the cache */

/* ---- losses ---- */

struct scorer {
    pesc_model *m; /* borrowed */
    packer *pack;  /* the next forward; the tag of a sequence is its score */
    kvcache *kv;
    pass *pass;
    void *memory;
    tensor loss, targets; /* f32, i32 [most] on the device */
    float *losses;        /* [most] */
    int32_t most;         /* tokens of a forward */
    int32_t seq;          /* of the cache: the one that was begun last */
};

static pesc_status open_device(scorer *s, int32_t n_ctx)
{
    pesc_model *m = s->m;
    size_t each = (size_t)s->most * 4;
    arena a = { 0 };
    (void)arena_take(&a, each);
    (void)arena_take(&a, each);
    /* one forward, and the part before it of the one sequence that continues in it */
    TRY(kvcache_open(&s->kv, m->dev, &m->shape.cfg, m->shape.act_dt, CACHED, n_ctx,
                     (int64_t)n_ctx + s->most));
    TRY(pass_open(&s->pass, m, (pass_limits){ s->most, CACHED, s->most }, s->kv));
    TRY(m->dev->op->alloc(m->dev, a.used, &s->memory));
    a = (arena){ .base = s->memory, .size = a.used };
    s->loss = tensor_take1(&a, DT_F32, s->most);
    s->targets = tensor_take1(&a, DT_I32, s->most);
    return PESC_OK;
}

pesc_status scorer_open(scorer **out, pesc_model *m, int32_t n_ctx)
{
    *out = NULL;
    scorer *s = mem_zalloc(1, sizeof *s);
    if (!s)
        return fail_nomem("a scorer", sizeof *s);
    int64_t all = (int64_t)CACHED * n_ctx;
    s->m = m;
    s->most = all < m->dev->head_rows ? (int32_t)all : m->dev->head_rows;
    pesc_status st =
        pack_open(&s->pack, (pack_limits){ .max_tokens = s->most, .max_seqs = CACHED });
    if (st == PESC_OK && !(s->losses = mem_alloc((size_t)s->most, sizeof *s->losses)))
        st = fail_nomem("a scorer", (size_t)s->most * sizeof *s->losses);
    if (st == PESC_OK)
        st = open_device(s, n_ctx);
    if (st == PESC_OK)
        *out = s;
    else
        scorer_close(s);
    return st;
}

void scorer_close(scorer *s)
{
    if (!s)
        return;
    if (s->memory)
        s->m->dev->op->free(s->m->dev, s->memory);
    pass_close(s->pass);
    kvcache_close(s->kv);
    pack_close(s->pack);
    mem_free(s->losses);
    mem_free(s);
}

/* Gives each sequence the losses of its targets. */
static pesc_status add_losses(scorer *s, const micro_batch *b, tensor logits)
{
    device *dev = s->m->dev;
    size_t bytes = (size_t)b->n_targets * 4;
    tensor losses = tensor_slice(&s->loss, 0, b->n_targets);
    dev->op->upload(dev, s->targets.data, b->targets, bytes);
    dev->op->xent_fwd(dev, losses, logits, tensor_slice(&s->targets, 0, b->n_targets));
    TRY(dev->op->download(dev, s->losses, s->loss.data, bytes));
    for (int32_t q = 0; q < b->n_seqs; q++) {
        const pack_span *at = &b->spans[q];
        score *to = (score *)at->tag;
        for (int32_t i = at->first_target; i < at->first_target + at->n_targets; i++) {
            if (!isfinite(s->losses[i]))
                return fail(PESC_NUMERIC, "the loss at token %d of a window is not finite",
                            b->seqs[q].past + b->rows[i] - at->first);
            to->sum += (double)s->losses[i];
            to->count++;
        }
    }
    return PESC_OK;
}

pesc_status scorer_flush(scorer *s)
{
    tensor logits;
    if (pack_count(s->pack) == 0)
        return PESC_OK;
    const micro_batch b = pack_at(s->pack, 0);
    TRY(pass_set(s->pass, b.seqs, b.n_seqs, b.rows, b.n_targets));
    TRY(model_fwd(s->m, s->pass, &logits));
    if (b.n_targets)
        TRY(add_losses(s, &b, logits));
    for (int32_t i = 0; i + 1 < b.n_seqs; i++) /* the last one may continue */
        kvcache_truncate(s->kv, b.seqs[i].kv_seq, 0);
    pack_clear(s->pack);
    return PESC_OK;
}

/* A sequence that does not fit fills the forward and continues in the next one. */
pesc_status scorer_add(scorer *s, const int32_t *ids, const int32_t *targets, int32_t n, score *out)
{
    if (pack_room(s->pack) == 0)
        TRY(scorer_flush(s));
    if (pack_count(s->pack) == 0)
        kvcache_truncate(s->kv, s->seq, 0);
    s->seq = (s->seq + 1) % CACHED;
    for (int32_t at = 0; at < n;) {
        int32_t here = (int32_t)num_min(n - at, pack_room(s->pack));
        pack_item piece = { .ids = ids + at,
                            .next = targets + at,
                            .n = here,
                            .n_next = here,
                            .past = at,
                            .whole = n + 1, /* with the last target */
                            .kv_seq = s->seq,
                            .tag = (uintptr_t)out };
        TRY(pack_add(s->pack, &piece));
        at += here;
        if (pack_room(s->pack) == 0)
            TRY(scorer_flush(s));
    }
    return PESC_OK;
}

/* ---- perplexity ---- */

static pesc_status windows(pesc_model *m, const id_list *ids, int32_t n_ctx, score *out)
{
    scorer *s = NULL;
    pesc_status st = scorer_open(&s, m, n_ctx);
    for (size_t at = 0; st == PESC_OK && at + 1 < ids->n; at += (size_t)n_ctx) {
        size_t left = ids->n - at;
        int32_t n = (int32_t)(left < (size_t)n_ctx ? left : (size_t)n_ctx);
        st = scorer_add(s, ids->ids + at, ids->ids + at + 1, n - 1, out);
        log_progress("perplexity", at + (size_t)n, ids->n);
    }
    if (st == PESC_OK)
        st = scorer_flush(s);
    scorer_close(s);
    return st;
}

pesc_status pesc_perplexity(pesc_model *m, const char *text, size_t n, int32_t n_ctx,
                            pesc_perplexity_report *out)
{
    status_clear();
    NEED(m);
    NEED_ARRAY(text, n);
    NEED_SIZED(out);
    DEVICE_CALL(m->dev);
    if (!m->tok)
        return fail(PESC_UNSUPPORTED, "the model has no tokenizer, so a text cannot be scored");
    if (n_ctx < 0 || n_ctx == 1)
        return fail(PESC_USAGE, "a window of %d tokens predicts nothing; give 2 or more", n_ctx);
    if (n_ctx == 0)
        n_ctx = (int32_t)num_min(m->shape.cfg.context, DEFAULT_WINDOW);
    double start = clock_seconds();
    id_list ids = { 0 };
    score l = { 0 };
    pesc_status s = tokenizer_encode(m->tok, text, n, PESC_ADD_SPECIAL, &ids);
    if (s == PESC_OK && ids.n < 2)
        s = fail(PESC_FORMAT, "the text is %zu tokens long; at least 2 are needed", ids.n);
    if (s == PESC_OK)
        s = windows(m, &ids, n_ctx, &l);
    mem_free(ids.ids);
    if (s != PESC_OK)
        return s;
    double loss = l.sum / (double)l.count;
    pesc_perplexity_report r = {
        .tokens = l.count,
        .loss = loss,
        .perplexity = exp(loss),
        .seconds = clock_seconds() - start,
    };
    ARGS_WRITE(out, &r);
    return PESC_OK;
}

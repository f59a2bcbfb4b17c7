/* What a model thinks of given tokens: logits of every position, and the perplexity of a text. */
#include "infer/score.h"

#include "base/log.h"
#include "base/mem.h"

#include <math.h>
#include <time.h>

enum { DEFAULT_WINDOW = 2048, PIECE = 128 };

static int32_t min_i32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* ---- losses ---- */

struct scorer {
    pesc_model *m; /* borrowed */
    kvcache *kv;
    pass *pass;
    void *memory;
    tensor loss, targets; /* f32, i32 [PIECE] on the device */
};

pesc_status scorer_open(scorer **out, pesc_model *m, int32_t n_ctx)
{
    *out = NULL;
    scorer *s = mem_zalloc(1, sizeof *s);
    if (!s)
        return fail_nomem("a scorer", sizeof *s);
    int32_t most = min_i32(n_ctx, PIECE);
    s->m = m;
    pesc_status st = kvcache_open(&s->kv, m->dev, &m->cfg, m->act_dt, 1, n_ctx, n_ctx);
    if (st == PESC_OK)
        st = pass_open(&s->pass, m, (pass_limits){ most, 1, most }, s->kv);
    if (st == PESC_OK)
        st = m->dev->op->alloc(m->dev, PIECE * 8, &s->memory);
    if (st != PESC_OK) {
        scorer_close(s);
        return st;
    }
    arena a = { .base = s->memory, .size = PIECE * 8 };
    s->loss = tensor_take1(&a, DT_F32, PIECE);
    s->targets = tensor_take1(&a, DT_I32, PIECE);
    *out = s;
    return PESC_OK;
}

void scorer_close(scorer *s)
{
    if (!s)
        return;
    if (s->memory)
        s->m->dev->op->free(s->m->dev, s->memory);
    pass_close(s->pass);
    kvcache_close(s->kv);
    mem_free(s);
}

/* The rows of a piece that have a target. */
typedef struct scored {
    int32_t rows[PIECE], targets[PIECE], n;
} scored;

static pesc_status add_losses(scorer *s, const scored *q, tensor logits, int32_t first, score *out)
{
    device *dev = s->m->dev;
    float loss[PIECE];
    tensor losses = tensor_slice(&s->loss, 0, q->n), targets = tensor_slice(&s->targets, 0, q->n);
    dev->op->upload(dev, s->targets.data, q->targets, (size_t)q->n * sizeof *q->targets);
    dev->op->xent_fwd(dev, losses, logits, targets);
    TRY(dev->op->download(dev, loss, s->loss.data, (size_t)q->n * sizeof *loss));
    for (int32_t i = 0; i < q->n; i++) {
        if (!isfinite(loss[i]))
            return fail(PESC_NUMERIC, "the loss at token %d of a window is not finite",
                        first + q->rows[i]);
        out->sum += (double)loss[i];
        out->count++;
    }
    return PESC_OK;
}

pesc_status scorer_add(scorer *s, const int32_t *ids, const int32_t *targets, int32_t n, score *out)
{
    kvcache_truncate(s->kv, 0, 0);
    for (int32_t at = 0; at < n; at += PIECE) {
        pass_seq seq = { .ids = ids + at, .n = min_i32(n - at, PIECE), .past = at };
        scored q = { .n = 0 };
        tensor logits;
        for (int32_t i = 0; i < seq.n; i++)
            if (targets[at + i] >= 0) {
                q.rows[q.n] = i;
                q.targets[q.n++] = targets[at + i];
            }
        TRY(pass_set(s->pass, &seq, 1, q.rows, q.n));
        TRY(model_fwd(s->m, s->pass, &logits));
        if (q.n)
            TRY(add_losses(s, &q, logits, at, out));
    }
    return PESC_OK;
}

/* ---- logits ---- */

static pesc_status logits_of(scorer *s, const int32_t *ids, int32_t n, float *out)
{
    const size_t row = (size_t)s->m->cfg.vocab;
    device *dev = s->m->dev;
    int32_t rows[PIECE];
    for (int32_t i = 0; i < PIECE; i++)
        rows[i] = i;
    for (int32_t at = 0; at < n; at += PIECE) {
        pass_seq seq = { .ids = ids + at, .n = min_i32(n - at, PIECE), .past = at };
        tensor logits;
        TRY(pass_set(s->pass, &seq, 1, rows, seq.n));
        TRY(model_fwd(s->m, s->pass, &logits));
        TRY(dev->op->download(dev, out + (size_t)at * row, logits.data,
                              (size_t)seq.n * row * sizeof *out));
    }
    return PESC_OK;
}

pesc_status pesc_logits(pesc_model *m, const int32_t *ids, size_t n, float *out)
{
    status_clear();
    if (n == 0 || n > INT32_MAX)
        return fail(PESC_USAGE, "%zu tokens were given; give 1 to %d", n, INT32_MAX);
    scorer *s = NULL;
    pesc_status st = scorer_open(&s, m, (int32_t)n);
    if (st == PESC_OK)
        st = logits_of(s, ids, (int32_t)n, out);
    scorer_close(s);
    return st;
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
    scorer_close(s);
    return st;
}

pesc_status pesc_perplexity(pesc_model *m, const char *text, size_t n, int32_t n_ctx,
                            pesc_perplexity_report *out)
{
    status_clear();
    if (!m->tok)
        return fail(PESC_UNSUPPORTED, "the model has no tokenizer, so a text cannot be scored");
    if (n_ctx < 0 || n_ctx == 1)
        return fail(PESC_USAGE, "a window of %d tokens predicts nothing; give 2 or more", n_ctx);
    if (n_ctx == 0)
        n_ctx = min_i32(m->cfg.context, DEFAULT_WINDOW);
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
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
    clock_gettime(CLOCK_MONOTONIC, &b);
    double loss = l.sum / (double)l.count;
    *out = (pesc_perplexity_report){
        .tokens = l.count,
        .loss = loss,
        .perplexity = exp(loss),
        .seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec),
    };
    return PESC_OK;
}

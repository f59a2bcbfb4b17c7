/* What a model thinks of given tokens: logits of every position, and the perplexity of a text. */
#include "infer/score.h"

#include "base/log.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum { DEFAULT_WINDOW = 2048, TIMELINES = 64 };

static int32_t min_i32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* ---- losses ---- */

/* A row of the forward at hand that has a target. */
typedef struct scored {
    score *to;
    int32_t place; /* in its sequence */
} scored;

struct scorer {
    pesc_model *m; /* borrowed */
    kvcache *kv;
    pass *pass;
    void *memory;
    tensor loss, targets; /* f32, i32 [most] on the device */
    int32_t most;         /* tokens of a forward */
    int32_t n_lanes;      /* timelines */
    int32_t lane;         /* of the sequence that was begun last */
    /* the forward at hand */
    token_seq *seqs;
    int32_t *ids, *rows, *wanted; /* tokens; rows that have a target; these targets */
    scored *scored;               /* of each row */
    float *losses;
    int32_t n_seqs, n_ids, n_rows;
};

static pesc_status open_device(scorer *s, int32_t n_ctx)
{
    pesc_model *m = s->m;
    size_t each = (size_t)s->most * 4;
    arena a = { 0 };
    (void)arena_take(&a, each);
    (void)arena_take(&a, each);
    /* a forward, and what came before its pieces of the one sequence that goes on in it */
    TRY(kvcache_open(&s->kv, m->dev, &m->cfg, m->act_dt, s->n_lanes, n_ctx,
                     (int64_t)n_ctx + s->most));
    TRY(pass_open(&s->pass, m, (pass_limits){ s->most, s->n_lanes, s->most }, s->kv));
    TRY(m->dev->op->alloc(m->dev, a.used, &s->memory));
    a = (arena){ .base = s->memory, .size = a.used };
    s->loss = tensor_take1(&a, DT_F32, s->most);
    s->targets = tensor_take1(&a, DT_I32, s->most);
    return PESC_OK;
}

static pesc_status open_host(scorer *s)
{
    size_t n = (size_t)s->most;
    s->seqs = mem_alloc((size_t)s->n_lanes, sizeof *s->seqs);
    s->ids = mem_alloc(n, sizeof *s->ids);
    s->rows = mem_alloc(n, sizeof *s->rows);
    s->wanted = mem_alloc(n, sizeof *s->wanted);
    s->scored = mem_alloc(n, sizeof *s->scored);
    s->losses = mem_alloc(n, sizeof *s->losses);
    return s->seqs && s->ids && s->rows && s->wanted && s->scored && s->losses
               ? PESC_OK
               : fail_nomem("a scorer", n * sizeof *s->scored);
}

static pesc_status open_lanes(scorer **out, pesc_model *m, int32_t n_ctx, int32_t lanes)
{
    *out = NULL;
    scorer *s = mem_zalloc(1, sizeof *s);
    if (!s)
        return fail_nomem("a scorer", sizeof *s);
    int64_t all = (int64_t)lanes * n_ctx;
    s->m = m;
    s->n_lanes = lanes;
    s->most = all < m->dev->head_rows ? (int32_t)all : m->dev->head_rows;
    pesc_status st = open_host(s);
    if (st == PESC_OK)
        st = open_device(s, n_ctx);
    if (st == PESC_OK)
        *out = s;
    else
        scorer_close(s);
    return st;
}

pesc_status scorer_open(scorer **out, pesc_model *m, int32_t n_ctx)
{
    return open_lanes(out, m, n_ctx, TIMELINES);
}

void scorer_close(scorer *s)
{
    if (!s)
        return;
    if (s->memory)
        s->m->dev->op->free(s->m->dev, s->memory);
    pass_close(s->pass);
    kvcache_close(s->kv);
    mem_free(s->seqs);
    mem_free(s->ids);
    mem_free(s->rows);
    mem_free(s->wanted);
    mem_free(s->scored);
    mem_free(s->losses);
    mem_free(s);
}

static pesc_status add_losses(scorer *s, tensor logits)
{
    device *dev = s->m->dev;
    size_t bytes = (size_t)s->n_rows * 4;
    tensor losses = tensor_slice(&s->loss, 0, s->n_rows);
    dev->op->upload(dev, s->targets.data, s->wanted, bytes);
    dev->op->xent_fwd(dev, losses, logits, tensor_slice(&s->targets, 0, s->n_rows));
    TRY(dev->op->download(dev, s->losses, s->loss.data, bytes));
    for (int32_t i = 0; i < s->n_rows; i++) {
        scored *r = &s->scored[i];
        if (!isfinite(s->losses[i]))
            return fail(PESC_NUMERIC, "the loss at token %d of a window is not finite", r->place);
        r->to->sum += (double)s->losses[i];
        r->to->count++;
    }
    return PESC_OK;
}

pesc_status scorer_flush(scorer *s)
{
    tensor logits;
    if (s->n_seqs == 0)
        return PESC_OK;
    TRY(pass_set(s->pass, s->seqs, s->n_seqs, s->rows, s->n_rows));
    TRY(model_fwd(s->m, s->pass, &logits));
    if (s->n_rows)
        TRY(add_losses(s, logits));
    for (int32_t i = 0; i + 1 < s->n_seqs; i++) /* the last one may go on */
        kvcache_truncate(s->kv, s->seqs[i].kv_seq, 0);
    s->n_seqs = s->n_ids = s->n_rows = 0;
    return PESC_OK;
}

/* A piece of a sequence: its tokens and targets, and how many were before it. */
typedef struct piece {
    const int32_t *ids, *targets;
    int32_t n, past;
    score *to;
} piece;

static void add_piece(scorer *s, piece p)
{
    int32_t *here = s->ids + s->n_ids;
    memcpy(here, p.ids, (size_t)p.n * sizeof *here);
    s->seqs[s->n_seqs++] = (token_seq){ .ids = here, .n = p.n, .past = p.past, .kv_seq = s->lane };
    for (int32_t i = 0; i < p.n; i++)
        if (p.targets[i] >= 0) {
            s->rows[s->n_rows] = s->n_ids + i;
            s->wanted[s->n_rows] = p.targets[i];
            s->scored[s->n_rows++] = (scored){ p.to, p.past + i };
        }
    s->n_ids += p.n;
}

/* A sequence that does not fit fills the forward at hand and goes on in the next. */
pesc_status scorer_add(scorer *s, const int32_t *ids, const int32_t *targets, int32_t n, score *out)
{
    if (s->n_seqs == s->n_lanes)
        TRY(scorer_flush(s));
    if (s->n_seqs == 0)
        kvcache_truncate(s->kv, s->lane, 0);
    s->lane = (s->lane + 1) % s->n_lanes;
    for (int32_t at = 0; at < n;) {
        int32_t fits = min_i32(n - at, s->most - s->n_ids);
        add_piece(s, (piece){ ids + at, targets + at, fits, at, out });
        at += fits;
        if (s->n_ids == s->most)
            TRY(scorer_flush(s));
    }
    return PESC_OK;
}

/* ---- logits ---- */

static pesc_status logits_of(scorer *s, const int32_t *ids, int32_t n, float *out)
{
    const size_t row = (size_t)s->m->cfg.vocab;
    device *dev = s->m->dev;
    for (int32_t i = 0; i < s->most; i++)
        s->rows[i] = i;
    for (int32_t at = 0; at < n; at += s->most) {
        token_seq seq = { .ids = ids + at, .n = min_i32(n - at, s->most), .past = at };
        tensor logits;
        TRY(pass_set(s->pass, &seq, 1, s->rows, seq.n));
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
    pesc_status st = open_lanes(&s, m, (int32_t)n, 1);
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
    if (st == PESC_OK)
        st = scorer_flush(s);
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

/* What a model thinks of given tokens: logits of every position, and the perplexity of a text. */
#include "base/log.h"
#include "base/mem.h"
#include "infer/session.h"

#include <math.h>
#include <time.h>

enum { DEFAULT_WINDOW = 2048, LOGIT_ROWS = 128 };

static int32_t min_i32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Feeds one sequence through a cached timeline in pieces and hands the logits of each piece, on
 * the device, to `use`. Pieces bound memory; the cache makes them equal to one long pass. */
typedef pesc_status (*use_fn)(void *ud, pesc_model *m, tensor logits, int32_t first, int32_t n);

static pesc_status each_piece(pesc_model *m, pass *p, kvcache *kv, const int32_t *ids, int32_t n,
                              use_fn use, void *ud)
{
    int32_t rows[LOGIT_ROWS];
    for (int32_t i = 0; i < LOGIT_ROWS; i++)
        rows[i] = i;
    kvcache_truncate(kv, 0, 0);
    for (int32_t at = 0; at < n; at += LOGIT_ROWS) {
        int32_t step = min_i32(n - at, LOGIT_ROWS);
        pass_seq seq = { .ids = ids + at, .n = step, .past = at };
        tensor logits;
        TRY(pass_set(p, &seq, 1, rows, step));
        TRY(model_fwd(m, p, &logits));
        TRY(use(ud, m, logits, at, step));
    }
    return PESC_OK;
}

static pesc_status open_scorer(pesc_model *m, int32_t n, kvcache **kv, pass **p)
{
    pass_limits lim = { .max_tokens = min_i32(n, LOGIT_ROWS),
                        .max_seqs = 1,
                        .max_out = min_i32(n, LOGIT_ROWS) };
    TRY(kvcache_open(kv, m->dev, &m->cfg, m->act_dt, 1, n, n));
    return pass_open(p, m, lim, *kv);
}

static pesc_status copy_out(void *ud, pesc_model *m, tensor logits, int32_t first, int32_t n)
{
    float *out = ud;
    size_t row = (size_t)m->cfg.vocab;
    return m->dev->op->download(m->dev, out + (size_t)first * row, logits.data,
                                (size_t)n * row * sizeof *out);
}

pesc_status pesc_logits(pesc_model *m, const int32_t *ids, size_t n, float *out)
{
    status_clear();
    if (n == 0 || n > INT32_MAX)
        return fail(PESC_USAGE, "%zu tokens were given; give 1 to %d", n, INT32_MAX);
    kvcache *kv = NULL;
    pass *p = NULL;
    pesc_status s = open_scorer(m, (int32_t)n, &kv, &p);
    if (s == PESC_OK)
        s = each_piece(m, p, kv, ids, (int32_t)n, copy_out, out);
    pass_close(p);
    kvcache_close(kv);
    return s;
}

typedef struct losses {
    const int32_t *ids; /* of the window */
    int32_t n;
    tensor loss, targets; /* f32, i32 [LOGIT_ROWS] on the device */
    double sum;
    uint64_t count;
} losses;

static pesc_status add_losses(void *ud, pesc_model *m, tensor logits, int32_t first, int32_t n)
{
    losses *l = ud;
    int32_t targets[LOGIT_ROWS];
    float loss[LOGIT_ROWS];
    for (int32_t i = 0; i < n; i++)
        targets[i] = first + i + 1 < l->n ? l->ids[first + i + 1] : -100;
    const ops *op = m->dev->op;
    tensor loss_rows = tensor_slice(&l->loss, 0, n), target_rows = tensor_slice(&l->targets, 0, n);
    op->upload(m->dev, l->targets.data, targets, (size_t)n * sizeof *targets);
    op->xent_fwd(m->dev, loss_rows, logits, target_rows);
    TRY(op->download(m->dev, loss, l->loss.data, (size_t)n * sizeof *loss));
    for (int32_t i = 0; i < n; i++) {
        if (targets[i] < 0)
            continue;
        if (!isfinite(loss[i]))
            return fail(PESC_NUMERIC, "the loss at token %d of a window is not finite", first + i);
        l->sum += (double)loss[i];
        l->count++;
    }
    return PESC_OK;
}

static pesc_status windows(pesc_model *m, const id_list *ids, int32_t n_ctx, losses *l)
{
    kvcache *kv = NULL;
    pass *p = NULL;
    void *memory = NULL;
    pesc_status s = open_scorer(m, n_ctx, &kv, &p);
    if (s == PESC_OK)
        s = m->dev->op->alloc(m->dev, LOGIT_ROWS * 8, &memory);
    if (s == PESC_OK) {
        arena a = { .base = memory, .size = LOGIT_ROWS * 8 };
        l->loss = tensor_take1(&a, DT_F32, LOGIT_ROWS);
        l->targets = tensor_take1(&a, DT_I32, LOGIT_ROWS);
    }
    for (size_t at = 0; s == PESC_OK && at + 1 < ids->n; at += (size_t)n_ctx) {
        l->ids = ids->ids + at;
        l->n = (int32_t)(ids->n - at < (size_t)n_ctx ? ids->n - at : (size_t)n_ctx);
        s = each_piece(m, p, kv, l->ids, l->n, add_losses, l);
        log_progress("perplexity", at + (size_t)l->n, ids->n);
    }
    if (memory)
        m->dev->op->free(m->dev, memory);
    pass_close(p);
    kvcache_close(kv);
    return s;
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
    losses l = { 0 };
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

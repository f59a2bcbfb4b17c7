#include "infer/session.h"

#include "arch/rope_freq.h"
#include "base/args.h"
#include "base/mem.h"

#include <string.h>

enum { DEFAULT_CONTEXT = 4096, MAX_CONTEXT = 1 << 24 };

pesc_status pesc_session_open(pesc_session **out, pesc_model *m, int32_t n_ctx)
{
    status_clear();
    NEED(out);
    *out = NULL;
    NEED(m);
    if (n_ctx < 0 || n_ctx > MAX_CONTEXT)
        return fail(PESC_USAGE, "the context is %d tokens; give 1 to %d, or 0 for the model's own",
                    n_ctx, MAX_CONTEXT);
    if (n_ctx == 0)
        n_ctx = m->shape.cfg.context < DEFAULT_CONTEXT ? m->shape.cfg.context : DEFAULT_CONTEXT;
    pesc_session *s = mem_zalloc(1, sizeof *s);
    if (!s)
        return fail_nomem("a session", sizeof *s);
    DEVICE_CALL(m->dev);
    s->model = m;
    model_keep(m);
    s->n_ctx = n_ctx;
    s->shareable = SIZE_MAX;
    pass_limits lim = { .max_tokens = n_ctx < SESSION_PREFILL ? n_ctx : SESSION_PREFILL,
                        .max_seqs = 1,
                        .max_out = 1 };
    pesc_status st = kvcache_open(&s->kv, m->dev, &m->shape.cfg, m->shape.act_dt, 1, n_ctx, n_ctx);
    if (st == PESC_OK)
        st = pass_open(&s->pass, m, lim, s->kv);
    if (st == PESC_OK && !(s->logits = mem_alloc((size_t)m->shape.cfg.vocab, sizeof *s->logits)))
        st = fail_nomem("a session's logits", (size_t)m->shape.cfg.vocab * sizeof *s->logits);
    if (st != PESC_OK) {
        pesc_session_close(s);
        return st;
    }
    *out = s;
    return PESC_OK;
}

void pesc_session_close(pesc_session *s)
{
    if (!s)
        return;
    pesc_model *m = s->model;
    {
        DEVICE_CALL(m->dev);
        pass_close(s->pass);
        kvcache_close(s->kv);
    }
    mem_free(s->fed.ids);
    mem_free(s->logits);
    grammar_close(s->grammar);
    mem_free(s);
    pesc_model_close(m);
}

void pesc_session_reset(pesc_session *s)
{
    if (!s)
        return;
    kvcache_truncate(s->kv, 0, 0);
    s->fed.n = 0;
    s->shareable = SIZE_MAX;
}

/* One forward over n tokens; the logits of the last one come back only when wanted. The device is
 * held for one forward at a time, so that sessions of other threads take turns with this one. */
static pesc_status forward(pesc_session *s, const int32_t *ids, int32_t n, int32_t whole,
                           bool want_logits)
{
    DEVICE_CALL(s->model->dev);
    token_seq seq = { .ids = ids, .n = n, .past = (int32_t)s->fed.n, .whole = whole };
    int32_t last = n - 1;
    tensor logits = { 0 };
    TRY(pass_set(s->pass, &seq, 1, &last, want_logits));
    TRY(model_fwd(s->model, s->pass, &logits));
    if (want_logits)
        TRY(s->model->dev->op->download(s->model->dev, s->logits, logits.data,
                                        (size_t)s->model->shape.cfg.vocab * sizeof *s->logits));
    for (int32_t i = 0; i < n; i++)
        TRY(id_list_add(&s->fed, ids[i]));
    return PESC_OK;
}

static pesc_status feed(pesc_session *s, const int32_t *ids, size_t n);

/* Feeds all tokens again, with n more. */
static pesc_status feed_anew(pesc_session *s, const int32_t *ids, size_t n)
{
    id_list all = s->fed;
    pesc_status st = PESC_OK;
    s->fed = (id_list){ 0 };
    kvcache_truncate(s->kv, 0, 0);
    for (size_t i = 0; st == PESC_OK && i < n; i++)
        st = id_list_add(&all, ids[i]);
    if (st == PESC_OK)
        st = feed(s, all.ids, all.n);
    mem_free(all.ids);
    return st;
}

static pesc_status feed(pesc_session *s, const int32_t *ids, size_t n)
{
    if (n > (size_t)s->n_ctx - s->fed.n)
        return fail(PESC_USAGE,
                    "%zu tokens after %zu do not fit a context of %d; shorten the text or ask for "
                    "a larger context",
                    n, s->fed.n, s->n_ctx);
    const int32_t whole = (int32_t)(s->fed.n + n);
    if (s->fed.n && rope_outgrown(&s->model->shape.cfg, (int64_t)s->fed.n, whole))
        return feed_anew(s, ids, n);
    if (rope_shareable(&s->model->shape.cfg, whole) == 0 && s->fed.n < s->shareable)
        s->shareable = s->fed.n;
    for (size_t at = 0; at < n;) {
        size_t step = n - at < SESSION_PREFILL ? n - at : SESSION_PREFILL;
        TRY(forward(s, ids + at, (int32_t)step, whole, at + step == n));
        at += step;
    }
    return PESC_OK;
}

pesc_status pesc_session_feed(pesc_session *s, const int32_t *ids, size_t n, const float **logits)
{
    status_clear();
    NEED(s);
    NEED(ids);
    NEED(logits);
    if (n == 0)
        return fail(PESC_USAGE, "no tokens were given; feed at least one");
    TRY(feed(s, ids, n));
    *logits = s->logits;
    return PESC_OK;
}

pesc_status session_extend(pesc_session *s, const int32_t *ids, size_t n)
{
    if (n == 0)
        return fail(PESC_USAGE, "the prompt is empty: a model needs at least one token to go on "
                                "from (its tokenizer adds none here)");
    size_t common = 0, most = rope_shareable(&s->model->shape.cfg, (int32_t)n) ? s->shareable : 0;
    most = most < s->fed.n ? most : s->fed.n;
    while (common < n - 1 && common < most && s->fed.ids[common] == ids[common])
        common++;
    kvcache_truncate(s->kv, 0, (int32_t)common);
    s->fed.n = common;
    s->shareable = SIZE_MAX;
    return feed(s, ids + common, n - common);
}

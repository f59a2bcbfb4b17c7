#include "infer/session.h"

#include "arch/rope_freq.h"
#include "base/args.h"
#include "base/clock.h"
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
    s->draft = drafter_of(m, m->draft, n_ctx);
    s->shareable = SIZE_MAX;
    s->rows = guess_possible(m) && n_ctx > GUESS_MOST ? 1 + GUESS_MOST : 1;
    pass_limits lim = { .max_tokens = n_ctx < SESSION_PREFILL ? n_ctx : SESSION_PREFILL,
                        .max_seqs = 1,
                        .max_out = s->rows };
    size_t row = (size_t)m->shape.cfg.vocab * sizeof *s->logits;
    pesc_status st = kvcache_open(&s->kv, m->dev, &m->shape.cfg, m->shape.act_dt, 1, n_ctx, n_ctx);
    if (st == PESC_OK)
        st = pass_open(&s->pass, m, lim, s->kv);
    if (st == PESC_OK && !(s->logits = mem_alloc((size_t)s->rows, row)))
        st = fail_nomem("a session's logits", (size_t)s->rows * row);
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
    drafter_close(&s->draft);
    grammar_close(s->grammar);
    mem_free(s);
    pesc_model_close(m);
}

/* Takes guesses back from the cache. */
static void drop_ahead(pesc_session *s)
{
    kvcache_truncate(s->kv, 0, (int32_t)s->fed.n);
    s->n_ahead = 0;
}

void pesc_session_reset(pesc_session *s)
{
    if (!s)
        return;
    s->fed.n = 0;
    drop_ahead(s);
    s->shareable = SIZE_MAX;
}

/* One forward over n tokens; the logits of the last n_out come back. The device is held for one
 * forward at a time, so that sessions of other threads take turns with this one. */
static pesc_status forward(pesc_session *s, const int32_t *ids, int32_t n, int32_t whole,
                           int32_t n_out)
{
    DEVICE_CALL(s->model->dev);
    token_seq seq = { .ids = ids, .n = n, .past = (int32_t)s->fed.n, .whole = whole };
    int32_t rows[1 + GUESS_MOST];
    size_t row = (size_t)s->model->shape.cfg.vocab * sizeof *s->logits;
    tensor logits = { 0 };
    for (int32_t i = 0; i < n_out; i++)
        rows[i] = n - n_out + i;
    TRY(pass_set(s->pass, &seq, 1, rows, n_out));
    TRY(model_fwd(s->model, s->pass, &logits));
    s->row = 0;
    if (n_out == 0)
        return PESC_OK;
    return s->model->dev->op->download(s->model->dev, s->logits, logits.data, (size_t)n_out * row);
}

static pesc_status feed(pesc_session *s, const int32_t *ids, size_t n);

/* Feeds all tokens again, with n more. */
static pesc_status feed_anew(pesc_session *s, const int32_t *ids, size_t n)
{
    id_list all = s->fed;
    pesc_status st = PESC_OK;
    s->fed = (id_list){ 0 };
    drop_ahead(s);
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
        for (size_t end = at + step; at < end; at++)
            TRY(id_list_add(&s->fed, ids[at]));
    }
    return PESC_OK;
}

/* How many tokens after `fed` may be guessed: with keys that do not depend on what follows. */
static int32_t room_ahead(const pesc_session *s, int32_t most)
{
    const config *c = &s->model->shape.cfg;
    int32_t n = s->rows - 1, room = s->n_ctx - (int32_t)s->fed.n - 1;
    n = n < most ? n : most;
    n = n < room ? n : room;
    int32_t whole = (int32_t)s->fed.n + 1 + n;
    bool fixed = rope_shareable(c, whole) > 0 && !rope_outgrown(c, (int64_t)s->fed.n, whole);
    return fixed && n > 0 ? n : 0;
}

pesc_status pesc_session_draft(pesc_session *s, pesc_model *draft)
{
    status_clear();
    NEED(s);
    if (draft)
        TRY(drafter_fits(s->model, draft));
    drafter_close(&s->draft);
    s->draft = drafter_of(s->model, draft, s->n_ctx);
    return PESC_OK;
}

pesc_status session_next(pesc_session *s, int32_t id, const session_guesses *how)
{
    guess_learn(&s->guesses, id);
    guess_came(&s->draft.rate, id);
    if (s->n_ahead > 0 && s->ahead[s->row] == id) {
        s->row++;
        s->n_ahead--;
        s->guesses.accepted++;
        return id_list_add(&s->fed, id);
    }
    drop_ahead(s);
    int32_t ids[1 + GUESS_MOST] = { id }, room = room_ahead(s, how->most);
    size_t n = s->fed.n;
    if (room == 0)
        return feed(s, ids, 1);
    TRY(id_list_add(&s->fed, id)); /* the lookup reads it as the end of the text */
    guess_text t = { s->fed.ids, n + 1, 1, room, how->matcher, how->generated };
    int32_t ahead = guess_next(&s->guesses, &s->pace, &t, how->wanted, ids + 1);
    pesc_status drafted = PESC_OK;
    if (s->draft.m && ahead == 0) {
        drafted = drafter_guess(&s->draft, &s->pace, &t, how->wanted, ids + 1, &ahead);
        s->guesses.checked += ahead;
    }
    s->fed.n = n;
    TRY(drafted);
    double began = clock_seconds();
    TRY(forward(s, ids, 1 + ahead, (int32_t)n + 1, 1 + ahead));
    guess_timed(&s->pace, 1 + ahead, clock_seconds() - began);
    memcpy(s->ahead, ids + 1, (size_t)ahead * sizeof *ids);
    s->n_ahead = ahead;
    return id_list_add(&s->fed, id);
}

pesc_status pesc_session_feed(pesc_session *s, const int32_t *ids, size_t n, const float **logits)
{
    status_clear();
    NEED(s);
    NEED(ids);
    NEED(logits);
    if (n == 0)
        return fail(PESC_USAGE, "no tokens were given; feed at least one");
    drop_ahead(s);
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
    if (common < s->fed.n && config_has_state(&s->model->shape.cfg))
        common = 0; /* the states are those of the last token that was fed */
    s->fed.n = common;
    drop_ahead(s);
    s->guesses = guess_begin();
    s->shareable = SIZE_MAX;
    return feed(s, ids + common, n - common);
}

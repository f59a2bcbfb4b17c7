#include "infer/drafter.h"

#include "base/args.h"
#include "base/clock.h"
#include "base/log.h"
#include "infer/session.h"

#include <string.h>

static pesc_status same_vocabulary(const pesc_model *m, const pesc_model *draft)
{
    int64_t n = m->tok ? tokenizer_size(m->tok) : m->shape.cfg.vocab;
    int64_t of_draft = draft->tok ? tokenizer_size(draft->tok) : draft->shape.cfg.vocab;
    if (n != of_draft || !m->tok != !draft->tok)
        return fail(PESC_USAGE,
                    "the draft model has %lld tokens, the model %lld; a draft needs the same "
                    "vocabulary",
                    (long long)of_draft, (long long)n);
    for (int32_t id = 0; m->tok && id < n; id++) {
        size_t n_a, n_b;
        const char *a = tokenizer_token(m->tok, id, &n_a);
        const char *b = tokenizer_token(draft->tok, id, &n_b);
        if (!a != !b || (a && (n_a != n_b || memcmp(a, b, n_a) != 0)))
            return fail(PESC_USAGE,
                        "token %d is another one in the draft model; a draft needs the same "
                        "vocabulary",
                        id);
    }
    return PESC_OK;
}

pesc_status drafter_fits(const pesc_model *m, const pesc_model *draft)
{
    if (!guess_possible(m))
        return fail(PESC_UNSUPPORTED,
                    "a draft model guesses on a CPU only, and for models without states of "
                    "layers: elsewhere tokens cannot be checked together with the same bits");
    if (config_has_state(&draft->shape.cfg))
        return fail(PESC_UNSUPPORTED, "the draft model's layers have states, which cannot take a "
                                      "guess back; give a draft without them");
    return same_vocabulary(m, draft);
}

pesc_status pesc_model_draft(pesc_model *m, pesc_model *draft)
{
    status_clear();
    NEED(m);
    for (const pesc_model *d = draft; d; d = d->draft)
        if (d == m)
            return fail(PESC_USAGE, "a model was given as its own draft; open a smaller one");
    if (draft) {
        TRY(drafter_fits(m, draft));
        model_keep(draft);
    }
    pesc_model_close(m->draft);
    m->draft = draft;
    return PESC_OK;
}

drafter drafter_of(const pesc_model *m, pesc_model *draft, int32_t n_ctx)
{
    drafter d = { .m = draft, .n_ctx = n_ctx, .rate.right = 1 };
    if (draft) {
        model_keep(draft);
        d.vocab = draft->shape.cfg.vocab;
        d.vocab = d.vocab < m->shape.cfg.vocab ? d.vocab : m->shape.cfg.vocab;
    }
    return d;
}

void drafter_close(drafter *d)
{
    pesc_session_close(d->s);
    pesc_model_close(d->m);
    *d = (drafter){ 0 };
}

void drafter_enter(drafter *d, uint64_t scope)
{
    if (d->scope != scope)
        pesc_session_reset(d->s);
    d->scope = scope;
}

static int32_t most_likely(const float *logits, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

/* How many tokens to guess. */
static int32_t worth(drafter *d, const guess_pace *p, const guess_text *t, int64_t wanted)
{
    enum { AT_FIRST = 4, AGAIN = 2, UNTIL_AGAIN = 32 };
    int32_t k =
        wanted == PESC_AUTO ? guess_worth(d->rate.right, p, t, d->seconds) : (int32_t)wanted;
    if (wanted == PESC_AUTO && d->seconds <= 0)
        k = AT_FIRST;
    if (wanted == PESC_AUTO && k == 0 && ++d->rested > UNTIL_AGAIN)
        k = AGAIN;
    return k < t->most ? k : t->most;
}

/* Whether the draft can read the text and k tokens more: the model may have ids that it lacks, and
 * a longer context. */
static bool can_read(const drafter *d, const guess_text *t, int32_t k)
{
    const config *c = &d->m->shape.cfg;
    if ((c->long_ntk || c->long_logn) && t->n + (size_t)k > (size_t)c->context)
        return false;
    for (size_t i = 0; i < t->n; i++)
        if (t->ids[i] >= c->vocab)
            return false;
    return true;
}

/* Without memory for its cache it goes on without guesses. */
static pesc_status open_session(drafter *d)
{
    pesc_status s = d->s ? PESC_OK : pesc_session_open(&d->s, d->m, d->n_ctx);
    if (s != PESC_NOMEM)
        return s;
    log_notice("the draft model guesses no more: %s", pesc_last_error());
    drafter_close(d);
    return PESC_OK;
}

pesc_status drafter_guess(drafter *d, const guess_pace *p, const guess_text *t, int64_t wanted,
                          int32_t *out, int32_t *n)
{
    int32_t k = worth(d, p, t, wanted);
    const float *logits;
    *n = 0;
    if (k <= 0 || !d->m || !can_read(d, t, k))
        return PESC_OK;
    TRY(open_session(d));
    if (!d->s)
        return PESC_OK;
    TRY(session_extend(d->s, t->ids, t->n));
    double began = clock_seconds();
    for (int32_t i = 0; i < k; i++) {
        out[i] = most_likely(session_logits(d->s), d->vocab);
        if (i + 1 < k)
            TRY(pesc_session_feed(d->s, &out[i], 1, &logits));
    }
    if (k > 1)
        d->seconds = (clock_seconds() - began) / (k - 1);
    d->rested = 0;
    guess_made(&d->rate, out, k);
    *n = guess_permitted(t, out, k);
    return PESC_OK;
}

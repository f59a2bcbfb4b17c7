#include "infer/answer.h"

#include "base/mem.h"

#include <string.h>

/* ---- ends ---- */

pesc_status answer_ends_add_ids(answer_ends *e, const int32_t *ids, size_t n)
{
    int32_t *more = mem_grow(e->ids, e->n_ids + n + 1, sizeof *more);
    if (!more)
        return fail_nomem("end tokens", (e->n_ids + n) * sizeof *more);
    e->ids = more;
    for (size_t i = 0; i < n; i++)
        e->ids[e->n_ids++] = ids[i];
    return PESC_OK;
}

pesc_status answer_ends_add_model(answer_ends *e, const pesc_model *m)
{
    int32_t eos = m->tok ? tokenizer_eos(m->tok) : -1;
    if (m->shape.cfg.n_eos > 0)
        return answer_ends_add_ids(e, m->shape.cfg.eos, (size_t)m->shape.cfg.n_eos);
    return answer_ends_add_ids(e, &eos, eos >= 0);
}

pesc_status answer_ends_add_stops(answer_ends *e, const pesc_model *m, const char *const *stops,
                                  size_t n)
{
    const char **more = mem_grow(e->stops, e->n_stops + n + 1, sizeof *more);
    if (!more)
        return fail_nomem("stop strings", (e->n_stops + n) * sizeof *more);
    e->stops = more;
    for (size_t i = 0; i < n; i++) {
        int32_t id = m->tok ? tokenizer_added_id(m->tok, stops[i]) : -1;
        if (id >= 0 && tokenizer_is_special(m->tok, id))
            TRY(answer_ends_add_ids(e, &id, 1));
        else
            e->stops[e->n_stops++] = stops[i];
    }
    return PESC_OK;
}

pesc_status answer_ends_add_calls(answer_ends *e, const pesc_model *m, const call_format *f)
{
    for (size_t i = 0; f && m->tok && i < sizeof f->stops / sizeof *f->stops && f->stops[i]; i++)
        if (tokenizer_added_id(m->tok, f->stops[i]) >= 0)
            TRY(answer_ends_add_stops(e, m, &f->stops[i], 1));
    return PESC_OK;
}

void answer_ends_free(answer_ends *e)
{
    mem_free(e->ids);
    mem_free((void *)e->stops);
    *e = (answer_ends){ 0 };
}

bool answer_ends_at(const answer_ends *e, int32_t id)
{
    for (size_t i = 0; i < e->n_ids; i++)
        if (e->ids[i] == id)
            return true;
    return false;
}

/* ---- the text ---- */

/* Where the earliest stop string that counts begins at or after `from`; decoded.n if there is none.
 * *which: the string. */
static size_t find_stop(const answer *a, size_t from, const char **which)
{
    const answer_ends *e = a->rules.ends;
    size_t best = a->decoded.n;
    for (size_t i = 0; i < e->n_stops; i++) {
        size_t len = strlen(e->stops[i]);
        size_t first = a->ignored >= len ? a->ignored - len + 1 : 0;
        if (len == 0 || a->decoded.n < len)
            continue;
        first = first > from ? first : from;
        const char *hit = memmem(a->decoded.p + first, a->decoded.n - first, e->stops[i], len);
        if (hit && (size_t)(hit - a->decoded.p) < best) {
            best = (size_t)(hit - a->decoded.p);
            *which = e->stops[i];
        }
    }
    return best;
}

/* How many bytes at the end could be the beginning of a stop string. */
static size_t held_back(const answer *a)
{
    const answer_ends *e = a->rules.ends;
    size_t most = 0;
    for (size_t i = 0; i < e->n_stops; i++) {
        size_t len = strlen(e->stops[i]);
        for (size_t k = len ? len - 1 : 0; k > most; k--)
            if (k <= a->decoded.n && memcmp(a->decoded.p + a->decoded.n - k, e->stops[i], k) == 0)
                most = k;
    }
    return most;
}

/* After a prompt that ends inside a character the first text may be the rest of that one, which is
 * not UTF-8. */
static pesc_status add_text(answer *a, const char *text, size_t n, bool last)
{
    size_t longest = 0;
    const answer_ends *e = a->rules.ends;
    for (size_t i = 0; i < e->n_stops; i++)
        if (strlen(e->stops[i]) > longest)
            longest = strlen(e->stops[i]);
    size_t from = a->decoded.n > longest ? a->decoded.n - longest : 0;
    str_add_valid(&a->decoded, text, n);
    if (!str_ok(&a->decoded))
        return fail_nomem("the generated text", a->decoded.n + n);
    if (a->end == ANSWER_STOP)
        return PESC_OK;
    if ((int64_t)a->ids.n <= a->rules.min_tokens)
        a->ignored = a->decoded.n;
    size_t at = find_stop(a, from, &a->stop);
    a->n = a->decoded.n;
    if (a->stop) {
        a->end = ANSWER_STOP;
        a->n = at + (a->rules.keep_stop ? strlen(a->stop) : 0);
    }
    size_t certain = a->n - (last || a->stop ? 0 : held_back(a));
    if (certain > a->certain)
        a->certain = certain;
    return PESC_OK;
}

/* ---- the answer ---- */

static pesc_status keep_control(answer *a, int32_t id)
{
    if (!a->rules.controls || !a->tok || !tokenizer_is_special(a->tok, id))
        return PESC_OK;
    if (!mem_room((void **)&a->controls, &a->cap_controls, a->n_controls, sizeof *a->controls))
        return fail_nomem("an answer", a->n_controls * sizeof *a->controls);
    a->controls[a->n_controls++] = (answer_control){ a->decoded.n, id };
    return PESC_OK;
}

pesc_status answer_open(answer *a, const tokenizer *tok, const answer_rules *rules,
                        const int32_t *prompt, size_t n)
{
    *a = (answer){ .tok = tok, .rules = *rules };
    return tok ? decode_open_after(&a->decode, tok, rules->decode, prompt, n) : PESC_OK;
}

void answer_close(answer *a)
{
    decode_close(a->decode);
    mem_free(a->ids.ids);
    mem_free(a->controls);
    str_free(&a->decoded);
    *a = (answer){ 0 };
}

pesc_status answer_token(answer *a, int32_t id)
{
    const char *text = "";
    size_t n = 0;
    ASSERT(a->end == ANSWER_GROWS);
    TRY(id_list_add(&a->ids, id));
    if (answer_ends_at(a->rules.ends, id)) {
        a->end = ANSWER_TOKEN;
        return PESC_OK;
    }
    /* ids beyond the tokenizer are padding of the vocabulary and have no text */
    if (a->tok && tokenizer_token(a->tok, id, &n))
        TRY(decode_feed(a->decode, id, &text, &n));
    else
        n = 0;
    TRY(add_text(a, text, n, false));
    return keep_control(a, id);
}

pesc_status answer_finish(answer *a)
{
    const char *text = "";
    size_t n = 0;
    if (a->tok)
        TRY(decode_finish(a->decode, &text, &n));
    return add_text(a, text, n, true);
}

const char *answer_text(const answer *a)
{
    return a->decoded.p ? a->decoded.p : "";
}

pesc_status answer_tell(answer *a, chat_turn *t)
{
    while (a->told < a->certain || a->controls_told < a->n_controls) {
        const answer_control *k =
            a->controls_told < a->n_controls ? &a->controls[a->controls_told] : NULL;
        size_t to = k && k->at < a->certain ? k->at : a->certain;
        if (to > a->told)
            TRY(chat_turn_text(t, answer_text(a) + a->told, to - a->told));
        a->told = to;
        if (!k || k->at > a->certain)
            break;
        TRY(chat_turn_control(t, k->id));
        a->controls_told++;
    }
    return PESC_OK;
}

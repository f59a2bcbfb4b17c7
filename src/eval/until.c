#include "eval/until.h"

#include "base/mem.h"
#include "eval/pytext.h"
#include "infer/session.h"

#include <string.h>

struct until {
    const pesc_model *m; /* borrowed */
    slice *stops;        /* the caller's, then the text of the tokenizer's end token */
    size_t n_stops;
    decode_stream *decode; /* of the text after the prompt */
    str text;              /* decoded so far */
    id_list ids;           /* of the text */
};

static pesc_status decode_alone(const until *u, const int32_t *ids, size_t n, str *out)
{
    decode_stream *d = NULL;
    pesc_status s = decode_open(&d, u->m->tok, PESC_SKIP_SPECIAL);
    for (size_t i = 0; s == PESC_OK && i < n; i++)
        s = decode_add(d, u->m->tok, ids[i], out);
    if (s == PESC_OK)
        s = decode_end(d, out);
    decode_close(d);
    return s;
}

static pesc_status keep_stops(until *u, until_stops stops)
{
    size_t n;
    const char *eos = tokenizer_token(u->m->tok, tokenizer_eos(u->m->tok), &n);
    u->stops = mem_alloc(stops.n + 1, sizeof *u->stops);
    if (!u->stops)
        return fail_nomem("stop strings", (stops.n + 1) * sizeof *u->stops);
    for (size_t i = 0; i < stops.n; i++)
        if (*stops.strings[i])
            u->stops[u->n_stops++] = (slice){ stops.strings[i], strlen(stops.strings[i]) };
    if (eos && n > 0)
        u->stops[u->n_stops++] = (slice){ eos, n };
    return PESC_OK;
}

pesc_status until_open(until **out, const pesc_model *m, until_stops stops, const int32_t *prompt,
                       int32_t n)
{
    ASSERT(m->tok);
    *out = NULL;
    until *u = mem_zalloc(1, sizeof *u);
    if (!u)
        return fail_nomem("a generated text", sizeof *u);
    u->m = m;
    pesc_status s = keep_stops(u, stops);
    if (s == PESC_OK)
        s = decode_open_after(&u->decode, m->tok, PESC_SKIP_SPECIAL, prompt, (size_t)n);
    if (s == PESC_OK)
        *out = u;
    else
        until_close(u);
    return s;
}

void until_close(until *u)
{
    if (!u)
        return;
    decode_close(u->decode);
    str_free(&u->text);
    mem_free(u->stops);
    mem_free(u->ids.ids);
    mem_free(u);
}

/* Whether a stop string is in the text and ends after its first `before` bytes. */
static bool has_stop(const until *u, slice text, size_t before)
{
    for (size_t i = 0; i < u->n_stops; i++) {
        slice stop = u->stops[i];
        size_t from = before >= stop.n ? before - stop.n + 1 : 0;
        if (text.n > from && memmem(text.p + from, text.n - from, stop.p, stop.n))
            return true;
    }
    return false;
}

static bool ends(const until *u, int32_t id)
{
    size_t n;
    const tokenizer *t = u->m->tok;
    if (id == tokenizer_eos(t) || session_ends(u->m, id))
        return true;
    const char *raw = tokenizer_is_special(t, id) ? tokenizer_token(t, id, &n) : NULL;
    return raw && has_stop(u, (slice){ raw, n }, 0);
}

pesc_status until_token(void *ud, int32_t id, bool *more)
{
    until *u = ud;
    size_t before = u->text.n;
    *more = !ends(u, id);
    if (!*more)
        return PESC_OK;
    TRY(id_list_add(&u->ids, id));
    TRY(decode_add(u->decode, u->m->tok, id, &u->text));
    if (!str_ok(&u->text))
        return fail_nomem("a generated text", u->text.n);
    *more = !has_stop(u, slice_of(&u->text), before);
    return PESC_OK;
}

static void cut(const until *u, str *text)
{
    for (size_t i = 0; i < u->n_stops; i++) {
        char *at = memmem(text->p, text->n, u->stops[i].p, u->stops[i].n);
        if (at) {
            text->n = (size_t)(at - text->p);
            *at = '\0';
        }
    }
}

pesc_status until_texts(until *u, str *text, str *reference)
{
    TRY(decode_end(u->decode, &u->text));
    str_add(text, u->text.p, u->text.n);
    str_puts(text, "");
    if (!str_ok(text))
        return fail_nomem("a generated text", u->text.n);
    TRY(decode_alone(u, u->ids.ids, u->ids.n, reference));
    cut(u, text);
    cut(u, reference);
    return PESC_OK;
}

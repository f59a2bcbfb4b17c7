#include "eval/stoptext.h"

#include "base/mem.h"
#include "infer/answer.h"

#include <string.h>

struct stop_text {
    const tokenizer *tok; /* borrowed */
    answer_ends ends;     /* the caller's stop strings, then the text of the end token */
    char *end;            /* that text; NULL: there is no end token */
    answer answer;
    chat_turn *turn; /* NULL: a text */
};

static pesc_status set_ends(stop_text *u, const pesc_model *m, stop_strings stops)
{
    size_t n;
    int32_t eos = tokenizer_eos(m->tok);
    const char *text = tokenizer_token(m->tok, eos, &n);
    TRY(answer_ends_add_model(&u->ends, m));
    TRY(answer_ends_add_ids(&u->ends, &eos, eos >= 0));
    u->ends.stops = mem_alloc(stops.n + 1, sizeof *u->ends.stops);
    if (!u->ends.stops)
        return fail_nomem("stop strings", (stops.n + 1) * sizeof *u->ends.stops);
    for (size_t i = 0; i < stops.n; i++)
        u->ends.stops[u->ends.n_stops++] = stops.strings[i];
    if (!text)
        return PESC_OK;
    u->end = mem_zalloc(n + 1, 1);
    if (!u->end)
        return fail_nomem("stop strings", n + 1);
    memcpy(u->end, text, n);
    u->ends.stops[u->ends.n_stops++] = u->end;
    return PESC_OK;
}

static pesc_status open_turn(stop_text *u, const pesc_model *m, const turn_rules *turn)
{
    size_t n;
    const char *const *stops = pesc_model_chat_stops(m, &n);
    TRY(answer_ends_add_calls(&u->ends, m, turn->speech->calls));
    TRY(answer_ends_add_stops(&u->ends, m, stops, n));
    return chat_turn_open(&u->turn, turn);
}

pesc_status stop_text_open(stop_text **out, const pesc_model *m, stop_strings stops,
                           const turn_rules *turn, const int32_t *prompt, int32_t n)
{
    ASSERT(m->tok);
    *out = NULL;
    stop_text *u = mem_zalloc(1, sizeof *u);
    if (!u)
        return fail_nomem("a generated text", sizeof *u);
    u->tok = m->tok;
    answer_rules rules = { .ends = &u->ends, .controls = turn, .decode = PESC_SKIP_SPECIAL };
    pesc_status s = set_ends(u, m, stops);
    if (s == PESC_OK && turn)
        s = open_turn(u, m, turn);
    if (s == PESC_OK)
        s = answer_open(&u->answer, m->tok, &rules, prompt, (size_t)n);
    if (s == PESC_OK)
        *out = u;
    else
        stop_text_close(u);
    return s;
}

void stop_text_close(stop_text *u)
{
    if (!u)
        return;
    answer_close(&u->answer);
    chat_turn_close(u->turn);
    answer_ends_free(&u->ends);
    mem_free(u->end);
    mem_free(u);
}

/* A special token, whose text is not in the answer's, ends it too if a stop string is part of it.
 */
static bool spells_stop(const stop_text *u, int32_t id)
{
    size_t n;
    const char *text = tokenizer_is_special(u->tok, id) ? tokenizer_token(u->tok, id, &n) : NULL;
    for (size_t i = 0; text && i < u->ends.n_stops; i++)
        if (*u->ends.stops[i] && memmem(text, n, u->ends.stops[i], strlen(u->ends.stops[i])))
            return true;
    return false;
}

pesc_status stop_text_token(void *ud, int32_t id, bool *more)
{
    stop_text *u = ud;
    *more = !spells_stop(u, id);
    if (!*more)
        return PESC_OK;
    TRY(answer_token(&u->answer, id));
    *more = u->answer.end == ANSWER_GROWS;
    return PESC_OK;
}

static void cut(const stop_text *u, str *text)
{
    for (size_t i = 0; i < u->ends.n_stops; i++) {
        const char *stop = u->ends.stops[i];
        char *at = *stop ? memmem(text->p, text->n, stop, strlen(stop)) : NULL;
        if (at) {
            text->n = (size_t)(at - text->p);
            *at = '\0';
        }
    }
}

static pesc_status turn_forms(stop_text *u, str *text, str *reference)
{
    TRY(answer_finish(&u->answer));
    TRY(answer_tell(&u->answer, u->turn));
    TRY(chat_turn_finish(u->turn));
    json_t *message = chat_turn_message(u->turn, "", 0);
    if (message)
        json_put(text, message, 0);
    json_decref(message);
    str_puts(text, "");
    str_add(reference, text->p, text->n);
    str_puts(reference, "");
    return message && str_ok(text) && str_ok(reference)
               ? PESC_OK
               : fail_nomem("a generated text", u->answer.decoded.n);
}

pesc_status stop_text_forms(stop_text *u, str *text, str *reference)
{
    if (u->turn)
        return turn_forms(u, text, reference);
    answer *a = &u->answer;
    size_t n = a->ids.n - (a->end == ANSWER_TOKEN);
    TRY(decode_text(u->tok, a->ids.ids, n, PESC_SKIP_SPECIAL, reference));
    TRY(answer_finish(a));
    str_add(text, answer_text(a), a->decoded.n);
    str_puts(text, "");
    if (!str_ok(text))
        return fail_nomem("a generated text", a->decoded.n);
    cut(u, text);
    cut(u, reference);
    return PESC_OK;
}

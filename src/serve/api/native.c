/* POST /completion: a text continued, with the fields and answers of llama.cpp's own endpoint of
 * that name. */
#include "serve/api/response.h"

#include <string.h>

/* A token with its id, and the most likely ones in its place. */
static json_t *probability(const choice *h, const token_logprob *n, int32_t id, float value)
{
    json_t *v = response_logprob(h, n, id, value);
    json_object_set_new(v, "id", json_integer(id));
    return v;
}

static json_t *probabilities(const choice *h, size_t from)
{
    json_t *list = json_array();
    for (size_t i = from; i < h->logprobs.n; i++) {
        const token_logprob *n = &h->logprobs.all[i];
        json_t *one = probability(h, n, n->id, n->value), *top = json_array();
        for (int64_t k = 0; k < h->of->api.top && k < h->of->n_top; k++) {
            const sched_choice *t = &h->top[n->top + (size_t)k];
            json_array_append_new(top, probability(h, n, t->id, t->logprob));
        }
        json_object_set_new(one, "top_logprobs", top);
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *settings_of(const choice *h)
{
    const api_request *r = &h->of->api;
    const pesc_sample_options *o = &h->sample;
    json_t *stops = json_array();
    for (size_t i = 0; i < r->n_stop; i++)
        json_array_append_new(stops, json_string(r->stop[i]));
    return json_pack("{s:I, s:I, s:f, s:I, s:f, s:f, s:f, s:f, s:f, s:b, s:I, s:b, s:o}",
                     "n_predict", (json_int_t)h->limit, "seed", (json_int_t)o->seed, "temperature",
                     o->temperature, "top_k", (json_int_t)o->top_k, "top_p", o->top_p, "min_p",
                     o->min_p, "repeat_penalty", o->repetition_penalty, "presence_penalty",
                     r->terms.presence, "frequency_penalty", r->terms.frequency, "ignore_eos",
                     r->ignore_eos, "n_probs", (json_int_t)(r->top > 0 ? r->top : 0), "stream",
                     r->stream, "stop", stops);
}

static const char *stop_type(const choice *h)
{
    return strcmp(h->finish, "length") == 0 ? "limit"
           : h->answer.end == ANSWER_STOP   ? "word"
                                            : "eos";
}

/* `text` and the tokens from `first` on, with what both kinds of objects have. */
static json_t *part_of(const choice *h, const char *text, size_t n, size_t first, bool ends)
{
    const call *c = h->of;
    bool tokens = c->x->stream || c->api.return_token_ids;
    json_t *v = json_pack(
        "{s:i, s:s%, s:o, s:b, s:I, s:I}", "index", h->index, "content", text, n, "tokens",
        response_ids(h->answer.ids.ids + first, tokens ? h->answer.ids.n - first : 0), "stop", ends,
        "tokens_predicted", (json_int_t)h->answer.ids.n, "tokens_evaluated",
        (json_int_t)h->prompt->ids.n);
    if (c->api.logprobs && h->logprobs_sent < h->logprobs.n)
        json_object_set_new(v, "completion_probabilities", probabilities(h, h->logprobs_sent));
    if (c->api.timings || ends)
        json_object_set_new(v, "timings", response_timings(c));
    return v;
}

/* Of a choice that is done. */
static json_t *end_of(const choice *h, const char *text, size_t n, size_t first)
{
    const pesc_server *s = h->of->x->srv;
    const id_list *p = &h->prompt->ids;
    str given = { 0 };
    if (s->m->tok)
        (void)decode_text(s->m->tok, p->ids, p->n, 0, &given);
    json_t *v = part_of(h, text, n, first, true);
    json_t *more = json_pack(
        "{s:s, s:o, s:s%, s:b, s:b, s:s, s:s, s:I}", "model", h->of->model->name,
        "generation_settings", settings_of(h), "prompt", given.p ? given.p : "", given.n,
        "has_new_line", memchr(answer_text(&h->answer), '\n', h->answer.n) != NULL, "truncated",
        p->n + h->answer.ids.n >= (size_t)s->context, "stop_type", stop_type(h), "stopping_word",
        h->answer.stop ? h->answer.stop : "", "tokens_cached", (json_int_t)h->of->cached_tokens);
    json_object_update(v, more);
    json_decref(more);
    str_free(&given);
    return v;
}

/* An object, or a list of them for several prompts. */
void native_whole(const call *c, str *out)
{
    json_t *list = json_array();
    for (size_t i = 0; i < c->n_choices; i++) {
        const choice *h = &c->choices[i];
        json_array_append_new(list, end_of(h, answer_text(&h->answer), h->answer.n, 0));
    }
    if (json_array_size(list) == c->n_choices)
        json_put(out, c->n_choices == 1 ? json_array_get(list, 0) : list, JSON_COMPACT);
    json_decref(list);
}

static void put_event(json_t *v, str *out)
{
    str_puts(out, "data: ");
    json_put(out, v, JSON_COMPACT);
    str_puts(out, "\n\n");
    json_decref(v);
}

/* The text that is new; then, where the choice is done, its end without text. */
void native_events(choice *h, str *out)
{
    size_t from = h->sent;
    if (h->answer.certain > from) {
        put_event(part_of(h, answer_text(&h->answer) + from, h->answer.certain - from, h->ids_sent,
                          false),
                  out);
        h->sent = h->answer.certain;
        h->ids_sent = h->answer.ids.n;
        h->logprobs_sent = h->logprobs.n;
    }
    if (h->finish)
        put_event(end_of(h, "", 0, h->ids_sent), out);
}

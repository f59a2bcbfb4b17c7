#include "serve/call.h"

#include "base/mem.h"

/* ---- log-probabilities ---- */

static pesc_status add_note(choice *c, note_list *to, const note *n, const sched_row *r)
{
    if (!mem_room((void **)&to->all, &to->cap, to->n, sizeof *to->all))
        return fail_nomem("log-probabilities", to->n * sizeof *to->all);
    to->all[to->n] = *n;
    to->all[to->n++].top = c->n_top;
    for (int32_t i = 0; r && i < r->n_top; i++) {
        if (!mem_room((void **)&c->top, &c->cap_top, c->n_top, sizeof *c->top))
            return fail_nomem("log-probabilities", c->n_top * sizeof *c->top);
        c->top[c->n_top++] = r->top[i];
    }
    return PESC_OK;
}

pesc_status choice_note(choice *c, const sched_row *r)
{
    const prompt *p = c->prompt;
    const api_request *api = &c->of->api;
    bool of_prompt = (size_t)r->at < p->ids.n;
    size_t generated = (size_t)r->at - p->ids.n;
    int32_t before = r->at == 0                    ? -1
                     : of_prompt || generated == 0 ? p->ids.ids[r->at - 1]
                                                   : c->ids.ids[generated - 1];
    note n = { .id = r->token.id,
               .before = before,
               .logprob = r->token.logprob,
               .rank = r->rank,
               .offset = of_prompt && p->offsets ? p->offsets[r->at] : c->chars };
    if (of_prompt && api->prompt_top >= 0)
        TRY(add_note(c, &c->prompt_notes, &n, r));
    if (api->logprobs && (api->echo || !of_prompt))
        TRY(add_note(c, &c->notes, &n, r));
    return PESC_OK;
}

/* ---- experts ---- */

/* A token that is fed again after a preemption is known already. */
pesc_status choice_routed(choice *c, const sched_routes *r)
{
    const routes *all = r->all;
    size_t each = (size_t)all->n_layers * (size_t)all->k;
    for (int32_t i = 0; i < r->n; i++) {
        if ((size_t)(r->at + i) != c->prompt->ids.n + c->n_routed)
            continue;
        size_t used = c->n_routed * each;
        if (used + each > c->cap_routes) {
            size_t cap = 2 * c->cap_routes + 16 * each;
            routed *more = mem_grow(c->routes, cap, sizeof *more);
            if (!more)
                return fail_nomem("routed experts", cap * sizeof *more);
            c->routes = more;
            c->cap_routes = cap;
        }
        for (int32_t l = 0; l < all->n_layers; l++)
            for (int32_t k = 0; k < all->k; k++) {
                int64_t at = ((int64_t)l * all->n + r->first + i) * all->k + k;
                c->routes[used++] = (routed){ all->ids[at], all->gates[at] };
            }
        c->n_routed++;
    }
    return PESC_OK;
}

/* ---- text ---- */

pesc_status choice_open(choice *c)
{
    const call *of = c->of;
    const pesc_model *m = of->x->srv->m;
    const prompt *p = c->prompt;
    c->text = (stop_text){ .stop = of->ends.texts,
                           .n_stop = of->ends.n_texts,
                           .keep = of->api.include_stop };
    c->chars = of->api.echo ? p->chars : 0;
    if (of->api.logprobs && of->api.echo)
        TRY(add_note(c, &c->notes, &(note){ .id = p->ids.ids[0], .before = -1, .none = true },
                     NULL));
    return m->tok ? decode_open_after(&c->decode, m->tok, PESC_SKIP_SPECIAL, p->ids.ids, p->ids.n)
                  : PESC_OK;
}

void choice_close(choice *c)
{
    decode_close(c->decode);
    str_free(&c->text.text);
    mem_free(c->ids.ids);
    mem_free(c->notes.all);
    mem_free(c->prompt_notes.all);
    mem_free(c->top);
    mem_free(c->routes);
}

/* After a prompt that ends inside a character, the first text may be the rest of it. */
static pesc_status put_text(choice *c, const char *text, size_t n, bool last)
{
    str good = { 0 };
    prompts_repair(text, n, &good);
    if (!str_ok(&good))
        return fail_nomem("the generated text", n);
    pesc_status s = stop_text_put(&c->text, good.p ? good.p : "", good.n, last);
    c->chars += prompts_chars(good.p ? good.p : "", good.n);
    str_free(&good);
    return s;
}

pesc_status choice_token(choice *c, int32_t id, bool *more)
{
    const char *text = "";
    size_t n = 0;
    TRY(id_list_add(&c->ids, id));
    if (ends_with(&c->of->ends, id)) {
        c->finish = "stop";
        *more = false;
        return PESC_OK;
    }
    /* ids beyond the tokenizer are padding of the vocabulary and have no text */
    if (c->decode && tokenizer_token(c->of->x->srv->m->tok, id, &n))
        TRY(decode_feed(c->decode, id, &text, &n));
    else
        n = 0;
    c->text.ignore = (int64_t)c->ids.n <= c->of->api.min_tokens;
    TRY(put_text(c, text, n, false));
    if (c->text.stopped)
        c->finish = "stop";
    *more = !c->text.stopped;
    return PESC_OK;
}

pesc_status choice_finish(choice *c, const char *finish)
{
    const char *text = "";
    size_t n = 0;
    c->done = true;
    if (!c->finish)
        c->finish = finish;
    if (c->decode && !c->text.stopped)
        TRY(decode_finish(c->decode, &text, &n));
    return put_text(c, text, n, true);
}

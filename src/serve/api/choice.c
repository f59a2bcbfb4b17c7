#include "serve/api/call.h"

#include "base/mem.h"

#include <string.h>

/* ---- log-probabilities ---- */

static pesc_status add_logprob(choice *c, logprob_list *to, const token_logprob *n,
                               const sched_row *r)
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

pesc_status choice_logprob(choice *c, const sched_row *r)
{
    const prompt *p = c->prompt;
    const api_request *api = &c->of->api;
    bool of_prompt = (size_t)r->at < p->ids.n;
    size_t generated = (size_t)r->at - p->ids.n;
    int32_t before = r->at == 0                    ? -1
                     : of_prompt || generated == 0 ? p->ids.ids[r->at - 1]
                                                   : c->answer.ids.ids[generated - 1];
    token_logprob n = { .id = r->token.id,
                        .before = before,
                        .value = r->token.logprob,
                        .rank = r->rank,
                        .offset = of_prompt && p->offsets ? p->offsets[r->at] : c->chars };
    if (of_prompt && api->prompt_top >= 0)
        TRY(add_logprob(c, &c->prompt_logprobs, &n, r));
    if (api->logprobs && (api->echo || !of_prompt))
        TRY(add_logprob(c, &c->logprobs, &n, r));
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
    const prompt *p = c->prompt;
    answer_rules rules = { .ends = &of->ends,
                           .min_tokens = of->api.terms.min_tokens,
                           .keep_stop = of->api.include_stop,
                           .decode = PESC_SKIP_SPECIAL | DECODE_AT_ONCE };
    c->chars = of->api.echo ? p->chars : 0;
    if (of->api.endpoint == API_CHAT) {
        rules.controls = of->turn.speech != NULL;
        TRY(chat_turn_open(&c->turn, &of->turn));
    }
    if (of->api.logprobs && of->api.echo)
        TRY(add_logprob(c, &c->logprobs,
                        &(token_logprob){ .id = p->ids.ids[0], .before = -1, .none = true }, NULL));
    return answer_open(&c->answer, of->x->srv->m->tok, &rules, p->ids.ids, p->ids.n);
}

void choice_close(choice *c)
{
    matcher_close(c->matcher);
    chat_turn_close(c->turn);
    answer_close(&c->answer);
    mem_free(c->logprobs.all);
    mem_free(c->prompt_logprobs.all);
    mem_free(c->top);
    mem_free(c->routes);
}

void choice_call_id(const choice *c, size_t i, char id[CALL_ID_ROOM])
{
    chat_turn_call_id(c->turn, i, c->of->id, (uint64_t)c->index << 32, id);
}

pesc_status choice_token(choice *c, int32_t id, bool *more)
{
    size_t before = c->answer.decoded.n;
    TRY(answer_token(&c->answer, id));
    c->chars += prompts_chars(answer_text(&c->answer) + before, c->answer.decoded.n - before);
    *more = c->answer.end == ANSWER_GROWS;
    if (!c->turn)
        return PESC_OK;
    bool thought = chat_turn_thinks(c->turn);
    TRY(answer_tell(&c->answer, c->turn));
    if (chat_turn_thinks(c->turn)) {
        c->thought_tokens++;
    } else if (thought) {
        c->content_at = c->answer.n;
        c->terms.thought.n_end = 0; /* ended by whatever tokens spell it: no budget is left over */
    }
    return PESC_OK;
}

static size_t calls_of(const choice *c)
{
    size_t n = 0, calls = 0;
    const turn_part *p = c->turn ? chat_turn_parts(c->turn, &n) : NULL;
    for (size_t i = 0; i < n; i++)
        calls += p[i].kind == TURN_CALL;
    return calls;
}

pesc_status choice_finish(choice *c, const char *finish)
{
    pesc_status s = answer_finish(&c->answer);
    c->finish = c->answer.end == ANSWER_GROWS ? finish : "stop";
    if (s == PESC_OK && c->turn)
        s = answer_tell(&c->answer, c->turn);
    if (s == PESC_OK && c->turn)
        s = chat_turn_finish(c->turn);
    if (s == PESC_OK && strcmp(c->finish, "stop") == 0 && !c->of->api.one_function &&
        calls_of(c) > 0)
        c->finish = "tool_calls";
    return s;
}

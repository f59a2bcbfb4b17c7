/* From a request to what the engine runs. */
#include "serve/api/call.h"

#include "base/clock.h"
#include "base/mem.h"
#include "serve/api/endpoints.h"
#include "serve/api/responsestore.h"
#include "serve/api/speech.h"

#include <xxhash.h>

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum { DEFAULT_TOKENS = 16 }; /* of a completion */

/* ---- limits ---- */

/* How many tokens may follow the prompt; false: it is too long. */
static bool check_lengths(call *c, api_error *e)
{
    const pesc_server *s = c->x->srv;
    bool embeds = c->api.endpoint == API_EMBEDDINGS;
    int64_t asked = embeds ? 0 : c->api.max_tokens;
    const char *field = c->api.messages ? "messages" : embeds ? "input" : "prompt";
    for (size_t i = 0; i < c->prompts.n; i++) {
        int64_t n = (int64_t)c->prompts.all[i].ids.n;
        if (n == 0)
            return api_refuse(e, 400, NULL, field,
                              "the prompt has no tokens, expected at least one");
        if (n + (asked != 0) > s->context)
            return api_refuse(e, 400, "context_length_exceeded", field,
                              "the prompt has %lld tokens and exceeds the available context size: "
                              "the maximum context length of this server is %d tokens",
                              (long long)n, s->context);
        c->prompt_tokens += n;
    }
    if (asked < 0)
        asked = c->api.endpoint == API_COMPLETION ? DEFAULT_TOKENS : s->context;
    c->max_tokens = (int32_t)(asked < s->context ? asked : s->context);
    return true;
}

/* More choices than run and wait at the same time would never fit. */
static bool check_choices(const call *c, api_error *e)
{
    const pesc_serve_options *o = &c->x->srv->opt;
    int64_t most = o->max_queue + o->max_streams, n = (int64_t)c->prompts.n * c->api.n;
    if (n <= most || c->api.endpoint == API_EMBEDDINGS)
        return true;
    return api_refuse(e, 400, "too_many_choices", c->prompts.n > 1 ? "prompt" : "n",
                      "the request asks for %lld choices (%zu prompts, n %lld), expected at most "
                      "%lld: as many as this server lets run (%lld) and wait (%lld)",
                      (long long)n, c->prompts.n, (long long)c->api.n, (long long)most,
                      (long long)o->max_streams, (long long)o->max_queue);
}

/* What is reported about tokens. */
static bool set_reports(call *c, api_error *e)
{
    const pesc_server *s = c->x->srv;
    const expert_load *load = &s->load;
    int64_t top = c->api.top > c->api.prompt_top ? c->api.top : c->api.prompt_top;
    c->n_top = top < 0 ? 0 : top < s->m->shape.cfg.vocab ? (int32_t)top : s->m->shape.cfg.vocab;
    if (load->n_layers == 0)
        return !c->api.return_routes ||
               api_refuse(e, 400, "unsupported_parameter", "return_routed_experts",
                          "return_routed_experts: the model is dense: it has no experts");
    size_t n = (size_t)load->n_layers * (size_t)load->n_experts;
    c->expert_counts = mem_zalloc(n, sizeof *c->expert_counts);
    return c->expert_counts || api_failed(e, fail_nomem("counts of experts", n));
}

/* ---- where texts end ---- */

/* The stop strings and ids of the request hold also where the model's own ends do not. */
static pesc_status add_ends(call *c)
{
    const pesc_model *m = c->x->srv->m;
    const chat_format *f = chat_built_in(c->x->srv->prompts.chat);
    size_t n = 0;
    const char *const *stops = f ? chat_stops(f, &n) : pesc_model_chat_stops(m, &n);
    TRY(answer_ends_add_stops(&c->ends, m, c->api.stop, c->api.n_stop));
    TRY(answer_ends_add_ids(&c->ends, c->api.stop_ids, c->api.n_stop_ids));
    if (c->api.ignore_eos)
        return PESC_OK;
    TRY(answer_ends_add_model(&c->ends, m));
    if (c->api.endpoint != API_CHAT)
        return PESC_OK;
    TRY(answer_ends_add_calls(&c->ends, c->x->srv->m,
                              c->turn.speech ? c->turn.speech->calls : NULL));
    return answer_ends_add_stops(&c->ends, m, stops, n);
}

/* ---- thoughts ---- */

/* The tokens of marks that a budget needs; none where the model has no thoughts, or has ended them
 * in the prompt. */
static pesc_status add_budget(call *c)
{
    const tokenizer *t = c->x->srv->m->tok;
    const thought_format *f = c->turn.thoughts ? c->turn.speech->thought : NULL;
    if (!f || c->api.thought_tokens < 0)
        return PESC_OK;
    if (!c->turn.inside)
        TRY(tokenizer_encode(t, f->begin, strlen(f->begin), PESC_PARSE_SPECIAL, &c->think_begin));
    return tokenizer_encode(t, f->end, strlen(f->end), PESC_PARSE_SPECIAL, &c->think_end);
}

static thought_budget budget_of(const call *c)
{
    return (thought_budget){ .begin = c->think_begin.ids,
                             .end = c->think_end.ids,
                             .n_begin = c->think_begin.n,
                             .n_end = c->think_end.n,
                             .tokens = c->api.thought_tokens };
}

/* ---- choices ---- */

static pesc_status open_choices(call *c)
{
    const api_request *r = &c->api;
    size_t each = (size_t)r->n;
    uint64_t seed = (uint64_t)r->sample.seed;
    c->has_terms = c->grammar || r->terms.presence != 0 || r->terms.frequency != 0 ||
                   r->terms.n_bias > 0 || r->terms.min_tokens > 0 || c->think_end.n > 0;
    if (!r->has_seed && getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = (uint64_t)(clock_wall() * 1e6);
    if (!(c->choices = mem_zalloc(c->prompts.n * each, sizeof *c->choices)))
        return fail_nomem("choices", c->prompts.n * each * sizeof *c->choices);
    c->n_choices = c->n_left = c->prompts.n * each;
    for (size_t i = 0; i < c->n_choices; i++) {
        choice *h = &c->choices[i];
        h->of = c;
        h->index = (int32_t)i;
        h->prompt = &c->prompts.all[i / each];
        h->sample = r->sample;
        h->sample.seed = (int64_t)(seed + i % each);
        h->terms = r->terms;
        h->terms.ends = c->ends.ids;
        h->terms.n_ends = c->ends.n_ids;
        if (c->grammar)
            TRY(matcher_open(&h->matcher, c->grammar));
        h->terms.matcher = h->matcher;
        h->terms.thought = budget_of(c);
        TRY(choice_open(h));
    }
    return PESC_OK;
}

/* Requests that may share cached prefixes: those of the same key, salt and model; without
 * cache_prompt none. */
static uint64_t scope_of(const call *c)
{
    const char *salt = c->api.cache_prompt ? c->api.cache_salt : c->id;
    uint64_t scope = salt ? XXH3_64bits_withSeed(salt, strlen(salt), c->x->key + 1) : c->x->key;
    int32_t adapter = c->model->adapter;
    return adapter ? XXH3_64bits_withSeed(&adapter, sizeof adapter, scope) : scope;
}

static bool prepare(call *c, api_error *e)
{
    const pesc_server *s = c->x->srv;
    c->model = models_find(s, c->api.model, e);
    if (!c->model || !set_reports(c, e) || !responsestore_go_on(c, e) ||
        !prompts_read(&c->prompts, &s->prompts, &c->api, e) || !check_choices(c, e) ||
        !check_lengths(c, e))
        return false;
    if (c->api.endpoint == API_EMBEDDINGS)
        return embeddings_open(c, e);
    if (!speech_open(c, e))
        return false;
    bool pieces = s->m->tok && (c->api.logprobs || c->api.prompt_top >= 0);
    pesc_status st = pieces ? decode_open(&c->pieces, s->m->tok, 0) : PESC_OK;
    if (st == PESC_OK)
        st = add_ends(c);
    if (st == PESC_OK)
        st = add_budget(c);
    c->scope = scope_of(c);
    if (st == PESC_OK)
        st = open_choices(c);
    return st == PESC_OK || api_failed(e, st);
}

/* From the request of the exchange, which it takes; NULL: x->error says why. */
static call *call_open(exchange *x)
{
    call *c = mem_zalloc(1, sizeof *c);
    if (!c) {
        api_failed(&x->error, fail_nomem("a request", sizeof *c));
        return NULL;
    }
    c->x = x;
    c->api = x->request;
    x->request = (api_request){ 0 };
    c->created = (int64_t)clock_wall();
    c->queued = clock_seconds();
    static const char *const dialects[] = {
        [DIALECT_CHAT] = "chatcmpl-", [DIALECT_MESSAGES] = "msg_", [DIALECT_RESPONSES] = "resp_"
    };
    snprintf(c->id, sizeof c->id, "%s%s",
             c->api.endpoint == API_CHAT ? dialects[c->api.dialect] : "cmpl-",
             x->id + sizeof "req-" - 1);
    if (prepare(c, &x->error))
        return c;
    call_free(c);
    return NULL;
}

void call_free(call *c)
{
    if (!c)
        return;
    for (size_t i = 0; c->choices && i < c->n_choices; i++)
        choice_close(&c->choices[i]);
    mem_free(c->choices);
    answer_ends_free(&c->ends);
    mem_free(c->think_begin.ids);
    mem_free(c->think_end.ids);
    decode_close(c->pieces);
    mem_free(c->expert_counts);
    mem_free(c->vectors);
    prompts_close(&c->prompts);
    grammar_close(c->grammar);
    api_close(&c->api);
    mem_free(c);
}

int64_t call_generated(const call *c)
{
    int64_t n = 0;
    for (size_t i = 0; i < c->n_choices; i++)
        n += (int64_t)c->choices[i].answer.ids.n;
    return n;
}

bool handle_generation(exchange *x)
{
    call *c = call_open(x);
    if (c && engine_add(x->srv, c, &x->error))
        return true;
    call_free(c);
    return false;
}

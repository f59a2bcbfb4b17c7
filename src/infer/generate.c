/* One completion: feed, pick, decode, emit, until an end token, a stop string or the limit.
 *
 * Text reaches the caller in whole characters. While stop strings are asked for, as many bytes are
 * held back as could still become one of them. */
#include "base/args.h"
#include "base/mem.h"
#include "base/clock.h"
#include "base/options.h"
#include "infer/answer.h"
#include "infer/generate.h"
#include "infer/sampler.h"

#include <string.h>

void pesc_generation_free(pesc_generation *g)
{
    if (!g)
        return;
    mem_free(g->ids);
    mem_free(g->text);
    if (g->size >= sizeof *g) /* that of a caller who knows it */
        mem_free(g->message);
    ARGS_CLEAR(g);
}

/* A completion while it is made. */
typedef struct completion {
    pesc_session *s;
    const pesc_sample_options *opt;
    const listener *to;
    sampler *sampler;
    sampler_terms terms;
    matcher *matcher; /* NULL: no grammar */
    answer_ends ends;
    answer answer;
    chat_turn *turn;           /* NULL: the text is all */
    size_t emitted;            /* bytes of the text, or of the part, that the caller has seen */
    size_t part;               /* of the turn */
    double began, read, ended; /* clock_seconds(): prefill lasts from began to read */
} completion;

/* Hands out what is new of the turn; calls are handed out at the end, in its message. */
static bool emit_turn(completion *c)
{
    size_t n;
    const turn_part *p = chat_turn_parts(c->turn, &n);
    for (bool wanted = true; wanted && c->part < n; c->part++, c->emitted = 0) {
        const turn_part *now = &p[c->part];
        if (now->kind != TURN_CALL && now->text.n > c->emitted && c->to->turn)
            wanted = c->to->turn(c->to->ud, now->kind == TURN_THOUGHT, now->text.p + c->emitted,
                                 now->text.n - c->emitted);
        c->emitted = now->text.n;
        if (!wanted || c->part + 1 == n)
            return wanted;
    }
    return true;
}

/* Hands out what has become certain; *wanted: whether the caller wants more. */
static pesc_status emit_certain(completion *c, bool *wanted)
{
    size_t from = c->emitted, to = c->answer.certain;
    if (c->turn) {
        TRY(answer_tell(&c->answer, c->turn));
        *wanted = emit_turn(c);
        return PESC_OK;
    }
    c->emitted = to;
    *wanted = to == from || !c->to->text ||
              c->to->text(c->to->ud, answer_text(&c->answer) + from, to - from);
    return PESC_OK;
}

/* Generates until something ends it; says what in `finish`. */
static pesc_status decode(completion *c, const char **finish)
{
    pesc_session *s = c->s;
    bool wanted = true, complete = false; /* complete: its grammar lets nothing follow */
    for (int64_t step = 0; step < c->opt->max_tokens; step++) {
        int32_t id;
        TRY(sampler_pick(c->sampler, session_logits(s), s->fed.ids, s->fed.n, (uint64_t)step, &id));
        complete = id < 0;
        if (complete)
            TRY(matcher_status(c->matcher));
        if (complete)
            break;
        TRY(answer_token(&c->answer, id));
        TRY(emit_certain(c, &wanted));
        if (!wanted || c->answer.end != ANSWER_GROWS || step + 1 == c->opt->max_tokens ||
            s->fed.n == (size_t)s->n_ctx)
            break;
        int64_t left = c->opt->max_tokens - step - 2; /* tokens after this one's successor */
        session_guesses how = { left < GUESS_MOST ? (int32_t)left : GUESS_MOST,
                                c->opt->draft_tokens, c->matcher, (size_t)step + 1 };
        TRY(session_next(s, id, &how));
    }
    TRY(answer_finish(&c->answer));
    bool last = wanted;
    if (wanted)
        TRY(emit_certain(c, &last));
    if (c->turn)
        TRY(chat_turn_finish(c->turn));
    if (c->turn && last)
        (void)emit_turn(c);
    bool stopped = complete || c->answer.end != ANSWER_GROWS;
    *finish = !wanted ? "stopped" : stopped ? "stop" : "length";
    return PESC_OK;
}

static pesc_status complete(completion *c, const int32_t *ids, size_t n, const char **finish)
{
    const pesc_model *m = c->s->model;
    const turn_rules *turn = c->to->rules;
    answer_rules rules = { .ends = &c->ends,
                           .controls = turn && turn->speech,
                           .decode = PESC_SKIP_SPECIAL | DECODE_AT_ONCE };
    if (!c->opt->ignore_eos)
        TRY(answer_ends_add_model(&c->ends, m));
    TRY(answer_ends_add_stops(&c->ends, m, c->opt->stop, c->opt->n_stop));
    if (turn && turn->speech)
        TRY(answer_ends_add_calls(&c->ends, m, turn->speech->calls));
    if (turn)
        TRY(chat_turn_open(&c->turn, turn));
    TRY(sampler_open(&c->sampler, c->opt, m->shape.cfg.vocab));
    if (c->to->grammar) {
        TRY(matcher_open(&c->matcher, c->to->grammar));
        c->terms =
            (sampler_terms){ .ends = c->ends.ids, .n_ends = c->ends.n_ids, .matcher = c->matcher };
        sampler_use(c->sampler, c->opt, &c->terms);
    }
    TRY(answer_open(&c->answer, m->tok, &rules, ids, n));
    c->began = clock_seconds();
    TRY(session_extend(c->s, ids, n));
    c->read = clock_seconds();
    TRY(decode(c, finish));
    c->ended = clock_seconds();
    return PESC_OK;
}

/* The turn as a message, for the caller. */
static pesc_status write_message(const completion *c, char **out)
{
    json_t *v = chat_turn_message(c->turn, "", (uint64_t)c->to->number << 32);
    str text = { 0 };
    if (v)
        json_put(&text, v, JSON_COMPACT);
    str_puts(&text, "");
    json_decref(v);
    if (!v || !str_ok(&text)) {
        str_free(&text);
        return fail_nomem("an answer", c->answer.n);
    }
    *out = text.p;
    return PESC_OK;
}

/* Moves the result to the caller. */
static pesc_status give(completion *c, size_t n_prompt, const char *finish, pesc_generation *out)
{
    answer *a = &c->answer;
    if (a->decoded.p)
        a->decoded.p[a->n] = '\0';
    pesc_generation g = { .ids = a->ids.ids,
                          .n_ids = a->ids.n,
                          .text = a->decoded.p,
                          .n_text = a->n,
                          .n_prompt = n_prompt,
                          .prefill_seconds = c->read - c->began,
                          .decode_seconds = c->ended - c->read,
                          .n_guessed = (size_t)c->s->guesses.checked,
                          .n_guesses_kept = (size_t)c->s->guesses.accepted };
    if (c->turn && out->size >= sizeof *out)
        TRY(write_message(c, &g.message));
    memcpy(g.finish, finish, strlen(finish) + 1);
    ARGS_WRITE(out, &g);
    a->ids.ids = NULL;
    a->decoded.p = NULL;
    return PESC_OK;
}

pesc_status generate(pesc_session *s, const int32_t *ids, size_t n, const pesc_sample_options *o,
                     const listener *l, pesc_generation *out)
{
    const char *finish = "";
    completion c = { .s = s, .opt = o, .to = l };
    if (out)
        ARGS_CLEAR(out);
    pesc_status st = complete(&c, ids, n, &finish);
    if (st == PESC_OK && out)
        st = give(&c, n, finish, out);
    chat_turn_close(c.turn);
    answer_close(&c.answer);
    sampler_close(c.sampler);
    matcher_close(c.matcher);
    answer_ends_free(&c.ends);
    return st;
}

pesc_status pesc_session_complete(pesc_session *s, const int32_t *ids, size_t n,
                                  const pesc_sample_options *opt, pesc_text_fn emit, void *ud,
                                  pesc_generation *out)
{
    status_clear();
    NEED(s);
    NEED_ARRAY(ids, n);
    NEED_SIZED_OR_NULL(out);
    pesc_sample_options o;
    if (out)
        ARGS_CLEAR(out);
    TRY(options_take(PESC_OPTIONS_SAMPLE, &o, opt));
    listener to = { .text = emit, .ud = ud, .grammar = s->grammar };
    return generate(s, ids, n, &o, &to, out);
}

pesc_status pesc_session_generate(pesc_session *s, const char *prompt,
                                  const pesc_sample_options *opt, pesc_text_fn emit, void *ud)
{
    status_clear();
    NEED(s);
    NEED(prompt);
    if (!s->model->tok)
        return fail(PESC_UNSUPPORTED, "the model has no tokenizer; give token ids instead of text");
    id_list ids = { 0 };
    pesc_sample_options o;
    TRY(options_take(PESC_OPTIONS_SAMPLE, &o, opt));
    unsigned flags =
        (o.add_special ? PESC_ADD_SPECIAL : 0u) | (o.parse_special ? PESC_PARSE_SPECIAL : 0u);
    pesc_status st = tokenizer_encode(s->model->tok, prompt, strlen(prompt), flags, &ids);
    if (st == PESC_OK)
        st = pesc_session_complete(s, ids.ids, ids.n, &o, emit, ud, NULL);
    mem_free(ids.ids);
    return st;
}

/* A value out of range is an error of the file, as any other of its values. */
pesc_status pesc_model_sampling(const pesc_model *m, pesc_sample_options *opt)
{
    status_clear();
    NEED(m);
    NEED_SIZED(opt);
    pesc_sample_options o;
    const json_t *file = m->dir->generation;
    if (!file)
        return PESC_OK;
    TRY(options_take(PESC_OPTIONS_SAMPLE, &o, opt));
    json_where w = { file, "generation_config.json" };
    const json_t *draws = json_object_get(file, "do_sample");
    o.temperature = json_is_true(draws) ? 1 : o.temperature; /* what transformers has then */
    TRY(json_get_f64(w, "temperature", false, &o.temperature));
    o.temperature = json_is_false(draws) ? 0 : o.temperature;
    TRY(json_get_i64(w, "top_k", false, -1, INT32_MAX, &o.top_k));
    if (o.top_k < 0) /* as 0, all tokens, in files for vLLM */
        o.top_k = 0;
    TRY(json_get_f64(w, "top_p", false, &o.top_p));
    TRY(json_get_f64(w, "min_p", false, &o.min_p));
    TRY(json_get_f64(w, "repetition_penalty", false, &o.repetition_penalty));
    ARGS_WRITE(opt, &o);
    return options_take(PESC_OPTIONS_SAMPLE, &o, opt);
}

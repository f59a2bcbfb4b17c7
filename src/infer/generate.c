/* One completion: feed, pick, decode, emit, until an end token, a stop string or the limit.
 *
 * Text reaches the caller in whole characters. While stop strings are asked for, as many bytes are
 * held back as could still become one of them. */
#include "base/args.h"
#include "base/mem.h"
#include "base/clock.h"
#include "base/options.h"
#include "infer/ends.h"
#include "infer/sampler.h"
#include "infer/session.h"
#include "infer/stops.h"

#include <string.h>

typedef struct writer {
    stop_text text;
    size_t emitted; /* bytes of it the caller has seen */
    const pesc_sample_options *opt;
    pesc_text_fn emit;
    void *ud;
    bool stopped_by_caller;
} writer;

static pesc_status put(writer *w, const char *text, size_t n, bool last)
{
    TRY(stop_text_put(&w->text, text, n, last));
    size_t ready = w->text.certain;
    if (ready > w->emitted && w->emit &&
        !w->emit(w->ud, w->text.text.p + w->emitted, ready - w->emitted))
        w->stopped_by_caller = true;
    w->emitted = ready;
    return PESC_OK;
}

void pesc_generation_free(pesc_generation *g)
{
    if (!g)
        return;
    mem_free(g->ids);
    mem_free(g->text);
    ARGS_CLEAR(g);
}

typedef struct run {
    pesc_session *s;
    sampler *sampler;
    decode_stream *decode; /* of what follows the prompt; NULL: the model has no tokenizer */
    writer w;
    text_ends ends;
    id_list ids;
} run;

/* Decodes until something ends it; says what in `finish`. */
static pesc_status loop(run *r, const char **finish)
{
    pesc_session *s = r->s;
    const pesc_sample_options *opt = r->w.opt;
    *finish = "length";
    for (int64_t step = 0; step < opt->max_tokens; step++) {
        int32_t id;
        TRY(sampler_pick(r->sampler, s->logits, s->fed.ids, s->fed.n, (uint64_t)step, &id));
        TRY(id_list_add(&r->ids, id));
        bool end = ends_with(&r->ends, id);
        const char *text = "";
        size_t n = 0;
        if (r->decode && !end)
            TRY(decode_feed(r->decode, id, &text, &n));
        TRY(put(&r->w, text, n, false));
        if (end || r->w.text.stopped || r->w.stopped_by_caller) {
            *finish = r->w.stopped_by_caller ? "stopped" : "stop";
            return PESC_OK;
        }
        if (step + 1 == opt->max_tokens || s->fed.n == (size_t)s->n_ctx)
            return PESC_OK;
        const float *logits;
        TRY(pesc_session_feed(s, &id, 1, &logits));
    }
    return PESC_OK;
}

static pesc_status complete(run *r, const int32_t *ids, size_t n, pesc_generation *out)
{
    const pesc_model *m = r->s->model;
    const char *finish, *text;
    size_t n_text;
    const pesc_sample_options *opt = r->w.opt;
    if (!opt->ignore_eos)
        TRY(ends_add_model(&r->ends, m));
    TRY(ends_add_stops(&r->ends, m, opt->stop, opt->n_stop));
    r->w.text.stop = r->ends.texts;
    r->w.text.n_stop = r->ends.n_texts;
    TRY(sampler_open(&r->sampler, opt, m->shape.cfg.vocab));
    if (m->tok)
        TRY(decode_open_after(&r->decode, m->tok, PESC_SKIP_SPECIAL, ids, n));
    double t0 = clock_seconds();
    TRY(session_extend(r->s, ids, n));
    double t1 = clock_seconds();
    TRY(loop(r, &finish));
    double t2 = clock_seconds();
    if (r->decode && !r->w.text.stopped) {
        TRY(decode_finish(r->decode, &text, &n_text));
        TRY(put(&r->w, text, n_text, true));
    }
    if (!out)
        return PESC_OK;
    pesc_generation g = { .ids = r->ids.ids,
                          .n_ids = r->ids.n,
                          .text = r->w.text.text.p,
                          .n_text = r->w.text.text.n,
                          .n_prompt = n,
                          .prefill_seconds = t1 - t0,
                          .decode_seconds = t2 - t1 };
    memcpy(g.finish, finish, strlen(finish) + 1);
    ARGS_WRITE(out, &g);
    r->ids.ids = NULL;
    r->w.text.text.p = NULL;
    return PESC_OK;
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
    run r = { .s = s, .w = { .opt = &o, .emit = emit, .ud = ud } };
    if (out)
        ARGS_CLEAR(out);
    TRY(options_take(PESC_OPTIONS_SAMPLE, &o, opt));
    pesc_status st = complete(&r, ids, n, out);
    decode_close(r.decode);
    sampler_close(r.sampler);
    ends_free(&r.ends);
    mem_free(r.ids.ids);
    str_free(&r.w.text.text);
    return st;
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
    TRY(json_get_f64(w, "temperature", false, &o.temperature));
    TRY(json_get_i64(w, "top_k", false, -1, INT32_MAX, &o.top_k));
    if (o.top_k < 0) /* as 0, all tokens, in files for vLLM */
        o.top_k = 0;
    TRY(json_get_f64(w, "top_p", false, &o.top_p));
    TRY(json_get_f64(w, "min_p", false, &o.min_p));
    TRY(json_get_f64(w, "repetition_penalty", false, &o.repetition_penalty));
    ARGS_WRITE(opt, &o);
    return options_take(PESC_OPTIONS_SAMPLE, &o, opt);
}

#include "cli/speak.h"

#include "cli/progress.h"

#include <stdio.h>

pesc_sample_options speak_sampling(const options *o)
{
    pesc_sample_options s = pesc_sample_defaults();
    s.max_tokens = o->max_tokens;
    s.temperature = o->temperature;
    s.top_k = o->top_k;
    s.top_p = o->top_p;
    s.min_p = o->min_p;
    s.repetition_penalty = o->repetition_penalty;
    s.seed = o->seed;
    s.stop = o->stop.items;
    s.n_stop = o->stop.n;
    s.ignore_eos = o->ignore_eos;
    return s;
}

bool speak_emit(void *ud, const char *text, size_t n)
{
    (void)ud;
    progress_clear();
    out_write(text, n);
    return fflush(stdout) == 0;
}

void speak_json(const pesc_generation *g)
{
    out_begin(NULL, '{');
    out_ids("ids", g->ids, g->n_ids);
    out_string("text", g->text ? g->text : "", g->n_text);
    out_text("finish", g->finish);
    out_int("prompt_tokens", (int64_t)g->n_prompt);
    /* the first token comes out of the prompt's forward: decoding made the others */
    out_measure("tokens_per_second", g->n_ids > 1 ? (double)(g->n_ids - 1) / g->decode_seconds : 0);
    out_measure("prefill_seconds", g->prefill_seconds);
    out_measure("decode_seconds", g->decode_seconds);
    out_end();
}

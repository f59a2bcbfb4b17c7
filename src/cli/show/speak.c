#include "cli/show/speak.h"

#include "cli/show/progress.h"

#include <stdio.h>

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
    /* the first token comes from prefill, the others from decode */
    out_measure("tokens_per_second", g->n_ids > 1 ? (double)(g->n_ids - 1) / g->decode_seconds : 0);
    out_measure("prefill_seconds", g->prefill_seconds);
    out_measure("decode_seconds", g->decode_seconds);
    out_end();
}

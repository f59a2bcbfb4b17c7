/* cmd_perplexity: mean loss and perplexity of a text. */
#include "cli/command.h"
#include "cli/opt/input.h"
#include "cli/opt/open.h"

#include <stdio.h>
#include <stdlib.h>

static void print(const options *o, const pesc_perplexity_report *r)
{
    double speed = r->seconds > 0 ? (double)r->tokens / r->seconds : 0;
    if (o->json) {
        out_object(NULL, "tokens=%ld loss=%g perplexity=%g seconds=%.6g tokens_per_second=%.6g",
                   r->tokens, r->loss, r->perplexity, r->seconds, speed);
    } else {
        printf(
            "tokens       %llu\nloss         %.6f\nperplexity   %.4f\nspeed        %.1f tokens/s\n",
            (unsigned long long)r->tokens, r->loss, r->perplexity, speed);
    }
}

pesc_status cmd_perplexity(const options *o)
{
    char *text;
    size_t n;
    open_model m = { 0 };
    const pesc_tokenizer *t;
    pesc_perplexity_report r = PESC_INIT(pesc_perplexity_report);
    TRY(input_read(o->file, &text, &n));
    pesc_status st = open_from(&m, o);
    if (st == PESC_OK)
        st = open_tokenizer(&m, o, &t);
    if (st == PESC_OK)
        st = pesc_perplexity(m.model, text, n, (int32_t)o->ctx, &r);
    if (st == PESC_OK)
        print(o, &r);
    open_free(&m);
    free(text);
    return st;
}

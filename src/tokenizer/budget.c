#include "tokenizer/budget.h"

#define LONGEST_MIN (64u << 10)
#define LONGEST_PER_BYTE 64u
#define BYTES_MIN (4u << 20)
#define BYTES_PER_BYTE 256u
#define STEPS_MIN (208u << 20) /* an honest pattern may take n^2 on a run of n blanks */
#define STEPS_PER_BYTE 32u

void budget_add(budget *b, size_t n)
{
    if (b->longest == 0)
        *b = (budget){ 0, LONGEST_MIN, BYTES_MIN, STEPS_MIN };
    if (n > SIZE_MAX / BYTES_PER_BYTE / 4)
        n = SIZE_MAX / BYTES_PER_BYTE / 4;
    b->input += n;
    b->longest += n * LONGEST_PER_BYTE;
    b->bytes += (uint64_t)n * BYTES_PER_BYTE;
    b->steps += (uint64_t)n * STEPS_PER_BYTE;
}

void budget_open_text(const budget *b, str *to)
{
    str_clear(to);
    to->max = b->longest < b->bytes ? b->longest : (size_t)b->bytes;
}

pesc_status budget_take_text(budget *b, const str *text, const char *what)
{
    if (!str_ok(text) && !text->full)
        return fail_nomem(what, text->n);
    if (text->full || text->n > b->bytes)
        return fail(PESC_UNSUPPORTED,
                    "%s multiplies a text of %zu bytes to more than %zu bytes: refused", what,
                    b->input, text->full ? text->max : text->n);
    b->bytes -= text->n;
    return PESC_OK;
}

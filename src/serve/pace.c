#include "serve/pace.h"

#include <stdbool.h>
#include <stdlib.h>

enum { MEMORY = 8 }; /* forwards over which the time of those without prompts is averaged */

/* Whether the time without prompts was measured with about as many answers. */
static bool resembles(const pace *p, int32_t decodes)
{
    int32_t fewer = decodes < p->answers ? decodes : p->answers;
    return p->decode > 0 && abs(decodes - p->answers) <= fewer / 4 + 1;
}

/* What part of the measured time a forward without prompts takes at least, with so many answers. */
static double part(const pace *p, int32_t decodes)
{
    return decodes < p->answers ? (double)decodes / p->answers : 1;
}

static int32_t piece_beside(const pace *p, int32_t decodes)
{
    int32_t n = (int32_t)(p->piece * part(p, decodes));
    n = n > PACE_MIN_TOKENS ? n : PACE_MIN_TOKENS;
    n = n > p->rows - decodes ? n : p->rows - decodes;
    return n < p->max ? n : p->max;
}

/* A shorter time is believed sooner than a longer one, which may be that of other programs. */
static void measure_bare(pace *p, double seconds, int32_t decodes)
{
    bool same = resembles(p, decodes);
    if (p->piece > 0)
        p->piece *= same ? part(p, decodes) : seconds / p->decode;
    else
        p->piece = p->token > 0 ? seconds / p->token : decodes;
    if (same) {
        p->decode *= part(p, decodes);
        p->decode += (seconds - p->decode) / (seconds < p->decode ? 2 : MEMORY);
    } else {
        p->decode = seconds;
    }
    p->answers = decodes;
    p->since = 0;
}

static void measure_piece(pace *p, double seconds, int32_t decodes, int32_t tokens)
{
    double bare = p->decode * part(p, decodes), used = tokens / part(p, decodes);
    double over = (seconds - bare) / (PACE_PERCENT / 100.0 * bare);
    if (over > 1 && used <= p->piece)
        p->piece = used * (over > 2 ? 0.5 : over < 1.125 ? 0.875 : 1 / over);
    else if (over <= 1 && tokens >= piece_beside(p, decodes))
        p->piece *= over < 0.5 ? 1.5 : 1.125;
    if (p->piece < PACE_MIN_TOKENS)
        p->piece = PACE_MIN_TOKENS;
    if (p->piece > p->max)
        p->piece = p->max;
}

void pace_measure(pace *p, double seconds, int32_t decodes, int32_t prompt_tokens)
{
    p->since++;
    if (decodes == 0 && prompt_tokens > 0)
        p->token = seconds / prompt_tokens; /* nothing is delayed */
    else if (decodes > 0 && prompt_tokens == 0)
        measure_bare(p, seconds, decodes);
    else if (decodes > 0 && resembles(p, decodes))
        measure_piece(p, seconds, decodes, prompt_tokens);
}

int32_t pace_limit(const pace *p, int32_t decodes)
{
    if (decodes == 0)
        return p->max;
    if (!resembles(p, decodes) || p->since >= PACE_EVERY)
        return 0;
    return piece_beside(p, decodes);
}

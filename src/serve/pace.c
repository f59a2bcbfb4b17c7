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

/* A prompt must go on, too. */
static int32_t least_piece(int32_t decodes)
{
    return decodes / 2 > PACE_MIN_TOKENS ? decodes / 2 : PACE_MIN_TOKENS;
}

static int32_t piece_beside(const pace *p, int32_t decodes)
{
    int32_t n = (int32_t)(p->piece * part(p, decodes)), least = least_piece(decodes);
    n = n > least ? n : least;
    if (p->rows) {
        n = (decodes + n) / p->rows * p->rows - decodes;
        n += n < least ? p->rows : 0;
    }
    return n < p->max ? n : p->max;
}

static void measure_bare(pace *p, double seconds, int32_t decodes)
{
    bool same = resembles(p, decodes);
    if (p->piece <= 0)
        p->piece = p->token > 0 ? seconds / p->token : decodes;
    else if (same)
        p->piece *= part(p, decodes);
    else if (seconds < p->decode)
        p->piece *= seconds / p->decode;
    if (same) {
        p->decode *= part(p, decodes);
        p->decode += (seconds - p->decode) / MEMORY;
    } else {
        p->decode = seconds;
    }
    p->answers = decodes;
    p->since = 0;
}

/* The piece after one of so many tokens took less than its time, of which it needed the part
 * `over`. With tiles of rows it grows to no more than has the time at this rate. */
static double grown(const pace *p, double tokens, double over)
{
    double n = p->piece * (over < 0.5 ? 1.5 : 1.125);
    double most = p->rows && over > 0 ? tokens / over : n;
    most = most > p->piece ? most : p->piece;
    return n < most ? n : most;
}

static void measure_piece(pace *p, double seconds, int32_t decodes, int32_t tokens)
{
    double bare = p->decode * part(p, decodes), used = tokens / part(p, decodes);
    double over = (seconds - bare) / (PACE_PERCENT / 100.0 * bare);
    if (over > 1)
        p->piece = (used < p->piece ? used : p->piece) * (over > 2 ? 0.5 : 0.875);
    else if (tokens >= piece_beside(p, decodes))
        p->piece = grown(p, used, over);
    double least = least_piece(p->answers);
    p->piece = p->piece < least ? least : p->piece;
    if (p->piece > p->max)
        p->piece = p->max;
}

void pace_measure(pace *p, double seconds, int32_t decodes, int32_t prompt_tokens)
{
    p->since++;
    if (decodes == 0 && prompt_tokens > 0)
        p->token = seconds / (prompt_tokens > p->rows ? prompt_tokens : p->rows);
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

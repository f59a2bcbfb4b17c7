#include "serve/pace.h"

enum { MEMORY = 8 }; /* forwards over which times are averaged */

static void average(double *mean, double x)
{
    *mean += *mean > 0 ? (x - *mean) / MEMORY : x;
}

void pace_measure(pace *p, double seconds, int32_t decodes, int32_t prompt_tokens)
{
    double further = decodes + prompt_tokens - p->mean;
    if (decodes == 0)
        return; /* nothing is delayed */
    if (prompt_tokens == 0) {
        average(&p->decode, seconds);
        average(&p->mean, decodes);
    } else if (p->decode > 0 && seconds > p->decode && further > 1) {
        average(&p->token, (seconds - p->decode) / further);
    }
}

int32_t pace_limit(const pace *p, int32_t decodes)
{
    if (p->decode <= 0 || p->token <= 0)
        return p->max;
    double more = decodes > p->mean ? decodes - p->mean : 0;
    double time = PACE_PERCENT / 100.0 * (p->decode + more * p->token);
    double least = PACE_MIN_MS / 1000.0;
    double fits = (time > least ? time : least) / p->token;
    return fits >= p->max ? p->max : fits > PACE_MIN_TOKENS ? (int32_t)fits : PACE_MIN_TOKENS;
}

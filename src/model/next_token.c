#include "model/next_token.h"

#include <math.h>

next_token next_token_of(const float *x, size_t n)
{
    next_token t = { .max = (double)x[0] };
    for (size_t i = 0; i < n; i++) {
        t.mean += (double)x[i] / (double)n;
        if ((double)x[i] > t.max) {
            t.max = (double)x[i];
            t.best = i;
        }
    }
    for (size_t i = 0; i < n; i++)
        t.log_sum += exp((double)x[i] - t.max);
    t.log_sum = log(t.log_sum);
    return t;
}

double next_token_kl(const next_token *p, const float *a, const next_token *q, const float *b,
                     size_t n)
{
    double kl = 0;
    for (size_t i = 0; i < n; i++) {
        double log_p = next_token_log(p, a, i);
        kl += exp(log_p) * (log_p - next_token_log(q, b, i));
    }
    return kl;
}

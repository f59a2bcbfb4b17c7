#include "ops/oracle.h"

#include "backend/backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double oracle_act(int act, double x)
{
    switch (act) {
    case ACT_SILU:
        return x / (1 + exp(-x));
    case ACT_GELU:
        return x * 0.5 * erfc(-x / sqrt(2));
    case ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ACT_CLAMPED:
        return fmin(x, 7) / (1 + exp(-1.702 * fmin(x, 7)));
    case ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    default:
        return x > 0 ? x : 0;
    }
}

double oracle_glu_up(int act, double up)
{
    return act == ACT_CLAMPED ? fmax(-7, fmin(up, 7)) + 1 : up;
}

void oracle_rmsnorm(double *out, double *rstd, const double *x, const double *w, i64 rows, i64 n,
                    double eps)
{
    for (i64 r = 0; r < rows; r++) {
        double sum = 0;
        for (i64 i = 0; i < n; i++)
            sum += x[r * n + i] * x[r * n + i];
        double scale = 1 / sqrt(sum / (double)n + eps);
        for (i64 i = 0; i < n; i++)
            out[r * n + i] = x[r * n + i] * scale * w[i];
        if (rstd)
            rstd[r] = scale;
    }
}

void oracle_rope(const oracle_rotation *a)
{
    i64 half = a->rot / 2;
    for (i64 t = 0; t < a->rows; t++)
        for (i64 h = 0; h < a->heads; h++)
            for (i64 i = 0; i < half; i++) {
                double *head = a->x + (t * a->heads + h) * a->head_dim + a->offset;
                double *x = head + (a->interleaved ? 2 * i : i);
                double *y = head + (a->interleaved ? 2 * i + 1 : i + half);
                double c = a->cos[t * half + i], s = a->sin[t * half + i], was = *x;
                if (a->inverse)
                    s = -s;
                *x = was * c - *y * s;
                *y = *y * c + was * s;
            }
}

void oracle_attend(const oracle_attention *a)
{
    double *p = malloc((size_t)a->max_keys * sizeof *p);
    for (i64 s = 0; s < a->n_seq; s++)
        for (i64 t = (i64)a->starts[s]; t < (i64)a->starts[s + 1]; t++)
            for (i64 h = 0; h < a->heads; h++) {
                i64 kvh = h / (a->heads / a->kv), pos = (i64)a->pos[t];
                i64 low = a->window > 0 && pos - a->window + 1 > a->first[s] ? pos - a->window + 1
                                                                             : a->first[s];
                double sum = 0, max = -INFINITY;
                for (i64 j = low; j <= pos; j++) {
                    p[j] = 0;
                    for (i64 i = 0; i < a->qk; i++)
                        p[j] += a->q[(t * a->heads + h) * a->qk + i] *
                                a->keys[((s * a->max_keys + j) * a->kv + kvh) * a->qk + i];
                    p[j] *= a->scale;
                    p[j] = a->softcap > 0 ? a->softcap * tanh(p[j] / a->softcap) : p[j];
                    max = fmax(max, p[j]);
                }
                for (i64 j = low; j <= pos; j++)
                    sum += exp(p[j] - max);
                for (i64 i = 0; i < a->v; i++) {
                    double out = 0;
                    for (i64 j = low; j <= pos; j++)
                        out += exp(p[j] - max) / sum *
                               a->values[((s * a->max_keys + j) * a->kv + kvh) * a->v + i];
                    a->out[(t * a->heads + h) * a->v + i] = out;
                }
                if (a->lse)
                    a->lse[t * a->heads + h] = max + log(sum);
            }
    free(p);
}

/* How many of the n numbers rank before x[i]: larger, or equal with a lower index; a NaN ranks
 * after every number. */
static i64 rank_of(const double *x, const bool *out, i64 n, i64 i)
{
    i64 before = 0;
    for (i64 j = 0; j < n; j++) {
        if (j == i || (out && out[j]))
            continue;
        bool ji = isnan(x[j]), ii = isnan(x[i]);
        if (ji != ii ? ii : (!ji && x[j] != x[i]) ? x[j] > x[i] : j < i)
            before++;
    }
    return before;
}

static void all_scores(double *out, const double *z, i64 n, bool use_sigmoid)
{
    double max = -INFINITY, sum = 0;
    for (i64 i = 0; i < n; i++)
        max = fmax(max, z[i]);
    for (i64 i = 0; i < n; i++)
        sum += exp(z[i] - max);
    for (i64 i = 0; i < n; i++)
        out[i] = use_sigmoid ? 1 / (1 + exp(-z[i])) : exp(z[i] - max) / sum;
}

static void drop_groups(const oracle_topk *a, const double *choice, bool *out)
{
    i64 size = a->n / a->groups;
    double *best = malloc((size_t)a->groups * sizeof *best);
    for (i64 g = 0; g < a->groups; g++) {
        double first = -INFINITY, second = -INFINITY;
        for (i64 i = g * size; i < (g + 1) * size; i++) {
            double x = choice[i];
            second = x > first ? first : fmax(second, x);
            first = fmax(first, x);
        }
        best[g] = a->bias && size > 1 ? first + second : first;
    }
    for (i64 i = 0; i < a->n; i++)
        out[i] = rank_of(best, NULL, a->groups, i / size) >= a->k_groups;
    free(best);
}

void oracle_route(const oracle_topk *a)
{
    double *score = malloc((size_t)a->n * sizeof *score),
           *choice = malloc((size_t)a->n * sizeof *choice);
    double *chosen = malloc((size_t)a->k * sizeof *chosen);
    bool *out = malloc((size_t)a->n * sizeof *out);
    for (i64 t = 0; t < a->rows; t++) {
        const double *z = a->logits + t * a->n;
        double *ids = a->ids + t * a->k, *gates = a->gates + t * a->k, sum = 0;
        all_scores(score, z, a->n, a->sigmoid);
        for (i64 i = 0; i < a->n; i++) {
            choice[i] = !a->bias ? z[i] : (a->after ? z[i] : score[i]) + a->bias[i];
            out[i] = false;
        }
        if (a->groups > 1)
            drop_groups(a, choice, out);
        for (i64 i = 0; i < a->n; i++)
            if (!out[i] && rank_of(choice, out, a->n, i) < a->k)
                ids[rank_of(choice, out, a->n, i)] = (double)i;
        for (i64 j = 0; j < a->k; j++)
            chosen[j] = z[(i64)ids[j]];
        if (a->after)
            all_scores(gates, chosen, a->k, a->sigmoid);
        for (i64 j = 0; j < a->k; j++) {
            if (!a->after)
                gates[j] = score[(i64)ids[j]];
            sum += gates[j];
        }
        for (i64 j = 0; j < a->k; j++)
            gates[j] = gates[j] / (a->renormalise ? fmax(sum + a->more, a->floor) : 1) * a->scale;
    }
    free(score);
    free(choice);
    free(chosen);
    free(out);
}

double oracle_xent(const double *logits, i64 n, double target)
{
    double max = -INFINITY, sum = 0;
    if (target == -100)
        return 0;
    for (i64 i = 0; i < n; i++)
        max = fmax(max, logits[i]);
    for (i64 i = 0; i < n; i++)
        sum += exp(logits[i] - max);
    return max + log(sum) - logits[(i64)target];
}

/* Thresholds between neighbouring codes, ascending: code q is the number of those below x. */
static const float nf4_between[15] = {
    -0.8480964004993439f,  -0.6106329262256622f,  -0.4599952697753906f,   -0.33967943489551544f,
    -0.23460740596055984f, -0.13791173323988914f, -0.045525018125772476f, 0.03979014977812767f,
    0.1202552504837513f,   0.2035212516784668f,   0.2920137718319893f,    0.3893125355243683f,
    0.5016634166240692f,   0.6427869200706482f,   0.8614784181118011f
};

void oracle_nf4(double *storage, const double *x, i64 n)
{
    i64 code_bytes = ((n + 1) / 2 + 3) / 4 * 4;
    memset(storage, 0, (size_t)code_bytes * sizeof *storage);
    for (i64 block = 0; block * 64 < n; block++) {
        i64 end = (block + 1) * 64 < n ? (block + 1) * 64 : n;
        double top = 0;
        for (i64 i = block * 64; i < end; i++)
            top = fmax(top, fabs(x[i]));
        for (i64 i = block * 64; i < end; i++) {
            double scaled = top > 0 ? x[i] / top : 0;
            int q = 0;
            while (q < 15 && scaled > nf4_between[q])
                q++;
            storage[i / 2] += i % 2 ? q : q * 16;
        }
        float scale = (float)top;
        unsigned char bytes[4];
        memcpy(bytes, &scale, 4);
        for (int b = 0; b < 4; b++)
            storage[code_bytes + block * 4 + b] = bytes[b];
    }
    if (n % 2)
        storage[n / 2] += 7; /* the code of 0 */
}

void oracle_product(const oracle_matrices *p)
{
    for (i64 r = 0; r < p->m; r++)
        for (i64 c = 0; c < p->n; c++) {
            double sum = 0;
            for (i64 i = 0; i < p->k; i++)
                sum += p->a[p->a_transposed ? i * p->m + r : r * p->k + i] *
                       p->b[p->b_transposed ? c * p->k + i : i * p->n + c];
            p->out[r * p->n + c] = sum;
        }
}

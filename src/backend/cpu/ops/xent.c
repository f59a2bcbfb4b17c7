/* xent: cross-entropy of rows of logits, its gradient, and scores of single tokens. */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/vmath.h"

#include <math.h>

enum { IGNORED = -100 };

/* Padding lanes of the last vector must not affect the maximum or the sum. */
static vf load_or_lowest(const void *x, int64_t i, int64_t left, dtype dt)
{
    float lane[VEC_LANES];
    vf v = vec_load(x, i, left, dt);
    if (left >= VEC_LANES)
        return v;
    memcpy(lane, &v, sizeof lane);
    for (int64_t j = left; j < VEC_LANES; j++)
        lane[j] = -INFINITY;
    memcpy(&v, lane, sizeof lane);
    return v;
}

typedef struct xent {
    float *loss;
    tensor logits, dlogits; /* dlogits may be logits */
    const int32_t *targets;
    const float *weight; /* of the gradient of each row; NULL: forward only */
} xent;

/* e^(x - largest) of a row; `kept`: in scratch, if a row fits, else NULL. */
typedef struct row_exp {
    float largest, sum;
    const float *kept;
} row_exp;

static row_exp exp_of_row(const void *x, int64_t n, dtype dt, float *to)
{
    vf top = vec_set(-INFINITY), sum[2] = { 0 };
    for (int64_t i = 0; i < n; i += VEC_LANES)
        top = vec_max(load_or_lowest(x, i, n - i, dt), top);
    float max = vec_top(top);
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vf power = vmath_exp(load_or_lowest(x, i, n - i, dt) - max);
        sum[i / VEC_LANES % 2] += power;
        if (to)
            *(vf *)(to + i) = power;
    }
    return (row_exp){ max, vec_sum(sum[0] + sum[1]), to };
}

/* (softmax - onehot) weight. */
static void row_gradient(const xent *p, int64_t r, row_exp w)
{
    int64_t n = tensor_cols(&p->logits), at = r * n;
    int32_t target = p->targets[r];
    float weight = p->weight[r], part = 1.0f / w.sum;
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vf power =
            w.kept ? *(const vf *)(w.kept + i)
                   : vmath_exp(vec_load(p->logits.data, at + i, n - i, p->logits.dt) - w.largest);
        vf y = power * part;
        if (target >= i && target < i + VEC_LANES)
            y[target - i] -= 1.0f;
        vec_store(p->dlogits.data, at + i, n - i, p->dlogits.dt, y * weight);
    }
}

static void xent_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    const xent *p = ctx;
    int64_t n = tensor_cols(&p->logits);
    float *kept = p->weight && n + VEC_LANES <= CPU_SCRATCH / 4 ? scratch : NULL;
    for (int64_t r = begin; r < end; r++) {
        int32_t target = p->targets[r];
        const void *x = vec_at_const(p->logits.data, r * n, p->logits.dt);
        p->loss[r] = 0.0f;
        if (target == IGNORED) {
            if (p->weight)
                memset(vec_at(p->dlogits.data, r * n, p->dlogits.dt), 0,
                       (size_t)n * (p->dlogits.dt == DT_F32 ? 4 : 2));
            continue;
        }
        ASSERT(target >= 0 && target < n);
        row_exp w = exp_of_row(x, n, p->logits.dt, kept);
        float lse = w.largest + vmath_log(vec_set(w.sum))[0];
        p->loss[r] = lse - vec_load(x, target, 1, p->logits.dt)[0];
        if (p->weight)
            row_gradient(p, r, w);
    }
}

void OP(xent_fwd)(device *d, tensor loss, tensor logits, tensor targets)
{
    xent p = { .loss = loss.data, .logits = logits, .targets = targets.data };
    cpu_for(cpu_of(d), tensor_rows(&logits), 1, xent_rows, &p);
}

void OP(xent_bwd)(device *d, tensor loss, tensor dlogits, tensor logits, tensor targets,
                  tensor weight)
{
    xent p = { loss.data, logits, dlogits, targets.data, weight.data };
    cpu_for(cpu_of(d), tensor_rows(&logits), 1, xent_rows, &p);
}

/* ---- scores of tokens ---- */

typedef struct token_scores {
    float *logprob;
    int32_t *best;
    tensor logits;
    const int32_t *pairs;
} token_scores;

/* The largest of a row; NaN if one of them is not finite. */
static float largest_or_nan(const float *x, int64_t n)
{
    vf top = vec_set(-INFINITY), zero = vec_set(0.0f);
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        top = vec_max(load_or_lowest(x, i, n - i, DT_F32), top);
        zero += vec_load(x, i, n - i, DT_F32) * 0.0f;
    }
    return vec_top(top) + vec_sum(zero);
}

/* Sum of e^(x - largest). A partial sum has few terms, so that rounding does not grow with n. */
static float sum_of_exp(const float *x, int64_t n, float largest)
{
    enum { BLOCK = 64 * VEC_LANES };
    double total = 0;
    for (int64_t at = 0; at < n; at += BLOCK) {
        vf sum = vec_set(0.0f);
        for (int64_t i = at; i < n && i < at + BLOCK; i += VEC_LANES)
            sum += vmath_exp(load_or_lowest(x, i, n - i, DT_F32) - largest);
        total += (double)vec_sum(sum);
    }
    return (float)total;
}

static void score_pairs(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const token_scores *p = ctx;
    int64_t n = tensor_cols(&p->logits), rows = tensor_rows(&p->logits);
    for (int64_t i = begin; i < end; i++) {
        int32_t row = p->pairs[2 * i], token = p->pairs[2 * i + 1], best = 0;
        ASSERT(row >= 0 && row < rows && token >= 0 && token < n);
        const float *x = (const float *)p->logits.data + row * n;
        float largest = largest_or_nan(x, n);
        if (isnan(largest)) {
            p->best[i] = -1;
            p->logprob[i] = NAN;
            continue;
        }
        while (x[best] != largest)
            best++;
        p->best[i] = best;
        p->logprob[i] = (x[token] - largest) - vmath_log(vec_set(sum_of_exp(x, n, largest)))[0];
    }
}

void OP(token_score)(device *d, tensor logprob, tensor best, tensor logits, tensor pairs)
{
    token_scores p = { logprob.data, best.data, logits, pairs.data };
    cpu_for(cpu_of(d), tensor_rows(&pairs), 1, score_pairs, &p);
}

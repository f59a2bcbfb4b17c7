/* xent: cross-entropy of rows of logits, and its gradient in their place. */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/vmath.h"

#include <math.h>

enum { IGNORED = -100 };

/* Padding lanes of the last vector must not win the maximum nor add to the sum. */
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

static float row_lse(const void *x, int64_t n, dtype dt)
{
    vf top = vec_set(-INFINITY), sum[2] = { 0 };
    for (int64_t i = 0; i < n; i += VEC_LANES)
        top = vec_max(load_or_lowest(x, i, n - i, dt), top);
    float max = vec_top(top);
    for (int64_t i = 0; i < n; i += VEC_LANES)
        sum[i / VEC_LANES % 2] += vmath_exp(load_or_lowest(x, i, n - i, dt) - max);
    return max + vmath_log(vec_sum(sum[0] + sum[1]));
}

typedef struct xent {
    float *loss;
    tensor logits;
    const int32_t *targets;
    const float *weight; /* of each row's gradient; NULL: forward only */
} xent;

/* (softmax - onehot) weight. */
static void row_gradient(void *x, int64_t n, dtype dt, float lse, int32_t target, float weight)
{
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vf p = vmath_exp(vec_load(x, i, n - i, dt) - lse);
        if (target >= i && target < i + VEC_LANES)
            p[target - i] -= 1.0f;
        vec_store(x, i, n - i, dt, p * weight);
    }
}

static void xent_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const xent *p = ctx;
    int64_t n = tensor_cols(&p->logits);
    for (int64_t r = begin; r < end; r++) {
        int32_t target = p->targets[r];
        void *x = vec_at(p->logits.data, r * n, p->logits.dt);
        p->loss[r] = 0.0f;
        if (target == IGNORED) {
            if (p->weight)
                memset(x, 0, (size_t)n * (p->logits.dt == DT_F32 ? 4 : 2));
            continue;
        }
        ASSERT(target >= 0 && target < n);
        float lse = row_lse(x, n, p->logits.dt);
        p->loss[r] = lse - vec_load(x, target, 1, p->logits.dt)[0];
        if (p->weight)
            row_gradient(x, n, p->logits.dt, lse, target, p->weight[r]);
    }
}

void OP(xent_fwd)(device *d, tensor loss, tensor logits, tensor targets)
{
    xent p = { loss.data, logits, targets.data, NULL };
    cpu_for(cpu_of(d), tensor_rows(&logits), 1, xent_rows, &p);
}

void OP(xent_bwd)(device *d, tensor loss, tensor logits, tensor targets, tensor weight)
{
    xent p = { loss.data, logits, targets.data, weight.data };
    cpu_for(cpu_of(d), tensor_rows(&logits), 1, xent_rows, &p);
}

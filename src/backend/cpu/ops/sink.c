/* sink: a logit that joins the softmax of each head and is dropped (gpt-oss).
 *
 * With l the log-sum-exp over the keys and s the sink, that over both is l' = log(e^l + e^s), and
 * the weights of the keys are those without a sink times e^(l - l'). Backward, which reads l', has
 * the weights that it needs; the sink's own is e^(s - l'), its value 0, so that its gradient is
 * -e^(s - l') times the product of dout and out. */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/vmath.h"

typedef struct sink {
    tensor out; /* forward: [T,heads*v]; backward: dsinks [heads] */
    float *lse;
    const float *delta, *sinks;
    int64_t rows, heads;
} sink;

static void sink_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const sink *p = ctx;
    int64_t n = tensor_cols(&p->out) / p->heads;
    for (int64_t i = begin; i < end; i++) {
        vf l = vec_set(p->lse[i]), s = vec_set(p->sinks[i % p->heads]), top = vec_max(l, s);
        vf both = top + vmath_log(vmath_exp(l - top) + vmath_exp(s - top));
        vf part = vmath_exp(l - both);
        p->lse[i] = both[0];
        for (int64_t j = 0; j < n; j += VEC_LANES)
            vec_store(p->out.data, i * n + j, n - j, p->out.dt,
                      part * vec_load(p->out.data, i * n + j, n - j, p->out.dt));
    }
}

void OP(sink_fwd)(device *d, tensor out, tensor lse, tensor sinks)
{
    sink p = { .out = out, .lse = lse.data, .sinks = sinks.data, .heads = tensor_count(&sinks) };
    p.rows = tensor_rows(&out);
    cpu_for(cpu_of(d), p.rows * p.heads, cpu_step(tensor_cols(&out) / p.heads * 8), sink_rows, &p);
}

/* A range is some heads: each adds its tokens in order. */
static void sink_bwd_heads(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const sink *p = ctx;
    for (int64_t h = begin; h < end; h++) {
        float sum = 0.0f;
        for (int64_t t = 0; t < p->rows; t++) {
            int64_t i = t * p->heads + h;
            sum += p->delta[i] * vmath_exp(vec_set(p->sinks[h] - p->lse[i]))[0];
        }
        ((float *)p->out.data)[h] -= sum;
    }
}

void OP(sink_bwd)(device *d, tensor dsinks, tensor delta, tensor lse, tensor sinks)
{
    sink p = { dsinks, lse.data, delta.data, sinks.data, tensor_rows(&lse), tensor_count(&sinks) };
    cpu_for(cpu_of(d), p.heads, 1, sink_bwd_heads, &p);
}

/* adapters: PESC's adapters token by token, in one op. The model uses their parts on the CPU; this
 * is what GPUs are compared with. */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/router_score.h"
#include "backend/cpu/ops/vmath.h"

/* A choice of experts: written for a GPU's few tokens, so it is neither long nor fast. */
typedef struct choice {
    int32_t expert[ADAPTER_CHOICES];
    float gate[ADAPTER_CHOICES];
} choice;

static bool ranks_above(const float *logits, int32_t a, int32_t b)
{
    float x = logits[a], y = logits[b];
    bool above = x == x && (y != y || x > y), below = y == y && (x != x || y > x);
    return above || (!below && a < b);
}

static void choose(choice *c, const float *logits, int32_t n, int32_t k)
{
    for (int32_t slot = 0; slot < k; slot++) {
        int32_t top = -1;
        for (int32_t e = 0; e < n; e++)
            if ((slot == 0 || ranks_above(logits, c->expert[slot - 1], e)) &&
                (top < 0 || ranks_above(logits, e, top)))
                top = e;
        c->expert[slot] = top;
        c->gate[slot] = logits[top];
    }
    score_softmax(c->gate, k);
}

static void adapters_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    const adapters_fwd *a = ctx;
    choice *c = scratch;
    int32_t n = (int32_t)a->down.ne[0];
    int64_t width = a->down.ne[1], dim = a->down.ne[2];
    for (int64_t t = begin; t < end; t++) {
        const void *f = vec_at_const(a->f.data, t * dim, a->f.dt);
        float *x = (float *)a->x.data + t * dim;
        choose(c, (const float *)a->logits.data + t * n, n, a->k);
        for (int64_t i = 0; i < dim; i++)
            x[i] += vec_load(f, i, 1, a->f.dt)[0];
        for (int32_t slot = 0; slot < a->k; slot++) {
            int64_t first = c->expert[slot] * width * dim;
            void *mid = vec_at(a->mid.data, (t * a->k + slot) * width, a->mid.dt);
            for (int64_t i = 0; i < width; i++) {
                const void *w = vec_at_const(a->down.data, first + i * dim, a->down.dt);
                vf slope, y = vec_set(vec_dot(w, a->down.dt, f, a->f.dt, dim));
                y = vmath_act(ACT_GELU, y, &slope) * (a->scale * c->gate[slot]);
                vec_store(mid, i, 1, a->mid.dt, y);
            }
            for (int64_t i = 0; i < dim; i++) {
                const void *w = vec_at_const(a->up.data, first + i * width, a->up.dt);
                x[i] += vec_dot(w, a->up.dt, mid, a->mid.dt, width);
            }
        }
    }
}

void OP(adapters_fwd)(device *d, const adapters_fwd *a)
{
    ASSERT(tensor_rows(&a->f) * a->k <= ADAPTER_CHOICES && a->k <= a->down.ne[0]);
    cpu_for(cpu_of(d), tensor_rows(&a->f), 1, adapters_rows, a);
}

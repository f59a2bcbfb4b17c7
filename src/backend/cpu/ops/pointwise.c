/* pointwise: activations, and sums into the residual stream. Tensors are f32 or bf16; arithmetic is
 * f32. */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/vmath.h"
#include "tensor/quants.h"

enum { RANGE = 4096 }; /* elements: about 16 KiB of for_elements operand */

typedef struct pointwise {
    tensor out, a, b;
    act_kind act;
    float scale;
    const row_gates *gates;
} pointwise;

static void for_elements(device *d, cpu_range_fn fn, const pointwise *p)
{
    cpu_for(cpu_of(d), tensor_count(&p->out), RANGE, fn, p);
}

static void glu_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const pointwise *p = ctx;
    for (int64_t i = begin; i < end; i += VEC_LANES) {
        vf slope, gate = vec_load(p->a.data, i, end - i, p->a.dt);
        vf flat, up = vmath_glu_up(p->act, vec_load(p->b.data, i, end - i, p->b.dt), &flat);
        vec_store(p->out.data, i, end - i, p->out.dt, vmath_act(p->act, gate, &slope) * up);
    }
}

void OP(glu_fwd)(device *d, tensor out, tensor gate, tensor up, act_kind act)
{
    for_elements(d, glu_range, &(pointwise){ .out = out, .a = gate, .b = up, .act = act });
}

static void act_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const pointwise *p = ctx;
    for (int64_t i = begin; i < end; i += VEC_LANES) {
        vf slope, x = vec_load(p->a.data, i, end - i, p->a.dt);
        vec_store(p->out.data, i, end - i, p->out.dt, vmath_act(p->act, x, &slope));
    }
}

/* The factor of row r. */
static float row_gate(const row_gates *g, int64_t r)
{
    return g->scale * ((const float *)g->gates.data)[((const int32_t *)g->order.data)[r]];
}

static void gated_act_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const pointwise *p = ctx;
    int64_t n = tensor_cols(&p->out);
    for (int64_t r = begin; r < end; r++) {
        vf gate = vec_set(row_gate(p->gates, r));
        for (int64_t i = 0; i < n; i += VEC_LANES) {
            vf slope, x = vec_load(p->a.data, r * n + i, n - i, p->a.dt);
            vec_store(p->out.data, r * n + i, n - i, p->out.dt,
                      gate * vmath_act(p->act, x, &slope));
        }
    }
}

void OP(act_fwd)(device *d, tensor out, tensor x, act_kind act, const row_gates *g)
{
    pointwise p = { .out = out, .a = x, .act = act, .gates = g };
    if (g)
        cpu_for(cpu_of(d), tensor_rows(&out), cpu_step(tensor_cols(&out) * 8), gated_act_rows, &p);
    else
        for_elements(d, act_range, &p);
}

static void add_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const pointwise *p = ctx;
    vf scale = vec_set(p->scale);
    for (int64_t i = begin; i < end; i += VEC_LANES) {
        vf y = vec_load(p->out.data, i, end - i, p->out.dt);
        vf x = vec_load(p->a.data, i, end - i, p->a.dt);
        vec_store(p->out.data, i, end - i, p->out.dt, vec_fma(scale, x, y));
    }
}

static void softcap_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const pointwise *p = ctx;
    for (int64_t i = begin; i < end; i += VEC_LANES) {
        vf y = vec_load(p->out.data, i, end - i, DT_F32);
        vec_store(p->out.data, i, end - i, DT_F32, vmath_tanh(y / p->scale) * p->scale);
    }
}

void OP(softcap)(device *d, tensor y, float cap)
{
    for_elements(d, softcap_range, &(pointwise){ .out = y, .scale = cap });
}

static void softcap_bwd_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const pointwise *p = ctx;
    for (int64_t i = begin; i < end; i += VEC_LANES) {
        vf dy = vec_load(p->a.data, i, end - i, p->a.dt);
        vf t = vec_load(p->b.data, i, end - i, DT_F32) / p->scale;
        vec_store(p->out.data, i, end - i, p->out.dt, dy * (1.0f - t * t));
    }
}

void OP(softcap_bwd)(device *d, tensor dx, tensor dy, tensor y, float cap)
{
    for_elements(d, softcap_bwd_range, &(pointwise){ .out = dx, .a = dy, .b = y, .scale = cap });
}

void OP(add)(device *d, tensor y, tensor x, float scale)
{
    for_elements(d, add_range, &(pointwise){ .out = y, .a = x, .scale = scale });
}

static void convert_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    const pointwise *p = ctx;
    if (quants_is(p->a.dt)) { /* a range is a multiple of every block */
        quants_unpack(p->a.dt, p->a.data, begin, end - begin, scratch);
        vec_copy(vec_at(p->out.data, begin, p->out.dt), p->out.dt, scratch, DT_F32, end - begin);
        return;
    }
    vec_copy(vec_at(p->out.data, begin, p->out.dt), p->out.dt,
             vec_at_const(p->a.data, begin, p->a.dt), p->a.dt, end - begin);
}

void OP(convert)(device *d, tensor out, tensor x)
{
    for_elements(d, convert_range, &(pointwise){ .out = out, .a = x });
}

static void add_gated_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const pointwise *p = ctx;
    int64_t n = tensor_cols(&p->out);
    for (int64_t t = begin; t < end; t++) {
        vf rest, gate = vmath_sigmoid(vec_set(vec_load(p->b.data, t, 1, p->b.dt)[0]), &rest);
        for (int64_t i = 0; i < n; i += VEC_LANES) {
            vf y = vec_load(p->out.data, t * n + i, n - i, p->out.dt);
            vf x = vec_load(p->a.data, t * n + i, n - i, p->a.dt);
            vec_store(p->out.data, t * n + i, n - i, p->out.dt, vec_fma(gate, x, y));
        }
    }
}

void OP(add_gated)(device *d, tensor y, tensor x, tensor logit)
{
    pointwise p = { .out = y, .a = x, .b = logit };
    cpu_for(cpu_of(d), tensor_rows(&y), cpu_step(tensor_cols(&y) * 8), add_gated_rows, &p);
}

/* ---- backward ---- */

static void glu_bwd_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const glu_bwd *p = ctx;
    for (int64_t i = begin; i < end; i += VEC_LANES) {
        int64_t left = end - i;
        vf slope, value = vmath_act(p->act, vec_load(p->gate.data, i, left, p->gate.dt), &slope);
        vf up_slope, up = vmath_glu_up(p->act, vec_load(p->up.data, i, left, p->up.dt), &up_slope),
                     dy = vec_load(p->dy.data, i, left, p->dy.dt);
        vec_store(p->dgate.data, i, left, p->dgate.dt, dy * up * slope);
        vec_store(p->dup.data, i, left, p->dup.dt, dy * value * up_slope);
        if (p->glu.data)
            vec_store(p->glu.data, i, left, p->glu.dt, value * up);
    }
}

void OP(glu_bwd)(device *d, const glu_bwd *a)
{
    cpu_for(cpu_of(d), tensor_count(&a->gate), RANGE, glu_bwd_range, a);
}

static void act_bwd_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const pointwise *p = ctx;
    for (int64_t i = begin; i < end; i += VEC_LANES) {
        vf slope, dy = vec_load(p->a.data, i, end - i, p->a.dt);
        vmath_act(p->act, vec_load(p->b.data, i, end - i, p->b.dt), &slope);
        vec_store(p->out.data, i, end - i, p->out.dt, dy * slope);
    }
}

static void gated_act_bwd_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const pointwise *p = ctx;
    int64_t n = tensor_cols(&p->out);
    const int32_t *order = p->gates->order.data;
    for (int64_t r = begin; r < end; r++) {
        vf gate = vec_set(row_gate(p->gates, r)), dot = { 0 };
        for (int64_t i = 0; i < n; i += VEC_LANES) {
            vf slope, dy = vec_load(p->a.data, r * n + i, n - i, p->a.dt);
            vf y = vmath_act(p->act, vec_load(p->b.data, r * n + i, n - i, p->b.dt), &slope);
            dot = vec_fma(dy, y, dot);
            vec_store(p->out.data, r * n + i, n - i, p->out.dt, gate * dy * slope);
        }
        ((float *)p->gates->dgates.data)[order[r]] = p->gates->scale * vec_sum(dot);
    }
}

void OP(act_bwd)(device *d, tensor dx, tensor dy, tensor x, act_kind act, const row_gates *g)
{
    pointwise p = { .out = dx, .a = dy, .b = x, .act = act, .gates = g };
    if (g)
        cpu_for(cpu_of(d), tensor_rows(&dx), cpu_step(tensor_cols(&dx) * 12), gated_act_bwd_rows,
                &p);
    else
        for_elements(d, act_bwd_range, &p);
}

typedef struct gated_bwd {
    tensor dx, dlogit, dy, x, logit;
} gated_bwd;

static void gated_bwd_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const gated_bwd *p = ctx;
    int64_t n = tensor_cols(&p->x);
    for (int64_t t = begin; t < end; t++) {
        const void *dy = vec_at_const(p->dy.data, t * n, p->dy.dt);
        const void *x = vec_at_const(p->x.data, t * n, p->x.dt);
        void *dx = vec_at(p->dx.data, t * n, p->dx.dt);
        vf rest,
            gate = vmath_sigmoid(vec_set(vec_load(p->logit.data, t, 1, p->logit.dt)[0]), &rest);
        float dot = vec_dot(dy, p->dy.dt, x, p->x.dt, n);
        vec_store(p->dlogit.data, t, 1, p->dlogit.dt, gate * rest * dot);
        for (int64_t i = 0; i < n; i += VEC_LANES)
            vec_store(dx, i, n - i, p->dx.dt, gate * vec_load(dy, i, n - i, p->dy.dt));
    }
}

void OP(add_gated_bwd)(device *d, tensor dx, tensor dlogit, tensor dy, tensor x, tensor logit)
{
    gated_bwd p = { dx, dlogit, dy, x, logit };
    cpu_for(cpu_of(d), tensor_rows(&x), cpu_step(tensor_cols(&x) * 12), gated_bwd_rows, &p);
}

/* delta: the gated delta rule, one token after the other.
 *
 * A range is a panel of columns of the state of one value head in forward, one value head in
 * backward. The tokens of a sequence are always taken one by one and the sums over the rows of the
 * state are always in order, so results depend neither on threads nor on how a sequence is divided
 * into passes; a chunked form would depend on where chunks begin.
 *
 * Backward needs the state before each token. It keeps those before every L-th token, L about the
 * root of the number of rows, and computes the L between two of them again. */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/vec.h"
#include "backend/cpu/ops/vmath.h"

#include <math.h>

enum { PANEL = 64 /* columns */, MAX_WIDTH = 1 << 12 /* of a head, so that scratch suffices */ };

/* One value head. */
typedef struct head {
    const delta_rule *a;
    int64_t v, k, dk, dv, x_cols; /* v, k: the value head, its key head */
    float rate, dt;               /* exp(a_log), dt_bias */
} head;

static head head_of(const delta_rule *a, int64_t v)
{
    head h = { .a = a, .v = v, .k = v / (a->v_heads / a->k_heads), .dk = a->k_dim, .dv = a->v_dim };
    h.x_cols = tensor_cols(&a->x);
    h.rate = vmath_exp(vec_set(((const float *)a->a_log.data)[v]))[0];
    h.dt = ((const float *)a->dt_bias.data)[v];
    return h;
}

static const void *query_at(const head *h, int64_t t)
{
    return vec_at_const(h->a->x.data, t * h->x_cols + h->k * h->dk, h->a->x.dt);
}

static const void *key_at(const head *h, int64_t t)
{
    int64_t at = t * h->x_cols + (h->a->k_heads + h->k) * h->dk;
    return vec_at_const(h->a->x.data, at, h->a->x.dt);
}

static const void *value_at(const head *h, int64_t t)
{
    int64_t at = t * h->x_cols + 2 * h->a->k_heads * h->dk + h->v * h->dv;
    return vec_at_const(h->a->x.data, at, h->a->x.dt);
}

static float scalar(const tensor *x, int64_t i)
{
    return vec_load(x->data, i, 1, x->dt)[0];
}

/* out = x scale / |x|; returns what x was multiplied by. */
static float normalise(float *out, const void *x, dtype dt, int64_t n, float scale)
{
    float factor = scale / sqrtf(vec_dot(x, dt, x, dt, n) + 1e-6f);
    for (int64_t i = 0; i < n; i += VEC_LANES)
        vec_store(out, i, n - i, DT_F32, factor * vec_load(x, i, n - i, dt));
    return factor;
}

/* What a token does to the state of a head, but for its value. */
typedef struct token {
    float *q, *k; /* [dk], normalised */
    float decay, beta;
    float slope, log_decay; /* of softplus, and log decay: for backward */
} token;

/* log(1 + e^x). What 1 + e^x rounds is made up for: for x < 0 it would be much of the result. */
static float softplus(float x)
{
    float e = vmath_exp(vec_set(x))[0], sum = 1.0f + e;
    return x > 20.0f ? x : sum == 1.0f ? e : vmath_log(vec_set(sum))[0] * (e / (sum - 1.0f));
}

static void read_token(const head *h, int64_t t, token *to)
{
    const delta_rule *a = h->a;
    int64_t i = t * a->v_heads + h->v;
    float x = scalar(&a->a, i) + h->dt;
    vf rest;
    to->slope = vmath_sigmoid(vec_set(x), &rest)[0];
    to->log_decay = -h->rate * softplus(x);
    to->decay = vmath_exp(vec_set(to->log_decay))[0];
    to->beta = vmath_sigmoid(vec_set(scalar(&a->b, i)), &rest)[0];
    normalise(to->q, query_at(h, t), a->x.dt, h->dk, 1.0f / sqrtf((float)h->dk));
    normalise(to->k, key_at(h, t), a->x.dt, h->dk, 1.0f);
}

/* ---- forward ---- */

static vf *at(float *x, int64_t i)
{
    return (vf *)(void *)(x + i);
}

/* S = decay S; e = beta (v - S^T k); S += k e^T; out = S^T q, of `cols` columns whose state is
 * [dk, PANEL]. */
static void step(const head *h, const token *k, float *s, int64_t first, int64_t cols, int64_t t)
{
    vf sum[PANEL / VEC_LANES] = { 0 };
    int n = (int)((cols + VEC_LANES - 1) / VEC_LANES);
    for (int64_t i = 0; i < h->dk; i++)
        for (int j = 0; j < n; j++) {
            vf *p = at(s, i * PANEL + j * VEC_LANES);
            *p *= k->decay;
            sum[j] = vec_fma(*p, vec_set(k->k[i]), sum[j]);
        }
    for (int j = 0; j < n; j++) {
        int64_t c = first + j * VEC_LANES;
        sum[j] = k->beta * (vec_load(value_at(h, t), c, h->dv - c, h->a->x.dt) - sum[j]);
    }
    vf out[PANEL / VEC_LANES] = { 0 };
    for (int64_t i = 0; i < h->dk; i++)
        for (int j = 0; j < n; j++) {
            vf *p = at(s, i * PANEL + j * VEC_LANES);
            *p = vec_fma(vec_set(k->k[i]), sum[j], *p);
            out[j] = vec_fma(*p, vec_set(k->q[i]), out[j]);
        }
    for (int j = 0; j < n; j++) {
        int64_t c = first + j * VEC_LANES;
        vec_store(h->a->out.data, (t * h->a->v_heads + h->v) * h->dv + c, h->dv - c, h->a->out.dt,
                  out[j]);
    }
}

static int64_t panels(const delta_rule *a)
{
    return (a->v_dim + PANEL - 1) / PANEL;
}

/* The state of head v of sequence s in the cache; NULL: there is none. */
static float *kept_state(const head *h, int64_t s)
{
    const delta_rule *a = h->a;
    if (!a->state.data)
        return NULL;
    return (float *)a->state.data + ((const int32_t *)a->slots.data)[s] * tensor_cols(&a->state) +
           h->v * h->dk * h->dv;
}

/* Copies the columns of a panel between the cache and scratch. */
static void copy_panel(const head *h, float *panel, float *kept, int64_t first, bool save)
{
    for (int64_t i = 0; i < h->dk; i++)
        for (int64_t j = 0; j < PANEL && first + j < h->dv; j++) {
            float *p = panel + i * PANEL + j, *k = kept + i * h->dv + first + j;
            *(save ? k : p) = *(save ? p : k);
        }
}

static void panel_fwd(const head *h, int64_t s, int64_t first, float *scratch)
{
    const int32_t *starts = h->a->starts.data, *pos = h->a->pos.data;
    int64_t begin = starts[s], end = starts[s + 1];
    int64_t cols = h->dv - first < PANEL ? h->dv - first : PANEL;
    float *state = scratch, *kept = kept_state(h, s);
    token k = { .q = state + h->dk * PANEL, .k = state + h->dk * (PANEL + 1) };
    if (begin == end)
        return;
    memset(state, 0, (size_t)(h->dk * PANEL) * sizeof *state);
    if (kept && pos[begin] > 0)
        copy_panel(h, state, kept, first, false);
    for (int64_t t = begin; t < end; t++) {
        read_token(h, t, &k);
        step(h, &k, state, first, cols, t);
    }
    if (kept)
        copy_panel(h, state, kept, first, true);
}

static void delta_panels(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    const delta_rule *a = ctx;
    for (int64_t i = begin; i < end; i++) {
        head h = head_of(a, i / panels(a) % a->v_heads);
        panel_fwd(&h, i / panels(a) / a->v_heads, i % panels(a) * PANEL, scratch);
    }
}

void OP(delta_fwd)(device *d, const delta_rule *a)
{
    ASSERT(a->k_dim <= MAX_WIDTH && a->v_dim <= MAX_WIDTH && a->v_heads % a->k_heads == 0);
    cpu_for(cpu_of(d), panels(a) * a->v_heads * (tensor_count(&a->starts) - 1), 1, delta_panels, a);
}

/* ---- backward ---- */

/* Workspace of one head: its part of delta_bwd.work, and vectors in scratch. */
typedef struct head_bwd {
    head h;
    const delta_bwd *b;
    int64_t span;                /* L */
    float *marks, *states;       /* [L or more, dk, dv]: before every L-th token; before each */
    float *ds;                   /* [dk, dv]: the gradient of the state */
    float *pred, *du, *dout, *u; /* [dv] */
    token k;
    float da_log, ddt;
} head_bwd;

static float *state_at(const head_bwd *w, float *list, int64_t i)
{
    return list + i * w->h.dk * w->h.dv;
}

/* S^T k of the state before a token, decayed, into pred; then the token's beta e into u. */
static void predict(head_bwd *w, const float *before, int64_t t)
{
    const int64_t dk = w->h.dk, dv = w->h.dv;
    for (int64_t j = 0; j < dv; j += VEC_LANES) {
        vf sum = { 0 }, v = vec_load(value_at(&w->h, t), j, dv - j, w->h.a->x.dt);
        for (int64_t i = 0; i < dk; i++)
            sum = vec_fma(w->k.decay * vec_load(before, i * dv + j, dv - j, DT_F32),
                          vec_set(w->k.k[i]), sum);
        vec_store(w->pred, j, dv - j, DT_F32, sum);
        vec_store(w->u, j, dv - j, DT_F32, w->k.beta * (v - sum));
    }
}

/* The state after a token. */
static void advance(head_bwd *w, float *after, const float *before, int64_t t)
{
    const int64_t dk = w->h.dk, dv = w->h.dv;
    read_token(&w->h, t, &w->k);
    predict(w, before, t);
    for (int64_t i = 0; i < dk; i++)
        for (int64_t j = 0; j < dv; j += VEC_LANES) {
            vf s = w->k.decay * vec_load(before, i * dv + j, dv - j, DT_F32);
            s = vec_fma(vec_set(w->k.k[i]), vec_load(w->u, j, dv - j, DT_F32), s);
            vec_store(after, i * dv + j, dv - j, DT_F32, s);
        }
}

/* dq, and what dk gets of the sum S += k u^T; du. */
static void outer_bwd(head_bwd *w, const float *before, float *dq, float *dk_out)
{
    const int64_t dk = w->h.dk, dv = w->h.dv;
    memset(w->du, 0, (size_t)dv * sizeof *w->du);
    for (int64_t i = 0; i < dk; i++) {
        vf sum_q = { 0 }, sum_k = { 0 }, q = vec_set(w->k.q[i]), k = vec_set(w->k.k[i]);
        for (int64_t j = 0; j < dv; j += VEC_LANES) {
            vf u = vec_load(w->u, j, dv - j, DT_F32), dy = vec_load(w->dout, j, dv - j, DT_F32);
            vf s = w->k.decay * vec_load(before, i * dv + j, dv - j, DT_F32);
            vf ds = vec_fma(q, dy, vec_load(w->ds, i * dv + j, dv - j, DT_F32));
            sum_q = vec_fma(vec_fma(k, u, s), dy, sum_q);
            sum_k = vec_fma(ds, u, sum_k);
            vec_store(w->ds, i * dv + j, dv - j, DT_F32, ds);
            vec_store(w->du, j, dv - j, DT_F32, vec_fma(ds, k, vec_load(w->du, j, dv - j, DT_F32)));
        }
        dq[i] = vec_sum(sum_q);
        dk_out[i] = vec_sum(sum_k);
    }
}

/* Through e = v - S^T k and S = decay S; returns the gradient of decay. du has become that of e. */
static float inner_bwd(head_bwd *w, const float *before, float *dk_out)
{
    const int64_t dk = w->h.dk, dv = w->h.dv;
    vf decayed = { 0 };
    for (int64_t i = 0; i < dk; i++) {
        vf sum = { 0 }, k = vec_set(-w->k.k[i]);
        for (int64_t j = 0; j < dv; j += VEC_LANES) {
            vf de = vec_load(w->du, j, dv - j, DT_F32);
            vf s = vec_load(before, i * dv + j, dv - j, DT_F32);
            vf ds = vec_fma(k, de, vec_load(w->ds, i * dv + j, dv - j, DT_F32));
            sum = vec_fma(s, de, sum);
            decayed = vec_fma(ds, s, decayed);
            vec_store(w->ds, i * dv + j, dv - j, DT_F32, w->k.decay * ds);
        }
        dk_out[i] -= w->k.decay * vec_sum(sum);
    }
    return vec_sum(decayed);
}

static void store_scalar(const tensor *to, int64_t i, float x)
{
    vec_store(to->data, i, 1, to->dt, vec_set(x));
}

static void token_bwd(head_bwd *w, const float *before, int64_t t)
{
    const delta_bwd *b = w->b;
    const int64_t dk = w->h.dk, dv = w->h.dv, i = t * b->fwd.v_heads + w->h.v;
    float *dq = (float *)b->dqk.data + i * 2 * dk, *dk_out = dq + dk, dbeta;
    read_token(&w->h, t, &w->k);
    predict(w, before, t);
    vec_copy(w->dout, DT_F32, vec_at_const(b->dout.data, i * dv, b->dout.dt), b->dout.dt, dv);
    outer_bwd(w, before, dq, dk_out);
    dbeta = vec_dot(w->du, DT_F32, w->u, DT_F32, dv); /* times beta */
    for (int64_t j = 0; j < dv; j += VEC_LANES) {
        vf de = w->k.beta * vec_load(w->du, j, dv - j, DT_F32);
        int64_t at = t * w->h.x_cols + 2 * b->fwd.k_heads * dk + w->h.v * dv + j;
        vec_store(w->du, j, dv - j, DT_F32, de);
        vec_store(b->dx.data, at, dv - j, b->dx.dt, de);
    }
    float dg = w->k.decay * inner_bwd(w, before, dk_out), da = -dg * w->h.rate * w->k.slope;
    store_scalar(&b->db, i, dbeta * (1.0f - w->k.beta));
    store_scalar(&b->da, i, da);
    w->da_log += dg * w->k.log_decay;
    w->ddt += da;
}

static void sequence_bwd(head_bwd *w, int64_t begin, int64_t end)
{
    const size_t bytes = (size_t)(w->h.dk * w->h.dv) * sizeof(float);
    int64_t n = end - begin, span = w->span, last_mark = n ? (n - 1) / span * span : 0;
    memset(w->marks, 0, bytes);
    for (int64_t t = 0; t < last_mark; t++) { /* the marks, through two states in turn */
        float *from =
            t % span == 0 ? state_at(w, w->marks, t / span) : state_at(w, w->states, t % 2);
        bool mark = (t + 1) % span == 0;
        advance(w,
                mark ? state_at(w, w->marks, (t + 1) / span) : state_at(w, w->states, (t + 1) % 2),
                from, begin + t);
    }
    memset(w->ds, 0, bytes);
    for (int64_t m = (n - 1) / span; m >= 0 && n > 0; m--) {
        int64_t first = m * span, last = first + span < n ? first + span : n;
        memcpy(w->states, state_at(w, w->marks, m), bytes);
        for (int64_t t = first; t + 1 < last; t++)
            advance(w, state_at(w, w->states, t + 1 - first), state_at(w, w->states, t - first),
                    begin + t);
        for (int64_t t = last - 1; t >= first; t--)
            token_bwd(w, state_at(w, w->states, t - first), begin + t);
    }
}

static void delta_bwd_heads(const void *ctx, int64_t first, int64_t last, void *scratch)
{
    const delta_bwd *b = ctx;
    const int32_t *starts = b->fwd.starts.data;
    const int64_t rows = tensor_rows(&b->fwd.x), dk = b->fwd.k_dim, dv = b->fwd.v_dim;
    for (int64_t v = first; v < last; v++) {
        float *x = scratch, *work = (float *)b->work.data;
        head_bwd w = { .h = head_of(&b->fwd, v), .b = b, .span = delta_span(rows) };
        w.marks = work + v * delta_states(rows) * dk * dv;
        w.states = state_at(&w, w.marks, w.span);
        w.ds = state_at(&w, w.states, w.span);
        w.pred = x;
        w.du = x + MAX_WIDTH;
        w.dout = x + 2 * MAX_WIDTH;
        w.u = x + 3 * MAX_WIDTH;
        w.k = (token){ .q = x + 4 * MAX_WIDTH, .k = x + 5 * MAX_WIDTH };
        for (int64_t s = 0; s < tensor_count(&b->fwd.starts) - 1; s++)
            sequence_bwd(&w, starts[s], starts[s + 1]);
        if (b->da_log.data)
            ((float *)b->da_log.data)[v] += w.da_log;
        if (b->ddt_bias.data)
            ((float *)b->ddt_bias.data)[v] += w.ddt;
    }
}

/* x = z r with r = scale / |z|: dz = r (dx - z <z, dx> / |z|^2). The value heads of a key head are
 * added in order. which: 0 queries, 1 keys. */
static void norm_bwd_row(const delta_bwd *b, int64_t t, int64_t k, int which, float *sum)
{
    const head h = head_of(&b->fwd, k * (b->fwd.v_heads / b->fwd.k_heads));
    const int64_t dk = h.dk, group = b->fwd.v_heads / b->fwd.k_heads;
    const float scale = which ? 1.0f : 1.0f / sqrtf((float)dk);
    const void *z = which ? key_at(&h, t) : query_at(&h, t);
    const float *from =
        (const float *)b->dqk.data + (t * b->fwd.v_heads + h.v) * 2 * dk + which * dk;
    const dtype dt = b->fwd.x.dt;
    memcpy(sum, from, (size_t)dk * sizeof *sum);
    for (int64_t g = 1; g < group; g++)
        for (int64_t i = 0; i < dk; i += VEC_LANES)
            vec_store(sum, i, dk - i, DT_F32,
                      vec_load(sum, i, dk - i, DT_F32) +
                          vec_load(from, g * 2 * dk + i, dk - i, DT_F32));
    float squared = vec_dot(z, dt, z, dt, dk) + 1e-6f, r = scale / sqrtf(squared);
    float pull = vec_dot(z, dt, sum, DT_F32, dk) / squared;
    int64_t at = t * h.x_cols + (which * b->fwd.k_heads + k) * dk;
    for (int64_t i = 0; i < dk; i += VEC_LANES)
        vec_store(b->dx.data, at + i, dk - i, b->dx.dt,
                  r * (vec_load(sum, i, dk - i, DT_F32) - pull * vec_load(z, i, dk - i, dt)));
}

static void delta_norm_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    const delta_bwd *b = ctx;
    for (int64_t i = begin; i < end; i++)
        for (int which = 0; which < 2; which++)
            norm_bwd_row(b, i / b->fwd.k_heads, i % b->fwd.k_heads, which, scratch);
}

void OP(delta_bwd)(device *d, const delta_bwd *a)
{
    const delta_rule *f = &a->fwd;
    int64_t rows = tensor_rows(&f->x);
    ASSERT(f->k_dim <= MAX_WIDTH && f->v_dim <= MAX_WIDTH && !f->state.data);
    cpu_for(cpu_of(d), f->v_heads, 1, delta_bwd_heads, a);
    cpu_for(cpu_of(d), rows * f->k_heads, cpu_step((int64_t)f->k_dim * 64), delta_norm_rows, a);
}

/* conv: causal depthwise convolutions of a few taps, with a state for decoding.
 *
 * Columns do not meet, so a range is a panel of columns: of one sequence in forward, of all
 * sequences in backward, where it adds them up in order. Taps are added in their order, from
 * rows whose values are the same whether they come from x or from the state, so results do not
 * depend on how a sequence is divided into passes. */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/vec.h"
#include "backend/cpu/ops/vmath.h"

enum { PANEL = 64 }; /* columns */

typedef struct panel {
    const conv *a;
    int64_t width, taps, first; /* first: the panel's first column */
    int64_t begin, end;         /* rows of the sequence */
    const float *past;          /* its state, [taps - 1, width]; NULL: zeros */
    const float *w;             /* [taps, PANEL] */
} panel;

static int64_t left_of(const panel *p, int64_t j)
{
    return p->width - p->first - j;
}

/* Columns of part k of a row of x: b, c, u. */
static vf load_part(const panel *p, int64_t row, int64_t k, int64_t j)
{
    int64_t cols = tensor_cols(&p->a->x);
    return vec_load(p->a->x.data, row * cols + k * p->width + p->first + j, left_of(p, j),
                    p->a->x.dt);
}

/* z of a row, which may be before the sequence's first. */
static vf load_z(const panel *p, int64_t row, int64_t j)
{
    int64_t back = p->begin - row;
    if (back > 0 && !p->past)
        return (vf){ 0 };
    if (back > 0)
        return vec_load(p->past, (p->taps - 1 - back) * p->width + p->first + j, left_of(p, j),
                        DT_F32);
    vf z = load_part(p, row, 0, j);
    return p->a->gated ? z * load_part(p, row, 2, j) : z;
}

static vf convolve(const panel *p, int64_t row, int64_t j)
{
    vf s = { 0 };
    if (p->a->bias.data)
        s = vec_load(p->a->bias.data, p->first + j, left_of(p, j), DT_F32);
    for (int64_t i = 0; i < p->taps; i++)
        s = vec_fma(*(const vf_any *)(p->w + i * PANEL + j), load_z(p, row - p->taps + 1 + i, j),
                    s);
    return s;
}

/* The taps of the panel's columns, tap by tap. */
static void gather_taps(panel *p, float *w)
{
    const float *from = p->a->w.data;
    for (int64_t i = 0; i < p->taps; i++)
        for (int64_t j = 0; j < PANEL; j++)
            w[i * PANEL + j] = j < left_of(p, 0) ? from[(p->first + j) * p->taps + i] : 0.0f;
    p->w = w;
}

static panel panel_of(const conv *a, int64_t i, float *w)
{
    panel p = { .a = a, .width = a->w.ne[0], .taps = a->w.ne[2], .first = i * PANEL };
    gather_taps(&p, w);
    return p;
}

static int64_t panels(const conv *a)
{
    return (a->w.ne[0] + PANEL - 1) / PANEL;
}

/* The rows of sequence s, and its row of the state, or NULL. */
static float *set_sequence(panel *p, int64_t s)
{
    const conv *a = p->a;
    const int32_t *starts = a->starts.data;
    p->begin = starts[s];
    p->end = starts[s + 1];
    float *state = a->state.data ? (float *)a->state.data +
                                       ((const int32_t *)a->slots.data)[s] * tensor_cols(&a->state)
                                 : NULL;
    bool begun = p->begin < p->end && ((const int32_t *)a->pos.data)[p->begin] > 0;
    p->past = begun ? state : NULL;
    return state;
}

/* In ascending order: a row that is read is not written yet. */
static void keep_state(const panel *p, float *state)
{
    int64_t cols = left_of(p, 0) < PANEL ? left_of(p, 0) : PANEL;
    for (int64_t i = 0; i < p->taps - 1; i++)
        for (int64_t j = 0; j < cols; j += VEC_LANES)
            vec_store(state, i * p->width + p->first + j, cols - j, DT_F32,
                      load_z(p, p->end - (p->taps - 1) + i, j));
}

static void conv_panels(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    const conv *a = ctx;
    for (int64_t i = begin; i < end; i++) {
        panel p = panel_of(a, i % panels(a), scratch);
        float *state = set_sequence(&p, i / panels(a));
        int64_t cols = left_of(&p, 0) < PANEL ? left_of(&p, 0) : PANEL;
        for (int64_t t = p.begin; t < p.end; t++)
            for (int64_t j = 0; j < cols; j += VEC_LANES) {
                vf s = convolve(&p, t, j), slope;
                s = a->gated ? s * load_part(&p, t, 1, j) : vmath_act(a->act, s, &slope);
                vec_store(a->out.data, t * p.width + p.first + j, left_of(&p, j), a->out.dt, s);
            }
        if (state && p.begin < p.end)
            keep_state(&p, state);
    }
}

void OP(conv_fwd)(device *d, const conv *a)
{
    ASSERT(a->w.ne[2] >= 2 && a->w.ne[2] <= CONV_TAPS);
    cpu_for(cpu_of(d), panels(a) * (tensor_count(&a->starts) - 1), 1, conv_panels, a);
}

/* ---- backward ---- */

typedef struct panel_grads {
    float w[CONV_TAPS][PANEL], dw[CONV_TAPS][PANEL], dbias[PANEL];
    float ds[CONV_TAPS][PANEL]; /* of the last rows, in a ring */
} panel_grads;

static void store_part(const panel *p, const conv_bwd *b, int64_t row, int64_t k, int64_t j, vf x)
{
    int64_t cols = tensor_cols(&b->dx);
    vec_store(b->dx.data, row * cols + k * p->width + p->first + j, left_of(p, j), b->dx.dt, x);
}

/* One row, when those after it are done: ds, the sums, and with ds of the rows that read it, dx. */
static void row_bwd(const panel *p, const conv_bwd *b, panel_grads *g, int64_t t, int64_t j)
{
    const conv *a = p->a;
    vf dy = vec_load(b->dout.data, t * p->width + p->first + j, left_of(p, j), b->dout.dt);
    vf s = convolve(p, t, j), ds, slope, dz = { 0 };
    if (a->gated) {
        store_part(p, b, t, 1, j, dy * s);
        ds = dy * load_part(p, t, 1, j);
    } else {
        vmath_act(a->act, s, &slope);
        ds = dy * slope;
    }
    *(vf_any *)&g->ds[t % p->taps][j] = ds;
    *(vf_any *)&g->dbias[j] += ds;
    for (int64_t i = 0; i < p->taps; i++) {
        int64_t reads = t + p->taps - 1 - i; /* the row that multiplies z[t] by tap i */
        vf_any *dw = (vf_any *)&g->dw[i][j];
        *dw = vec_fma(ds, load_z(p, t - p->taps + 1 + i, j), *dw);
        if (reads < p->end)
            dz = vec_fma(*(vf_any *)&g->w[i][j], *(vf_any *)&g->ds[reads % p->taps][j], dz);
    }
    store_part(p, b, t, 0, j, a->gated ? dz * load_part(p, t, 2, j) : dz);
    if (a->gated)
        store_part(p, b, t, 2, j, dz * load_part(p, t, 0, j));
}

static void add_sums(const panel *p, const conv_bwd *b, const panel_grads *g)
{
    for (int64_t j = 0; j < PANEL && j < left_of(p, 0); j++) {
        for (int64_t i = 0; i < p->taps && b->dw.data; i++)
            ((float *)b->dw.data)[(p->first + j) * p->taps + i] += g->dw[i][j];
        if (b->dbias.data)
            ((float *)b->dbias.data)[p->first + j] += g->dbias[j];
    }
}

static void conv_bwd_panels(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    const conv_bwd *b = ctx;
    panel_grads *g = scratch;
    for (int64_t i = begin; i < end; i++) {
        memset(g, 0, sizeof *g);
        panel p = panel_of(&b->fwd, i, g->w[0]);
        int64_t cols = left_of(&p, 0) < PANEL ? left_of(&p, 0) : PANEL;
        for (int64_t s = 0; s < tensor_count(&b->fwd.starts) - 1; s++) {
            set_sequence(&p, s);
            for (int64_t t = p.end - 1; t >= p.begin; t--)
                for (int64_t j = 0; j < cols; j += VEC_LANES)
                    row_bwd(&p, b, g, t, j);
        }
        add_sums(&p, b, g);
    }
}

void OP(conv_bwd)(device *d, const conv_bwd *a)
{
    ASSERT(!a->fwd.state.data && a->fwd.w.ne[2] >= 2 && a->fwd.w.ne[2] <= CONV_TAPS);
    cpu_for(cpu_of(d), panels(&a->fwd), 1, conv_bwd_panels, a);
}

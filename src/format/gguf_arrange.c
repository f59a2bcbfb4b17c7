/* Tensors of gated delta nets in Hugging Face's order, put together when they are read. */
#include "format/gguf_file.h"

#include <math.h>

typedef struct arranged {
    weight a, b;          /* rows of b follow those of a; b.data NULL: there is none */
    const int32_t *order; /* of rows or columns; NULL: as they are */
    bool columns, decay;
} arranged;

static int64_t width_of(const weight *w)
{
    int64_t n = 1;
    for (int32_t i = 1; i < w->nd; i++)
        n *= w->ne[i];
    return n;
}

/* Columns [col, col + n) of a row, in runs that lie side by side. */
static pesc_status read_columns(const arranged *s, int64_t row, int64_t col, int64_t n, float *out)
{
    const int64_t cols = width_of(&s->a);
    for (int64_t i = 0, run; i < n; i += run) {
        const int32_t *at = s->order + col + i;
        for (run = 1; i + run < n && at[run] == at[0] + run;)
            run++;
        TRY(weights_read_f32(&s->a, row * cols + at[0], run, out + i));
    }
    return PESC_OK;
}

static pesc_status read_arranged(const weight *w, int64_t first, int64_t n, float *out)
{
    const arranged *s = w->parts;
    const int64_t cols = width_of(w);
    for (int64_t done = 0, take; done < n; done += take) {
        int64_t row = (first + done) / cols, col = (first + done) % cols;
        take = cols - col < n - done ? cols - col : n - done;
        if (s->columns && s->order) {
            TRY(read_columns(s, row, col, take, out + done));
            continue;
        }
        int64_t at = s->order ? s->order[row] : row;
        const weight *from = at < s->a.ne[0] ? &s->a : &s->b;
        at -= from == &s->b ? s->a.ne[0] : 0;
        TRY(weights_read_f32(from, at * cols + col, take, out + done));
    }
    for (int64_t i = 0; s->decay && i < n; i++) {
        if (!(out[i] < 0))
            return fail(PESC_FORMAT, "%s: tensor %s: found %g, expected decays below 0", s->a.file,
                        s->a.name, (double)out[i]);
        out[i] = logf(-out[i]);
    }
    return PESC_OK;
}

static pesc_status put_arranged(weights *ws, weight *w, const arranged *as)
{
    arranged *s = weights_take(ws, sizeof *s);
    if (!s)
        return fail_nomem(w->file, sizeof *s);
    *s = *as;
    w->unpermute_heads = -1;
    w->read = read_arranged;
    w->parts = s;
    return PESC_OK;
}

/* ---- orders ---- */

pesc_status gguf_arrange_open(gguf_arranging *out, const gguf *g, const gguf_arch *a)
{
    enum { MOST = 1 << 16 };
    gguf_range r = { .required = true, .min = 1, .max = MOST };
    gguf_delta *d = &out->d;
    int64_t inner = 0;
    *out = (gguf_arranging){ 0 };
    if (!(a->bit & ARCH_DELTAS))
        return PESC_OK;
    TRY(gguf_get_int(g, gguf_arch_key(a, "ssm.group_count").text, r, &d->k_heads));
    TRY(gguf_get_int(g, gguf_arch_key(a, "ssm.time_step_rank").text, r, &d->v_heads));
    TRY(gguf_get_int(g, gguf_arch_key(a, "ssm.state_size").text, r, &d->k_dim));
    r.max = INT32_MAX;
    TRY(gguf_get_int(g, gguf_arch_key(a, "ssm.inner_size").text, r, &inner));
    if (d->v_heads % d->k_heads || inner % d->v_heads)
        return fail(PESC_FORMAT,
                    "%s: %s.ssm: %lld heads of values (time_step_rank) do not divide by %lld of "
                    "keys (group_count), or %lld numbers of values (inner_size) by their heads",
                    g->path, a->name, (long long)d->v_heads, (long long)d->k_heads,
                    (long long)inner);
    d->v_dim = inner / d->v_heads;
    return PESC_OK;
}

/* Where the file has each of Hugging Face's rows. */
static pesc_status order_of(gguf_arranging *r, weights *ws, delta_rows rows, int64_t n)
{
    if (r->order[rows])
        return PESC_OK;
    int32_t *order = weights_take(ws, (size_t)n * sizeof *order);
    if (!order)
        return fail_nomem("a table of weights", (size_t)n * sizeof *order);
    for (int64_t i = 0; i < n; i++)
        order[rows == DELTA_ROWS_PLAIN ? gguf_delta_grouped(&r->d, i)
                                       : gguf_delta_tiled(&r->d, rows, i)] = (int32_t)i;
    r->order[rows] = order;
    return PESC_OK;
}

static pesc_status wrong_rows(const weight *w, int64_t is, int64_t want)
{
    return fail(PESC_SHAPE,
                "%s: tensor %s: has %lld rows or columns of heads, expected %lld by the file's "
                "ssm keys",
                w->file, w->name, (long long)is, (long long)want);
}

pesc_status gguf_arrange(gguf_arranging *r, weights *ws, weight *w, const gguf_arch *a,
                         uint32_t flags)
{
    const delta_rows rows = gguf_delta_rows_of(flags);
    arranged s = { .a = *w, .columns = flags & NAME_COLUMNS, .decay = flags & NAME_DECAY };
    if (rows != DELTA_ROWS_PLAIN && a->bit & ARCH_TILED && r->d.v_heads != r->d.k_heads) {
        int64_t n = gguf_delta_count(&r->d, rows), is = w->ne[s.columns ? 1 : 0];
        if (is != n || (s.columns && w->nd != 2))
            return wrong_rows(w, is, n);
        TRY(order_of(r, ws, rows, n));
        s.order = r->order[rows];
    }
    return s.order || s.decay ? put_arranged(ws, w, &s) : PESC_OK;
}

pesc_status gguf_arrange_joined(gguf_arranging *r, weights *ws, const weight *qkv, const weight *z,
                                const char *name)
{
    const int64_t n = gguf_delta_count(&r->d, DELTA_ROWS_QKV);
    const int64_t n_z = gguf_delta_count(&r->d, DELTA_ROWS_VALUES);
    if (qkv->nd != 2 || qkv->ne[0] != n)
        return wrong_rows(qkv, qkv->ne[0], n);
    if (z->nd != 2 || z->ne[0] != n_z || z->ne[1] != qkv->ne[1])
        return wrong_rows(z, z->ne[0], n_z);
    TRY(order_of(r, ws, DELTA_ROWS_PLAIN, n + n_z));
    weight w = {
        .name = name, .dt = qkv->dt, .nd = 2, .ne = { n + n_z, qkv->ne[1] }, .file = qkv->file
    };
    TRY(put_arranged(ws, &w, &(arranged){ .a = *qkv, .b = *z, .order = r->order[0] }));
    return weights_add(ws, &w);
}

/* The tensors of a GGUF file as a table of weights: renamed, unstacked, in views of the file. */
#include "format/gguf_file.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

static weight view_of(const gguf_tensor *t, const char *name)
{
    weight w = {
        .name = name, .dt = t->dt, .nd = t->nd, .data = t->data, .bytes = t->bytes, .file = t->path
    };
    for (int32_t i = 0; i < t->nd; i++)
        w.ne[i] = t->ne[i];
    return w;
}

/* The experts of a stack are stored one after the other. A writer may have dropped a leading 1. */
static pesc_status add_stack(weights *ws, const gguf_tensor *t, const gguf_name *n)
{
    char name[WEIGHTS_MAX_NAME];
    int64_t experts = t->nd == 3 ? t->ne[0] : 1;
    if (t->nd != 2 && t->nd != 3)
        return fail(PESC_SHAPE,
                    "%s: tensor %.*s has %d dimensions, expected experts x rows x "
                    "columns",
                    t->path, (int)t->name.n, t->name.p, t->nd);
    if (experts > WEIGHTS_MAX)
        return fail(PESC_SHAPE, "%s: tensor %.*s holds %lld experts, expected at most %d", t->path,
                    (int)t->name.n, t->name.p, (long long)experts, WEIGHTS_MAX);
    weight w = view_of(t, name);
    w.nd = 2;
    w.ne[0] = t->ne[t->nd - 2];
    w.ne[1] = t->ne[t->nd - 1];
    w.bytes = t->bytes / (size_t)experts;
    for (int64_t e = 0; e < experts; e++) {
        gguf_name_write(name, sizeof name, n, e);
        TRY(weights_add(ws, &w));
        w.data += w.bytes;
    }
    return PESC_OK;
}

/* llama.cpp rotates neighbouring pairs, so its converter interleaves the rows of each
 * head; weights_read_f32() puts them back. */
static pesc_status unpermute(weight *w, const gguf_tensor *t, int64_t n_heads)
{
    if (w->ne[0] % (2 * n_heads))
        return fail(PESC_SHAPE,
                    "%s: tensor %.*s has %lld rows, expected a multiple of 2 x %lld heads", t->path,
                    (int)t->name.n, t->name.p, (long long)w->ne[0], (long long)n_heads);
    w->unpermute_heads = (int32_t)n_heads;
    return PESC_OK;
}

/* Norms that are stored with 1 added. */
static pesc_status read_minus_one(const weight *w, int64_t first, int64_t n, float *out)
{
    TRY(weights_read_f32(w->parts, first, n, out));
    for (int64_t i = 0; i < n; i++)
        out[i] -= 1;
    return PESC_OK;
}

static pesc_status take_one(weights *ws, weight *w)
{
    weight *stored = weights_take(ws, sizeof *stored);
    if (!stored)
        return fail_nomem(w->file, sizeof *stored);
    *stored = *w;
    w->parts = stored;
    w->read = read_minus_one;
    w->unpermute_heads = -1;
    return PESC_OK;
}

typedef struct reader {
    weights *ws;
    const gguf_arch *a;
    gguf_sizes z;
    gguf_arranging arranging;
} reader;

/* The shape that Hugging Face's tensor has. */
static void reshape(weight *w, uint32_t flags)
{
    if ((flags & NAME_ROW) && w->nd == 1) {
        w->nd = 2;
        w->ne[1] = w->ne[0];
        w->ne[0] = 1;
    }
    if ((flags & NAME_CONV) && w->nd == 2) {
        w->nd = 3;
        w->ne[2] = w->ne[1];
        w->ne[1] = 1;
    }
}

static pesc_status add_tensor(reader *r, const gguf_tensor *t)
{
    char name[WEIGHTS_MAX_NAME];
    gguf_name n;
    if (r->z.predicting && gguf_name_layer(t->name) >= r->z.layers)
        return PESC_OK;
    if (!gguf_name_of(&n, t->name, r->a)) {
        /* left as it is, for binding to report with the others it does not know */
        snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.p);
        weight w = view_of(t, name);
        return weights_add(r->ws, &w);
    }
    if (n.flags & NAME_SKIP)
        return PESC_OK;
    if (n.flags & NAME_STACKED)
        return add_stack(r->ws, t, &n);
    gguf_name_write(name, sizeof name, &n, n.expert);
    weight w = view_of(t, name);
    reshape(&w, n.flags);
    TRY(gguf_arrange(&r->arranging, r->ws, &w, r->a, n.flags));
    if (n.flags & NAME_NORM && r->a->bit & ARCH_SHIFTED)
        TRY(take_one(r->ws, &w));
    if (r->a->permuted && (n.flags & (NAME_QUERY | NAME_KEY)))
        TRY(unpermute(&w, t, n.flags & NAME_QUERY ? r->z.heads : r->z.kv_heads));
    return weights_add(r->ws, &w);
}

/* ---- tensors that are joined ----
 *
 * DeepSeek's newer files split kv_b_proj [heads * (nope + v), rank] by head into k_b, transposed to
 * [heads, rank, nope], and v_b [heads, v, rank]. They are joined when they are read. */

typedef struct halves {
    weight k, v;
} halves;

enum { TILE = 256 }; /* rows turned at once */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Columns [col, col + len) of m rows from row i of a head's k, which are spread over the file's
 * rows. */
static pesc_status read_turned(const halves *h, int64_t head, int64_t i, int64_t m, int64_t col,
                               int64_t len, float *out)
{
    int64_t rank = h->k.ne[1], nope = h->k.ne[2];
    for (int64_t j = 0; j < len; j++) {
        float across[TILE];
        TRY(weights_read_f32(&h->k, (head * rank + col + j) * nope + i, m, across));
        for (int64_t r = 0; r < m; r++)
            out[r * len + j] = across[r];
    }
    return PESC_OK;
}

static pesc_status read_joined(const weight *w, int64_t first, int64_t n, float *out)
{
    const halves *h = w->parts;
    int64_t rank = h->k.ne[1], nope = h->k.ne[2], values = h->v.ne[1], rows = nope + values;
    while (n > 0) {
        int64_t col = first % rank, head = first / rank / rows, i = first / rank % rows, take;
        if (i >= nope) { /* from here to the end of the head as it is */
            take = least((rows - i) * rank - col, n);
            TRY(weights_read_f32(&h->v, (head * values + i - nope) * rank + col, take, out));
        } else {
            int64_t len = least(rank - col, n);
            int64_t m = len == rank ? least(least(n / rank, nope - i), TILE) : 1;
            take = m * len;
            TRY(read_turned(h, head, i, m, col, len, out));
        }
        first += take;
        out += take;
        n -= take;
    }
    return PESC_OK;
}

static pesc_status join_heads(weights *ws, const weight *k, const weight *v, const char *name)
{
    if (k->nd != 3 || v->nd != 3 || k->ne[0] != v->ne[0] || k->ne[1] != v->ne[2])
        return fail(PESC_SHAPE, "%s: tensors %s and %s do not fit together", k->file, k->name,
                    v->name);
    halves *h = weights_take(ws, sizeof *h);
    if (!h)
        return fail_nomem(k->file, sizeof *h);
    *h = (halves){ *k, *v };
    weight w = { .name = name,
                 .dt = k->dt,
                 .nd = 2,
                 .ne = { k->ne[0] * (k->ne[2] + v->ne[1]), k->ne[1] },
                 .unpermute_heads = -1,
                 .file = k->file,
                 .read = read_joined,
                 .parts = h };
    return weights_add(ws, &w);
}

/* Two tensors of a layer that Hugging Face has as one. */
typedef struct pair {
    const char *first, *second, *whole;
} pair;

static bool ends_as(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

static pesc_status join_all(reader *r, const pair *p)
{
    size_t before = weights_count(r->ws);
    bool any = false;
    for (int64_t i = 0; i < r->z.layers; i++) {
        char an[128], bn[128], name[128];
        snprintf(an, sizeof an, "model.layers.%lld%s", (long long)i, p->first);
        snprintf(bn, sizeof bn, "model.layers.%lld%s", (long long)i, p->second);
        snprintf(name, sizeof name, "model.layers.%lld%s", (long long)i, p->whole);
        const weight *found = weights_find(r->ws, an), *other = weights_find(r->ws, bn);
        if (!found || !other)
            continue;
        const weight a = *found, b = *other; /* the table grows */
        any = true;
        TRY(r->a->bit == ARCH_DEEPSEEK2 ? join_heads(r->ws, &a, &b, name)
                                        : gguf_arrange_joined(&r->arranging, r->ws, &a, &b, name));
    }
    if (!any)
        return PESC_OK;
    unsigned char *drop = mem_zalloc(weights_count(r->ws), 1);
    if (!drop)
        return fail_nomem("a table of weights", weights_count(r->ws));
    for (size_t i = 0; i < before; i++) {
        const char *name = weights_at(r->ws, i)->name;
        drop[i] = ends_as(name, p->first) || ends_as(name, p->second);
    }
    weights_drop(r->ws, drop);
    mem_free(drop);
    return PESC_OK;
}

/* A map is lent also when adding it fails. */
static pesc_status lend_maps(weights *ws, gguf *g)
{
    g->lent = true;
    TRY(weights_add_file(ws, g->map));
    for (size_t i = 0; i < g->n_rest; i++) {
        g->rest[i]->lent = true;
        TRY(weights_add_file(ws, g->rest[i]->map));
    }
    return PESC_OK;
}

static pesc_status fill_weights(weights *ws, gguf *g)
{
    static const pair latent = { ".self_attn.k_b_proj.weight", ".self_attn.v_b_proj.weight",
                                 ".self_attn.kv_b_proj.weight" };
    static const pair delta = { ".linear_attn.in_proj_qkv.weight", ".linear_attn.in_proj_z.weight",
                                ".linear_attn.in_proj_qkvz.weight" };
    reader r = { .ws = ws };
    TRY(lend_maps(ws, g));
    TRY(gguf_arch_of(&r.a, g));
    TRY(gguf_config_sizes(g, r.a, &r.z));
    TRY(gguf_arrange_open(&r.arranging, g, r.a));
    for (size_t i = 0; i < g->n_tensors; i++)
        TRY(add_tensor(&r, &g->tensors[i]));
    return r.a->bit == ARCH_DEEPSEEK2   ? join_all(&r, &latent)
           : r.a->bit == ARCH_QWEN3NEXT ? join_all(&r, &delta)
                                        : PESC_OK;
}

pesc_status gguf_weights(weights **out, gguf *g)
{
    weights *ws;
    *out = NULL;
    TRY(weights_new(&ws));
    pesc_status s = fill_weights(ws, g);
    if (s == PESC_OK)
        *out = ws;
    else
        weights_close(ws);
    return s;
}

#include "model/linear.h"

#include "model/pass.h"

static bool lora_drops(const pass *p, const lora *l)
{
    return pass_has_dropout(p) && l->dropout > 0;
}

/* The input of A: x, or in training x with dropout. */
static tensor lora_input(const pass *p, const lora *l, tensor x)
{
    if (!lora_drops(p, l))
        return x;
    tensor out = p->train->dropped;
    out.ne[1] = x.ne[1]; /* uses the start of its memory */
    p->dev->op->dropout(p->dev, out, x, pass_key(p, l->stream), l->dropout);
    return out;
}

static linear_set set_of_one(const linear *l, tensor y)
{
    return (linear_set){ .n = 1, .l = { l }, .y = { y } };
}

/* ---- sets: n linears of one x ---- */

/* Whether the A of a set can be multiplied as one matrix [n R,I]; A x is then [T,n R]. */
static bool loras_joined(const pass *p, const linear_set *s)
{
    for (int i = 0; i < s->n; i++) {
        const lora *l = s->l[i]->lora, *before = i ? s->l[i - 1]->lora : l;
        const char *end = i ? (const char *)before->a.data + tensor_bytes(&before->a) : NULL;
        if (!l || (s->n > 1 && lora_drops(p, l)) || l->a.ne[0] != before->a.ne[0] ||
            l->scale != before->scale || (i && l->a.data != (void *)end))
            return false;
    }
    return true;
}

static tensor joined_a(const linear_set *s, const lora *first)
{
    tensor a = first->a;
    a.ne[0] *= s->n;
    return a;
}

/* `room` cut to A x or B^T dy of a set: [T,n R]. */
static tensor lora_mid(tensor room, const linear_set *s)
{
    room.ne[1] = s->n * s->l[0]->lora->a.ne[0];
    return room;
}

/* Columns [i R, (i + 1) R) of it, those of the i-th linear; their `ld` is the width of `mid`. */
static tensor lora_cols(tensor mid, const linear_set *s, int i)
{
    int64_t r = s->l[0]->lora->a.ne[0];
    mid.data = (char *)mid.data + (size_t)(i * r) * dtype_block_bytes(mid.dt);
    mid.ne[1] = r;
    return mid;
}

/* scale A x of a set. The scale is applied here, so that B times this is added as it is. */
static tensor lora_a_fwd(const pass *p, const linear_set *s, tensor x)
{
    const lora *l = s->l[0]->lora;
    tensor ax = lora_mid(s->ax.data ? s->ax : p->mid, s);
    p->dev->op->matmul(p->dev, &(mm){ .out = ax, .a = x, .b = joined_a(s, l), .scale = l->scale });
    return ax;
}

/* The term B (scale A x) of each linear of a set. Where the A are not joined, each uses a part of
 * p->mid for A x. A partial activation checkpoint has kept A x. */
static void lora_fwd(const pass *p, const linear_set *s, mm_pair *out, tensor x)
{
    tensor ax = { 0 };
    bool together = loras_joined(p, s);
    if (together && s->ax.data && pass_has_partial(p))
        ax = lora_mid(s->ax, s);
    else if (together)
        ax = lora_a_fwd(p, s, lora_input(p, s->l[0]->lora, x));
    for (int i = 0; i < s->n; i++) {
        const lora *l = s->l[i]->lora;
        if (!l)
            continue;
        linear_set one = { .n = 1, .l = { s->l[i] }, .ax = p->mid };
        one.ax.data = (char *)p->mid.data + (size_t)i * (tensor_bytes(&p->mid) / LINEARS);
        if (!together)
            ax = lora_a_fwd(p, &one, lora_input(p, l, x));
        out[i] = (mm_pair){ .a = together ? lora_cols(ax, s, i) : ax, .b = l->b, .a_ld = ax.ne[1] };
    }
}

/* ---- served adapters ---- */

static tensor row_range(tensor t, int64_t first, int64_t n)
{
    t.data = (char *)t.data + (size_t)(first * t.ne[1]) * dtype_block_bytes(t.dt);
    t.ne[0] = n;
    return t;
}

/* scale A x of the rows of each served adapter, in its columns of the bank; zeros elsewhere.
 * Sequences of one served adapter that follow each other are one product. */
static tensor bank_a_fwd(const pass *p, const lora_bank *bank, tensor ax, tensor x)
{
    const ops *op = p->dev->op;
    const pass_host *h = &p->host;
    ax.ne[1] = bank->b.ne[1];
    op->zero(p->dev, ax.data, tensor_bytes(&ax));
    for (int32_t s = 0, end; s < p->n_seqs; s = end) {
        int32_t adapter = h->adapter_of_seq[s];
        for (end = s + 1; end < p->n_seqs && h->adapter_of_seq[end] == adapter;)
            end++;
        const bank_part *part = adapter ? &bank->parts[adapter - 1] : NULL;
        if (!part || !part->a.data)
            continue;
        int64_t first = h->starts[s], n = h->starts[end] - first;
        tensor out = row_range(ax, first, n);
        out.data = (char *)out.data + (size_t)part->first * dtype_block_bytes(out.dt);
        out.ne[1] = part->a.ne[0];
        op->matmul(p->dev, &(mm){ .out = out,
                                  .out_ld = ax.ne[1],
                                  .a = row_range(x, first, n),
                                  .b = part->a,
                                  .scale = part->scale });
    }
    return ax;
}

/* The term B (scale A x) of the bank of the i-th linear of a set; each uses a part of p->bank_mid.
 */
static mm_pair bank_fwd(const pass *p, const linear_set *s, int i, tensor x)
{
    const lora_bank *bank = s->l[i]->bank;
    tensor ax = p->bank_mid;
    ax.data = (char *)ax.data + (size_t)i * (tensor_bytes(&p->bank_mid) / LINEARS);
    return (mm_pair){ .a = bank_a_fwd(p, bank, ax, x), .b = bank->b };
}

void linears_fwd(const pass *p, const linear_set *s, tensor x)
{
    enum { TERMS = 2 }; /* the model's own LoRA, and those of served adapters */
    mm_pair own[LINEARS], terms[LINEARS][TERMS];
    mm products[LINEARS];
    int n = 0;
    lora_fwd(p, s, own, x);
    for (int i = 0; i < s->n; i++) {
        int n_more = 0;
        if (s->l[i]->lora)
            terms[i][n_more++] = own[i];
        if (s->l[i]->bank && p->host.any_adapter)
            terms[i][n_more++] = bank_fwd(p, s, i, x);
        if (s->y[i].data)
            products[n++] = (mm){ .out = s->y[i],
                                  .a = x,
                                  .b = s->l[i]->w,
                                  .more = terms[i],
                                  .n_more = n_more,
                                  .bias = s->l[i]->bias,
                                  .scale = 1 };
    }
    p->dev->op->matmuls(p->dev, products, n);
}

void linear_fwd(const pass *p, const linear *l, tensor out, tensor x)
{
    linear_set s = set_of_one(l, out);
    linears_fwd(p, &s, x);
}

/* ---- backward ---- */

/* Gradients of W and the bias. */
static void base_grads(const pass *p, const linear *g, tensor dy, tensor x)
{
    const ops *op = p->dev->op;
    if (g->w.data)
        op->matmul(
            p->dev,
            &(mm){ .layout = MM_TN, .out = g->w, .a = dy, .b = x, .scale = 1, .accumulate = true });
    if (g->bias.data)
        op->sum_rows(p->dev, g->bias, dy);
}

/* scale B^T dy of a set. */
static tensor lora_b_bwd(const pass *p, const linear_set *s)
{
    tensor db = lora_mid(p->train->grads.mid, s);
    for (int i = 0; i < s->n; i++)
        p->dev->op->matmul(p->dev, &(mm){ .layout = MM_NN,
                                          .out = lora_cols(db, s, i),
                                          .out_ld = db.ne[1],
                                          .a = s->y[i],
                                          .b = s->l[i]->lora->b,
                                          .scale = s->l[i]->lora->scale });
    return db;
}

/* dB += dy^T (scale A x), dA += db^T x. */
static void lora_grads(const pass *p, const linear_set *s, const linear *const *g, tensor x,
                       tensor db)
{
    const ops *op = p->dev->op;
    tensor in = lora_input(p, s->l[0]->lora, x);
    tensor ax = s->ax.data ? lora_mid(s->ax, s) : lora_a_fwd(p, s, in);
    for (int i = 0; i < s->n; i++)
        op->matmul(p->dev, &(mm){ .layout = MM_TN,
                                  .out = g[i]->lora->b,
                                  .a = s->y[i],
                                  .b = lora_cols(ax, s, i),
                                  .b_ld = ax.ne[1],
                                  .scale = 1,
                                  .accumulate = true });
    op->matmul(p->dev, &(mm){ .layout = MM_TN,
                              .out = joined_a(s, g[0]->lora),
                              .a = db,
                              .b = in,
                              .scale = 1,
                              .accumulate = true });
}

/* dx (+)= A^T db + the sum of W^T dy. `frozen`: no W of the set trains. */
static void input_bwd(const pass *p, const linear_set *s, tensor db, const linear_flow *f,
                      bool frozen)
{
    mm_pair more[LINEARS];
    int n = 0, last = s->n - 1;
    if (db.data)
        more[n++] = (mm_pair){ .a = db, .b = joined_a(s, s->l[0]->lora) };
    for (int i = 0; i < last; i++)
        more[n++] = (mm_pair){ .a = s->y[i], .b = s->l[i]->w };
    p->dev->op->matmul(p->dev, &(mm){ .layout = MM_NN,
                                      .out = f->dx,
                                      .a = s->y[last],
                                      .b = s->l[last]->w,
                                      .more = more,
                                      .n_more = n,
                                      .scale = 1,
                                      .accumulate = f->accumulate,
                                      .fp8_terms = frozen && p->train->plan.fp8_grads ? s->n : 0 });
}

/* dx += A^T db through the dropout of x. */
static void dropout_bwd(const pass *p, const lora *l, tensor db, tensor dx)
{
    const ops *op = p->dev->op;
    tensor out = p->train->dropped;
    out.ne[1] = dx.ne[1];
    op->matmul(p->dev, &(mm){ .layout = MM_NN, .out = out, .a = db, .b = l->a, .scale = 1 });
    op->dropout(p->dev, out, out, pass_key(p, l->stream), l->dropout);
    op->add(p->dev, dx, out, 1);
}

void linears_bwd(const pass *p, const linear_set *s, const linear *const *g, linear_flow f)
{
    if (s->n > 1 && !loras_joined(p, s)) {
        for (int i = 0; i < s->n; i++) {
            f.dy = s->y[i];
            linear_bwd(p, s->l[i], g[i], f);
            f.accumulate = true;
        }
        return;
    }
    const lora *l = s->l[0]->lora;
    tensor db = { 0 }, none = { 0 };
    bool frozen = true;
    for (int i = 0; i < s->n; i++) {
        base_grads(p, g[i], s->y[i], f.x);
        frozen = frozen && !g[i]->w.data;
    }
    if (l && (g[0]->lora || f.dx.data))
        db = lora_b_bwd(p, s);
    if (l && g[0]->lora)
        lora_grads(p, s, g, f.x, db);
    if (!f.dx.data)
        return;
    bool dropped = l && lora_drops(p, l);
    input_bwd(p, s, dropped ? none : db, &f, frozen);
    if (dropped)
        dropout_bwd(p, l, db, f.dx);
}

void linear_bwd(const pass *p, const linear *l, const linear *g, linear_flow f)
{
    linear_set s = set_of_one(l, f.dy);
    linears_bwd(p, &s, &g, f);
}

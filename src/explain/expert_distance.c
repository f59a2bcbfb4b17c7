#include "explain/expert_distance.h"

#include "backend/memory.h"
#include "base/mem.h"
#include "model/block.h"
#include "model/pass.h"

#include <math.h>

static const memory_need experts_need = { "the outputs of all experts",
                                          "a smaller seq_len needs less" };

static void layout(experts *e, arena *a, int64_t n)
{
    const config *full = &e->full->m->shape.cfg, *small = &e->adapters->m->shape.cfg;
    int32_t width =
        full->moe.expert_dim > small->moe.expert_dim ? full->moe.expert_dim : small->moe.expert_dim;
    dtype dt = e->full->m->shape.act_dt;
    e->in = tensor_take2(a, dt, n, full->dim);
    e->gate = tensor_take2(a, dt, n, width);
    e->up = tensor_take2(a, dt, n, width);
    e->mid = tensor_take2(a, dt, n, width);
    e->f = tensor_take2(a, dt, n, full->dim);
    e->out = tensor_take2(a, dt, n, full->dim);
    e->wide = tensor_take2(a, DT_F32, n, full->dim);
    if (e->full->m->shape.expert_rank)
        e->ax = tensor_take2(a, dt, n, e->full->m->shape.expert_rank);
}

pesc_status experts_open(experts *e, side *a, side *b, thread_pool *pool)
{
    const int32_t max_tokens = (int32_t)a->middle.ne[0];
    side *of[] = { a, b };
    *e = (experts){ 0 };
    for (int i = 0; i < 2; i++) {
        const moe_rule *r = &of[i]->m->shape.cfg.moe, *other = &of[1 - i]->m->shape.cfg.moe;
        bool pair = r->kind == EXPERT_FFN && other->kind == EXPERT_ADAPTER &&
                    !config_adapters_on_experts(&of[1 - i]->m->shape.cfg) &&
                    r->topk.n_experts == other->topk.n_experts &&
                    a->m->shape.act_dt == b->m->shape.act_dt;
        if (pair)
            *e = (experts){
                .full = of[i], .adapters = of[1 - i], .pool = pool, .n = r->topk.n_experts
            };
    }
    if (!e->full)
        return PESC_OK;
    size_t row = (size_t)max_tokens * (size_t)a->m->shape.cfg.dim, n = (size_t)e->n;
    e->outputs = mem_alloc(n * row, sizeof *e->outputs);
    e->one = mem_alloc(row, sizeof *e->one);
    e->parts = mem_alloc((size_t)max_tokens * (n + 1), sizeof *e->parts);
    if (!e->outputs || !e->one || !e->parts)
        return fail_nomem("the outputs of all experts", n * row * sizeof *e->outputs);
    arena mem = { 0 };
    layout(e, &mem, max_tokens);
    TRY(memory_take(&mem, a->m->dev, &experts_need, &e->memory));
    layout(e, &mem, max_tokens);
    return PESC_OK;
}

void experts_close(experts *e)
{
    if (e->memory)
        e->full->m->dev->op->free(e->full->m->dev, e->memory);
    mem_free(e->outputs);
    mem_free(e->one);
    mem_free(e->parts);
    *e = (experts){ 0 };
}

bool experts_in(const experts *e, int32_t layer)
{
    return e->full && e->full->m->shape.w.blocks[layer].sparse &&
           e->adapters->m->shape.w.blocks[layer].sparse;
}

/* ---- outputs ---- */

/* The matrix of expert i in a stack. */
static tensor matrix_of(const tensor *stack, int32_t i)
{
    tensor w = tensor_slice(stack, i, 1);
    return (tensor){ .data = w.data, .dt = w.dt, .nd = 2, .ne = { w.ne[1], w.ne[2] } };
}

/* out [n,O] = x [n,I] W^T with the matrix of expert i in a stack. */
static void expert_product(device *dev, tensor *out, tensor x, const tensor *stack, int32_t i)
{
    tensor w = matrix_of(stack, i);
    out->ne[0] = x.ne[0];
    out->ne[1] = w.ne[0];
    dev->op->matmul(dev, &(mm){ .out = *out, .a = x, .b = w, .scale = 1 });
}

/* out += B (scale A x) of a full expert, where the matrix has a LoRA. */
static void add_lora(const experts *e, tensor out, tensor x, const lora_stack *l, int32_t i)
{
    device *dev = e->full->m->dev;
    const int32_t at = expert_list_at(&l->own, i);
    if (!l->a.data || at < 0)
        return;
    tensor a = matrix_of(&l->a, at), ax = e->ax;
    ax.ne[0] = x.ne[0];
    ax.ne[1] = a.ne[0];
    dev->op->matmul(dev, &(mm){ .out = ax, .a = x, .b = a, .scale = l->scale });
    dev->op->matmul(
        dev,
        &(mm){ .out = out, .a = ax, .b = matrix_of(&l->b, at), .scale = 1, .accumulate = true });
}

static pesc_status download(experts *e, tensor x, float *to)
{
    device *dev = e->full->m->dev;
    tensor wide = tensor_slice(&e->wide, 0, x.ne[0]);
    dev->op->convert(dev, wide, x);
    return dev->op->download(dev, to, wide.data, tensor_bytes(&wide));
}

static pesc_status full_output(experts *e, int32_t layer, int32_t i)
{
    const pesc_model *m = e->full->m;
    const moe *w = &m->shape.w.blocks[layer].moe;
    device *dev = m->dev;
    expert_product(dev, &e->gate, e->in, &w->gate, i);
    add_lora(e, e->gate, e->in, &w->lora_gate, i);
    expert_product(dev, &e->up, e->in, &w->up, i);
    add_lora(e, e->up, e->in, &w->lora_up, i);
    e->mid.ne[0] = e->up.ne[0];
    e->mid.ne[1] = e->up.ne[1];
    dev->op->glu_fwd(dev, e->mid, e->gate, e->up, m->shape.cfg.act);
    expert_product(dev, &e->out, e->mid, &w->down, i);
    add_lora(e, e->out, e->mid, &w->lora_down, i);
    return download(e, e->out, e->one);
}

/* f + s U_i act(D_i f), with f the output of the FFN. */
static pesc_status adapter_output(experts *e, int32_t layer, int32_t i, float *to)
{
    const pesc_model *m = e->adapters->m;
    const moe *w = &m->shape.w.blocks[layer].moe;
    device *dev = m->dev;
    tensor sum = tensor_slice(&e->wide, 0, e->f.ne[0]);
    expert_product(dev, &e->up, e->f, &w->down, i);
    e->mid.ne[0] = e->up.ne[0];
    e->mid.ne[1] = e->up.ne[1];
    dev->op->act_fwd(dev, e->mid, e->up, m->shape.cfg.moe.adapter_act, NULL);
    expert_product(dev, &e->out, e->mid, &w->up, i);
    dev->op->convert(dev, sum, e->f);
    dev->op->add(dev, sum, e->out, m->shape.cfg.moe.adapter_scale);
    return dev->op->download(dev, to, sum.data, tensor_bytes(&sum));
}

/* The inputs, and the FFN of the PESC model over them. Its pass computes its own FFN afterwards. */
static void begin_layer(experts *e, const side *from, int32_t layer)
{
    const pass *p = e->adapters->pass;
    tensor h = from->pass->acts.h;
    device *dev = p->dev;
    e->in.ne[0] = e->f.ne[0] = h.ne[0];
    dev->op->copy(dev, e->in.data, h.data, tensor_bytes(&h));
    ffn_fwd(p, &p->m->w.blocks[layer].ffn, &p->acts.ffn, e->f, e->in);
}

/* ---- distances ---- */

/* |a - b|^2; b NULL: |a|^2. Several partial sums, added in a fixed order: one would wait for each
 * addition before the next. */
static double square_distance(const float *a, const float *b, size_t n)
{
    enum { SUMS = 4 };
    double sums[SUMS] = { 0 };
    for (size_t i = 0; i < n; i++) {
        double d = b ? (double)a[i] - (double)b[i] : (double)a[i];
        sums[i % SUMS] += d * d;
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* Distances of a full expert's output of one token to those of all adapters, then its norm. */
static void compare_token(void *ctx, int64_t token, int worker)
{
    const experts *e = ctx;
    size_t dim = (size_t)e->in.ne[1], all = (size_t)tensor_count(&e->in);
    size_t n = (size_t)e->n, at = (size_t)token * dim;
    double *to = e->parts + (size_t)token * (n + 1);
    (void)worker;
    for (size_t j = 0; j < n; j++)
        to[j] = square_distance(e->one + at, e->outputs + j * all + at, dim);
    to[n] = square_distance(e->one + at, NULL, dim);
}

pesc_status experts_add(experts *e, const side *from, int32_t layer, experts_sums *sums)
{
    begin_layer(e, from, layer);
    size_t all = (size_t)tensor_count(&e->in), n = (size_t)e->n;
    int64_t tokens = e->in.ne[0];
    for (int32_t j = 0; j < e->n; j++)
        TRY(adapter_output(e, layer, j, e->outputs + (size_t)j * all));
    for (int32_t i = 0; i < e->n; i++) {
        TRY(full_output(e, layer, i));
        thread_for(e->pool, tokens, compare_token, e);
        for (int64_t t = 0; t < tokens; t++) {
            const double *part = e->parts + (size_t)t * (n + 1);
            for (size_t j = 0; j < n; j++)
                sums->distance[(size_t)i * n + j] += part[j];
            sums->norm[i] += part[n];
        }
    }
    return PESC_OK;
}

void experts_mean(const experts *e, const experts_sums *sums, double *same, double *nearest)
{
    *same = *nearest = 0;
    for (int32_t i = 0; i < e->n; i++) {
        const double *row = sums->distance + (size_t)i * (size_t)e->n;
        double least = row[0], scale = sums->norm[i] * e->n * (double)e->n;
        for (int32_t j = 1; j < e->n; j++)
            least = fmin(least, row[j]);
        *same += row[i] > 0 ? sqrt(row[i] / scale) : 0;
        *nearest += least > 0 ? sqrt(least / scale) : 0;
    }
}

#include "model/layer_input.h"

#include "model/linear.h"
#include "model/pass.h"

#include <math.h>

static const float half_root = 0.70710678118654752F; /* 1 / sqrt(2) */

void layer_input_rows_layout(layer_input_rows *r, arena *mem, const acts_plan *plan)
{
    const int64_t layers = plan->c->n_layers, cols = layers * plan->c->layer_input_dim;
    *r = (layer_input_rows){ 0 };
    if (!cols)
        return;
    r->rows = tensor_take2(mem, plan->dt, plan->n, cols);
    r->raw = tensor_take2(mem, plan->dt, plan->n, cols);
    r->normed = tensor_take2(mem, plan->dt, plan->n, cols);
    if (plan->train)
        r->rstd = tensor_take1(mem, DT_F32, plan->n * layers);
}

void layer_input_layout(layer_input_acts *a, arena *mem, const acts_plan *plan)
{
    const int64_t n = plan->n, dim = plan->c->dim, cols = plan->c->layer_input_dim;
    *a = (layer_input_acts){ 0 };
    if (!cols)
        return;
    a->h = tensor_take2(mem, plan->dt, n, dim);
    a->gate = tensor_take2(mem, plan->dt, n, cols);
    a->mid = tensor_take2(mem, plan->dt, n, cols);
    a->row = tensor_take2(mem, plan->dt, n, cols);
    a->raw = tensor_take2(mem, plan->dt, n, dim);
    if (plan->train)
        a->rstd = tensor_take1(mem, DT_F32, n);
}

/* A row for each token and layer. */
static tensor by_layer(const pass *p, tensor t)
{
    return tensor_view2(&t, t.ne[0] * p->m->cfg.n_layers, p->m->cfg.layer_input_dim);
}

static float proj_scale(const pass *p)
{
    return 1 / sqrtf((float)p->m->cfg.dim);
}

void layer_inputs_fwd(const pass *p)
{
    const layer_inputs *w = &p->m->w.inputs;
    const layer_input_rows *r = &p->inputs;
    const ops *op = p->dev->op;
    if (!r->rows.data)
        return;
    op->convert(p->dev, p->acts.h, p->x);
    op->matmul(p->dev,
               &(mm){ .out = r->raw, .a = p->acts.h, .b = w->proj, .scale = proj_scale(p) });
    op->rmsnorm_fwd(p->dev, &(norm_fwd){ .out = by_layer(p, r->normed),
                                         .x = by_layer(p, r->raw),
                                         .w = w->norm,
                                         .rstd = r->rstd,
                                         .eps = p->m->cfg.norm_eps,
                                         .shift = p->m->cfg.norm_shift });
    op->gather_rows(p->dev, r->rows, w->embed, p->ids, 1);
    op->scale_rows(p->dev, r->rows, (tensor){ 0 }, shape_input_scale(p->m));
    op->add(p->dev, r->rows, r->normed, 1);
    op->scale_rows(p->dev, r->rows, (tensor){ 0 }, half_root);
}

/* A layer's columns of the rows of all, or back. */
static void copy_row(const pass *p, int32_t layer, tensor row, tensor all, bool back)
{
    const int32_t n = (int32_t)row.ne[1], wide = (int32_t)all.ne[1], at = layer * n;
    p->dev->op->copy_heads(p->dev, &(copy_heads){ .dst = back ? all : row,
                                                  .src = back ? row : all,
                                                  .n_heads = 1,
                                                  .n = n,
                                                  .dst_head = back ? wide : n,
                                                  .src_head = back ? n : wide,
                                                  .dst_col = back ? at : 0,
                                                  .src_col = back ? 0 : at });
}

void layer_input_fwd(const pass *p, int32_t layer)
{
    const layer_input *w = &p->m->w.blocks[layer].input;
    const layer_input_acts *a = &p->acts.input;
    copy_row(p, layer, a->row, p->inputs.rows, false);
    linear_fwd(p, &w->gate, a->gate, a->h);
    p->dev->op->glu_fwd(p->dev, a->mid, a->gate, a->row, p->m->cfg.act);
    linear_fwd(p, &w->proj, a->raw, a->mid);
}

void layer_input_bwd(const pass *p, int32_t layer, const block *g, tensor dh, tensor dy)
{
    const layer_input *w = &p->m->w.blocks[layer].input;
    const layer_input_acts *a = &p->acts.input;
    tensor dmid = p->train->grads.glu; /* then the gradient of gate */
    dmid.ne[1] = a->mid.ne[1];
    linear_bwd(p, &w->proj, &g->input.proj, (linear_flow){ .dx = dmid, .dy = dy, .x = a->mid });
    p->dev->op->glu_bwd(p->dev, &(glu_bwd){ .dgate = dmid,
                                            .dup = a->row,
                                            .dy = dmid,
                                            .gate = a->gate,
                                            .up = a->row,
                                            .act = p->m->cfg.act });
    copy_row(p, layer, a->row, p->inputs.normed, true);
    linear_bwd(p, &w->gate, &g->input.gate, (linear_flow){ .dx = dh, .dy = dmid, .x = a->h });
}

/* Of proj, and of the embeddings that it reads; draw is the gradient of its output. */
static void proj_bwd(const pass *p, tensor draw)
{
    const model_shape *m = p->m;
    const transformer *g = &p->train->mirror->of;
    const train_grads *d = &p->train->grads;
    const ops *op = p->dev->op;
    if (g->inputs.proj.data) {
        op->embed(p->dev, p->x, m->w.embed, p->ids);
        op->scale_rows(p->dev, p->x, (tensor){ 0 }, shape_embed_scale(m));
        op->convert(p->dev, p->acts.h, p->x);
        op->matmul(p->dev, &(mm){ .layout = MM_TN,
                                  .out = g->inputs.proj,
                                  .a = draw,
                                  .b = p->acts.h,
                                  .scale = proj_scale(p),
                                  .accumulate = true });
    }
    if (!g->embed.data)
        return;
    op->matmul(p->dev, &(mm){ .layout = MM_NN,
                              .out = d->dh,
                              .a = draw,
                              .b = m->w.inputs.proj,
                              .scale = proj_scale(p) });
    op->add(p->dev, d->dx, d->dh, 1);
}

void layer_inputs_bwd(const pass *p)
{
    const layer_input_rows *r = &p->inputs;
    const layer_inputs *g = &p->train->mirror->of.inputs;
    const ops *op = p->dev->op;
    const tensor d = r->normed;
    if (!r->rows.data || !mirror_inputs(p->train->mirror))
        return;
    op->scale_rows(p->dev, d, (tensor){ 0 }, half_root);
    op->rmsnorm_bwd(p->dev, &(norm_bwd){ .dx = by_layer(p, r->rows),
                                         .dy = by_layer(p, d),
                                         .x = by_layer(p, r->raw),
                                         .w = p->m->w.inputs.norm,
                                         .rstd = r->rstd,
                                         .dw = g->norm,
                                         .shift = p->m->cfg.norm_shift });
    proj_bwd(p, r->rows);
    if (!g->embed.data)
        return;
    op->scale_rows(p->dev, d, (tensor){ 0 }, shape_input_scale(p->m));
    op->embed_bwd(p->dev, g->embed, d, p->ids);
}

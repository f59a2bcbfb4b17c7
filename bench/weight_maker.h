/* weight_maker: random weights of a model, made on its device: a pattern of numbers that all
 * repeat, and of NF4 matrices one of each shape, which others copy. Part of shape.c. */
#ifndef PESC_BENCH_WEIGHT_MAKER_H
#define PESC_BENCH_WEIGHT_MAKER_H

#include "arch/bind.h"
#include "arch/model.h"
#include "base/mem.h"
#include "base/rng.h"

enum { PATTERN = 1 << 22 }; /* numbers */

typedef struct weight_maker {
    device *dev;
    float *normal, *one; /* PATTERN numbers in device memory */
    float *staging;      /* a whole matrix before it is quantised */
    tensor done[16];     /* an NF4 matrix of each shape, which others copy */
    int n_done;
} weight_maker;

static void open_maker(weight_maker *k, device *dev)
{
    float *x = mem_alloc(PATTERN, sizeof *x);
    void *p;
    *k = (weight_maker){ .dev = dev };
    for (int i = 0; i < PATTERN; i++)
        x[i] = 0.02f * rng_normal((rng_key){ 1, 1 }, (uint64_t)i);
    must(dev->op->alloc(dev, PATTERN * sizeof *x, &p));
    k->normal = p;
    dev->op->upload(dev, k->normal, x, PATTERN * sizeof *x);
    for (int i = 0; i < PATTERN; i++)
        x[i] = 1;
    must(dev->op->alloc(dev, PATTERN * sizeof *x, &p));
    k->one = p;
    dev->op->upload(dev, k->one, x, PATTERN * sizeof *x);
    mem_free(x);
}

static void repeat(weight_maker *k, tensor t, const float *pattern)
{
    size_t width = dtype_block_bytes(t.dt);
    for (int64_t at = 0, total = tensor_count(&t), n; at < total; at += n) {
        n = total - at < PATTERN ? total - at : PATTERN;
        tensor to = { (char *)t.data + (size_t)at * width, t.dt, 1, { n } };
        tensor from = { (void *)(uintptr_t)pattern, DT_F32, 1, { n } };
        if (t.dt == DT_F32)
            k->dev->op->copy(k->dev, to.data, from.data, (size_t)n * width);
        else
            k->dev->op->convert(k->dev, to, from);
    }
}

static void quantise(weight_maker *k, tensor t)
{
    device *dev = k->dev;
    for (int i = 0; i < k->n_done; i++)
        if (k->done[i].ne[0] == t.ne[0] && k->done[i].ne[1] == t.ne[1]) {
            dev->op->copy(dev, t.data, k->done[i].data, tensor_bytes(&t));
            return;
        }
    tensor x = { k->staging, DT_F32, 2, { t.ne[0], t.ne[1] } };
    repeat(k, x, k->normal);
    dev->op->quantize_nf4(dev, t, x, true);
    if (k->n_done < 16)
        k->done[k->n_done++] = t;
}

/* The weights of one layer that are in the host's memory; layer -1: all others. */
static void fill_layer(weight_maker *k, pesc_model *m, int32_t layer)
{
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);) {
        tensor t = bind_tensor(&m->shape.w, &s);
        if ((m->hook && layer_hook_has(&s) ? s.layer : -1) != layer)
            continue;
        if (t.dt == DT_NF4)
            quantise(k, t);
        else
            repeat(k, t, s.rule->init == INIT_ONE ? k->one : k->normal);
    }
}

static void fill(weight_maker *k, pesc_model *m)
{
    int64_t most = 1;
    void *p;
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);)
        most = slot_count(&s) > most ? slot_count(&s) : most;
    must(k->dev->op->alloc(k->dev, (size_t)most * sizeof(float), &p));
    k->staging = p;
    fill_layer(k, m, -1);
    for (int32_t i = 0; m->hook && i < m->shape.cfg.n_layers; i++) {
        fill_layer(k, m, i);
        must(m->hook->keep(m->hook, i));
    }
    must(k->dev->op->sync(k->dev));
    k->dev->op->free(k->dev, k->staging);
}

#endif

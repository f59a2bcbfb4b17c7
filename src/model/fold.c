#include "model/fold.h"

#include "model/bind.h"

enum { ROWS = 1024 }; /* of w at a time: a device may need an f32 copy of them */

static linear *linear_of(pesc_model *m, const slot *s)
{
    bool has = s->rule->flags & RULE_LINEAR;
    linear *l = has ? (linear *)(void *)bind_field(m, s) : NULL; /* w is its first member */
    return l && l->lora && dtype_block(l->w.dt) == 1 ? l : NULL;
}

static void fold(device *dev, linear *l)
{
    for (int64_t at = 0, n, rows = l->w.ne[0]; at < rows; at += n) {
        n = rows - at < ROWS ? rows - at : ROWS;
        dev->op->matmul(dev, &(mm){ .layout = MM_NN,
                                    .out = tensor_slice(&l->w, at, n),
                                    .a = tensor_slice(&l->lora->b, at, n),
                                    .b = l->lora->a,
                                    .scale = l->lora->scale,
                                    .accumulate = true });
    }
    l->lora = NULL;
}

pesc_status fold_loras(pesc_model *m)
{
    const ops *op = m->dev->op;
    work_limits most = { .act = DT_F32 };
    linear *l;
    for (slot s = slot_first(); slot_next(&m->cfg, &s);)
        if ((l = linear_of(m, &s)) && ROWS * l->w.ne[1] > most.converted)
            most.converted = ROWS * l->w.ne[1];
    TRY(op->reserve(m->dev, op->scratch_bytes(m->dev, &most)));
    for (slot s = slot_first(); slot_next(&m->cfg, &s);)
        if ((l = linear_of(m, &s)))
            fold(m->dev, l);
    return op->sync(m->dev);
}

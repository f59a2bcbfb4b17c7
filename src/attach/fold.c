#include "attach/fold.h"

#include "arch/bind.h"
#include "attach/attached.h"

enum { ROWS = 1024 }; /* of w at a time: a device may need an f32 copy of them */

static const lora *expert_lora(const pesc_model *m, const lora_stack *stack, int32_t expert)
{
    for (size_t i = 0; i < m->shape.n_loras; i++)
        if (m->shape.loras[i].stack == stack && m->shape.loras[i].expert == expert)
            return &m->shape.loras[i];
    return NULL;
}

/* The LoRA that is to be added to the weight of a slot; NULL: none. */
static const lora *lora_of(pesc_model *m, const slot *s)
{
    const lora_stack *stack = bind_lora_stack(&m->shape.w, s);
    if (dtype_block(bind_field(&m->shape.w, s)->dt) > 1)
        return NULL;
    if (stack)
        return expert_lora(m, stack, s->expert);
    const linear *of = bind_linear(&m->shape.w, s);
    return of ? of->lora : NULL;
}

void fold_lora(device *dev, const tensor *w, const lora *l)
{
    for (int64_t at = 0, n, rows = w->ne[0]; at < rows; at += n) {
        n = rows - at < ROWS ? rows - at : ROWS;
        dev->op->matmul(dev, &(mm){ .layout = MM_NN,
                                    .out = tensor_slice(w, at, n),
                                    .a = tensor_slice(&l->b, at, n),
                                    .b = l->a,
                                    .scale = l->scale,
                                    .accumulate = true });
    }
}

/* What has been added is not applied again. */
static void detach(pesc_model *m, const slot *s)
{
    lora_stack *stack = bind_lora_stack(&m->shape.w, s);
    if (!stack)
        bind_linear(&m->shape.w, s)->lora = NULL;
    else if (expert_list_at(&stack->own, s->expert) + 1 == stack->a.ne[0])
        *stack = (lora_stack){ 0 };
}

pesc_status fold_reserve(device *dev, int64_t columns)
{
    const work_limits most = { .act = DT_F32, .converted = ROWS * columns };
    return dev->op->reserve(dev, dev->op->scratch_bytes(dev, &most));
}

pesc_status fold_loras(pesc_model *m)
{
    const ops *op = m->dev->op;
    int64_t columns = 0;
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);)
        if (lora_of(m, &s) && s.ne[1] > columns)
            columns = s.ne[1];
    TRY(fold_reserve(m->dev, columns));
    m->shape.expert_rank = 0;
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);) {
        const lora *l = lora_of(m, &s);
        const lora_stack *stack = bind_lora_stack(&m->shape.w, &s);
        if (l) {
            tensor w = bind_tensor(&m->shape.w, &s);
            fold_lora(m->dev, &w, l);
            detach(m, &s);
            m->attached->folded = true;
        } else if (stack && stack->a.data && stack->a.ne[1] > m->shape.expert_rank) {
            m->shape.expert_rank = (int32_t)stack->a.ne[1]; /* nf4 */
        }
    }
    return op->sync(m->dev);
}

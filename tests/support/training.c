#include "support/training.h"

#include "support/check.h"
#include "support/golden.h"

training training_open(const char *where, const char *model, const train_spec *spec)
{
    training t = { 0 };
    must(pesc_device_open(&t.dev, where));
    must(pesc_model_open(&t.model, t.dev, golden_path(model), NULL));
    must(params_open(&t.ps, t.model, spec));
    return t;
}

void training_close(training *t)
{
    params_close(t->ps);
    pesc_model_close(t->model);
    pesc_device_close(t->dev);
    *t = (training){ 0 };
}

pesc_train_options training_options(const char *const *data, const char *output)
{
    pesc_train_options o = pesc_train_defaults();
    o.output = output;
    o.data = data;
    o.n_data = 1;
    o.seq_len = 32;
    o.batch = 8;
    o.steps = 4;
    o.lora_r = 2;
    o.lr = 3e-3;
    o.warmup_steps = 0;
    return o;
}

void training_zero_grads(params *p)
{
    p->m->dev->op->zero(p->m->dev, p->grad.data, tensor_bytes(&p->grad));
}

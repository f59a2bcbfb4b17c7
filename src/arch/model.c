#include "arch/model.h"

#include "base/args.h"

void model_keep(pesc_model *m)
{
    __atomic_fetch_add(&m->users, 1, __ATOMIC_RELAXED);
}

pesc_status pesc_model_describe(const pesc_model *m, pesc_model_info *out)
{
    status_clear();
    NEED(m);
    NEED_SIZED(out);
    ARGS_WRITE(out, &m->info);
    return PESC_OK;
}

const pesc_tokenizer *pesc_model_tokenizer(const pesc_model *m)
{
    return m ? m->tok : NULL;
}

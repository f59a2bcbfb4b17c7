#include "infer/ends.h"

#include "base/mem.h"

pesc_status ends_add_ids(text_ends *e, const int32_t *ids, size_t n)
{
    int32_t *more = mem_grow(e->ids, e->n_ids + n + 1, sizeof *more);
    if (!more)
        return fail_nomem("end tokens", (e->n_ids + n) * sizeof *more);
    e->ids = more;
    for (size_t i = 0; i < n; i++)
        e->ids[e->n_ids++] = ids[i];
    return PESC_OK;
}

pesc_status ends_add_model(text_ends *e, const pesc_model *m)
{
    int32_t eos = m->tok ? tokenizer_eos(m->tok) : -1;
    if (m->shape.cfg.n_eos > 0)
        return ends_add_ids(e, m->shape.cfg.eos, (size_t)m->shape.cfg.n_eos);
    return ends_add_ids(e, &eos, eos >= 0);
}

pesc_status ends_add_stops(text_ends *e, const pesc_model *m, const char *const *stops, size_t n)
{
    const char **more = mem_grow(e->texts, e->n_texts + n + 1, sizeof *more);
    if (!more)
        return fail_nomem("stop strings", (e->n_texts + n) * sizeof *more);
    e->texts = more;
    for (size_t i = 0; i < n; i++) {
        int32_t id = m->tok ? tokenizer_added_id(m->tok, stops[i]) : -1;
        if (id >= 0 && tokenizer_is_special(m->tok, id))
            TRY(ends_add_ids(e, &id, 1));
        else
            e->texts[e->n_texts++] = stops[i];
    }
    return PESC_OK;
}

void ends_free(text_ends *e)
{
    mem_free(e->ids);
    mem_free((void *)e->texts);
    *e = (text_ends){ 0 };
}

bool ends_with(const text_ends *e, int32_t id)
{
    for (size_t i = 0; i < e->n_ids; i++)
        if (e->ids[i] == id)
            return true;
    return false;
}

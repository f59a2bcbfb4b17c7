#include "explain/side.h"

#include "backend/memory.h"
#include "base/mem.h"
#include "model/block.h"
#include "model/pass.h"

static const memory_need side_need = { "a comparison", "a smaller seq_len needs less" };

pesc_status side_open(side *s, pesc_model *m, int32_t max_tokens)
{
    const int32_t most = m->dev->head_rows;
    size_t dim = (size_t)m->shape.cfg.dim, vocab = (size_t)m->shape.cfg.vocab;
    *s = (side){ .m = m, .chunk = max_tokens < most ? max_tokens : most };
    s->before = mem_alloc((size_t)max_tokens * dim, sizeof *s->before);
    s->after = mem_alloc((size_t)max_tokens * dim, sizeof *s->after);
    s->logits = mem_alloc((size_t)s->chunk * vocab, sizeof *s->logits);
    if (!s->before || !s->after || !s->logits)
        return fail_nomem("a comparison", (size_t)s->chunk * vocab * sizeof *s->logits);
    arena a = { 0 };
    s->middle = tensor_take2(&a, DT_F32, max_tokens, m->shape.cfg.dim);
    TRY(memory_take(&a, m->dev, &side_need, &s->memory));
    s->middle = tensor_take2(&a, DT_F32, max_tokens, m->shape.cfg.dim);
    pass_limits lim = { .max_tokens = max_tokens, .max_seqs = max_tokens, .max_out = s->chunk };
    return pass_open(&s->pass, m, lim, NULL);
}

void side_close(side *s)
{
    pass_close(s->pass);
    if (s->memory)
        s->m->dev->op->free(s->m->dev, s->memory);
    mem_free(s->before);
    mem_free(s->after);
    mem_free(s->logits);
    *s = (side){ 0 };
}

pesc_status side_start(side *s, const micro_batch *b)
{
    int32_t n = b->n_tokens < s->chunk ? b->n_tokens : s->chunk;
    int32_t *rows = mem_alloc((size_t)n, sizeof *rows);
    if (!rows)
        return fail_nomem("rows", (size_t)n * sizeof *rows);
    for (int32_t i = 0; i < n; i++)
        rows[i] = i;
    pesc_status st = pass_set(s->pass, b->seqs, b->n_seqs, rows, n);
    mem_free(rows);
    if (st == PESC_OK)
        model_embed(s->pass);
    return st;
}

void side_attention(side *s, int32_t layer)
{
    block_attention_fwd(s->pass, layer, s->pass->x);
}

pesc_status side_ffn(side *s, int32_t layer)
{
    pass *p = s->pass;
    device *dev = p->dev;
    size_t bytes = tensor_bytes(&p->x);
    dev->op->copy(dev, s->middle.data, p->stream.x.data, bytes);
    block_ffn_fwd(p, layer);
    block_flush(p);
    TRY(dev->op->download(dev, s->before, s->middle.data, bytes));
    return dev->op->download(dev, s->after, p->x.data, bytes);
}

pesc_status side_head(side *s, int32_t first, int32_t n)
{
    pass *p = s->pass;
    device *dev = p->dev;
    ASSERT(n > 0 && n <= p->n_out && first + n <= p->n);
    for (int32_t i = 0; i < n; i++)
        p->host.rows[i] = first + i;
    dev->op->upload(dev, p->rows.data, p->host.rows, (size_t)n * sizeof *p->host.rows);
    tensor logits = model_head(p, tensor_slice(&p->rows, 0, n), (tensor){ 0 });
    TRY(dev->op->download(dev, s->logits, logits.data, tensor_bytes(&logits)));
    return weights_check(s->m->dir->ws); /* a mapped file may have been truncated meanwhile */
}

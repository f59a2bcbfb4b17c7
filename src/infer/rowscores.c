#include "infer/scheduler_state.h"

#include "base/mem.h"

#include <string.h>

static void layout(row_scores *a, arena *mem)
{
    a->pairs = tensor_take2(mem, DT_I32, a->chunk, 2);
    a->logprobs = tensor_take1(mem, DT_F32, a->chunk);
    a->best = tensor_take1(mem, DT_I32, a->chunk);
}

pesc_status rowscores_open(row_scores *a, device *dev, int32_t chunk)
{
    *a = (row_scores){ .dev = dev, .chunk = chunk };
    arena mem = { 0 };
    layout(a, &mem);
    void *host = NULL;
    TRY(dev->op->alloc_host(dev, 2 * (size_t)chunk * sizeof *a->host, &host));
    a->host = host;
    TRY(dev->op->alloc(dev, mem.used, &a->memory));
    mem = (arena){ .base = a->memory, .size = mem.used };
    layout(a, &mem);
    return PESC_OK;
}

void rowscores_close(row_scores *a)
{
    if (a->dev) {
        a->dev->op->free(a->dev, a->memory);
        a->dev->op->free(a->dev, a->host);
    }
    mem_free(a->all);
}

pesc_status rowscores_add(row_scores *a, int32_t row, int32_t token, void *owner)
{
    if (!mem_room((void **)&a->all, &a->cap, a->n, sizeof *a->all))
        return fail_nomem("rows to score", a->n * sizeof *a->all);
    a->all[a->n++] = (row_score){ .row = row, .token = token, .owner = owner };
    return PESC_OK;
}

static int32_t chunk_at(const row_scores *a, size_t at)
{
    size_t left = a->n - at, most = (size_t)a->chunk;
    return (int32_t)(left < most ? left : most);
}

/* The pairs go to the device in a->host, and the results come back in it. */
static void start_chunk(row_scores *a, size_t at, tensor logits)
{
    device *dev = a->dev;
    int32_t n = chunk_at(a, at);
    size_t bytes = (size_t)n * sizeof *a->host;
    for (int32_t i = 0; i < n; i++) {
        a->host[2 * i] = a->all[at + (size_t)i].row;
        a->host[2 * i + 1] = a->all[at + (size_t)i].token;
    }
    dev->op->upload(dev, a->pairs.data, a->host, 2 * bytes);
    dev->op->token_score(dev, tensor_slice(&a->logprobs, 0, n), tensor_slice(&a->best, 0, n),
                         logits, tensor_slice(&a->pairs, 0, n));
    dev->op->copy(dev, a->host, a->logprobs.data, bytes);
    dev->op->copy(dev, a->host + n, a->best.data, bytes);
}

void rowscores_start(row_scores *a, tensor logits)
{
    if (a->n)
        start_chunk(a, 0, logits);
}

pesc_status rowscores_finish(row_scores *a, tensor logits)
{
    for (size_t at = 0; at < a->n; at += (size_t)a->chunk) {
        if (at) {
            start_chunk(a, at, logits);
            TRY(a->dev->op->sync(a->dev));
        }
        for (int32_t i = 0, n = chunk_at(a, at); i < n; i++) {
            row_score *r = &a->all[at + (size_t)i];
            memcpy(&r->logprob, &a->host[i], 4);
            r->best = a->host[n + i];
            if (r->best < 0)
                return fail(PESC_NUMERIC, "a logit is not finite: the model's weights or its input "
                                          "are damaged");
        }
    }
    return PESC_OK;
}

pesc_status rowscores_compute(row_scores *a, tensor logits)
{
    if (!a->n)
        return PESC_OK;
    rowscores_start(a, logits);
    TRY(a->dev->op->sync(a->dev));
    return rowscores_finish(a, logits);
}

#include "infer/asked.h"

#include "base/mem.h"

#include <string.h>

static void layout(asked_rows *a, arena *mem)
{
    a->pairs = tensor_take2(mem, DT_I32, a->chunk, 2);
    a->logprobs = tensor_take1(mem, DT_F32, a->chunk);
    a->best = tensor_take1(mem, DT_I32, a->chunk);
}

pesc_status asked_open(asked_rows *a, device *dev, int32_t chunk)
{
    *a = (asked_rows){ .dev = dev, .chunk = chunk };
    arena mem = { 0 };
    layout(a, &mem);
    a->host = mem_alloc(2 * (size_t)chunk, sizeof *a->host);
    if (!a->host)
        return fail_nomem("rows to score", 2 * (size_t)chunk * sizeof *a->host);
    TRY(dev->op->alloc(dev, mem.used, &a->memory));
    mem = (arena){ .base = a->memory, .size = mem.used };
    layout(a, &mem);
    return PESC_OK;
}

void asked_close(asked_rows *a)
{
    if (a->memory)
        a->dev->op->free(a->dev, a->memory);
    mem_free(a->host);
    mem_free(a->all);
}

pesc_status asked_add(asked_rows *a, int32_t row, int32_t token, void *owner)
{
    if (a->n == a->cap) {
        size_t cap = a->cap ? 2 * a->cap : (size_t)a->chunk;
        asked_row *all = mem_grow(a->all, cap, sizeof *all);
        if (!all)
            return fail_nomem("rows to score", cap * sizeof *all);
        a->all = all;
        a->cap = cap;
    }
    a->all[a->n++] = (asked_row){ .row = row, .token = token, .owner = owner };
    return PESC_OK;
}

/* The pairs go to the device in a->host, and the results come back in it. */
static pesc_status compute_chunk(asked_rows *a, asked_row *at, int32_t n, tensor logits)
{
    device *dev = a->dev;
    size_t bytes = (size_t)n * 4;
    for (int32_t i = 0; i < n; i++) {
        a->host[2 * i] = at[i].row;
        a->host[2 * i + 1] = at[i].token;
    }
    dev->op->upload(dev, a->pairs.data, a->host, 2 * bytes);
    dev->op->token_score(dev, tensor_slice(&a->logprobs, 0, n), tensor_slice(&a->best, 0, n),
                         logits, tensor_slice(&a->pairs, 0, n));
    TRY(dev->op->download(dev, a->host, a->logprobs.data, bytes));
    TRY(dev->op->download(dev, a->host + n, a->best.data, bytes));
    for (int32_t i = 0; i < n; i++) {
        memcpy(&at[i].logprob, &a->host[i], 4);
        at[i].best = a->host[n + i];
        if (at[i].best < 0)
            return fail(PESC_NUMERIC, "a logit is not finite: the model's weights or its input "
                                      "are damaged");
    }
    return PESC_OK;
}

pesc_status asked_compute(asked_rows *a, tensor logits)
{
    for (size_t at = 0; at < a->n; at += (size_t)a->chunk) {
        size_t left = a->n - at, most = (size_t)a->chunk;
        TRY(compute_chunk(a, a->all + at, (int32_t)(left < most ? left : most), logits));
    }
    return PESC_OK;
}

/* POST /v1/embeddings. */
#include "base/mem.h"
#include "infer/embedding.h"
#include "serve/api/response.h"

#include <string.h>

static size_t dim_of(const call *c)
{
    return (size_t)c->x->srv->m->shape.cfg.dim;
}

bool embeddings_open(call *c, api_error *e)
{
    int64_t dimensions = c->api.dimensions;
    size_t dim = dim_of(c);
    if (dimensions > (int64_t)dim)
        return api_refuse(e, 400, NULL, "dimensions",
                          "dimensions: found %lld, expected at most %zu, the size of the model",
                          (long long)dimensions, dim);
    c->vectors = mem_alloc(c->prompts.n * dim, sizeof *c->vectors);
    return c->vectors || api_failed(e, fail_nomem("embeddings", c->prompts.n * dim));
}

pesc_status embeddings_next(call *c, bool *more)
{
    pesc_server *s = c->x->srv;
    const id_list *p = &c->prompts.all[c->n_vectors].ids;
    float *v = c->vectors + c->n_vectors * dim_of(c);
    if (!s->embedder) {
        TRY(embed_pooling_of(s->m, &s->pooling));
        TRY(embedder_open(&s->embedder, s->m, s->context));
    }
    TRY(embedder_run(s->embedder, p->ids, (int32_t)p->n, c->model->adapter, s->pooling, v));
    if (c->api.dimensions > 0)
        embed_normalise(v, (size_t)c->api.dimensions);
    *more = ++c->n_vectors < c->prompts.n;
    return PESC_OK;
}

static void put_base64(const unsigned char *from, size_t n, str *out)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        size_t k = n - i < 3 ? n - i : 3;
        uint32_t bits = (uint32_t)from[i] << 16;
        bits |= k > 1 ? (uint32_t)from[i + 1] << 8 : 0;
        bits |= k > 2 ? from[i + 2] : 0;
        for (size_t j = 0; j < 4; j++)
            str_putc(out, j <= k ? letters[bits >> (18 - 6 * j) & 63] : '=');
    }
}

/* Little-endian numbers of 4 bytes. */
static json_t *as_base64(const float *v, size_t n)
{
    str bytes = { 0 }, text = { 0 };
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &v[i], sizeof bits);
        for (int k = 0; k < 32; k += 8)
            str_putc(&bytes, (char)(bits >> k & 0xff));
    }
    put_base64((const unsigned char *)bytes.p, bytes.n, &text);
    json_t *out = json_stringn(text.p, text.n);
    str_free(&bytes);
    str_free(&text);
    return out;
}

static json_t *as_list(const float *v, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_real((double)v[i]));
    return list;
}

void embeddings_whole(const call *c, str *out)
{
    size_t dim = dim_of(c), n = c->api.dimensions > 0 ? (size_t)c->api.dimensions : dim;
    json_t *data = json_array();
    for (size_t i = 0; i < c->n_vectors; i++) {
        const float *v = c->vectors + i * dim;
        json_array_append_new(data, json_pack("{s:s, s:I, s:o}", "object", "embedding", "index",
                                              (json_int_t)i, "embedding",
                                              c->api.base64 ? as_base64(v, n) : as_list(v, n)));
    }
    json_int_t tokens = (json_int_t)c->prompt_tokens;
    bool good = json_array_size(data) == c->n_vectors;
    json_t *v =
        json_pack("{s:s, s:s, s:o, s:{s:I, s:I}}", "object", "list", "model", c->model->name,
                  "data", data, "usage", "prompt_tokens", tokens, "total_tokens", tokens);
    if (v && good)
        json_put(out, v, JSON_COMPACT);
    json_decref(v);
}

#include "format/gguf_write.h"

#include "base/io.h"
#include "base/mem.h"
#include "base/str.h"
#include "format/gguf_file.h"

#include <string.h>

enum { VERSION = 3, ALIGNMENT = 32 };

struct gguf_writer {
    char *path;
    io_writer *file;
    str values, tensors; /* the two lists of the header */
    uint64_t n_values, n_tensors;
    uint64_t *bytes; /* of each tensor */
    size_t cap;
    uint64_t data;    /* of all tensors, with padding */
    uint64_t current; /* tensor that is written */
    uint64_t done;    /* bytes of it */
    bool failed;      /* no memory */
};

/* ggml's numbers of the dtypes that are written. */
static uint32_t type_number(dtype dt)
{
    static const uint8_t numbers[DT_COUNT] = {
        [DT_F32] = 0,   [DT_F16] = 1,   [DT_Q4_0] = 2,  [DT_Q8_0] = 8,
        [DT_Q4_K] = 12, [DT_Q6_K] = 14, [DT_BF16] = 30,
    };
    ASSERT(dt == DT_F32 || numbers[dt]);
    return numbers[dt];
}

pesc_status gguf_writer_open(gguf_writer **out, const char *path)
{
    *out = NULL;
    gguf_writer *w = mem_zalloc(1, sizeof *w);
    if (!w || !(w->path = mem_strdup(path))) {
        mem_free(w);
        return fail_nomem(path, sizeof *w);
    }
    *out = w;
    return PESC_OK;
}

void gguf_writer_abort(gguf_writer *w)
{
    if (!w)
        return;
    io_writer_abort(w->file);
    str_free(&w->values);
    str_free(&w->tensors);
    mem_free(w->bytes);
    mem_free(w->path);
    mem_free(w);
}

/* ---- metadata ---- */

static void put_u32(str *s, uint32_t v)
{
    str_add(s, (const char *)&v, sizeof v);
}

static void put_u64(str *s, uint64_t v)
{
    str_add(s, (const char *)&v, sizeof v);
}

static void put_text(str *s, const char *text, size_t n)
{
    put_u64(s, n);
    str_add(s, text, n);
}

static str *put_key(gguf_writer *w, const char *key, gguf_type type)
{
    put_text(&w->values, key, strlen(key));
    put_u32(&w->values, (uint32_t)type);
    w->n_values++;
    return &w->values;
}

static str *put_array(gguf_writer *w, const char *key, gguf_type type, size_t n)
{
    str *s = put_key(w, key, GGUF_ARRAY);
    put_u32(s, (uint32_t)type);
    put_u64(s, n);
    return s;
}

void gguf_put_text(gguf_writer *w, const char *key, const char *text)
{
    put_text(put_key(w, key, GGUF_STRING), text, strlen(text));
}

void gguf_put_u32(gguf_writer *w, const char *key, int64_t value)
{
    put_u32(put_key(w, key, GGUF_U32), (uint32_t)value);
}

void gguf_put_f32(gguf_writer *w, const char *key, double value)
{
    float f = (float)value;
    str_add(put_key(w, key, GGUF_F32), (const char *)&f, sizeof f);
}

void gguf_put_bool(gguf_writer *w, const char *key, bool value)
{
    str_putc(put_key(w, key, GGUF_BOOL), value);
}

void gguf_put_i32s(gguf_writer *w, const char *key, gguf_each each, const void *ctx, int32_t n)
{
    str *s = put_array(w, key, GGUF_I32, (size_t)n);
    for (int32_t i = 0; i < n; i++)
        put_u32(s, (uint32_t)each(ctx, i));
}

void gguf_put_bools(gguf_writer *w, const char *key, gguf_each each, const void *ctx, int32_t n)
{
    str *s = put_array(w, key, GGUF_BOOL, (size_t)n);
    for (int32_t i = 0; i < n; i++)
        str_putc(s, each(ctx, i) != 0);
}

static void put_tokens(gguf_writer *w, const gguf_vocab *v)
{
    str *s = put_array(w, "tokenizer.ggml.tokens", GGUF_STRING, v->n);
    for (size_t i = 0; i < v->n; i++)
        put_text(s, v->tokens[i], v->token_bytes[i]);
    if (v->types) {
        s = put_array(w, "tokenizer.ggml.token_type", GGUF_I32, v->n);
        str_add(s, (const char *)v->types, v->n * sizeof *v->types);
    }
    if (v->scores) {
        s = put_array(w, "tokenizer.ggml.scores", GGUF_F32, v->n);
        str_add(s, (const char *)v->scores, v->n * sizeof *v->scores);
    }
    if (v->n_merges) {
        s = put_array(w, "tokenizer.ggml.merges", GGUF_STRING, v->n_merges);
        for (size_t i = 0; i < v->n_merges; i++)
            put_text(s, v->merges[i], strlen(v->merges[i]));
    }
}

void gguf_put_vocab(gguf_writer *w, const gguf_vocab *v)
{
    const struct {
        const char *key;
        int64_t id;
    } ids[] = {
        { "tokenizer.ggml.bos_token_id", v->bos },
        { "tokenizer.ggml.eos_token_id", v->eos },
        { "tokenizer.ggml.padding_token_id", v->pad },
        { "tokenizer.ggml.unknown_token_id", v->unk },
    };
    gguf_put_text(w, "tokenizer.ggml.model", v->model);
    if (v->pre)
        gguf_put_text(w, "tokenizer.ggml.pre", v->pre);
    if (v->json)
        put_text(put_key(w, "tokenizer.huggingface.json", GGUF_STRING), v->json, v->json_bytes);
    if (v->n)
        put_tokens(w, v);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (ids[i].id >= 0)
            gguf_put_u32(w, ids[i].key, ids[i].id);
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", v->add_bos);
    gguf_put_bool(w, "tokenizer.ggml.add_eos_token", v->add_eos);
    gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", v->add_space_prefix);
    if (v->remove_extra_whitespaces)
        gguf_put_bool(w, "tokenizer.ggml.remove_extra_whitespaces", true);
    if (v->chat_template)
        gguf_put_text(w, "tokenizer.chat_template", v->chat_template);
}

/* ---- tensors ---- */

static uint64_t align(uint64_t n)
{
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void gguf_put_tensor(gguf_writer *w, const gguf_spec *spec)
{
    uint64_t n = 1;
    size_t bytes;
    put_text(&w->tensors, spec->name, strlen(spec->name));
    put_u32(&w->tensors, (uint32_t)spec->nd);
    for (int32_t i = spec->nd; i-- > 0;) {
        put_u64(&w->tensors, (uint64_t)spec->ne[i]);
        n *= (uint64_t)spec->ne[i];
    }
    put_u32(&w->tensors, type_number(spec->dt));
    put_u64(&w->tensors, w->data);
    ASSERT(dtype_bytes(spec->dt, n, &bytes));
    w->failed =
        w->failed || !mem_room((void **)&w->bytes, &w->cap, (size_t)w->n_tensors, sizeof *w->bytes);
    if (!w->failed)
        w->bytes[w->n_tensors] = bytes;
    w->n_tensors++;
    w->data = align(w->data + bytes);
}

uint64_t gguf_writer_bytes(const gguf_writer *w)
{
    return align(24 + w->values.n + w->tensors.n) + w->data;
}

pesc_status gguf_write_header(gguf_writer *w)
{
    str s = { 0 };
    if (w->failed || !str_ok(&w->values) || !str_ok(&w->tensors))
        return fail_nomem(w->path, w->values.n);
    str_puts(&s, "GGUF");
    put_u32(&s, VERSION);
    put_u64(&s, w->n_tensors);
    put_u64(&s, w->n_values);
    str_add(&s, w->values.p, w->values.n);
    str_add(&s, w->tensors.p, w->tensors.n);
    while (str_ok(&s) && s.n % ALIGNMENT)
        str_putc(&s, 0);
    pesc_status st = str_ok(&s) ? io_writer_open(&w->file, w->path) : fail_nomem(w->path, s.n);
    if (st == PESC_OK)
        st = io_reserve(w->file, gguf_writer_bytes(w));
    if (st == PESC_OK)
        st = io_write(w->file, s.p, s.n);
    str_free(&s);
    return st;
}

pesc_status gguf_write(gguf_writer *w, const void *bytes, size_t n)
{
    static const char zeros[ALIGNMENT];
    const char *p = bytes;
    while (n > 0) {
        ASSERT(w->current < w->n_tensors);
        uint64_t size = w->bytes[w->current], left = size - w->done;
        size_t take = n < left ? n : (size_t)left;
        TRY(io_write(w->file, p, take));
        w->done += take;
        p += take;
        n -= take;
        if (w->done == size) {
            TRY(io_write(w->file, zeros, (size_t)(align(size) - size)));
            w->current++;
            w->done = 0;
        }
    }
    return PESC_OK;
}

pesc_status gguf_writer_finish(gguf_writer *w)
{
    ASSERT(w->current == w->n_tensors);
    io_writer *file = w->file;
    w->file = NULL;
    pesc_status s = io_publish(file);
    gguf_writer_abort(w);
    return s;
}

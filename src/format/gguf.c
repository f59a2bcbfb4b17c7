#include "format/gguf_file.h"

#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

/* What a header may ask of us. Real files have some forty entries and at most a few thousand
 * tensors; the bounds keep what a hostile header makes us keep below a few megabytes. */
enum {
    MAX_VALUES = 1 << 16,
    MAX_TENSORS = 1 << 16,
    MAX_KEY = (1 << 16) - 1,
    MAX_TENSOR_NAME = 63, /* as ggml: 64 with a NUL */
    MAX_ALIGNMENT = 1 << 16,
    MIN_VALUE_BYTES = 8 + 1 + 4 + 1, /* length, key, type, value */
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8
};

static const struct {
    const char *name;
    size_t bytes; /* 0: not of fixed size */
} types[GGUF_TYPES] = {
    [GGUF_U8] = { "u8", 1 },       [GGUF_I8] = { "i8", 1 },     [GGUF_U16] = { "u16", 2 },
    [GGUF_I16] = { "i16", 2 },     [GGUF_U32] = { "u32", 4 },   [GGUF_I32] = { "i32", 4 },
    [GGUF_F32] = { "f32", 4 },     [GGUF_BOOL] = { "bool", 1 }, [GGUF_STRING] = { "string", 0 },
    [GGUF_ARRAY] = { "array", 0 }, [GGUF_U64] = { "u64", 8 },   [GGUF_I64] = { "i64", 8 },
    [GGUF_F64] = { "f64", 8 },
};

/* ggml's tensor types by number. Those without a dtype are known by name only. */
static const struct {
    const char *name;
    int dt; /* -1: pesc does not read it */
} tensor_types[] = {
    { "F32", DT_F32 },     { "F16", DT_F16 },   { "Q4_0", DT_Q4_0 },
    { "Q4_1", DT_Q4_1 },   { NULL, -1 },        { NULL, -1 },
    { "Q5_0", DT_Q5_0 },   { "Q5_1", DT_Q5_1 }, { "Q8_0", DT_Q8_0 },
    { "Q8_1", -1 },        { "Q2_K", DT_Q2_K }, { "Q3_K", DT_Q3_K },
    { "Q4_K", DT_Q4_K },   { "Q5_K", DT_Q5_K }, { "Q6_K", DT_Q6_K },
    { "Q8_K", -1 },        { "IQ2_XXS", -1 },   { "IQ2_XS", -1 },
    { "IQ3_XXS", -1 },     { "IQ1_S", -1 },     { "IQ4_NL", DT_IQ4_NL },
    { "IQ3_S", -1 },       { "IQ2_S", -1 },     { "IQ4_XS", DT_IQ4_XS },
    { "I8", -1 },          { "I16", -1 },       { "I32", -1 },
    { "I64", -1 },         { "F64", -1 },       { "IQ1_M", -1 },
    { "BF16", DT_BF16 },   { NULL, -1 },        { NULL, -1 },
    { NULL, -1 },          { "TQ1_0", -1 },     { "TQ2_0", -1 },
    { NULL, -1 },          { NULL, -1 },        { NULL, -1 },
    { "MXFP4", DT_MXFP4 },
};
static const char readable[] =
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4";

/* ---- the walk ---- */

typedef struct cursor {
    const io_map *map;
    size_t at;
} cursor;

static size_t left(const cursor *c)
{
    return c->map->size - c->at;
}

/* n bytes from here, or a sentence. Every read of the header passes through this one comparison. */
static pesc_status take_bytes(cursor *c, uint64_t n, const char *what, const unsigned char **out)
{
    *out = NULL;
    if (n > left(c))
        return fail(PESC_FORMAT,
                    "%s: byte %zu: %s needs %llu bytes, but the file has %zu left; it is "
                    "truncated or damaged",
                    c->map->path, c->at, what, (unsigned long long)n, left(c));
    *out = c->map->data + c->at;
    c->at += (size_t)n;
    return PESC_OK;
}

static pesc_status take_u32(cursor *c, const char *what, uint32_t *out)
{
    const unsigned char *p;
    TRY(take_bytes(c, sizeof *out, what, &p));
    memcpy(out, p, sizeof *out);
    return PESC_OK;
}

static pesc_status take_u64(cursor *c, const char *what, uint64_t *out)
{
    const unsigned char *p;
    TRY(take_bytes(c, sizeof *out, what, &p));
    memcpy(out, p, sizeof *out);
    return PESC_OK;
}

static pesc_status take_text(cursor *c, const char *what, gguf_text *out)
{
    uint64_t n;
    const unsigned char *p;
    TRY(take_u64(c, what, &n));
    TRY(take_bytes(c, n, what, &p));
    *out = (gguf_text){ (const char *)p, (size_t)n };
    return PESC_OK;
}

/* A key or the name of a tensor: 1..max bytes of UTF-8 without NUL. */
static pesc_status take_name(cursor *c, const char *what, size_t max, gguf_text *out)
{
    size_t at = c->at;
    TRY(take_text(c, what, out));
    if (out->n < 1 || out->n > max)
        return fail(PESC_FORMAT, "%s: byte %zu: %s has %zu bytes, expected 1 to %zu", c->map->path,
                    at, what, out->n, max);
    if (memchr(out->p, 0, out->n) || !utf8_valid(out->p, out->n))
        return fail(PESC_FORMAT, "%s: byte %zu: %s '%.*s' is not text", c->map->path, at, what,
                    (int)(out->n < 64 ? out->n : 64), out->p);
    return PESC_OK;
}

/* The elements of one value; fixed sizes in one step, strings one by one. */
static pesc_status take_elements(cursor *c, gguf_value *v)
{
    size_t bytes = types[v->type].bytes, total;
    if (!bytes) {
        v->data = c->map->data + c->at;
        for (size_t i = 0; i < v->count; i++) {
            gguf_text skipped;
            TRY(take_text(c, "a string", &skipped));
        }
        return PESC_OK;
    }
    size_t at = c->at;
    if (!ckd_mul_size(&total, v->count, bytes))
        total = SIZE_MAX;
    TRY(take_bytes(c, total, "a value", &v->data));
    for (size_t i = 0; v->type == GGUF_BOOL && i < v->count; i++)
        if (v->data[i] > 1)
            return fail(PESC_FORMAT, "%s: byte %zu: %.*s is the bool %d, expected 0 or 1",
                        c->map->path, at + i, (int)v->key.n, v->key.p, v->data[i]);
    return PESC_OK;
}

static pesc_status take_type(cursor *c, const gguf_value *v, gguf_type *out)
{
    uint32_t type;
    TRY(take_u32(c, "the type of a value", &type));
    if (type >= GGUF_TYPES)
        return fail(PESC_FORMAT, "%s: byte %zu: %.*s has value type %u, expected 0 to %d",
                    c->map->path, c->at - 4, (int)v->key.n, v->key.p, type, GGUF_TYPES - 1);
    *out = (gguf_type)type;
    return PESC_OK;
}

static pesc_status take_value(cursor *c, gguf_value *v)
{
    TRY(take_name(c, "a metadata key", MAX_KEY, &v->key));
    TRY(take_type(c, v, &v->type));
    v->count = 1;
    v->array = v->type == GGUF_ARRAY;
    if (v->array) {
        uint64_t count;
        TRY(take_type(c, v, &v->type));
        if (v->type == GGUF_ARRAY)
            return fail(PESC_UNSUPPORTED, "%s: byte %zu: %.*s is an array of arrays", c->map->path,
                        c->at - 4, (int)v->key.n, v->key.p);
        TRY(take_u64(c, "the length of an array", &count));
        size_t least = types[v->type].bytes ? types[v->type].bytes : 8;
        if (count > left(c) / least)
            return fail(PESC_FORMAT,
                        "%s: byte %zu: %.*s declares %llu elements of type %s, but the file has "
                        "%zu bytes left; it is truncated or damaged",
                        c->map->path, c->at - 8, (int)v->key.n, v->key.p, (unsigned long long)count,
                        types[v->type].name, left(c));
        v->count = (size_t)count;
    }
    return take_elements(c, v);
}

/* ---- header ---- */

/* A count of things that take at least `least` bytes each. */
static pesc_status take_count(cursor *c, const char *what, size_t least, size_t max, size_t *out)
{
    uint64_t n;
    size_t at = c->at;
    TRY(take_u64(c, what, &n));
    if (n > left(c) / least)
        return fail(PESC_FORMAT,
                    "%s: byte %zu: %s is %llu, but the %zu bytes left hold at most %zu; the file "
                    "is truncated or damaged",
                    c->map->path, at, what, (unsigned long long)n, left(c), left(c) / least);
    if (n > max)
        return fail(PESC_FORMAT, "%s: byte %zu: %s is %llu, expected at most %zu", c->map->path, at,
                    what, (unsigned long long)n, max);
    *out = (size_t)n;
    return PESC_OK;
}

static pesc_status take_version(cursor *c)
{
    const unsigned char *magic;
    uint32_t version;
    TRY(take_bytes(c, 4, "the magic number of GGUF", &magic));
    if (memcmp(magic, "GGUF", 4) != 0)
        return fail(PESC_FORMAT, "%s: byte 0: found %02x %02x %02x %02x, expected 'GGUF'",
                    c->map->path, magic[0], magic[1], magic[2], magic[3]);
    TRY(take_u32(c, "the version of GGUF", &version));
    if (version && version % 65536 == 0)
        return fail(PESC_UNSUPPORTED,
                    "%s: byte 4: is a big-endian GGUF file, expected a "
                    "little-endian one",
                    c->map->path);
    if (version != 2 && version != 3)
        return fail(PESC_UNSUPPORTED, "%s: byte 4: is GGUF version %u, expected 2 or 3",
                    c->map->path, version);
    return PESC_OK;
}

static int by_key(const void *a, const void *b)
{
    const gguf_text *x = &((const gguf_value *)a)->key, *y = &((const gguf_value *)b)->key;
    int order = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

static pesc_status read_values(gguf *g, cursor *c, size_t n)
{
    g->values = mem_zalloc(n ? n : 1, sizeof *g->values);
    if (!g->values)
        return fail_nomem(g->path, n * sizeof *g->values);
    for (g->n_values = 0; g->n_values < n; g->n_values++)
        TRY(take_value(c, &g->values[g->n_values]));
    qsort(g->values, n, sizeof *g->values, by_key);
    for (size_t i = 1; i < n; i++)
        if (by_key(&g->values[i - 1], &g->values[i]) == 0)
            return fail(PESC_FORMAT, "%s: metadata key %.*s is given twice", g->path,
                        (int)g->values[i].key.n, g->values[i].key.p);
    return PESC_OK;
}

/* ---- tensors ---- */

static pesc_status take_tensor_type(cursor *c, gguf_tensor *t)
{
    uint32_t type;
    TRY(take_u32(c, "the type of a tensor", &type));
    const char *name =
        type < sizeof tensor_types / sizeof *tensor_types ? tensor_types[type].name : NULL;
    if (!name)
        return fail(PESC_FORMAT, "%s: byte %zu: tensor %.*s has the unknown type %u", c->map->path,
                    c->at - 4, (int)t->name.n, t->name.p, type);
    if (tensor_types[type].dt < 0)
        return fail(PESC_UNSUPPORTED,
                    "%s: byte %zu: tensor %.*s is %s; pesc reads %s: convert the model to one of "
                    "these",
                    c->map->path, c->at - 4, (int)t->name.n, t->name.p, name, readable);
    t->dt = (dtype)tensor_types[type].dt;
    return PESC_OK;
}

/* Dimensions are stored with the contiguous one first. */
static pesc_status take_shape(cursor *c, gguf_tensor *t)
{
    uint32_t nd;
    TRY(take_u32(c, "the dimensions of a tensor", &nd));
    if (nd < 1 || nd > 4)
        return fail(PESC_FORMAT, "%s: byte %zu: tensor %.*s has %u dimensions, expected 1 to 4",
                    c->map->path, c->at - 4, (int)t->name.n, t->name.p, nd);
    t->nd = (int32_t)nd;
    for (uint32_t i = 0; i < nd; i++) {
        uint64_t n;
        TRY(take_u64(c, "a dimension of a tensor", &n));
        if (n < 1 || n > INT64_MAX)
            return fail(PESC_FORMAT,
                        "%s: byte %zu: dimension %u of tensor %.*s is %llu, expected 1 to 2^63-1",
                        c->map->path, c->at - 8, i, (int)t->name.n, t->name.p,
                        (unsigned long long)n);
        t->ne[nd - 1 - i] = (int64_t)n;
    }
    return PESC_OK;
}

static pesc_status measure(const cursor *c, gguf_tensor *t)
{
    size_t n = 1;
    size_t block = dtype_block(t->dt);
    bool fits = true;
    for (int32_t i = 0; i < t->nd; i++)
        fits = fits && ckd_mul_size(&n, n, (size_t)t->ne[i]);
    if (!fits || n > INT64_MAX)
        return fail(PESC_FORMAT, "%s: tensor %.*s has more than 2^63-1 elements", c->map->path,
                    (int)t->name.n, t->name.p);
    if ((size_t)t->ne[t->nd - 1] % block)
        return fail(PESC_FORMAT,
                    "%s: tensor %.*s has rows of %lld elements, expected a multiple of %zu for %s",
                    c->map->path, (int)t->name.n, t->name.p, (long long)t->ne[t->nd - 1], block,
                    dtype_name(t->dt));
    if (!dtype_bytes(t->dt, n, &t->bytes))
        return fail(PESC_FORMAT, "%s: tensor %.*s has more bytes than memory has addresses",
                    c->map->path, (int)t->name.n, t->name.p);
    return PESC_OK;
}

/* Up to the next multiple of a power of two; false when that wraps. */
static bool align_up(size_t *n, size_t alignment)
{
    if (!ckd_add_size(n, *n, alignment - 1))
        return false;
    *n &= ~(alignment - 1);
    return true;
}

/* Tensors are stored one after the other, each padded to the alignment, in the order of the header:
 * so no two overlap, and only one offset is right. */
static pesc_status place_tensor(cursor *c, gguf_tensor *t, size_t *next, size_t alignment)
{
    uint64_t offset;
    TRY(take_u64(c, "the offset of a tensor", &offset));
    if (offset != *next)
        return fail(PESC_FORMAT,
                    "%s: byte %zu: tensor %.*s is at offset %llu, expected %zu: after the one "
                    "before it, aligned to %zu",
                    c->map->path, c->at - 8, (int)t->name.n, t->name.p, (unsigned long long)offset,
                    *next, alignment);
    if (!ckd_add_size(next, *next, t->bytes) || !align_up(next, alignment))
        return fail(PESC_FORMAT, "%s: tensor %.*s ends beyond what memory can address",
                    c->map->path, (int)t->name.n, t->name.p);
    return PESC_OK;
}

static pesc_status read_tensors(gguf *g, cursor *c, size_t n, size_t alignment)
{
    g->tensors = mem_zalloc(n ? n : 1, sizeof *g->tensors);
    if (!g->tensors)
        return fail_nomem(g->path, n * sizeof *g->tensors);
    size_t next = 0;
    for (g->n_tensors = 0; g->n_tensors < n; g->n_tensors++) {
        gguf_tensor *t = &g->tensors[g->n_tensors];
        t->path = g->path;
        TRY(take_name(c, "a tensor's name", MAX_TENSOR_NAME, &t->name));
        TRY(take_shape(c, t));
        TRY(take_tensor_type(c, t));
        TRY(measure(c, t));
        TRY(place_tensor(c, t, &next, alignment));
    }
    size_t at = c->at;
    if (n && (!align_up(&at, alignment) || at > c->map->size))
        return fail(PESC_FORMAT,
                    "%s: byte %zu: the header ends at the end of the file, expected "
                    "%zu tensors after it; the file is truncated",
                    g->path, c->at, n);
    for (size_t i = 0; i < n; i++) {
        gguf_tensor *t = &g->tensors[i];
        if (t->bytes > g->map->size - at)
            return fail(PESC_FORMAT,
                        "%s: byte %zu: tensor %.*s needs %zu bytes, but the file has %zu left; it "
                        "is truncated or damaged",
                        g->path, at, (int)t->name.n, t->name.p, t->bytes, g->map->size - at);
        t->data = g->map->data + at;
        at += t->bytes;
        if (i + 1 < n && (!align_up(&at, alignment) || at > g->map->size))
            at = g->map->size; /* the next tensor is refused: it has at least one byte */
    }
    return PESC_OK;
}

/* ---- the whole ---- */

static pesc_status read_alignment(const gguf *g, size_t *out)
{
    const gguf_value *v = gguf_find(g, "general.alignment");
    *out = 32;
    if (!v)
        return PESC_OK;
    if (v->array || v->type != GGUF_U32)
        return fail(PESC_FORMAT, "%s: general.alignment: found type %s%s, expected u32", g->path,
                    v->array ? "array of " : "", types[v->type].name);
    uint32_t n;
    memcpy(&n, v->data, sizeof n);
    if (n < 1 || n > MAX_ALIGNMENT || (n & (n - 1)))
        return fail(PESC_FORMAT,
                    "%s: general.alignment: found %u, expected a power of two from 1 to %d",
                    g->path, n, MAX_ALIGNMENT);
    *out = n;
    return PESC_OK;
}

static pesc_status read_header(gguf *g)
{
    cursor c = { g->map, 0 };
    size_t n_tensors, n_values, alignment;
    TRY(take_version(&c));
    TRY(take_count(&c, "the number of tensors", MIN_TENSOR_BYTES, MAX_TENSORS, &n_tensors));
    TRY(take_count(&c, "the number of metadata entries", MIN_VALUE_BYTES, MAX_VALUES, &n_values));
    TRY(read_values(g, &c, n_values));
    TRY(read_alignment(g, &alignment));
    return read_tensors(g, &c, n_tensors, alignment);
}

pesc_status gguf_is(const char *path, bool *out)
{
    io_map *m = NULL;
    *out = str_ends(path, ".gguf");
    if (*out)
        return PESC_OK;
    TRY(io_map_open(&m, path));
    *out = m->size >= 4 && memcmp(m->data, "GGUF", 4) == 0;
    io_map_close(m);
    return PESC_OK;
}

pesc_status gguf_open_file(gguf **out, const char *path)
{
    *out = NULL;
    gguf *g = mem_zalloc(1, sizeof *g);
    if (!g)
        return fail_nomem(path, sizeof *g);
    pesc_status s = io_map_open(&g->map, path);
    if (s == PESC_OK) {
        g->path = g->map->path;
        s = read_header(g);
    }
    if (s == PESC_OK)
        s = io_map_check(g->map);
    if (s == PESC_OK)
        *out = g;
    else
        gguf_close(g);
    return s;
}

pesc_status gguf_open(gguf **out, const char *path)
{
    TRY(gguf_open_file(out, path));
    pesc_status s = gguf_join_parts(*out);
    if (s != PESC_OK) {
        gguf_close(*out);
        *out = NULL;
    }
    return s;
}

void gguf_close(gguf *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->n_rest; i++)
        gguf_close(g->rest[i]);
    mem_free(g->rest);
    if (!g->lent)
        io_map_close(g->map);
    mem_free(g->values);
    mem_free(g->tensors);
    mem_free(g);
}

/* ---- questions ---- */

const char *gguf_type_name(gguf_type t)
{
    return types[t].name;
}

bool gguf_text_is(gguf_text t, const char *s)
{
    return t.n == strlen(s) && memcmp(t.p, s, t.n) == 0;
}

const gguf_value *gguf_find(const gguf *g, const char *key)
{
    gguf_value wanted = { .key = { key, strlen(key) } };
    return bsearch(&wanted, g->values, g->n_values, sizeof *g->values, by_key);
}

const gguf_tensor *gguf_tensor_find(const gguf *g, const char *name)
{
    for (size_t i = 0; i < g->n_tensors; i++)
        if (gguf_text_is(g->tensors[i].name, name))
            return &g->tensors[i];
    return NULL;
}

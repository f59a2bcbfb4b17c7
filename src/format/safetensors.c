/* The reading half of safetensors.h. */
#include "format/safetensors.h"

#include "base/mem.h"
#include "format/fp8.h"
#include "format/jscan.h"

#include <stdlib.h>
#include <string.h>

enum { PREFIX = 8 }; /* the header's length, a little-endian u64 */

/* Where a tensor is in the data part, to find holes and overlaps. */
typedef struct range {
    uint64_t begin, end;
    uint32_t number; /* in the table */
} range;

typedef struct reader {
    jscan j;
    weights *ws;
    const unsigned char *data; /* after the header */
    uint64_t data_bytes;
    range *ranges;
    size_t n, cap;
    bool sorted;
    bool has_metadata;
    str key, word;
} reader;

/* What one tensor's object says. */
typedef struct entry {
    size_t at; /* of its key, for messages */
    weight w;
    uint64_t elements, offsets[2];
} entry;

const char *const safetensors_dtypes[DT_COUNT] = {
    [DT_F32] = "F32", [DT_BF16] = "BF16", [DT_F16] = "F16", [DT_F64] = "F64", [DT_I8] = "I8",
    [DT_I16] = "I16", [DT_I32] = "I32",   [DT_I64] = "I64", [DT_U8] = "U8",   [DT_BOOL] = "BOOL",
};

/* What the format has besides. */
static const char *const other_dtypes[] = { "F4",          "F6_E2M3",     "F6_E3M2", "F8_E5M2",
                                            "F8_E4M3FNUZ", "F8_E5M2FNUZ", "U16",     "U32",
                                            "U64",         "C64" };

/* One byte a number, read as what it stands for: bf16 holds every value. */
static const struct {
    const char *name;
    pesc_status (*read)(const weight *w, int64_t first, int64_t n, float *out);
} bytes_of[] = { { "F8_E4M3", fp8_read_e4m3 }, { "F8_E8M0", fp8_read_e8m0 } };

static pesc_status read_dtype(reader *r, entry *e)
{
    size_t at = r->j.at;
    TRY(jscan_string(&r->j, &r->word));
    for (int i = 0; i < DT_COUNT; i++) {
        if (safetensors_dtypes[i] && strcmp(r->word.p, safetensors_dtypes[i]) == 0) {
            e->w.dt = (dtype)i;
            return PESC_OK;
        }
    }
    for (size_t i = 0; i < sizeof bytes_of / sizeof *bytes_of; i++)
        if (strcmp(r->word.p, bytes_of[i].name) == 0) {
            e->w.dt = DT_U8;
            e->w.read = bytes_of[i].read;
            return PESC_OK;
        }
    for (size_t i = 0; i < sizeof other_dtypes / sizeof *other_dtypes; i++)
        if (strcmp(r->word.p, other_dtypes[i]) == 0)
            return fail(PESC_UNSUPPORTED, "%s: tensor %s: has dtype %s, which pesc does not read",
                        r->j.file, r->key.p, r->word.p);
    return jscan_fail(&r->j, at, "tensor %s: found dtype %.40s, expected F32, BF16, F16, ...",
                      r->key.p, r->word.p);
}

/* Zeros are left out of the overflow check's product, so that [0, 2^62, 4] and [2^62, 4, 0] get the
 * same answer. */
static pesc_status read_shape(reader *r, entry *e)
{
    uint64_t product = 1, d;
    bool empty = false, more;
    size_t at = r->j.at, n = 0;
    TRY(jscan_expect(&r->j, '['));
    for (;;) {
        TRY(jscan_element(&r->j, &n, &more));
        if (!more)
            break;
        if (n > WEIGHTS_MAX_DIMS)
            return jscan_fail(&r->j, at, "tensor %s: found more than %d dimensions", r->key.p,
                              WEIGHTS_MAX_DIMS);
        TRY(jscan_u64(&r->j, &d));
        empty |= d == 0;
        if (d > INT64_MAX || __builtin_mul_overflow(product, d ? d : 1, &product) ||
            product > INT64_MAX)
            return jscan_fail(&r->j, at,
                              "tensor %s: its shape has more elements than 64 bits can count",
                              r->key.p);
        e->w.ne[n - 1] = (int64_t)d;
    }
    e->w.nd = (int32_t)n;
    e->elements = empty ? 0 : product;
    return PESC_OK;
}

static pesc_status read_offsets(reader *r, entry *e)
{
    TRY(jscan_expect(&r->j, '['));
    TRY(jscan_u64(&r->j, &e->offsets[0]));
    TRY(jscan_expect(&r->j, ','));
    TRY(jscan_u64(&r->j, &e->offsets[1]));
    return jscan_expect(&r->j, ']');
}

static pesc_status read_fields(reader *r, entry *e)
{
    static const struct {
        const char *name;
        pesc_status (*read)(reader *r, entry *e);
    } fields[] = {
        { "dtype", read_dtype },
        { "shape", read_shape },
        { "data_offsets", read_offsets },
    };
    enum { N = sizeof fields / sizeof *fields };
    bool seen[N] = { false };
    TRY(jscan_expect(&r->j, '{'));
    for (size_t n = 0;;) {
        bool more;
        size_t at = r->j.at, i = 0;
        TRY(jscan_member(&r->j, &n, &more, &r->word));
        if (!more)
            break;
        while (i < N && strcmp(r->word.p, fields[i].name) != 0)
            i++;
        if (i == N)
            return jscan_fail(
                &r->j, at,
                "tensor %s: found the field %.40s, expected dtype, shape and data_offsets",
                r->key.p, r->word.p);
        if (seen[i])
            return jscan_fail(&r->j, at, "tensor %s: has %s twice", r->key.p, fields[i].name);
        seen[i] = true;
        TRY(fields[i].read(r, e));
    }
    for (size_t i = 0; i < N; i++)
        if (!seen[i])
            return jscan_fail(&r->j, e->at, "tensor %s: has no %s", r->key.p, fields[i].name);
    return PESC_OK;
}

static pesc_status keep_range(reader *r, const entry *e)
{
    if (!mem_room((void **)&r->ranges, &r->cap, r->n, sizeof *r->ranges))
        return fail_nomem(r->j.file, 2 * r->cap * sizeof *r->ranges);
    if (r->n && e->offsets[0] < r->ranges[r->n - 1].end)
        r->sorted = false;
    r->ranges[r->n++] =
        (range){ e->offsets[0], e->offsets[1], (uint32_t)(weights_count(r->ws) - 1) };
    return PESC_OK;
}

static pesc_status read_tensor(reader *r, size_t at)
{
    entry e = { .at = at, .w.file = r->j.file };
    if (r->key.n > WEIGHTS_MAX_NAME)
        return jscan_fail(&r->j, at, "the name of a tensor has %zu bytes, expected at most %d",
                          r->key.n, WEIGHTS_MAX_NAME);
    TRY(read_fields(r, &e));
    uint64_t begin = e.offsets[0], end = e.offsets[1];
    if (begin > end)
        return jscan_fail(&r->j, at, "tensor %s: its data_offsets run backwards", r->key.p);
    if (end > r->data_bytes)
        return jscan_fail(
            &r->j, at, "tensor %s: its data ends at %llu, but the file has only %llu bytes of data",
            r->key.p, (unsigned long long)end, (unsigned long long)r->data_bytes);
    size_t bytes;
    if (!dtype_bytes(e.w.dt, e.elements, &bytes))
        bytes = SIZE_MAX;
    if (bytes != end - begin)
        return jscan_fail(
            &r->j, at,
            "tensor %s: its data_offsets span %llu bytes, but its shape and dtype need %zu",
            r->key.p, (unsigned long long)(end - begin), bytes);
    e.w.name = r->key.p;
    e.w.data = r->data + begin;
    e.w.bytes = bytes;
    if (e.w.read) {
        e.w.dt = DT_BF16;
        e.w.unpermute_heads = -1;
    }
    TRY(weights_add(r->ws, &e.w));
    return keep_range(r, &e);
}

/* __metadata__ is {string: string}; pesc needs none of it. */
static pesc_status read_metadata(reader *r, size_t at)
{
    if (r->has_metadata)
        return jscan_fail(&r->j, at, "__metadata__ is given twice");
    r->has_metadata = true;
    TRY(jscan_expect(&r->j, '{'));
    for (size_t n = 0;;) {
        bool more;
        TRY(jscan_member(&r->j, &n, &more, &r->word));
        if (!more)
            return PESC_OK;
        if (jscan_peek(&r->j) != '"')
            return jscan_fail(&r->j, r->j.at, "__metadata__: %.40s: is not a string", r->word.p);
        TRY(jscan_skip(&r->j));
    }
}

static pesc_status read_header(reader *r)
{
    jscan *j = &r->j;
    while (j->at < j->n && j->text[j->at] == ' ')
        j->at++;
    if (j->at == j->n || j->text[j->at] != '{')
        return jscan_fail(j, j->at,
                          "the header does not begin with '{'; this is not a safetensors file");
    j->at++;
    for (size_t n = 0;;) {
        bool more;
        size_t at = j->at;
        TRY(jscan_member(j, &n, &more, &r->key));
        if (!more)
            break;
        at += j->text[at] == ',';
        if (strcmp(r->key.p, "__metadata__") == 0)
            TRY(read_metadata(r, at));
        else
            TRY(read_tensor(r, at));
    }
    while (j->at < j->n && j->text[j->at] == ' ')
        j->at++;
    return j->at == j->n ? PESC_OK : jscan_fail(j, j->at, "found bytes after the header's end");
}

static int by_place(const void *a, const void *b)
{
    const range *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static pesc_status check_cover(reader *r)
{
    if (!r->sorted)
        qsort(r->ranges, r->n, sizeof *r->ranges, by_place);
    uint64_t at = 0;
    for (size_t i = 0; i < r->n; i++) {
        const range *x = &r->ranges[i];
        if (x->begin != at)
            return fail(PESC_FORMAT,
                        "%s: tensor %s: its data begins at %llu, expected %llu: there is %s",
                        r->j.file, weights_at(r->ws, x->number)->name, (unsigned long long)x->begin,
                        (unsigned long long)at,
                        x->begin > at ? "a hole before it" : "an overlap with another tensor");
        at = x->end;
    }
    if (at != r->data_bytes)
        return fail(PESC_FORMAT,
                    "%s: the tensors end at %llu, but the file has %llu bytes of data: %llu belong "
                    "to no tensor",
                    r->j.file, (unsigned long long)at, (unsigned long long)r->data_bytes,
                    (unsigned long long)(r->data_bytes - at));
    return PESC_OK;
}

pesc_status safetensors_read_map(weights *ws, const io_map *m)
{
    if (m->size < PREFIX)
        return fail(PESC_FORMAT, "%s: has %zu bytes, too few for a safetensors file", m->path,
                    m->size);
    uint64_t header = 0;
    for (int i = PREFIX - 1; i >= 0; i--)
        header = header << 8 | m->data[i];
    if (header > SAFETENSORS_MAX_HEADER)
        return fail(PESC_FORMAT, "%s: byte 0: found a header of %llu bytes, expected at most %d",
                    m->path, (unsigned long long)header, SAFETENSORS_MAX_HEADER);
    if (header > m->size - PREFIX)
        return fail(
            PESC_FORMAT,
            "%s: byte 0: found a header of %llu bytes, but only %zu follow; the file is cut short",
            m->path, (unsigned long long)header, m->size - PREFIX);
    reader r = {
        .j = { .file = m->path,
               .text = (const char *)m->data + PREFIX,
               .n = (size_t)header,
               .base = PREFIX },
        .ws = ws,
        .data = m->data + PREFIX + header,
        .data_bytes = m->size - PREFIX - header,
        .sorted = true,
    };
    pesc_status s = read_header(&r);
    if (s == PESC_OK)
        s = check_cover(&r);
    mem_free(r.ranges);
    str_free(&r.key);
    str_free(&r.word);
    return s;
}

pesc_status safetensors_read(weights *ws, const char *path)
{
    io_map *m;
    TRY(io_map_open(&m, path));
    TRY(weights_add_file(ws, m));
    return safetensors_read_map(ws, m);
}

/* The writing half of safetensors.h. */
#include "format/safetensors.h"

#include "base/mem.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PREFIX = 8, NAME_BYTES = 256 };

struct safetensors_writer {
    safetensors_plan plan;
    uint64_t *bytes;  /* of each tensor */
    uint64_t *offset; /* of each tensor in its file's data */
    uint32_t *shard;  /* of each tensor, from 0 */
    uint32_t n_shards;
    size_t current;   /* tensor */
    uint64_t done;    /* bytes of it */
    io_writer *file;  /* of the shard in progress, or NULL */
    uint32_t opened;  /* shards begun */
    uint64_t data_at; /* where the data begins in it */
};

void safetensors_writer_abort(safetensors_writer *w)
{
    if (!w)
        return;
    io_writer_abort(w->file);
    mem_free(w->bytes);
    mem_free(w->offset);
    mem_free(w->shard);
    mem_free(w);
}

/* ---- the plan ---- */

static void measure(safetensors_writer *w)
{
    uint64_t used = 0;
    for (size_t i = 0; i < w->plan.n; i++) {
        const safetensors_spec *s = &w->plan.specs[i];
        uint64_t n = 1;
        size_t bytes;
        ASSERT(safetensors_dtypes[s->dt] && s->nd >= 0 && s->nd <= WEIGHTS_MAX_DIMS);
        for (int32_t d = 0; d < s->nd; d++)
            ASSERT(s->ne[d] >= 0 && !__builtin_mul_overflow(n, (uint64_t)s->ne[d], &n));
        ASSERT(dtype_bytes(s->dt, n, &bytes));
        w->bytes[i] = bytes;
        if (i && w->plan.shard_bytes && used + bytes > w->plan.shard_bytes) {
            w->n_shards++;
            used = 0;
        }
        w->shard[i] = w->n_shards - 1;
        used += bytes;
    }
}

/* Within a file, wider elements first: so every tensor is aligned to its element. */
static void place_tensors(safetensors_writer *w)
{
    for (size_t first = 0, end; first < w->plan.n; first = end) {
        uint64_t at = 0;
        for (end = first; end < w->plan.n && w->shard[end] == w->shard[first]; end++)
            ;
        for (size_t size = 8; size; size /= 2)
            for (size_t i = first; i < end; i++)
                if (dtype_block_bytes(w->plan.specs[i].dt) == size) {
                    w->offset[i] = at;
                    at += w->bytes[i];
                }
    }
}

pesc_status safetensors_writer_open(safetensors_writer **out, const safetensors_plan *plan)
{
    *out = NULL;
    safetensors_writer *w = mem_zalloc(1, sizeof *w);
    if (!w)
        return fail_nomem(plan->dir, sizeof *w);
    w->plan = *plan;
    w->n_shards = 1;
    w->bytes = mem_zalloc(plan->n, sizeof *w->bytes);
    w->offset = mem_zalloc(plan->n, sizeof *w->offset);
    w->shard = mem_zalloc(plan->n, sizeof *w->shard);
    bool memory = w->bytes && w->offset && w->shard;
    pesc_status s =
        memory ? io_make_dir(plan->dir) : fail_nomem(plan->dir, plan->n * sizeof *w->bytes);
    if (s != PESC_OK) {
        safetensors_writer_abort(w);
        return s;
    }
    measure(w);
    place_tensors(w);
    *out = w;
    return PESC_OK;
}

/* ---- names ---- */

static void shard_name(const safetensors_writer *w, uint32_t shard, char out[NAME_BYTES])
{
    if (w->n_shards == 1)
        snprintf(out, NAME_BYTES, "%s.safetensors", w->plan.stem);
    else
        snprintf(out, NAME_BYTES, "%s-%05" PRIu32 "-of-%05" PRIu32 ".safetensors", w->plan.stem,
                 shard + 1, w->n_shards);
}

static void put_string(str *s, const char *text)
{
    str_putc(s, '"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            str_putc(s, '\\');
        if (c < 0x20)
            str_printf(s, "\\u%04x", c);
        else
            str_putc(s, *text);
    }
    str_putc(s, '"');
}

/* ---- files ---- */

static void put_entry(const safetensors_writer *w, size_t i, str *s)
{
    const safetensors_spec *spec = &w->plan.specs[i];
    str_putc(s, ',');
    put_string(s, spec->name);
    str_printf(s, ":{\"dtype\":\"%s\",\"shape\":[", safetensors_dtypes[spec->dt]);
    for (int32_t d = 0; d < spec->nd; d++)
        str_printf(s, "%s%" PRId64, d ? "," : "", spec->ne[d]);
    str_printf(s, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", w->offset[i],
               w->offset[i] + w->bytes[i]);
}

/* Padded with spaces so that the data begins at a multiple of 8, as the reference does. Sets
 * data_at; *data receives the bytes that follow the header. */
static pesc_status make_header(safetensors_writer *w, uint32_t shard, str *s, uint64_t *data)
{
    *data = 0;
    str_puts(s, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = w->current; i < w->plan.n && w->shard[i] == shard; i++) {
        put_entry(w, i, s);
        *data += w->bytes[i];
    }
    str_putc(s, '}');
    while (str_ok(s) && s->n % PREFIX)
        str_putc(s, ' ');
    w->data_at = PREFIX + s->n;
    if (!str_ok(s))
        return fail_nomem(w->plan.dir, s->n);
    return s->n <= SAFETENSORS_MAX_HEADER
               ? PESC_OK
               : fail(PESC_USAGE, "%s: too many tensors for one file", w->plan.dir);
}

static pesc_status write_header(safetensors_writer *w, uint32_t shard)
{
    str s = { 0 };
    uint64_t data;
    unsigned char length[PREFIX];
    pesc_status st = make_header(w, shard, &s, &data);
    for (int i = 0; i < PREFIX; i++)
        length[i] = (unsigned char)(s.n >> (8 * i));
    if (st == PESC_OK)
        st = io_reserve(w->file, PREFIX + s.n + data);
    if (st == PESC_OK)
        st = io_write(w->file, length, sizeof length);
    if (st == PESC_OK)
        st = io_write(w->file, s.p, s.n);
    str_free(&s);
    return st;
}

static pesc_status open_shard(safetensors_writer *w, uint32_t shard)
{
    char name[NAME_BYTES];
    shard_name(w, shard, name);
    char *path = io_join(w->plan.dir, name);
    if (!path)
        return fail_nomem(w->plan.dir, NAME_BYTES);
    pesc_status s = io_writer_open(&w->file, path);
    mem_free(path);
    TRY(s);
    w->opened = shard + 1;
    return write_header(w, shard);
}

static pesc_status publish_shard(safetensors_writer *w)
{
    io_writer *file = w->file;
    w->file = NULL;
    return file ? io_publish(file) : PESC_OK;
}

/* Steps over finished tensors (empty ones at once) to the one the next byte belongs to, and to its
 * file. */
static pesc_status advance(safetensors_writer *w)
{
    for (;;) {
        bool over = w->current == w->plan.n;
        uint32_t shard = over ? w->n_shards - 1 : w->shard[w->current];
        if (shard + 1 != w->opened) {
            TRY(publish_shard(w));
            TRY(open_shard(w, shard));
        }
        if (over || w->done < w->bytes[w->current])
            return PESC_OK;
        w->current++;
        w->done = 0;
    }
}

pesc_status safetensors_write(safetensors_writer *w, const void *bytes, size_t n)
{
    const char *p = bytes;
    while (n > 0) {
        TRY(advance(w));
        ASSERT(w->current < w->plan.n);
        uint64_t left = w->bytes[w->current] - w->done;
        size_t take = n < left ? n : (size_t)left;
        TRY(io_write_at(w->file, w->data_at + w->offset[w->current] + w->done, p, take));
        w->done += take;
        p += take;
        n -= take;
    }
    return PESC_OK;
}

static pesc_status write_index(const safetensors_writer *w)
{
    uint64_t total = 0;
    char name[NAME_BYTES];
    str s = { 0 };
    for (size_t i = 0; i < w->plan.n; i++)
        total += w->bytes[i];
    str_printf(&s,
               "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {",
               total);
    for (size_t i = 0; i < w->plan.n; i++) {
        shard_name(w, w->shard[i], name);
        str_puts(&s, i ? ",\n    " : "\n    ");
        put_string(&s, w->plan.specs[i].name);
        str_puts(&s, ": ");
        put_string(&s, name);
    }
    str_puts(&s, "\n  }\n}\n");
    snprintf(name, sizeof name, "%s.safetensors.index.json", w->plan.stem);
    char *path = str_ok(&s) ? io_join(w->plan.dir, name) : NULL;
    pesc_status st = path ? io_write_file(path, s.p, s.n) : fail_nomem(w->plan.dir, s.n);
    mem_free(path);
    str_free(&s);
    return st;
}

pesc_status safetensors_writer_finish(safetensors_writer *w)
{
    pesc_status s = advance(w);
    ASSERT(s != PESC_OK || w->current == w->plan.n);
    if (s == PESC_OK)
        s = publish_shard(w);
    if (s == PESC_OK && w->n_shards > 1)
        s = write_index(w);
    safetensors_writer_abort(w);
    return s;
}

/* ---- a file that several processes fill ---- */

static pesc_status open_shared(safetensors_writer *w, bool create)
{
    char name[NAME_BYTES];
    shard_name(w, 0, name);
    char *path = io_join(w->plan.dir, name);
    pesc_status s =
        path ? io_writer_open_shared(&w->file, path, create) : fail_nomem(w->plan.dir, NAME_BYTES);
    mem_free(path);
    return s;
}

pesc_status safetensors_lay_out(const safetensors_plan *plan)
{
    safetensors_writer *w;
    ASSERT(plan->shard_bytes == 0);
    TRY(safetensors_writer_open(&w, plan));
    pesc_status s = open_shared(w, true);
    if (s == PESC_OK)
        s = write_header(w, 0);
    if (s == PESC_OK)
        s = publish_shard(w);
    safetensors_writer_abort(w);
    return s;
}

/* The header only says where the data begins. */
static pesc_status reopen(safetensors_writer *w)
{
    str header = { 0 };
    uint64_t data;
    pesc_status s = make_header(w, 0, &header, &data);
    str_free(&header);
    return s == PESC_OK ? open_shared(w, false) : s;
}

pesc_status safetensors_fill_open(safetensors_writer **out, const safetensors_plan *plan)
{
    TRY(safetensors_writer_open(out, plan));
    pesc_status s = reopen(*out);
    if (s != PESC_OK) {
        safetensors_writer_abort(*out);
        *out = NULL;
    }
    return s;
}

pesc_status safetensors_fill(safetensors_writer *w, size_t tensor, uint64_t at, const void *bytes,
                             size_t n)
{
    ASSERT(tensor < w->plan.n && at + n <= w->bytes[tensor]);
    return io_write_at(w->file, w->data_at + w->offset[tensor] + at, bytes, n);
}

pesc_status safetensors_fill_close(safetensors_writer *w)
{
    pesc_status s = publish_shard(w);
    safetensors_writer_abort(w);
    return s;
}

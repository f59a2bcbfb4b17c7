#include "data/source.h"

#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/datafiles.h"
#include "data/layout.h"
#include "data/unpack.h"
#include "format/parquet.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum {
    STRIDE = 16,       /* records per entry of the index */
    WINDOW = 16 << 20, /* bytes of a file that count as memory in use while it is read through */
    NEAR = 64 << 10,   /* bytes that the kernel maps around each page that is touched */
    TOUCHES = 8        /* as many of them of a large file are read before its pages are dropped */
};

typedef struct file {
    io_map *map;
    size_t given; /* the name it belongs to, of those that source_open() was given */
    layout how;
    parquet *rows; /* NULL: the file is text, of a layout */
    uint64_t hash;
    uint64_t first, count; /* record numbers */
    size_t *anchors;       /* where record first + i * STRIDE begins */
    size_t n_anchors, cap;
    size_t counted; /* bytes whose lines source_where() has counted, */
    uint64_t lines; /* and how many lines they have */
} file;

struct source {
    file *files;
    size_t n;
    char **given; /* [n_given] */
    size_t n_given;
    int64_t unpack_ratio;
    uint64_t count, hash;
    const char *near; /* what was read last of a large file, */
    uint64_t touched; /* and how many places far from the one before */
    char where[512];
    char *shown; /* the row that source_bytes() was asked for */
};

/* Two hashes of the same bytes: of this file alone, and of all files so far. */
typedef struct hashes {
    XXH3_state_t *own, *all;
} hashes;

static void update(const hashes *h, const char *data, size_t n)
{
    XXH3_64bits_update(h->own, data, n);
    XXH3_64bits_update(h->all, data, n);
    io_map_drop(data, n);
}

/* Numbers the records and hashes the bytes in one reading, a window at a time. */
static pesc_status count_records(file *f, const hashes *h)
{
    const char *data = (const char *)f->map->data;
    size_t size = f->map->size, at = f->how.begin, done = 0, begin, end;
    while (layout_next(&f->how, at, &begin, &end)) {
        TRY(layout_check(&f->how, at, begin, f->count));
        if (f->count++ % STRIDE == 0) {
            if (!mem_room((void **)&f->anchors, &f->cap, f->n_anchors, sizeof *f->anchors))
                return fail_nomem(f->map->path, 2 * f->cap * sizeof *f->anchors);
            f->anchors[f->n_anchors++] = begin;
        }
        at = layout_after(&f->how, end);
        if (at < size && at - done > WINDOW) {
            update(h, data + done, at - done);
            done = at;
            log_progress("indexing data", done, size);
        }
    }
    if (done > 0)
        log_progress("indexing data", size, size);
    update(h, data + done, size - done);
    if (f->count == 0)
        return fail(PESC_FORMAT, "%s: is empty: it holds no record", f->map->path);
    TRY(layout_check(&f->how, at, size, f->count));
    return io_map_check(f->map);
}

/* The rows of a Parquet file are counted by its own index. */
static pesc_status count_rows(file *f, const hashes *h, uint64_t most)
{
    const char *data = (const char *)f->map->data;
    size_t size = f->map->size;
    TRY(parquet_open(&f->rows, f->map, most));
    f->count = parquet_rows(f->rows);
    for (size_t done = 0, n; done < size; done += n) {
        n = size - done < WINDOW ? size - done : WINDOW;
        update(h, data + done, n);
        log_progress("indexing data", done + n, size);
    }
    if (f->count == 0)
        return fail(PESC_FORMAT, "%s: is empty: it holds no record", f->map->path);
    return io_map_check(f->map);
}

static pesc_status read_file(source *s, file *f, const char *path, const hashes *h)
{
    XXH3_64bits_reset(h->own);
    XXH3_64bits_reset_withSeed(h->all, s->hash);
    TRY(io_map_open(&f->map, path));
    uint64_t most = unpack_most(f->map->size, s->unpack_ratio);
    TRY(unpack_map(&f->map, s->unpack_ratio));
    if (parquet_is(f->map)) {
        TRY(count_rows(f, h, most));
    } else {
        TRY(layout_open(&f->how, f->map));
        TRY(count_records(f, h));
    }
    f->first = s->count;
    f->hash = XXH3_64bits_digest(h->own);
    s->count += f->count;
    s->hash = XXH3_64bits_digest(h->all);
    return PESC_OK;
}

/* The files of all names, none read yet. */
static pesc_status list_files(source *s, datafiles *files, const char *const *names, size_t n)
{
    s->given = mem_zalloc(n, sizeof *s->given);
    size_t *first = mem_alloc(n + 1, sizeof *first);
    pesc_status st = s->given && first ? PESC_OK : fail_nomem("the list of data files", n);
    for (size_t i = 0; st == PESC_OK && i < n; i++) {
        first[i] = files->n;
        st = datafiles_add(files, names[i]);
        if (st == PESC_OK && !(s->given[s->n_given++] = mem_strdup(names[i])))
            st = fail_nomem("the list of data files", n);
    }
    if (st == PESC_OK && !(s->files = mem_zalloc(files->n, sizeof *s->files)))
        st = fail_nomem("the list of data files", files->n * sizeof(file));
    for (size_t i = 0, k = 0; st == PESC_OK && i < files->n; i++) {
        while (k + 1 < n && first[k + 1] <= i)
            k++;
        s->files[i].given = k;
    }
    mem_free(first);
    return st;
}

pesc_status source_open(source **out, const char *const *names, size_t n, int64_t unpack_ratio)
{
    *out = NULL;
    source *s = mem_zalloc(1, sizeof *s);
    hashes h = { XXH3_createState(), XXH3_createState() };
    datafiles files = { 0 };
    pesc_status st = s && h.own && h.all ? PESC_OK : fail_nomem("the list of data files", n);
    if (st == PESC_OK) {
        s->unpack_ratio = unpack_ratio;
        st = list_files(s, &files, names, n);
    }
    for (; st == PESC_OK && s->n < files.n; s->n++)
        st = read_file(s, &s->files[s->n], files.paths[s->n], &h);
    datafiles_free(&files);
    XXH3_freeState(h.own);
    XXH3_freeState(h.all);
    if (st != PESC_OK) {
        source_close(s);
        return st;
    }
    *out = s;
    return PESC_OK;
}

void source_close(source *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++) {
        layout_free(&s->files[i].how);
        parquet_close(s->files[i].rows);
        io_map_close(s->files[i].map);
        mem_free(s->files[i].anchors);
    }
    for (size_t i = 0; i < s->n_given; i++)
        mem_free(s->given[i]);
    mem_free(s->given);
    mem_free(s->files);
    mem_free(s->shown);
    mem_free(s);
}

uint64_t source_count(const source *s)
{
    return s->count;
}

uint64_t source_hash(const source *s)
{
    return s->hash;
}

size_t source_files(const source *s)
{
    return s->n;
}

uint64_t source_file_first(const source *s, size_t i)
{
    return s->files[i].first;
}

const char *source_file_path(const source *s, size_t i)
{
    return s->files[i].map->path;
}

size_t source_file_given(const source *s, size_t i, const char **name)
{
    *name = s->given[s->files[i].given];
    return s->files[i].given;
}

uint64_t source_file_bytes(const source *s, size_t i)
{
    return s->files[i].map->size;
}

uint64_t source_file_hash(const source *s, size_t i)
{
    return s->files[i].hash;
}

size_t source_file_of(const source *s, uint64_t index)
{
    ASSERT(index < s->count);
    size_t i = 0;
    while (index >= s->files[i].first + s->files[i].count)
        i++;
    return i;
}

/* Records read in random order would in time bring a whole file into memory: so after every few
 * places all pages of a large file are dropped. */
static void forget(source *s, const file *f, const char *bytes)
{
    if (f->map->size <= WINDOW || (bytes >= s->near && bytes < s->near + NEAR))
        return;
    s->near = bytes;
    if (++s->touched % TOUCHES == 0)
        io_map_drop(f->map->data, f->map->size);
}

/* A row as one line of JSON. */
static pesc_status show_row(source *s, const file *f, uint64_t row, const char **bytes, size_t *n)
{
    json_t *v;
    str text = { 0 };
    TRY(parquet_row(f->rows, row, &v));
    json_put(&text, v, JSON_COMPACT);
    json_decref(v);
    mem_free(s->shown);
    s->shown = text.p;
    *bytes = text.p;
    *n = text.n;
    return str_ok(&text) ? PESC_OK : fail_nomem("a row", text.n);
}

pesc_status source_bytes(source *s, uint64_t index, const char **bytes, size_t *n)
{
    file *f = &s->files[source_file_of(s, index)];
    uint64_t local = index - f->first;
    if (f->rows)
        return show_row(s, f, local, bytes, n);
    size_t begin = 0, end = 0, at = f->anchors[local / STRIDE];
    for (uint64_t i = 0; i <= local % STRIDE; i++) {
        if (!layout_next(&f->how, at, &begin, &end))
            return fail(PESC_IO, "%s: record %llu is gone: the file changed while in use",
                        f->map->path, (unsigned long long)local);
        at = layout_after(&f->how, end);
    }
    *bytes = (const char *)f->map->data + begin;
    *n = end - begin;
    forget(s, f, *bytes);
    return io_map_check(f->map);
}

static uint64_t count_lines(const char *data, size_t from, size_t to)
{
    uint64_t lines = 0;
    for (size_t n; from < to; from += n) {
        n = to - from < WINDOW ? to - from : WINDOW;
        const char *p = data + from, *end = p + n;
        for (; (p = memchr(p, '\n', (size_t)(end - p))) != NULL; p++)
            lines++;
        io_map_drop(data + from, n);
    }
    return lines;
}

const char *source_where(source *s, uint64_t index)
{
    file *f = &s->files[source_file_of(s, index)];
    const char *bytes, *data = (const char *)f->map->data;
    size_t n;
    uint64_t number = index - f->first + 1;
    if (!f->rows && layout_has_lines(&f->how) && source_bytes(s, index, &bytes, &n) == PESC_OK) {
        size_t at = (size_t)(bytes - data);
        bool on = at >= f->counted;
        f->lines = count_lines(data, on ? f->counted : 0, at) + (on ? f->lines : 0);
        f->counted = at;
        number = f->lines + 1;
    }
    snprintf(s->where, sizeof s->where, "%s:%llu", f->map->path, (unsigned long long)number);
    return s->where;
}

pesc_status source_record(source *s, uint64_t index, json_t **record)
{
    const file *f = &s->files[source_file_of(s, index)];
    const layout *how = &f->how;
    const char *bytes;
    size_t n;
    *record = NULL;
    if (f->rows) {
        TRY(parquet_row(f->rows, index - f->first, record));
        forget(s, f, NULL);
        return PESC_OK;
    }
    TRY(source_bytes(s, index, &bytes, &n));
    pesc_status st = layout_parse(how, bytes, n, "", record);
    if (st == PESC_OK || st == PESC_NOMEM)
        return st;
    return layout_parse(how, bytes, n, source_where(s, index), record); /* now with the place */
}

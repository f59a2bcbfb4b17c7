#include "data/source.h"

#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum {
    STRIDE = 16,       /* records between two remembered places */
    WINDOW = 16 << 20, /* bytes of a file that count as memory in use while it is read through */
    TOUCHES = 8        /* records read here and there before a file is forgotten */
};

typedef struct file {
    io_map *map;
    bool array;
    uint64_t first, count; /* record numbers */
    size_t *anchors;       /* where record first + i * STRIDE begins */
    size_t n_anchors, cap;
    size_t told;         /* bytes whose lines source_where() has counted, */
    uint64_t told_lines; /* and how many those are */
} file;

struct source {
    file *files;
    size_t n;
    uint64_t count, hash;
    uint64_t touched; /* records of large files that were read */
    char where[512];
};

/* The bytes [*begin, *end) of the next record at or after `at`; false when there is none. A line
 * is a record unless it is blank. */
static bool next_line(const file *f, size_t at, size_t *begin, size_t *end)
{
    const char *data = (const char *)f->map->data;
    size_t n = f->map->size;
    while (at < n) {
        const char *newline = memchr(data + at, '\n', n - at);
        size_t stop = newline ? (size_t)(newline - data) : n;
        size_t first = at;
        while (first < stop && strchr(" \t\r", data[first]))
            first++;
        if (first < stop) {
            *begin = first;
            *end = stop;
            return true;
        }
        at = stop + 1;
    }
    return false;
}

/* In an array: one element, by counting brackets outside strings. What is between the brackets is
 * checked when the record is parsed. */
static bool next_element(const file *f, size_t at, size_t *begin, size_t *end)
{
    const char *data = (const char *)f->map->data;
    size_t n = f->map->size;
    while (at < n && strchr(" \t\r\n,[", data[at]) && data[at])
        at++;
    if (at >= n || data[at] == ']')
        return false;
    *begin = at;
    uint64_t depth = 0;
    bool string = false;
    for (; at < n; at++) {
        char c = data[at];
        if (string) {
            if (c == '\\')
                at++;
            else if (c == '"')
                string = false;
        } else if (c == '"') {
            string = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && depth > 0) {
            if (--depth == 0) {
                at++;
                break;
            }
        } else if (depth == 0 && (c == ',' || c == ']')) {
            break;
        }
    }
    *end = at < n ? at : n;
    return true;
}

/* Between two elements, before the first and behind the last stands one mark. */
static pesc_status check_gap(const file *f, size_t at, size_t end, char mark)
{
    const char *data = (const char *)f->map->data;
    const char *then = mark == ']' ? "the end of the file" : "an element of the array";
    char expected[] = { '"', mark, '"', '\0' };
    bool found = false;
    for (; at < end && data[at]; at++) {
        if ((found || data[at] != mark) && !strchr(" \t\r\n", data[at]))
            break;
        found = found || data[at] == mark;
    }
    if (at == end && found)
        return PESC_OK;
    if (at == f->map->size)
        return fail(PESC_FORMAT, "%s: ends inside its array: it may be cut off", f->map->path);
    return fail(PESC_FORMAT, "%s: byte %zu: found 0x%02X, expected %s", f->map->path, at,
                (unsigned char)data[at], found ? then : expected);
}

static bool next_record(const file *f, size_t at, size_t *begin, size_t *end)
{
    return f->array ? next_element(f, at, begin, end) : next_line(f, at, begin, end);
}

static pesc_status remember(file *f, size_t at)
{
    if (f->n_anchors == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 64;
        size_t *p = mem_grow(f->anchors, cap, sizeof *p);
        if (!p)
            return fail_nomem(f->map->path, cap * sizeof *p);
        f->anchors = p;
        f->cap = cap;
    }
    f->anchors[f->n_anchors++] = at;
    return PESC_OK;
}

static pesc_status look(file *f)
{
    const char *data = (const char *)f->map->data, *path = f->map->path;
    size_t n = f->map->size, i = 0;
    if (n >= 3 && memcmp(data, "\xEF\xBB\xBF", 3) == 0)
        return fail(PESC_FORMAT, "%s: begins with a byte order mark; save it as UTF-8 without one",
                    path);
    if (n >= 2 && (memcmp(data, "\xFF\xFE", 2) == 0 || memcmp(data, "\xFE\xFF", 2) == 0))
        return fail(PESC_FORMAT, "%s: is UTF-16; save it as UTF-8", path);
    while (i < n && strchr(" \t\r\n", data[i]) && data[i])
        i++;
    if (i == n)
        return fail(PESC_FORMAT, "%s: is empty: it holds no record", path);
    if (data[i] != '{' && data[i] != '[')
        return fail(PESC_FORMAT,
                    "%s: byte %zu: found 0x%02X, expected JSON lines or one JSON array; convert "
                    "other formats (parquet, csv, gzip) first",
                    path, i, (unsigned char)data[i]);
    f->array = data[i] == '[';
    return PESC_OK;
}

/* Numbers the records and hashes the bytes in one reading, a window at a time. */
static pesc_status count_records(file *f, XXH3_state_t *hash)
{
    TRY(look(f));
    const char *data = (const char *)f->map->data;
    size_t at = 0, done = 0, begin, end;
    while (next_record(f, at, &begin, &end)) {
        if (f->array)
            TRY(check_gap(f, at, begin, f->count ? ',' : '['));
        if (f->count % STRIDE == 0)
            TRY(remember(f, begin));
        f->count++;
        at = end + !f->array;
        if (at - done > WINDOW && at < f->map->size) {
            XXH3_64bits_update(hash, data + done, at - done);
            io_map_drop(data + done, at - done);
            done = at;
            log_progress("indexing data", done, f->map->size);
        }
    }
    XXH3_64bits_update(hash, data + done, f->map->size - done);
    if (done > 0) {
        io_map_drop(data + done, f->map->size - done);
        log_progress("indexing data", f->map->size, f->map->size);
    }
    if (f->count == 0)
        return fail(PESC_FORMAT, "%s: is empty: it holds no record", f->map->path);
    if (f->array)
        TRY(check_gap(f, at, f->map->size, ']'));
    return io_map_check(f->map);
}

static pesc_status read_file(source *s, file *f, const char *path, XXH3_state_t *hash)
{
    XXH3_64bits_reset_withSeed(hash, s->hash);
    TRY(io_map_open(&f->map, path));
    TRY(count_records(f, hash));
    f->first = s->count;
    s->count += f->count;
    s->hash = XXH3_64bits_digest(hash);
    return PESC_OK;
}

pesc_status source_open(source **out, const char *const *paths, size_t n_paths)
{
    *out = NULL;
    source *s = mem_zalloc(1, sizeof *s);
    XXH3_state_t *hash = XXH3_createState();
    pesc_status st = PESC_OK;
    if (!s || !hash || !(s->files = mem_zalloc(n_paths, sizeof *s->files)))
        st = fail_nomem("the list of data files", n_paths * sizeof(file));
    for (; st == PESC_OK && s->n < n_paths; s->n++)
        st = read_file(s, &s->files[s->n], paths[s->n], hash);
    XXH3_freeState(hash);
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
        io_map_close(s->files[i].map);
        mem_free(s->files[i].anchors);
    }
    mem_free(s->files);
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

size_t source_file_of(const source *s, uint64_t index)
{
    ASSERT(index < s->count);
    size_t i = 0;
    while (index >= s->files[i].first + s->files[i].count)
        i++;
    return i;
}

/* Records read here and there would in time bring a whole file into memory. The kernel maps more
 * than is touched, how much is its affair: so now and then all of a large file is forgotten. */
static void forget(source *s, const file *f)
{
    if (f->map->size > WINDOW && ++s->touched % TOUCHES == 0)
        io_map_drop(f->map->data, f->map->size);
}

pesc_status source_bytes(source *s, uint64_t index, const char **bytes, size_t *n)
{
    file *f = &s->files[source_file_of(s, index)];
    uint64_t local = index - f->first;
    size_t begin = 0, end = 0, at = f->anchors[local / STRIDE];
    for (uint64_t i = 0; i <= local % STRIDE; i++) {
        if (!next_record(f, at, &begin, &end))
            return fail(PESC_IO, "%s: record %llu is gone: the file changed while in use",
                        f->map->path, (unsigned long long)local);
        at = end + !f->array;
    }
    forget(s, f);
    *bytes = (const char *)f->map->data + begin;
    *n = end - begin;
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
    if (!f->array && source_bytes(s, index, &bytes, &n) == PESC_OK) {
        size_t at = (size_t)(bytes - data);
        bool on = at >= f->told;
        f->told_lines = count_lines(data, on ? f->told : 0, at) + (on ? f->told_lines : 0);
        f->told = at;
        number = f->told_lines + 1;
    }
    snprintf(s->where, sizeof s->where, "%s:%llu", f->map->path, (unsigned long long)number);
    return s->where;
}

/* Parses once more, to say where; what failed for want of memory may be there now. */
static pesc_status parse_again(source *s, uint64_t index, const char *bytes, size_t n, json_t **v)
{
    char why[1024];
    pesc_status st = json_parse(v, bytes, n, source_where(s, index));
    snprintf(why, sizeof why, "%s", pesc_last_error());
    bool line = !s->files[source_file_of(s, index)].array;
    return line && st == PESC_FORMAT ? fail(st, "%s; each line must be one whole record", why) : st;
}

pesc_status source_record(source *s, uint64_t index, json_t **record)
{
    const char *bytes;
    size_t n;
    *record = NULL;
    TRY(source_bytes(s, index, &bytes, &n));
    if (json_parse(record, bytes, n, "") != PESC_OK)
        return parse_again(s, index, bytes, n, record);
    if (!json_is_object(*record)) {
        pesc_status st = fail(PESC_FORMAT, "%s: found %s, expected an object with named fields",
                              source_where(s, index), json_kind(*record));
        json_decref(*record);
        *record = NULL;
        return st;
    }
    return PESC_OK;
}

#include "eval/taskdata.h"

#include "base/io.h"
#include "base/mem.h"
#include "eval/unpack.h"

#include <stdlib.h>
#include <string.h>

#define BYTES_MAX ((size_t)4 << 30) /* of a file, unpacked */
enum { ROW_MAX = 16 << 20 };        /* bytes of a row */

/* ---- files ---- */

char *taskdata_dir(const char *dir)
{
    const char *root = getenv("PESC_DATA");
    if (dir)
        return mem_strdup(dir);
    char *below = root ? io_join(root, "bench") : mem_strdup("bench");
    if (below && root && io_kind_of(below) != IO_DIR) {
        mem_free(below);
        below = mem_strdup("bench");
    }
    return below;
}

pesc_status taskdata_find(char **out, const taskdef *def, const char *split, const char *dir)
{
    static const char *const endings[] = { "", ".xz", ".gz" };
    size_t n = def->places.n ? def->places.n : 1;
    str path = { 0 };
    bool found = false;
    *out = NULL;
    for (size_t i = 0; i < n && !found && str_ok(&path); i++)
        for (size_t k = 0; k < 3 && !found && str_ok(&path); k++) {
            str_clear(&path);
            str_printf(&path, "%s/%s/%s.jsonl%s", dir,
                       def->places.n ? def->places.at[i] : def->name, split, endings[k]);
            found = str_ok(&path) && io_kind_of(path.p) == IO_FILE;
        }
    if (found)
        *out = mem_strdup(path.p);
    bool ok = str_ok(&path) && found == (*out != NULL);
    str_free(&path);
    return ok ? PESC_OK : fail_nomem("the path of a data file", 0);
}

static pesc_status is_missing(const taskdef *def, const char *split, const char *dir)
{
    str columns = { 0 }, path = { 0 };
    str_printf(&path, "%s/%s/%s.jsonl", dir, def->places.n ? def->places.at[0] : def->name, split);
    str_puts(&columns, "");
    for (size_t i = 0; i < def->n_columns; i++)
        str_printf(&columns, "%s%s", i ? ", " : "", def->columns[i].name);
    pesc_status s;
    if (!str_ok(&path) || !str_ok(&columns))
        s = fail_nomem("the path of a data file", 0);
    else if (io_kind_of(path.p) != IO_NONE)
        s = fail(PESC_IO, "%s: %s: is %s, expected a file", def->name, path.p,
                 io_kind_of(path.p) == IO_DIR ? "a directory" : "not a regular file");
    else
        s = fail(PESC_IO,
                 "%s: the file %s (or .jsonl.gz, .jsonl.xz) is missing; it has the columns %s%s%s",
                 def->name, path.p, columns.p, def->published ? " and is published at " : "",
                 def->published ? def->published : "");
    str_free(&columns);
    str_free(&path);
    return s;
}

/* ---- rows ---- */

/* The value of a path such as "choices.text". */
static const json_t *column_of(const json_t *row, const char *path)
{
    char name[64];
    while (row && *path) {
        size_t n = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        row = json_object_get(row, name);
        path += n + (path[n] == '.');
    }
    return row;
}

static bool all_texts(const json_t *v)
{
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!json_is_string(json_array_get(v, i)))
            return false;
    return json_is_array(v);
}

static bool has_type(const json_t *v, const char *type)
{
    if (strcmp(type, "text") == 0)
        return json_is_string(v);
    if (strcmp(type, "texts") == 0)
        return all_texts(v);
    if (strcmp(type, "integer") == 0)
        return json_is_integer(v);
    return strcmp(type, "object") == 0 ? json_is_object(v)
                                       : json_is_string(v) || json_is_integer(v);
}

static const char *type_text(const char *type)
{
    static const char *const texts[][2] = { { "text", "a text" },
                                            { "texts", "a list of texts" },
                                            { "integer", "a whole number" },
                                            { "label", "a text or a whole number" },
                                            { "object", "an object" } };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(texts[i][0], type) == 0)
            return texts[i][1];
    return type;
}

static pesc_status check_row(const taskdef *def, const json_t *row, const char *where)
{
    if (!json_is_object(row))
        return fail(PESC_FORMAT, "%s: found %s, expected an object with the columns of %s", where,
                    json_kind(row), def->name);
    for (size_t i = 0; i < def->n_columns; i++) {
        const taskdef_column *c = &def->columns[i];
        const json_t *v = column_of(row, c->name);
        if (!v)
            return fail(PESC_FORMAT, "%s: the column \"%s\" is missing", where, c->name);
        if (!has_type(v, c->type))
            return fail(PESC_FORMAT, "%s: the column \"%s\": found %s, expected %s", where, c->name,
                        json_kind(v), type_text(c->type));
    }
    return PESC_OK;
}

/* The row with its named columns alone, as canonical JSON. */
static pesc_status add_canonical(const taskdef *def, const json_t *row, str *line)
{
    json_t *known = json_object();
    bool ok = known;
    str_clear(line);
    for (size_t i = 0; ok && i < def->n_columns; i++) {
        char name[64];
        const char *path = def->columns[i].name;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(path, "."), path);
        ok = json_object_set(known, name, json_object_get(row, name)) == 0;
    }
    if (ok)
        json_put(line, known, JSON_COMPACT | JSON_SORT_KEYS);
    str_putc(line, '\n');
    json_decref(known);
    return ok && str_ok(line) ? PESC_OK : fail_nomem("hashing a row", line->n);
}

static pesc_status read_line(taskdata *d, const taskdef *def, slice line, const char *where)
{
    json_t *row;
    if (line.n > ROW_MAX)
        return fail(PESC_FORMAT, "%s: the line has %zu bytes, expected at most %d", where, line.n,
                    ROW_MAX);
    TRY(json_parse(&row, line.p, line.n, where));
    pesc_status s = check_row(def, row, where);
    if (s == PESC_OK && json_array_append(d->rows, row) != 0)
        s = fail_nomem("the rows of a data file", line.n);
    json_decref(row);
    return s;
}

static pesc_status read_lines(taskdata *d, const taskdef *def, const char *text, size_t n)
{
    char where[512];
    str line = { 0 };
    digest *sum;
    TRY(digest_open(&sum));
    pesc_status s = PESC_OK;
    for (size_t at = 0, number = 1; s == PESC_OK && at < n; number++) {
        const char *end = memchr(text + at, '\n', n - at);
        slice one = { text + at, end ? (size_t)(end - text) - at : n - at };
        at += one.n + 1;
        if (pytext_strip(one).n == 0)
            continue;
        snprintf(where, sizeof where, "%s:%zu", d->path, number);
        s = read_line(d, def, one, where);
        if (s == PESC_OK)
            s = add_canonical(def, json_array_get(d->rows, json_array_size(d->rows) - 1), &line);
        if (s == PESC_OK)
            digest_add(sum, line.p, line.n);
    }
    digest_close(sum, d->sha256);
    str_free(&line);
    if (s == PESC_OK && json_array_size(d->rows) == 0)
        s = fail(PESC_FORMAT, "%s: the file has no rows", d->path);
    return s;
}

pesc_status taskdata_open(taskdata **out, const taskdef *def, const char *split, const char *dir)
{
    *out = NULL;
    taskdata *d = mem_zalloc(1, sizeof *d);
    char *text = NULL;
    size_t n = 0;
    if (!d || !(d->rows = json_array())) {
        taskdata_close(d);
        return fail_nomem("a data file", sizeof *d);
    }
    pesc_status s = taskdata_find(&d->path, def, split, dir);
    if (s == PESC_OK && !d->path)
        s = is_missing(def, split, dir);
    if (s == PESC_OK)
        s = unpack_file(d->path, BYTES_MAX, &text, &n);
    d->bytes = n;
    if (s == PESC_OK)
        s = read_lines(d, def, text, n);
    mem_free(text);
    if (s == PESC_OK)
        *out = d;
    else
        taskdata_close(d);
    return s;
}

void taskdata_close(taskdata *d)
{
    if (!d)
        return;
    json_decref(d->rows);
    mem_free(d->path);
    mem_free(d);
}

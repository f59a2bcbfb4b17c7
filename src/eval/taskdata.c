#include "eval/taskdata.h"

#include "base/io.h"
#include "base/mem.h"
#include "data/source.h"

#include <stdlib.h>
#include <string.h>

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

pesc_status taskdata_find(datafiles *out, const taskdef *def, const char *split, const char *dir)
{
    size_t n = def->places.n ? def->places.n : 1;
    pesc_status s = PESC_OK;
    for (size_t i = 0; split && s == PESC_OK && i < n && out->n == 0; i++) {
        char *place = io_join(dir, def->places.n ? def->places.at[i] : def->name);
        s = place ? datafiles_split(out, place, split) : fail_nomem("the path of a data file", 0);
        mem_free(place);
    }
    return s;
}

static pesc_status is_missing(const taskdef *def, const char *split, const char *dir)
{
    str columns = { 0 }, path = { 0 };
    str_printf(&path, "%s/%s/%s.jsonl", dir, def->places.n ? def->places.at[0] : def->name, split);
    str_puts(&columns, "");
    for (size_t i = 0; i < def->n_columns; i++)
        str_printf(&columns, "%s%s", i ? ", " : "", def->columns[i].name);
    pesc_status s =
        str_ok(&path) && str_ok(&columns)
            ? fail(PESC_IO,
                   "%s: the file %s (or .parquet, shards of it, .gz, .xz, .zst) is missing; it has "
                   "the columns %s%s%s",
                   def->name, path.p, columns.p, def->published ? " and is published at " : "",
                   def->published ? def->published : "")
            : fail_nomem("the path of a data file", 0);
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
    if (strcmp(type, "object") == 0)
        return json_is_object(v);
    return strcmp(type, "list") == 0 ? json_is_array(v) : json_is_string(v) || json_is_integer(v);
}

static const char *type_text(const char *type)
{
    static const char *const texts[][2] = { { "text", "a text" },
                                            { "texts", "a list of texts" },
                                            { "integer", "a whole number" },
                                            { "label", "a text or a whole number" },
                                            { "object", "an object" },
                                            { "list", "a list" } };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(texts[i][0], type) == 0)
            return texts[i][1];
    return type;
}

static pesc_status check_row(const taskdef *def, const json_t *row, const char *where)
{
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

/* src NULL: the rows of the definition. */
static pesc_status read_rows(taskdata *d, const taskdef *def, source *src)
{
    str line = { 0 };
    digest *sum;
    char where[300];
    TRY(digest_open(&sum));
    pesc_status s = PESC_OK;
    uint64_t n = src ? source_count(src) : json_array_size(def->rows);
    for (uint64_t i = 0; s == PESC_OK && i < n; i++) {
        json_t *row = src ? NULL : json_incref(json_array_get(def->rows, (size_t)i));
        s = src ? source_record(src, i, &row) : PESC_OK;
        if (s != PESC_OK)
            break;
        snprintf(where, sizeof where, "%.200s: row %llu", d->place, (unsigned long long)i + 1);
        if (check_row(def, row, "") != PESC_OK) /* once more, with the place */
            s = check_row(def, row, src ? source_where(src, i) : where);
        if (s == PESC_OK)
            s = add_canonical(def, row, &line);
        if (s == PESC_OK && json_array_append(d->rows, row) != 0)
            s = fail_nomem("the rows of a data file", line.n);
        json_decref(row);
        if (s == PESC_OK)
            digest_add(sum, line.p, line.n);
        d->bytes += line.n;
    }
    digest_close(sum, d->sha256);
    str_free(&line);
    return s;
}

/* What the files have in other columns counts too. */
static uint64_t bytes_of(const source *src)
{
    uint64_t n = 0;
    for (size_t i = 0; i < source_files(src); i++)
        n += source_file_bytes(src, i);
    return n;
}

pesc_status taskdata_open(taskdata **out, const taskdef *def, const char *split, const char *dir,
                          int64_t unpack_ratio)
{
    *out = NULL;
    taskdata *d = mem_zalloc(1, sizeof *d);
    source *src = NULL;
    if (!d || !(d->rows = json_array())) {
        taskdata_close(d);
        return fail_nomem("a data file", sizeof *d);
    }
    pesc_status s = taskdata_find(&d->files, def, split, dir);
    if (s == PESC_OK && split && d->files.n == 0)
        s = is_missing(def, split, dir);
    d->place = d->files.n ? d->files.paths[0] : def->file;
    if (s == PESC_OK && split)
        s = source_open(&src, (const char *const *)d->files.paths, d->files.n, unpack_ratio);
    if (s == PESC_OK)
        s = read_rows(d, def, src);
    if (s == PESC_OK && src && d->bytes < bytes_of(src))
        d->bytes = bytes_of(src);
    source_close(src);
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
    datafiles_free(&d->files);
    mem_free(d);
}

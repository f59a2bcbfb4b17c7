/* The rows of CSV and TSV files (layout.h). */
#include "data/layout.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "format/strtab.h"

#include <string.h>

/* The end of the quoted cell whose first mark is at `at`: the byte after its last mark, or n + 1
 * when that is missing. */
static size_t quoted_end(const char *data, size_t n, size_t at)
{
    for (at++; at < n; at++) {
        const char *mark = memchr(data + at, '"', n - at);
        if (!mark)
            break;
        at = (size_t)(mark - data) + 1;
        if (at >= n || data[at] != '"')
            return at;
    }
    return n + 1;
}

static bool is_blank_line(const char *data, size_t at, size_t end)
{
    while (at < end && (data[at] == ' ' || data[at] == '\t' || data[at] == '\r'))
        at++;
    return at == end;
}

bool table_row(const char *data, size_t n, size_t at, char separator, size_t *begin, size_t *end)
{
    bool start = true; /* of a cell */
    for (*begin = at; at <= n; at++) {
        if (at < n && start && data[at] == '"') {
            size_t after = quoted_end(data, n, at);
            at = after < n ? after : n;
        }
        start = at < n && data[at] == separator;
        if (at < n && data[at] != '\n')
            continue;
        if (!is_blank_line(data, *begin, at)) {
            *end = at;
            return true;
        }
        *begin = at + 1;
        start = true;
    }
    return false;
}

/* One cell of a row, its marks removed, and where the next begins (n + 1: it was the last). */
static pesc_status next_cell(const char *row, size_t n, size_t *at, char separator, str *out)
{
    str_clear(out);
    if (*at < n && row[*at] == '"') {
        size_t end = quoted_end(row, n, *at);
        if (end > n)
            return fail(PESC_FORMAT, "a quotation mark that begins a cell has no second one");
        for (size_t i = *at + 1; i + 1 < end; i++) {
            str_putc(out, row[i]);
            i += row[i] == '"';
        }
        if (end < n && row[end] != separator)
            return fail(PESC_FORMAT, "found text after the quotation mark that ends a cell");
        *at = end + 1;
    } else {
        const char *stop = memchr(row + *at, separator, n - *at);
        size_t end = stop ? (size_t)(stop - row) : n;
        str_add(out, row + *at, end - *at);
        *at = end + 1;
    }
    return str_ok(out) ? PESC_OK : fail_nomem("a cell", out->n);
}

static size_t without_cr(const char *row, size_t n)
{
    return n > 0 && row[n - 1] == '\r' ? n - 1 : n;
}

static pesc_status add_column(layout *l, const str *cell, strtab *names, size_t *cap)
{
    const char *p = cell->p ? cell->p : "", *end = p + cell->n;
    while (p < end && *p == ' ')
        p++;
    while (end > p && end[-1] == ' ')
        end--;
    if (!utf8_valid(p, (size_t)(end - p)))
        return fail(PESC_FORMAT, "the name of column %zu is not UTF-8", l->n_columns + 1);
    if (memchr(p, 0, (size_t)(end - p)))
        return fail(PESC_FORMAT, "the name of column %zu holds a NUL", l->n_columns + 1);
    if (strtab_find(names, p, (size_t)(end - p)) >= 0)
        return fail(PESC_FORMAT, "two columns have the name \"%.*s\"", (int)(end - p), p);
    bool room = mem_room((void **)&l->columns, cap, l->n_columns, sizeof *l->columns);
    char *name = room ? mem_strndup(p, (size_t)(end - p)) : NULL;
    if (!name || strtab_add(names, p, (size_t)(end - p)) < 0) {
        mem_free(name);
        return fail_nomem("the columns of a table", cell->n);
    }
    l->columns[l->n_columns++] = name;
    return PESC_OK;
}

pesc_status table_header(layout *l)
{
    const char *data = (const char *)l->map->data;
    size_t begin, end, at = 0;
    str cell = { 0 };
    if (!table_row(data, l->map->size, l->begin, l->separator, &begin, &end))
        return fail(PESC_FORMAT, "%s: is empty: it holds no record", l->map->path);
    size_t n = without_cr(data + begin, end - begin), cap = 0;
    strtab names = { 0 };
    pesc_status s = PESC_OK;
    while (s == PESC_OK && at <= n) {
        s = next_cell(data + begin, n, &at, l->separator, &cell);
        if (s == PESC_OK)
            s = add_column(l, &cell, &names, &cap);
    }
    strtab_free(&names);
    str_free(&cell);
    l->begin = end < l->map->size ? end + 1 : end;
    if (s != PESC_FORMAT)
        return s;
    char why[512];
    snprintf(why, sizeof why, "%s", pesc_last_error());
    return fail(s, "%s: in the header: %s", l->map->path, why);
}

static pesc_status put_cells(const layout *l, const char *row, size_t n, json_t *record)
{
    str cell = { 0 };
    size_t at = 0, cells = 0;
    pesc_status s = PESC_OK;
    for (; s == PESC_OK && at <= n; cells++) {
        s = next_cell(row, n, &at, l->separator, &cell);
        if (s != PESC_OK || cells >= l->n_columns)
            continue;
        json_t *text = json_stringn(cell.p ? cell.p : "", cell.n);
        if (!text)
            s = fail(PESC_FORMAT, "%s: is not UTF-8", l->columns[cells]);
        else if (json_object_set_new(record, l->columns[cells], text) != 0)
            s = fail_nomem("a row", n);
    }
    str_free(&cell);
    if (s == PESC_OK && cells != l->n_columns)
        s = fail(PESC_FORMAT, "found %zu cells, expected %zu as in the header", cells,
                 l->n_columns);
    return s;
}

pesc_status table_parse(const layout *l, const char *row, size_t n, const char *where,
                        json_t **record)
{
    *record = json_object();
    if (!*record)
        return fail_nomem(where, n);
    pesc_status s = put_cells(l, row, without_cr(row, n), *record);
    if (s == PESC_OK)
        return s;
    char why[512];
    snprintf(why, sizeof why, "%s", pesc_last_error());
    json_decref(*record);
    *record = NULL;
    return s == PESC_NOMEM ? s : fail(s, "%s: %s", where, why);
}

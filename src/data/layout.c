#include "data/layout.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

struct layout_kind {
    bool lines;
    bool (*next)(const layout *l, size_t at, size_t *begin, size_t *end);
    pesc_status (*parse)(const layout *l, const char *bytes, size_t n, const char *where,
                         json_t **record);
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static bool is_space(char c)
{
    return is_blank(c) || c == '\n';
}

static size_t skip_space(const layout *l, size_t at)
{
    const char *data = (const char *)l->map->data;
    while (at < l->map->size && is_space(data[at]))
        at++;
    return at;
}

/* ---- JSON lines ---- */

/* The end of the line at `at`: its newline, or the end of the file. */
static size_t line_end(const layout *l, size_t at)
{
    const char *data = (const char *)l->map->data;
    const char *newline = memchr(data + at, '\n', l->map->size - at);
    return newline ? (size_t)(newline - data) : l->map->size;
}

/* A line is a record unless it is blank. */
static bool next_line(const layout *l, size_t at, size_t *begin, size_t *end)
{
    const char *data = (const char *)l->map->data;
    while (at < l->map->size) {
        size_t stop = line_end(l, at);
        while (at < stop && is_blank(data[at]))
            at++;
        if (at < stop) {
            *begin = at;
            *end = stop;
            return true;
        }
        at = stop + 1;
    }
    return false;
}

static pesc_status parse_json(const layout *l, const char *bytes, size_t n, const char *where,
                              json_t **record)
{
    if (memchr(bytes, '\0', n))
        return fail(PESC_FORMAT, "%s: holds a NUL byte; the file is damaged or no text", where);
    pesc_status s = json_parse(record, bytes, n, where);
    if (s == PESC_FORMAT && l->kind->lines) {
        char why[1024];
        snprintf(why, sizeof why, "%s", pesc_last_error());
        return fail(s, "%s; each line must be one whole record", why);
    }
    TRY(s);
    if (json_is_object(*record))
        return PESC_OK;
    s = fail(PESC_FORMAT, "%s: found %s, expected an object with named fields", where,
             json_kind(*record));
    json_decref(*record);
    *record = NULL;
    return s;
}

/* ---- a JSON array ---- */

/* The end of the value at `at`, by counting brackets outside strings. What is between the brackets
 * is checked when the record is parsed. */
static size_t value_end(const layout *l, size_t at)
{
    const char *data = (const char *)l->map->data;
    size_t n = l->map->size;
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
            if (--depth == 0)
                return at + 1;
        } else if (depth == 0 && (c == ',' || c == ']' || c == '}')) {
            return at;
        }
    }
    return n;
}

static bool next_element(const layout *l, size_t at, size_t *begin, size_t *end)
{
    const char *data = (const char *)l->map->data;
    at += at == l->begin; /* the bracket that opens the array */
    while (at < l->map->size && (is_space(data[at]) || data[at] == ','))
        at++;
    if (at >= l->map->size || data[at] == ']')
        return false;
    *begin = at;
    *end = value_end(l, at);
    return true;
}

/* Between two elements, before the first and after the last stands one mark; *after is the first
 * byte after it that is no space. */
static pesc_status check_gap(const layout *l, size_t at, size_t end, char mark, size_t *after)
{
    const char *data = (const char *)l->map->data;
    const char *path = l->map->path;
    bool found = false;
    for (; at < end; at++) {
        if (!is_space(data[at]) && (found || data[at] != mark))
            break;
        found = found || data[at] == mark;
    }
    *after = at;
    if (found && (at == end || mark == ']'))
        return PESC_OK;
    if (at == l->map->size)
        return fail(PESC_FORMAT, "%s: ends inside its array: it may be cut off", path);
    char quoted[] = { '"', mark, '"', '\0' };
    return fail(PESC_FORMAT, "%s: byte %zu: found 0x%02X, expected %s", path, at,
                (unsigned char)data[at], found ? "an element of the array" : quoted);
}

/* After the array: nothing, or the rest of the object it is a member of. */
static pesc_status check_end(const layout *l, size_t at)
{
    const char *data = (const char *)l->map->data;
    bool closed = !l->wrapped;
    for (size_t n = l->map->size, next; !closed && at < n; at = skip_space(l, next)) {
        closed = data[at] == '}';
        next = closed || data[at] == ',' || data[at] == ':' ? at + 1 : value_end(l, at);
        if (next == at) /* a bracket that nothing opened is no value */
            return fail(PESC_FORMAT, "%s: byte %zu: found 0x%02X, expected \",\" or \"}\"",
                        l->map->path, at, (unsigned char)data[at]);
    }
    if (!closed)
        return fail(PESC_FORMAT, "%s: ends inside its object: it may be cut off", l->map->path);
    if (at < l->map->size)
        return fail(PESC_FORMAT, "%s: byte %zu: found 0x%02X, expected the end of the file",
                    l->map->path, at, (unsigned char)data[at]);
    return PESC_OK;
}

static pesc_status check_array(const layout *l, size_t at, size_t begin, uint64_t count)
{
    size_t after;
    if (begin < l->map->size) {
        TRY(check_gap(l, at, begin, count ? ',' : '[', &after));
        return l->map->data[begin] != '['
                   ? PESC_OK
                   : fail(PESC_FORMAT, "%s: byte %zu: found 0x5B, expected an object: a record",
                          l->map->path, begin);
    }
    TRY(check_gap(l, at, begin, ']', &after));
    return check_end(l, after);
}

/* Where the array of {"data": [...]} begins; 0 when the object at `at` has no such member. */
static size_t find_wrapped(const layout *l, size_t at)
{
    static const char key[] = "\"data\"";
    const char *data = (const char *)l->map->data;
    size_t n = l->map->size;
    for (at = skip_space(l, at + 1); at < n && data[at] == '"'; at = skip_space(l, at)) {
        size_t name = at;
        for (at++; at < n && data[at] != '"'; at++)
            at += data[at] == '\\';
        bool ours = at < n && at + 1 - name == sizeof key - 1 &&
                    memcmp(data + name, key, sizeof key - 1) == 0;
        at = skip_space(l, at + 1);
        if (at >= n || data[at] != ':')
            return 0;
        at = skip_space(l, at + 1);
        if (ours) { /* of records: a list of other things is a field of the first line's record */
            size_t first = at < n && data[at] == '[' ? skip_space(l, at + 1) : n;
            return first < n && (data[first] == '{' || data[first] == ']') ? at : 0;
        }
        at = skip_space(l, value_end(l, at));
        if (at >= n || data[at] != ',')
            return 0;
        at++;
    }
    return 0;
}

/* ---- plain text: documents with blank lines between them ---- */

static bool line_is_blank(const layout *l, size_t at, size_t stop)
{
    const char *data = (const char *)l->map->data;
    while (at < stop && is_blank(data[at]))
        at++;
    return at == stop;
}

static bool next_document(const layout *l, size_t at, size_t *begin, size_t *end)
{
    size_t n = l->map->size, stop;
    while (at < n && line_is_blank(l, at, stop = line_end(l, at)))
        at = stop + 1;
    if (at >= n)
        return false;
    *begin = at;
    for (*end = at; at < n && !line_is_blank(l, at, stop = line_end(l, at)); at = stop + 1)
        *end = stop;
    return true;
}

/* Lines that end in CR LF end in LF in the record. */
static pesc_status parse_document(const layout *l, const char *bytes, size_t n, const char *where,
                                  json_t **record)
{
    (void)l;
    str text = { 0 };
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != '\r' || (i + 1 < n && bytes[i + 1] != '\n'))
            str_putc(&text, bytes[i]);
    bool nomem = !str_ok(&text);
    json_t *value = nomem ? NULL : json_stringn(text.p ? text.p : "", text.n);
    str_free(&text);
    *record = value ? json_pack("{s:o}", "text", value) : NULL;
    if (*record)
        return PESC_OK;
    return nomem || value ? fail_nomem(where, n) : fail(PESC_FORMAT, "%s: is not UTF-8", where);
}

/* ---- kinds ---- */

static bool next_row(const layout *l, size_t at, size_t *begin, size_t *end)
{
    const char *data = (const char *)l->map->data;
    return table_row(data, l->map->size, at, l->separator, begin, end);
}

static pesc_status parse_row(const layout *l, const char *bytes, size_t n, const char *where,
                             json_t **record)
{
    return table_parse(l, bytes, n, where, record);
}

static const layout_kind lines = { true, next_line, parse_json };
static const layout_kind array = { false, next_element, parse_json };
static const layout_kind table = { true, next_row, parse_row };
static const layout_kind text_file = { true, next_document, parse_document };

bool layout_next(const layout *l, size_t at, size_t *begin, size_t *end)
{
    return l->kind->next(l, at, begin, end);
}

size_t layout_after(const layout *l, size_t end)
{
    return l->kind == &array ? end : end + 1; /* past the newline */
}

pesc_status layout_check(const layout *l, size_t at, size_t begin, uint64_t count)
{
    return l->kind == &array ? check_array(l, at, begin, count) : PESC_OK;
}

pesc_status layout_parse(const layout *l, const char *bytes, size_t n, const char *where,
                         json_t **record)
{
    *record = NULL;
    if (n > LAYOUT_RECORD_MAX)
        return fail(PESC_FORMAT, "%s: the record is %zu bytes long; at most %zu are read", where, n,
                    LAYOUT_RECORD_MAX);
    return l->kind->parse(l, bytes, n, where, record);
}

bool layout_has_lines(const layout *l)
{
    return l->kind->lines;
}

/* ---- looking ---- */

/* Whether the name has the ending, below that of a compressed file. */
static bool ends_with(const char *path, const char *ending)
{
    static const char *const packed[] = { ".gz", ".xz", ".zst" };
    size_t n = strlen(path), k = strlen(ending);
    for (size_t i = 0; i < 3; i++) {
        size_t p = strlen(packed[i]);
        if (n > p && strcasecmp(path + n - p, packed[i]) == 0) {
            n -= p;
            break;
        }
    }
    return n > k && strncasecmp(path + n - k, ending, k) == 0;
}

/* What other programs write, and a line that converts it. */
static const struct {
    const char *magic, *ending, *is, *convert; /* the path goes into each %s of convert */
} foreign[] = {
    { "ARROW1", ".arrow", "Arrow",
      "python3 -c \"from datasets import Dataset; Dataset.from_file('%s').to_json('%s.jsonl')\"" },
    { "BZh", ".bz2", "compressed", "bunzip2 -k '%s'" },
    { "PK\x03\x04", ".zip", "an archive", "unzip '%s'" },
};

/* %s of a conversion line replaced by the path: fail() takes no format from a table. */
static void put_command(str *out, const char *convert, const char *path)
{
    for (const char *p = convert; *p; p++) {
        bool here = p[0] == '%' && p[1] == 's';
        if (here)
            str_puts(out, path);
        else
            str_putc(out, *p);
        p += here;
    }
}

static pesc_status refuse_foreign(const io_map *map)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        size_t n = strlen(foreign[i].magic);
        bool magic = map->size >= n && memcmp(map->data, foreign[i].magic, n) == 0;
        if (!magic && !ends_with(map->path, foreign[i].ending))
            continue;
        str command = { 0 };
        put_command(&command, foreign[i].convert, map->path);
        pesc_status s = fail(PESC_FORMAT, "%s: is %s, which is not read; convert it: %s", map->path,
                             foreign[i].is, command.p ? command.p : "");
        str_free(&command);
        return s;
    }
    return PESC_OK;
}

/* Whether the first line that is not blank is a JSON object. */
static bool begins_with_object(const layout *l)
{
    size_t begin, end;
    json_t *v = NULL;
    const char *data = (const char *)l->map->data;
    bool object = next_line(l, l->begin, &begin, &end) && data[begin] == '{' &&
                  end - begin <= LAYOUT_RECORD_MAX &&
                  json_parse(&v, data + begin, end - begin, "") == PESC_OK && json_is_object(v);
    json_decref(v);
    return object;
}

static pesc_status find_json(layout *l)
{
    const char *data = (const char *)l->map->data, *path = l->map->path;
    size_t at = skip_space(l, l->begin);
    if (data[at] != '{' && data[at] != '[')
        return fail(PESC_FORMAT,
                    "%s: byte %zu: found 0x%02X, expected JSON lines or one JSON array; name a "
                    "table .csv or .tsv and plain text .txt",
                    path, at, (unsigned char)data[at]);
    size_t inside = data[at] == '{' ? find_wrapped(l, at) : 0;
    l->wrapped = inside > 0;
    l->kind = inside || data[at] == '[' ? &array : &lines;
    l->begin = inside ? inside : at;
    return PESC_OK;
}

pesc_status layout_open(layout *l, const io_map *map)
{
    *l = (layout){ .map = map, .kind = &lines };
    const char *data = (const char *)map->data;
    size_t n = map->size;
    TRY(refuse_foreign(map));
    if (n >= 2 && (memcmp(data, "\xFF\xFE", 2) == 0 || memcmp(data, "\xFE\xFF", 2) == 0))
        return fail(PESC_FORMAT, "%s: is UTF-16; save it as UTF-8", map->path);
    l->begin = n >= 3 && memcmp(data, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0; /* a byte order mark */
    if (skip_space(l, l->begin) == n)
        return fail(PESC_FORMAT, "%s: is empty: it holds no record", map->path);
    bool csv = ends_with(map->path, ".csv"), tsv = ends_with(map->path, ".tsv");
    if (csv || tsv) {
        l->kind = &table;
        l->separator = csv ? ',' : '\t';
        return table_header(l);
    }
    if (ends_with(map->path, ".txt") && !begins_with_object(l)) {
        l->kind = &text_file;
        return PESC_OK;
    }
    return find_json(l);
}

void layout_free(layout *l)
{
    for (size_t i = 0; i < l->n_columns; i++)
        mem_free(l->columns[i]);
    mem_free(l->columns);
    *l = (layout){ 0 };
}

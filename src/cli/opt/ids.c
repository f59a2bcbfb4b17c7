/* ids: token ids, written as JSON or as text.
 *
 * A JSON array of ids is read as it stands, number by number: as a tree of JSON values it would
 * take twenty times its size. What surrounds it in an object is small, and checked by jansson. */
#include "cli/opt/ids.h"

#include "cli/opt/input.h"

#include <jansson.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t max_tree = (size_t)16 << 20; /* bytes of text that may become a tree */

typedef struct reader {
    const char *where; /* opens every sentence */
    const char *text;
    size_t n, at;
    int32_t *ids; /* room for every number of the text */
    size_t count;
} reader;

static const char *kind(const json_t *v)
{
    static const char *const kinds[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array",  [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a fraction", [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",      [JSON_NULL] = "null",
    };
    return v ? kinds[json_typeof(v)] : "nothing";
}

static pesc_status parse(const char *where, const char *text, size_t n, json_t **out)
{
    json_error_t e;
    *out = json_loadb(text, n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
    return *out ? PESC_OK
                : out_fail(PESC_FORMAT, "%s: byte %d: this is not JSON: %s", where, e.position,
                           e.text);
}

/* The same of JSON that is not the ids themselves. */
static pesc_status parse_small(const char *where, const char *text, size_t n, json_t **out)
{
    if (n > max_tree)
        return out_fail(PESC_FORMAT,
                        "%s: found %zu bytes of JSON besides ids; at most %zu are read", where, n,
                        max_tree);
    return parse(where, text, n, out);
}

pesc_status ids_json_string(const char *where, const char *text, size_t n, char **out, size_t *len)
{
    json_t *v;
    TRY(parse(where, text, n, &v));
    pesc_status st = PESC_OK;
    *out = NULL;
    if (!json_is_string(v)) {
        st = out_fail(PESC_FORMAT, "%s: found %s, expected a string", where, kind(v));
    } else {
        *len = json_string_length(v);
        *out = malloc(*len + 1);
        if (*out)
            memcpy(*out, json_string_value(v), *len + 1);
        else
            st = out_nomem(where);
    }
    json_decref(v);
    return st;
}

/* ---- an array of ids ---- */

static void skip_space(reader *r)
{
    while (r->at < r->n && r->text[r->at] && strchr(" \t\r\n", r->text[r->at]))
        r->at++;
}

static char peek(const reader *r)
{
    return r->at < r->n ? r->text[r->at] : '\0';
}

static pesc_status broken(const reader *r, const char *expected)
{
    return out_fail(PESC_FORMAT, "%s: byte %zu: this is not JSON: expected %s", r->where, r->at,
                    expected);
}

/* What kind of value begins here; NULL: none. */
static const char *kind_here(const reader *r)
{
    static const struct {
        char first;
        const char *name;
    } kinds[] = {
        { '"', "a string" }, { '{', "an object" }, { '[', "an array" }, { 't', "true" },
        { 'f', "false" },    { 'n', "null" },      { '-', "a number" },
    };
    char c = peek(r);
    if (c >= '0' && c <= '9')
        return "a number";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (c && kinds[i].first == c)
            return kinds[i].name;
    return NULL;
}

static pesc_status read_id(reader *r, size_t index)
{
    size_t from = r->at;
    const char *found = kind_here(r);
    if (!found)
        return broken(r, "a value");
    while (r->at < r->n && strchr("0123456789+-.eE", r->text[r->at]) && r->text[r->at])
        r->at++;
    const char *text = r->text + from;
    size_t n = r->at - from;
    int64_t id = 0;
    if (n > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9')
        return broken(r, "a number without zeros before it");
    if (n > 0 && input_int(text, n, 0, INT32_MAX, &id)) {
        r->ids[r->count++] = (int32_t)id;
        return PESC_OK;
    }
    bool fraction = memchr(text, '.', n) || memchr(text, 'e', n) || memchr(text, 'E', n);
    if (n > 0)
        found = fraction ? "a fraction" : "a number out of range";
    return out_fail(PESC_FORMAT, "%s: [%zu]: found %s, expected a token id from 0 to %d", r->where,
                    index, found, INT32_MAX);
}

/* After a value: past the comma, or (*last) past the closing bracket. */
static pesc_status next_value(reader *r, bool *last)
{
    skip_space(r);
    char c = peek(r);
    if (c != ',' && c != ']')
        return broken(r, "',' or ']'");
    *last = c == ']';
    r->at++;
    skip_space(r);
    return PESC_OK;
}

/* From an opening bracket, past which the reader goes; *empty when nothing follows. */
static void open_array(reader *r, bool *empty)
{
    r->at++;
    skip_space(r);
    *empty = peek(r) == ']';
    r->at += *empty;
}

static pesc_status read_row(reader *r, size_t *n)
{
    bool last;
    *n = 0;
    open_array(r, &last);
    while (!last) {
        TRY(read_id(r, *n));
        ++*n;
        TRY(next_value(r, &last));
    }
    return PESC_OK;
}

static pesc_status read_rows(reader *r, ids_table *t)
{
    bool last;
    open_array(r, &last);
    for (; !last; t->n_seqs++) {
        size_t n = 0;
        const char *found = kind_here(r);
        if (!found)
            return broken(r, "a value");
        if (peek(r) == '[')
            TRY(read_row(r, &n));
        if (t->n_seqs == 0)
            t->n_each = n;
        if (strcmp(found, "an array") != 0 || n != t->n_each)
            return out_fail(PESC_FORMAT,
                            "%s: [%zu]: found %s of length %zu, expected an array of "
                            "length %zu as the first",
                            r->where, t->n_seqs, found, n, t->n_each);
        TRY(next_value(r, &last));
    }
    return PESC_OK;
}

static bool holds_rows(reader r)
{
    bool empty;
    open_array(&r, &empty);
    return peek(&r) == '[';
}

/* text[from..end) is an array. */
static pesc_status read_array(const char *where, const char *text, size_t from, size_t end,
                              ids_table *t)
{
    size_t most = 1;
    for (size_t i = from; i < end; i++)
        most += text[i] == ',';
    reader r = { .where = where, .text = text, .n = end, .at = from };
    r.ids = t->ids = calloc(most, sizeof *t->ids);
    if (!t->ids)
        return out_nomem(where);
    t->nested = holds_rows(r);
    t->n_seqs = t->nested ? 0 : 1;
    TRY(t->nested ? read_rows(&r, t) : read_row(&r, &t->n_each));
    skip_space(&r);
    return r.at == end ? PESC_OK : broken(&r, "nothing more");
}

/* ---- an object around it ---- */

typedef struct span {
    size_t from, end;
} span;

static void skip_string(reader *r)
{
    for (r->at++; r->at < r->n && r->text[r->at] != '"'; r->at++)
        r->at += r->text[r->at] == '\\';
    r->at++;
}

/* Past the value that begins here, by its brackets and strings. */
static void skip_value(reader *r)
{
    size_t depth = 0;
    for (; r->at < r->n; r->at++) {
        char c = r->text[r->at];
        if (c == '"') {
            skip_string(r);
            r->at--;
        } else if (c == '[' || c == '{') {
            depth++;
        } else if (depth == 0 && (c == ',' || c == '}')) {
            return;
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
}

/* The array under "ids", or else "input_ids"; false: none, or the text is not an object. */
static bool find_ids(reader r, span *out)
{
    static const char *const keys[] = { "\"input_ids\"", "\"ids\"" };
    int best = -1;
    if (peek(&r) != '{')
        return false;
    for (r.at++; skip_space(&r), peek(&r) == '"'; r.at++) {
        size_t key = r.at;
        skip_string(&r);
        size_t key_n = r.at - key;
        skip_space(&r);
        r.at += peek(&r) == ':';
        skip_space(&r);
        span value = { r.at, r.at };
        bool array = peek(&r) == '[';
        skip_value(&r);
        value.end = r.at < r.n ? r.at : r.n;
        for (int i = best + 1; array && i < 2; i++)
            if (key_n == strlen(keys[i]) && memcmp(r.text + key, keys[i], key_n) == 0) {
                best = i;
                *out = value;
            }
        if (peek(&r) != ',')
            break;
    }
    return best >= 0;
}

/* The text without the array must be JSON too. */
static pesc_status check_rest(const char *where, const char *text, size_t n, span array)
{
    size_t after = n - array.end;
    char *rest = malloc(array.from + after + 2);
    if (!rest)
        return out_nomem(where);
    memcpy(rest, text, array.from);
    memcpy(rest + array.from, "[]", 2);
    memcpy(rest + array.from + 2, text + array.end, after);
    json_t *v = NULL;
    pesc_status st = parse_small(where, rest, array.from + after + 2, &v);
    json_decref(v);
    free(rest);
    return st;
}

static pesc_status refuse(const char *where, const char *text, size_t n)
{
    json_t *v = NULL;
    TRY(parse_small(where, text, n, &v));
    const json_t *found = v;
    if (json_is_object(v))
        found = json_object_get(v, json_object_get(v, "ids") ? "ids" : "input_ids");
    pesc_status st =
        out_fail(PESC_FORMAT, "%s: found %s, expected an array of token ids", where, kind(found));
    json_decref(v);
    return st;
}

pesc_status ids_from_json(const char *where, const char *text, size_t n, ids_table *out)
{
    reader r = { .where = where, .text = text, .n = n };
    span array = { 0, n };
    pesc_status st = PESC_OK;
    *out = (ids_table){ 0 };
    skip_space(&r);
    array.from = r.at;
    if (peek(&r) != '[') {
        if (!find_ids(r, &array))
            return refuse(where, text, n);
        st = check_rest(where, text, n, array);
    }
    if (st == PESC_OK)
        st = read_array(where, text, array.from, array.end, out);
    if (st != PESC_OK) {
        free(out->ids);
        *out = (ids_table){ 0 };
    }
    return st;
}

pesc_status ids_read_json(const char *path, ids_table *out)
{
    char *text;
    size_t n;
    *out = (ids_table){ 0 };
    TRY(input_read(path, &text, &n));
    pesc_status st = ids_from_json(input_name(path), text, n, out);
    free(text);
    return st;
}

/* ---- ids as text, and of a text ---- */

static bool is_separator(char c)
{
    return c == ' ' || c == ',' || c == '\n' || c == '\t' || c == '\r';
}

static size_t skip(const char *text, size_t n, size_t at, bool separators)
{
    while (at < n && is_separator(text[at]) == separators)
        at++;
    return at;
}

static pesc_status scan(const char *where, const char *text, size_t n, int32_t *out, size_t *count)
{
    *count = 0;
    for (size_t at = skip(text, n, 0, true), end; at < n; at = skip(text, n, end, true)) {
        int64_t id;
        end = skip(text, n, at, false);
        if (!input_int(text + at, end - at, 0, INT32_MAX, &id))
            return out_fail(PESC_FORMAT,
                            "%s: byte %zu: found \"%.*s\", expected a token id from 0 to %d", where,
                            at, (int)(end - at < 40 ? end - at : 40), text + at, INT32_MAX);
        out[(*count)++] = (int32_t)id;
    }
    return PESC_OK;
}

pesc_status ids_from_text(const char *where, const char *text, size_t n, ids_table *out)
{
    size_t first = skip(text, n, 0, true);
    if (first < n && (text[first] == '[' || text[first] == '{'))
        return ids_from_json(where, text, n, out);
    *out = (ids_table){ .n_seqs = 1 };
    out->ids = calloc(n / 2 + 1, sizeof *out->ids); /* an id and its separator: two bytes */
    pesc_status st = out->ids ? scan(where, text, n, out->ids, &out->n_each) : out_nomem(where);
    if (st != PESC_OK) {
        free(out->ids);
        *out = (ids_table){ 0 };
    }
    return st;
}

pesc_status ids_encode(const pesc_tokenizer *t, const char *text, size_t n, unsigned flags,
                       int32_t **ids, size_t *count)
{
    /* A token usually has a byte or more, so one call usually suffices. */
    size_t cap = n + 64;
    *ids = NULL;
    for (;;) {
        int32_t *more = realloc(*ids, cap * sizeof *more);
        if (!more) {
            free(*ids);
            *ids = NULL;
            return out_nomem("the ids of the text");
        }
        *ids = more;
        pesc_status st = pesc_tokenize(t, text, n, flags, *ids, cap, count);
        if (st != PESC_OK || *count <= cap) {
            if (st != PESC_OK) {
                free(*ids);
                *ids = NULL;
            }
            return st;
        }
        cap = *count;
    }
}

#include "cli/opt/ids.h"

#include "cli/opt/input.h"
#include "cli/opt/digits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        if (!num_int(text + at, end - at, 0, INT32_MAX, &id))
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

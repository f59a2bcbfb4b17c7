#include "esft/summary.h"

#include "base/io.h"
#include "base/json.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = 4 << 20 };

const char *const metric_names[N_METRICS] = { "token", "gate" };
static const char *const table_names[N_METRICS] = { "token_scores", "gate_scores" };

pesc_status summary_init(summary *s, size_t n_layers, size_t n_experts)
{
    *s = (summary){ .n_layers = n_layers, .n_experts = n_experts };
    s->layers = mem_zalloc(n_layers, sizeof *s->layers);
    bool ok = s->layers;
    for (int m = 0; m < N_METRICS; m++) {
        s->score[m] = mem_zalloc(n_layers * n_experts, sizeof *s->score[m]);
        ok = ok && s->score[m];
    }
    return ok ? PESC_OK : fail_nomem("the scores of experts", n_layers * n_experts);
}

void summary_free(summary *s)
{
    mem_free(s->layers);
    for (int m = 0; m < N_METRICS; m++)
        mem_free(s->score[m]);
    *s = (summary){ 0 };
}

/* ---- reading ---- */

/* A decimal key without sign or leading zeros. */
static bool read_number(const char *key, long long *out)
{
    return (key[0] != '0' || key[1] == '\0') && str_to_i64(key, 0, INT32_MAX - 1, out);
}

/* Where a place in the file is: "file: table.layer.expert". */
typedef struct place {
    const char *file, *table, *layer;
} place;

static pesc_status read_score(place at, const char *key, const json_t *v, size_t n, double *row)
{
    long long expert;
    double x = json_number_value(v);
    if (!read_number(key, &expert) || (size_t)expert >= n)
        return fail(PESC_FORMAT,
                    "%s: %s.%s: found the expert \"%s\", expected 0 to %zu, as many as there are "
                    "in the first layer",
                    at.file, at.table, at.layer, key, n - 1);
    if (!json_is_number(v) || !isfinite(x) || x < 0)
        return fail(PESC_FORMAT, "%s: %s.%s.%s: found %s, expected a score of 0 or more", at.file,
                    at.table, at.layer, key,
                    json_is_number(v) ? "a negative number" : json_kind(v));
    row[expert] = x;
    return PESC_OK;
}

/* Every layer must have as many experts as the first, so no more memory is taken than the file has
 * entries. */
static pesc_status check_size(place at, const json_t *v, size_t n)
{
    if (!json_is_object(v))
        return fail(PESC_FORMAT, "%s: %s.%s: found %s, expected an object of scores", at.file,
                    at.table, at.layer, json_kind(v));
    if (json_object_size(v) != n)
        return fail(PESC_FORMAT,
                    "%s: %s.%s: found %zu experts, expected %zu, as many as in the first layer",
                    at.file, at.table, at.layer, json_object_size(v), n);
    return PESC_OK;
}

/* The layers, and how many experts each has, are those of the first table of the file. */
static pesc_status read_shape(summary *s, place at, json_t *table)
{
    json_t *value;
    void *first = json_object_iter(table);
    size_t n_experts = first ? json_object_size(json_object_iter_value(first)) : 0, i = 0;
    if (!first)
        return fail(PESC_FORMAT, "%s: %s: has no layers", at.file, at.table);
    json_object_foreach(table, at.layer, value) TRY(check_size(at, value, n_experts));
    if (n_experts == 0)
        return fail(PESC_FORMAT, "%s: %s: its layers have no experts", at.file, at.table);
    TRY(summary_init(s, json_object_size(table), n_experts));
    json_object_foreach(table, at.layer, value)
    {
        long long layer;
        if (!read_number(at.layer, &layer))
            return fail(PESC_FORMAT, "%s: %s: found the key \"%s\", expected a layer such as \"1\"",
                        at.file, at.table, at.layer);
        s->layers[i++] = (int32_t)layer;
    }
    return PESC_OK;
}

static pesc_status read_table(summary *s, place at, const json_t *table, double *scores)
{
    for (size_t i = 0; i < s->n_layers; i++) {
        char name[16];
        const char *key;
        json_t *value;
        snprintf(name, sizeof name, "%d", s->layers[i]);
        json_t *layer = json_object_get(table, name);
        at.layer = name;
        if (!layer)
            return fail(PESC_FORMAT, "%s: %s: layer %s is missing; %s has it", at.file, at.table,
                        name, table_names[METRIC_TOKEN]);
        TRY(check_size(at, layer, s->n_experts));
        json_object_foreach(layer, key, value)
            TRY(read_score(at, key, value, s->n_experts, scores + i * s->n_experts));
    }
    if (json_object_size(table) != s->n_layers)
        return fail(PESC_FORMAT, "%s: %s: has %zu layers, %s has %zu", at.file, at.table,
                    json_object_size(table), table_names[METRIC_TOKEN], s->n_layers);
    return PESC_OK;
}

static pesc_status read_all(summary *s, json_t *v, const char *file)
{
    bool shaped = false;
    if (!json_is_object(v))
        return fail(PESC_FORMAT, "%s: found %s, expected an object with token_scores", file,
                    json_kind(v));
    for (int m = 0; m < N_METRICS; m++) {
        json_t *table = json_object_get(v, table_names[m]);
        place at = { file, table_names[m], NULL };
        if (!table)
            continue;
        if (!json_is_object(table))
            return fail(PESC_FORMAT, "%s: %s: found %s, expected an object of layers", file,
                        at.table, json_kind(table));
        if (!shaped)
            TRY(read_shape(s, at, table));
        shaped = true;
        TRY(read_table(s, at, table, s->score[m]));
    }
    if (!shaped)
        return fail(PESC_FORMAT, "%s: has neither token_scores nor gate_scores", file);
    for (int m = 0; m < N_METRICS; m++)
        if (!json_object_get(v, table_names[m])) {
            mem_free(s->score[m]);
            s->score[m] = NULL;
        }
    return PESC_OK;
}

/* Python writes NaN for a score that is not a number, which is not JSON; the message names it. */
static pesc_status check_nan(const char *text, const char *file)
{
    const char *nan = strstr(text, "NaN");
    if (!nan || nan == text || nan[-1] != ' ')
        return PESC_OK;
    return fail(PESC_FORMAT,
                "%s: byte %zu: a score is NaN, as when no token was counted; score the task again",
                file, (size_t)(nan - text));
}

pesc_status summary_read(summary *s, const char *path)
{
    *s = (summary){ 0 };
    char *file = io_kind_of(path) == IO_DIR ? io_join(path, "summary.json") : mem_strdup(path);
    char *text = NULL;
    size_t n;
    json_t *v = NULL;
    if (!file)
        return fail_nomem(path, 0);
    pesc_status st = io_read_file(file, FILE_BYTES, &text, &n);
    if (st == PESC_OK)
        st = check_nan(text, file);
    if (st == PESC_OK)
        st = json_parse(&v, text, n, file);
    if (st == PESC_OK)
        st = read_all(s, v, file);
    json_decref(v);
    mem_free(text);
    mem_free(file);
    return st;
}

/* ---- writing ---- */

double summary_round(double x)
{
    char digits[64];
    snprintf(digits, sizeof digits, "%.4f", x);
    (void)str_to_f64(digits, &x);
    return x;
}

/* Python's repr of a number with at most 4 decimals. */
static void put_score(str *out, double x)
{
    char digits[64];
    int n = snprintf(digits, sizeof digits, "%.4f", x);
    while (digits[n - 1] == '0' && digits[n - 2] != '.')
        n--;
    str_add(out, digits, (size_t)n);
}

typedef struct row {
    char name[16];
    size_t index;
} row;

static int as_text(const void *a, const void *b)
{
    return strcmp(((const row *)a)->name, ((const row *)b)->name);
}

static void put_table(str *out, const summary *s, const row *rows, esft_metric m)
{
    str_printf(out, "\"%s\": {", table_names[m]);
    for (size_t i = 0; i < s->n_layers; i++) {
        const double *score = s->score[m] + rows[i].index * s->n_experts;
        str_printf(out, "%s\"%s\": {", i ? ", " : "", rows[i].name);
        for (size_t e = 0; e < s->n_experts; e++) {
            str_printf(out, "%s\"%zu\": ", e ? ", " : "", e);
            put_score(out, score[e]);
        }
        str_putc(out, '}');
    }
    str_putc(out, '}');
}

pesc_status summary_write(const summary *s, const char *path)
{
    str text = { 0 };
    row *rows = mem_alloc(s->n_layers, sizeof *rows);
    if (!rows)
        return fail_nomem(path, s->n_layers * sizeof *rows);
    for (size_t i = 0; i < s->n_layers; i++) {
        rows[i].index = i;
        snprintf(rows[i].name, sizeof rows[i].name, "%d", s->layers[i]);
    }
    qsort(rows, s->n_layers, sizeof *rows, as_text);
    str_putc(&text, '{');
    for (int m = 0; m < N_METRICS; m++)
        if (s->score[m]) {
            str_puts(&text, text.n > 1 ? ", " : "");
            put_table(&text, s, rows, (esft_metric)m);
        }
    str_putc(&text, '}');
    pesc_status st = str_ok(&text) ? io_write_file(path, text.p, text.n) : fail_nomem(path, text.n);
    str_free(&text);
    mem_free(rows);
    return st;
}

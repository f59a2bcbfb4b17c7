#include "esft/logs.h"

#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

static const char prefix[] = "expert_weights_", suffix[] = ".txt";

/* ---- which files there are ---- */

typedef struct names {
    char **items;
    size_t n;
} names;

/* The layer of a file's name, or -1. */
static int32_t layer_of(const char *name)
{
    char digits[16];
    long long layer;
    size_t n = strlen(name), fixed = sizeof prefix - 1 + sizeof suffix - 1;
    if (!str_starts(name, prefix) || !str_ends(name, suffix) || n <= fixed ||
        n - fixed >= sizeof digits)
        return -1;
    memcpy(digits, name + sizeof prefix - 1, n - fixed);
    digits[n - fixed] = '\0';
    bool plain = digits[0] != '0' || digits[1] == '\0';
    return plain && str_to_i64(digits, 0, INT32_MAX - 1, &layer) ? (int32_t)layer : -1;
}

static bool has_logs(const names *all)
{
    for (size_t i = 0; i < all->n; i++)
        if (layer_of(all->items[i]) >= 0)
            return true;
    return false;
}

/* ---- one file ---- */

/* Fields of one line, split by tabs. */
typedef struct fields {
    const char *at, *end;
} fields;

/* The next field, as a string; false after the last. One that is too long is truncated with "...",
 * which is not a number. */
static bool next_field(fields *f, char field[static 32])
{
    if (f->at > f->end)
        return false;
    const char *tab = memchr(f->at, '\t', (size_t)(f->end - f->at));
    const char *stop = tab ? tab : f->end;
    size_t n = (size_t)(stop - f->at);
    bool fits = n < 32;
    n = fits ? n : 28;
    memcpy(field, f->at, n);
    memcpy(field + n, "...", fits ? 0 : 3);
    field[fits ? n : n + 3] = '\0';
    f->at = stop + 1;
    return true;
}

typedef struct line {
    const char *path;
    size_t number;
    fields ids, gates;
} line;

/* A router never chooses an expert twice for one token: `slots` holds those chosen for it so far.
 */
static pesc_status check_slot(const line *l, const int32_t *slots, size_t n, size_t token, size_t k)
{
    for (size_t i = 0; i < n; i++)
        if (slots[i] == slots[n])
            return fail(PESC_FORMAT, "%s: line %zu: token %zu has expert %d twice; is top_k %zu?",
                        l->path, l->number, token + 1, slots[n], k);
    return PESC_OK;
}

static pesc_status read_line(line *l, tally *t, size_t layer, int32_t *slots)
{
    char id[32], gate[32];
    size_t n = 0;
    for (; next_field(&l->ids, id); n++) {
        long long expert;
        double weight;
        if (!str_to_i64(id, 0, (long long)t->n_experts - 1, &expert))
            return fail(PESC_FORMAT, "%s: line %zu: found the expert \"%s\", expected 0 to %zu",
                        l->path, l->number, id, t->n_experts - 1);
        if (!next_field(&l->gates, gate))
            return fail(PESC_FORMAT, "%s: line %zu: has fewer gates than ids", l->path, l->number);
        if (!str_to_f64(gate, &weight) || weight < 0)
            return fail(PESC_FORMAT,
                        "%s: line %zu: found the gate \"%s\", expected a number of 0 or more",
                        l->path, l->number, gate);
        slots[n % t->k] = (int32_t)expert;
        TRY(check_slot(l, slots, n % t->k, n / t->k, t->k));
        tally_add(t, layer, (int32_t)expert, weight);
    }
    if (next_field(&l->gates, gate))
        return fail(PESC_FORMAT, "%s: line %zu: has more gates than ids", l->path, l->number);
    if (n % t->k)
        return fail(PESC_FORMAT, "%s: line %zu: found %zu ids, expected a multiple of top_k, %zu",
                    l->path, l->number, n, t->k);
    return PESC_OK;
}

static pesc_status read_lines(const io_map *map, tally *t, size_t layer, int32_t *slots)
{
    const char *at = (const char *)map->data, *end = at + map->size;
    for (size_t number = 1; at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop)
            return fail(PESC_FORMAT, "%s: line %zu: is truncated: it has no line end", map->path,
                        number);
        const char *middle = memmem(at, (size_t)(stop - at), "\t\t", 2);
        if (!middle)
            return fail(PESC_FORMAT,
                        "%s: line %zu: expected ids of experts, a double tab, and as many gates",
                        map->path, number);
        line l = { map->path, number, { at, middle }, { middle + 2, stop } };
        TRY(read_line(&l, t, layer, slots));
        at = stop + 1;
    }
    return PESC_OK;
}

static pesc_status read_file(const char *dir, const char *name, tally *t, size_t layer)
{
    io_map *map = NULL;
    char *path = io_join(dir, name);
    int32_t *slots = mem_alloc(t->k, sizeof *slots);
    pesc_status s = path && slots ? io_map_open(&map, path) : fail_nomem(dir, 0);
    if (s == PESC_OK)
        s = read_lines(map, t, layer, slots);
    if (s == PESC_OK)
        s = io_map_check(map);
    io_map_close(map);
    mem_free(slots);
    mem_free(path);
    return s;
}

/* ---- all files ---- */

/* The layers that a directory has logs of, in the order of the files' names. */
static pesc_status list_layers(const names *all, int32_t **layers, size_t *n)
{
    *n = 0;
    *layers = mem_alloc(all->n + 1, sizeof **layers);
    if (!*layers)
        return fail_nomem("the names of logs", all->n * sizeof **layers);
    for (size_t i = 0; i < all->n; i++)
        if (layer_of(all->items[i]) >= 0)
            (*layers)[(*n)++] = layer_of(all->items[i]);
    return PESC_OK;
}

/* Adds the logs of one directory. The first directory decides which layers there are; names are
 * sorted, so another directory with the same layers has them in the same order. */
static pesc_status read_dir(tally *t, int32_t **layers, const char *dir, const names *all)
{
    size_t n = 0;
    if (!*layers) {
        size_t experts = t->n_experts, k = t->k;
        TRY(list_layers(all, layers, &n));
        TRY(tally_init(t, n, experts, k));
        n = 0;
    }
    for (size_t i = 0; i < all->n; i++) {
        int32_t layer = layer_of(all->items[i]);
        if (layer < 0)
            continue;
        if (n == t->n_layers || (*layers)[n] != layer)
            return fail(PESC_FORMAT, "%s: %s: the parts do not have the same layers", dir,
                        all->items[i]);
        TRY(read_file(dir, all->items[i], t, n++));
        log_progress("reading logs", n, t->n_layers);
    }
    return n == t->n_layers
               ? PESC_OK
               : fail(PESC_FORMAT, "%s: the log of layer %d is missing", dir, (*layers)[n]);
}

static pesc_status read_part(tally *t, int32_t **layers, const char *dir)
{
    names inner = { 0 };
    TRY(io_list(dir, &inner.items, &inner.n));
    pesc_status s = has_logs(&inner) ? read_dir(t, layers, dir, &inner) : PESC_OK;
    io_list_free(inner.items, inner.n);
    return s;
}

static pesc_status read_parts(tally *t, int32_t **layers, const char *dir, const names *all)
{
    if (has_logs(all))
        return read_dir(t, layers, dir, all);
    for (size_t i = 0; i < all->n; i++) {
        char *part = io_join(dir, all->items[i]);
        if (!part)
            return fail_nomem(dir, 0);
        bool is_part = str_starts(all->items[i], "rank_") && io_kind_of(part) == IO_DIR;
        pesc_status s = is_part ? read_part(t, layers, part) : PESC_OK;
        mem_free(part);
        TRY(s);
    }
    return *layers ? PESC_OK
                   : fail(PESC_FORMAT, "%s: has no %s<layer>%s, nor parts rank_0, rank_1, ...", dir,
                          prefix, suffix);
}

/* All layers have the same tokens unless a log is truncated. Each layer is divided by its own
 * total, so the scores of the others stay right. */
static pesc_status check_tokens(const tally *t, const int32_t *layers, const char *dir)
{
    double n = tally_tokens(t, 0);
    bool told = false;
    for (size_t i = 0; i < t->n_layers; i++) {
        double here = tally_tokens(t, i);
        if (here <= 0)
            return fail(PESC_FORMAT, "%s: the log of layer %d has no tokens", dir, layers[i]);
        if (!told && (here < n - 0.5 || here > n + 0.5)) {
            log_notice("%s: layer %d has %.0f tokens, layer %d has %.0f: a log may be truncated",
                       dir, layers[0], n, layers[i], here);
            told = true;
        }
    }
    return PESC_OK;
}

pesc_status logs_read(tally *t, int32_t **layers, const char *dir, size_t n_experts, size_t k)
{
    names all = { 0 };
    *t = (tally){ .n_experts = n_experts, .k = k };
    *layers = NULL;
    TRY(io_list(dir, &all.items, &all.n));
    pesc_status s = read_parts(t, layers, dir, &all);
    io_list_free(all.items, all.n);
    return s == PESC_OK ? check_tokens(t, *layers, dir) : s;
}

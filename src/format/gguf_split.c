/* gguf_split: a model in several GGUF files, NAME-00001-of-00003.gguf and so on, as
 * llama-gguf-split writes them. The first part has the metadata; every part has its number, the
 * number of parts and tensors of its own. */
#include "format/gguf_file.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PARTS = 99999, ENDING = sizeof "-00001-of-00003.gguf" };

static void write_ending(char out[ENDING], int64_t no, int64_t count)
{
    unsigned a = (unsigned)(no + 1) % (MAX_PARTS + 1), b = (unsigned)count % (MAX_PARTS + 1);
    snprintf(out, ENDING, "-%05u-of-%05u.gguf", a, b);
}

/* The path of a part, for mem_free(); NULL when out of memory. `first` ends like the first part. */
static char *part_path(const char *first, int64_t no, int64_t count)
{
    size_t stem = strlen(first) - (ENDING - 1);
    char *path = mem_strdup(first);
    if (path)
        write_ending(path + stem, no, count);
    return path;
}

static pesc_status check_name(const gguf *g, int64_t count)
{
    char ending[ENDING];
    size_t n = strlen(g->path);
    write_ending(ending, 0, count);
    if (n >= ENDING && strcmp(g->path + n - (ENDING - 1), ending) == 0)
        return PESC_OK;
    return fail(PESC_UNSUPPORTED,
                "%s: is part 1 of %lld of a split model, but its name does not end in %s, so the "
                "other parts cannot be found",
                g->path, (long long)count, ending);
}

static pesc_status read_numbers(const gguf *g, int64_t *no, int64_t *count)
{
    *no = 0;
    *count = 1;
    TRY(gguf_get_int(g, "split.count", (gguf_range){ .min = 1, .max = MAX_PARTS }, count));
    return gguf_get_int(g, "split.no", (gguf_range){ .max = *count - 1 }, no);
}

static pesc_status open_part(gguf *g, int64_t no, int64_t count)
{
    gguf *part = NULL;
    int64_t its_no, its_count;
    char *path = part_path(g->path, no, count);
    if (!path)
        return fail_nomem(g->path, strlen(g->path));
    pesc_status s = io_kind_of(path) == IO_NONE
                        ? fail(PESC_IO, "%s: is missing; %s is part 1 of %lld of a split model",
                               path, g->path, (long long)count)
                        : gguf_open_file(&part, path);
    if (s == PESC_OK) {
        g->rest[g->n_rest++] = part;
        s = read_numbers(part, &its_no, &its_count);
    }
    if (s == PESC_OK && (its_no != no || its_count != count))
        s = fail(PESC_FORMAT,
                 "%s: says that it is part %lld of %lld of a split model, expected part %lld of "
                 "%lld",
                 path, (long long)its_no + 1, (long long)its_count, (long long)no + 1,
                 (long long)count);
    mem_free(path);
    return s;
}

/* One list of the tensors of all parts. */
static pesc_status join_tensors(gguf *g)
{
    size_t n = g->n_tensors;
    for (size_t i = 0; i < g->n_rest; i++)
        n += g->rest[i]->n_tensors;
    int64_t total = (int64_t)n;
    TRY(gguf_get_int(g, "split.tensors.count", (gguf_range){ .max = INT32_MAX }, &total));
    if (total != (int64_t)n)
        return fail(PESC_FORMAT, "%s: split.tensors.count: found %lld, but the parts hold %zu",
                    g->path, (long long)total, n);
    gguf_tensor *all = mem_alloc(n + 1, sizeof *all);
    if (!all)
        return fail_nomem(g->path, n * sizeof *all);
    n = g->n_tensors;
    if (n)
        memcpy(all, g->tensors, n * sizeof *all);
    for (size_t i = 0; i < g->n_rest; i++) {
        const gguf *part = g->rest[i];
        if (part->n_tensors)
            memcpy(all + n, part->tensors, part->n_tensors * sizeof *all);
        n += part->n_tensors;
    }
    mem_free(g->tensors);
    g->tensors = all;
    g->n_tensors = n;
    return PESC_OK;
}

pesc_status gguf_join_parts(gguf *g)
{
    int64_t no, count;
    TRY(read_numbers(g, &no, &count));
    if (count == 1)
        return PESC_OK;
    if (no != 0)
        return fail(PESC_UNSUPPORTED,
                    "%s: is part %lld of %lld of a split model; give the first part, whose name "
                    "ends in -00001-of-%05lld.gguf",
                    g->path, (long long)no + 1, (long long)count, (long long)count);
    TRY(check_name(g, count));
    g->rest = mem_zalloc((size_t)count, sizeof *g->rest);
    if (!g->rest)
        return fail_nomem(g->path, (size_t)count * sizeof *g->rest);
    for (int64_t i = 1; i < count; i++)
        TRY(open_part(g, i, count));
    return join_tensors(g);
}

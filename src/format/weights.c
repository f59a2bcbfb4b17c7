/* The table of named tensors (see weights.h); weights_read.c reads their numbers. */
#include "format/weights.h"

#include "base/mem.h"
#include "base/str.h"
#include "format/strtab.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>
#include <zlib.h>

typedef struct sum {
    const unsigned char *data;
    size_t bytes;
    uint32_t crc;
    const char *what;
} sum;

struct weights {
    strtab names; /* number i names list[i] */
    weight *list;
    size_t cap;
    weight *stored; /* see weights_keep_stored(); among what weights_take() gave out, or NULL */
    size_t n_stored;
    io_map **maps;
    size_t n_maps, cap_maps;
    void **taken; /* what weights_take() gave out */
    size_t n_taken, cap_taken;
    sum *sums; /* of bytes that are not checked yet */
    size_t n_sums, cap_sums;
    uint64_t bytes;
};

pesc_status weights_new(weights **out)
{
    *out = mem_zalloc(1, sizeof **out);
    return *out ? PESC_OK : fail_nomem("a table of weights", sizeof **out);
}

void weights_close(weights *ws)
{
    if (!ws)
        return;
    for (size_t i = 0; i < ws->n_maps; i++)
        io_map_close(ws->maps[i]);
    for (size_t i = 0; i < ws->n_taken; i++)
        mem_free(ws->taken[i]);
    mem_free(ws->maps);
    mem_free(ws->taken);
    mem_free(ws->sums);
    mem_free(ws->list);
    strtab_free(&ws->names);
    mem_free(ws);
}

pesc_status weights_add_file(weights *ws, io_map *map)
{
    if (!mem_room((void **)&ws->maps, &ws->cap_maps, ws->n_maps, sizeof *ws->maps)) {
        pesc_status s = fail_nomem(map->path, sizeof *ws->maps);
        io_map_close(map);
        return s;
    }
    ws->maps[ws->n_maps++] = map;
    return PESC_OK;
}

/* How names begin, and what is read for it: text inside a multimodal model, the first Qwen, Ling.
 */
static const struct {
    const char *file, *own;
} beginnings[] = {
    { "language_model.model.", "model." },
    { "language_model.lm_head.", "lm_head." },
    { "model.language_model.", "model." },
    { "transformer.h.", "model.layers." },
    { "transformer.wte.", "model.embed_tokens." },
    { "transformer.ln_f.", "model.norm." },
    { "model.word_embeddings.", "model.embed_tokens." },
};

/* Hugging Face's name for what PEFT, sparsetral and others call otherwise; the bytes written. */
static size_t canonical(char out[WEIGHTS_MAX_NAME + 16], const char *name)
{
    static const char wrapper[] = "base_model.model.", experts[] = ".moe_adapter.experts.";
    if (str_starts(name, wrapper))
        name += sizeof wrapper - 1;
    const char *begins = "";
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (str_starts(name, beginnings[i].file)) {
            begins = beginnings[i].own;
            name += strlen(beginnings[i].file);
            break;
        }
    const char *at = strstr(name, experts);
    int head = at ? (int)(at - name + (ptrdiff_t)sizeof experts - 1) : 0;
    bool bare = at && name[head] >= '0' && name[head] <= '9';
    return (size_t)snprintf(out, WEIGHTS_MAX_NAME + 16, "%s%.*s%s%s", begins, head, name,
                            bare ? "expert_" : "", name + head);
}

pesc_status weights_add(weights *ws, const weight *w)
{
    TRY(weights_add_part(ws, w));
    ws->bytes += w->bytes;
    return PESC_OK;
}

pesc_status weights_add_part(weights *ws, const weight *w)
{
    size_t raw = strlen(w->name), n = ws->names.n;
    if (raw > WEIGHTS_MAX_NAME)
        return fail(PESC_FORMAT, "%s: tensor %.40s...: its name has %zu bytes, expected at most %d",
                    w->file, w->name, raw, WEIGHTS_MAX_NAME);
    char name[WEIGHTS_MAX_NAME + 16];
    size_t bytes = canonical(name, w->name);
    int64_t there = strtab_find(&ws->names, name, bytes);
    if (there >= 0)
        return fail(PESC_FORMAT, "%s: tensor %s: is given twice, first in %s", w->file, name,
                    ws->list[there].file);
    if (n == WEIGHTS_MAX)
        return fail(PESC_FORMAT, "%s: tensor %s: found more than %d tensors, the most pesc reads",
                    w->file, name, WEIGHTS_MAX);
    if (!mem_room((void **)&ws->list, &ws->cap, n, sizeof *ws->list) ||
        strtab_add(&ws->names, name, bytes) < 0)
        return fail_nomem(w->file, sizeof *w);
    ws->list[n] = *w;
    ws->list[n].name = ws->names.names[n];
    return PESC_OK;
}

const weight *weights_find(const weights *ws, const char *name)
{
    int64_t i = strtab_find(&ws->names, name, strlen(name));
    return i < 0 ? NULL : &ws->list[i];
}

const weight *weights_find_raw(const weights *ws, const char *name)
{
    char buffer[WEIGHTS_MAX_NAME + 16];
    if (strlen(name) > WEIGHTS_MAX_NAME)
        return NULL;
    canonical(buffer, name);
    return weights_find(ws, buffer);
}

size_t weights_count(const weights *ws)
{
    return ws->names.n;
}

const weight *weights_at(const weights *ws, size_t i)
{
    return &ws->list[i];
}

weight *weights_edit(weights *ws, size_t i)
{
    return &ws->list[i];
}

uint64_t weights_hash(const weights *ws)
{
    uint64_t h = 0;
    for (size_t i = 0; i < weights_count(ws); i++) {
        const weight *w = weights_at(ws, i);
        ASSERT(!w->read);
        h = XXH3_64bits_withSeed(w->name, strlen(w->name), h);
        h = XXH3_64bits_withSeed(w->ne, (size_t)w->nd * sizeof *w->ne, h + (uint64_t)w->dt);
        h = XXH3_64bits_withSeed(w->data, w->bytes, h);
    }
    return h;
}

uint64_t weights_bytes(const weights *ws)
{
    return ws->bytes;
}

size_t weights_files(const weights *ws)
{
    return ws->n_maps;
}

pesc_status weights_add_sum(weights *ws, const unsigned char *data, size_t bytes, uint32_t crc,
                            const char *what)
{
    char *copy = weights_take(ws, strlen(what) + 1);
    if (!copy || !mem_room((void **)&ws->sums, &ws->cap_sums, ws->n_sums, sizeof *ws->sums))
        return fail_nomem(what, sizeof *ws->sums);
    memcpy(copy, what, strlen(what) + 1);
    ws->sums[ws->n_sums++] = (sum){ data, bytes, crc, copy };
    return PESC_OK;
}

pesc_status weights_check_sum(const unsigned char *data, size_t bytes, uint32_t crc,
                              const char *what)
{
    uint32_t found = (uint32_t)crc32_z(0, data, bytes);
    io_map_drop(data, bytes);
    if (found == crc)
        return PESC_OK;
    return fail(PESC_FORMAT, "%s: has the CRC-32 %08x, but the file states %08x: it is damaged",
                what, (unsigned)found, (unsigned)crc);
}

pesc_status weights_check(const weights *ws)
{
    weights *own = (weights *)(uintptr_t)ws; /* checksums are looked at once */
    for (; own->n_sums > 0; own->n_sums--) {
        const sum *s = &own->sums[own->n_sums - 1];
        TRY(weights_check_sum(s->data, s->bytes, s->crc, s->what));
    }
    for (size_t i = 0; i < ws->n_maps; i++)
        TRY(io_map_check(ws->maps[i]));
    return PESC_OK;
}

pesc_status weights_keep_stored(weights *ws)
{
    size_t n = weights_count(ws), bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += strlen(ws->list[i].name) + 1;
    weight *list = weights_take(ws, (n + 1) * sizeof *list);
    char *names = list ? weights_take(ws, bytes + 1) : NULL;
    if (!names)
        return fail_nomem("a table of weights", n * sizeof *list + bytes);
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(ws->list[i].name) + 1;
        list[i] = ws->list[i];
        list[i].name = memcpy(names, ws->list[i].name, length);
        names += length;
    }
    ws->stored = list;
    ws->n_stored = n;
    return PESC_OK;
}

size_t weights_stored_count(const weights *ws)
{
    return ws->stored ? ws->n_stored : weights_count(ws);
}

const weight *weights_stored_at(const weights *ws, size_t i)
{
    return ws->stored ? &ws->stored[i] : weights_at(ws, i);
}

void *weights_take(weights *ws, size_t bytes)
{
    if (!mem_room((void **)&ws->taken, &ws->cap_taken, ws->n_taken, sizeof *ws->taken))
        return NULL;
    void *p = mem_zalloc(1, bytes);
    if (p)
        ws->taken[ws->n_taken++] = p;
    return p;
}

void weights_drop(weights *ws, const unsigned char *drop)
{
    size_t kept = 0;
    for (size_t i = 0; i < ws->names.n; i++)
        if (!drop[i])
            ws->list[kept++] = ws->list[i];
    strtab_drop(&ws->names, drop);
}

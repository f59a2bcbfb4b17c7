#include "format/shards.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "format/jscan.h"
#include "format/strtab.h"

#include <string.h>

typedef struct walk {
    jscan j;
    weights *ws;
    strtab shards; /* file names, in the order they are first named */
    size_t entries;
    size_t first;        /* tensors that were in the table before */
    unsigned char *seen; /* a byte a tensor of ours */
    uint64_t total_size; /* as the index says; 0: it does not */
    str key, name, file;
    bool has_map;
} walk;

/* Called for each entry of weight_map: w->name is in w->file. */
typedef pesc_status (*visit_fn)(walk *w, size_t at);

static pesc_status note_shard(walk *w, size_t at)
{
    const char *f = w->file.p;
    if (w->file.n == 0 || strchr(f, '/') || strchr(f, '\\') || f[0] == '.')
        return jscan_fail(&w->j, at,
                          "weight_map: tensor %.200s is in \"%.200s\", expected the name of a file "
                          "beside the index",
                          w->name.p, f);
    if (++w->entries > WEIGHTS_MAX)
        return jscan_fail(&w->j, at, "weight_map: names more than %d tensors, the most pesc reads",
                          WEIGHTS_MAX);
    if (strtab_find(&w->shards, f, w->file.n) < 0 && strtab_add(&w->shards, f, w->file.n) < 0)
        return fail_nomem(w->j.file, w->file.n);
    return PESC_OK;
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static pesc_status check_entry(walk *w, size_t at)
{
    const weight *x = weights_find_raw(w->ws, w->name.p);
    size_t i = x ? (size_t)(x - weights_at(w->ws, 0)) : 0;
    if (!x || i < w->first)
        return jscan_fail(&w->j, at, "weight_map: tensor %.200s is not in %.200s", w->name.p,
                          w->file.p);
    if (strcmp(file_name(x->file), w->file.p) != 0)
        return jscan_fail(&w->j, at, "weight_map: tensor %.200s is not in %.200s but in %s",
                          w->name.p, w->file.p, x->file);
    if (w->seen[i - w->first])
        return jscan_fail(&w->j, at, "weight_map: names tensor %.200s twice", w->name.p);
    w->seen[i - w->first] = 1;
    return PESC_OK;
}

static pesc_status walk_map(walk *w, visit_fn visit)
{
    TRY(jscan_expect(&w->j, '{'));
    for (size_t n = 0;;) {
        bool more = false;
        size_t at = w->j.at;
        TRY(jscan_member(&w->j, &n, &more, &w->name));
        if (!more)
            return PESC_OK;
        TRY(jscan_string(&w->j, &w->file));
        TRY(visit(w, at));
    }
}

/* Only total_size is of interest, where it is a whole number (some writers make it a float). */
static pesc_status walk_metadata(walk *w)
{
    if (jscan_peek(&w->j) != '{')
        return jscan_skip(&w->j);
    w->j.at++;
    for (size_t n = 0;;) {
        bool more = false;
        TRY(jscan_member(&w->j, &n, &more, &w->name));
        if (!more)
            return PESC_OK;
        jscan ahead = w->j;
        if (strcmp(w->name.p, "total_size") == 0 && jscan_u64(&ahead, &w->total_size) != PESC_OK)
            w->total_size = 0;
        TRY(jscan_skip(&w->j));
    }
}

static pesc_status walk_index(walk *w, visit_fn visit)
{
    w->j.at = 0;
    w->has_map = false;
    TRY(jscan_expect(&w->j, '{'));
    for (size_t n = 0;;) {
        bool more = false;
        size_t at = w->j.at;
        TRY(jscan_member(&w->j, &n, &more, &w->key));
        if (!more)
            break;
        bool map = strcmp(w->key.p, "weight_map") == 0;
        if (map && w->has_map)
            return jscan_fail(&w->j, at, "weight_map is given twice");
        w->has_map |= map;
        if (map)
            TRY(walk_map(w, visit));
        else if (strcmp(w->key.p, "metadata") == 0)
            TRY(walk_metadata(w));
        else
            TRY(jscan_skip(&w->j));
    }
    if (!w->has_map)
        return fail(PESC_FORMAT, "%s: weight_map: is missing", w->j.file);
    if (jscan_peek(&w->j) || w->j.at != w->j.n)
        return jscan_fail(&w->j, w->j.at, "found bytes after the index's end");
    return PESC_OK;
}

static pesc_status read_shards(walk *w, const char *dir, shards_read_fn read)
{
    for (size_t i = 0; i < w->shards.n; i++) {
        const char *name = w->shards.names[i];
        char *path = io_join(dir, name);
        if (!path)
            return fail_nomem(dir, strlen(name));
        pesc_status s =
            io_kind_of(path) == IO_NONE
                ? fail(PESC_IO, "%s: weight_map: names the shard %s, which is not there", w->j.file,
                       name)
                : read(w->ws, path);
        mem_free(path);
        TRY(s);
    }
    return PESC_OK;
}

static pesc_status check_agreement(walk *w)
{
    size_t n = weights_count(w->ws) - w->first;
    w->seen = mem_zalloc(n, 1);
    if (!w->seen)
        return fail_nomem(w->j.file, n);
    TRY(walk_index(w, check_entry));
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const weight *x = weights_at(w->ws, w->first + i);
        bytes += x->bytes;
        if (!w->seen[i])
            return fail(PESC_FORMAT, "%s: weight_map: does not name tensor %s, which is in %s",
                        w->j.file, x->name, x->file);
    }
    /* Tied tensors of torch files share bytes, so less than what we count is right. */
    if (w->total_size > bytes)
        log_notice("%s: metadata.total_size is %llu, but the shards hold %llu bytes of tensors",
                   w->j.file, (unsigned long long)w->total_size, (unsigned long long)bytes);
    return PESC_OK;
}

pesc_status shards_read(weights *ws, const char *dir, const char *index, shards_read_fn read)
{
    io_map *m = NULL;
    TRY(io_map_open(&m, index));
    walk w = { .j = { .file = m->path, .text = m->size ? (const char *)m->data : "", .n = m->size },
               .ws = ws,
               .first = weights_count(ws) };
    pesc_status s = walk_index(&w, note_shard);
    if (s == PESC_OK)
        s = read_shards(&w, dir, read);
    if (s == PESC_OK)
        s = check_agreement(&w);
    mem_free(w.seen);
    strtab_free(&w.shards);
    str_free(&w.key);
    str_free(&w.name);
    str_free(&w.file);
    io_map_close(m);
    return s;
}

#include "format/patch.h"

#include "base/io.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "format/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ABOUT "patch.json"
#define FORMAT "pesc-expert-patch"

enum { MAX_ABOUT = 1 << 20, VERSION = 1 };

/* ---- what it is for ---- */

static pesc_status read_cfg(patch *p)
{
    char *file = io_join(p->dir, EXPERTCFG_FILE);
    if (!file)
        return fail_nomem(p->dir, sizeof EXPERTCFG_FILE);
    pesc_status s =
        io_kind_of(file) == IO_FILE
            ? expertcfg_read(&p->cfg, file)
            : fail(PESC_IO, "%s: has no " EXPERTCFG_FILE ", so it is no expert patch", p->dir);
    mem_free(file);
    return s;
}

static pesc_status read_base(patch *p, const json_t *v, const char *file)
{
    const char *format = NULL, *base = NULL;
    int64_t version = 0;
    json_where w = { v, file };
    TRY(json_get_str(w, "format", true, &format));
    TRY(json_get_i64(w, "version", true, 0, INT64_MAX, &version));
    TRY(json_get_str(w, "base", true, &base));
    if (strcmp(format, FORMAT) != 0 || version != VERSION)
        return fail(PESC_UNSUPPORTED,
                    "%s: found \"%s\" version %lld, expected \"" FORMAT "\" version %d", file,
                    format, (long long)version, VERSION);
    if (strlen(base) != sizeof p->base - 1)
        return fail(PESC_FORMAT, "%s: base: found \"%s\", expected 16 hexadecimal digits", file,
                    base);
    memcpy(p->base, base, sizeof p->base);
    return PESC_OK;
}

static pesc_status read_about(patch *p)
{
    json_t *v = NULL;
    char *file = io_join(p->dir, ABOUT);
    if (!file)
        return fail_nomem(p->dir, sizeof ABOUT);
    pesc_status s = PESC_OK;
    if (io_kind_of(file) != IO_NONE) {
        s = json_read(&v, file, MAX_ABOUT);
        if (s == PESC_OK && !json_is_object(v))
            s = fail(PESC_FORMAT, "%s: found %s, expected an object", file, json_kind(v));
        if (s == PESC_OK)
            s = read_base(p, v, file);
        json_decref(v);
    }
    mem_free(file);
    return s;
}

pesc_status patch_describe(const char *dir, const char base[17])
{
    str text = { 0 };
    char *file = io_join(dir, ABOUT);
    json_t *v =
        json_pack("{s:s, s:i, s:s}", "format", FORMAT, "version", (int)VERSION, "base", base);
    json_put(&text, v, JSON_INDENT(1));
    str_putc(&text, '\n');
    pesc_status s =
        file && str_ok(&text) ? io_write_file(file, text.p, text.n) : fail_nomem(ABOUT, text.n);
    json_decref(v);
    str_free(&text);
    mem_free(file);
    return s;
}

/* ---- its tensors ---- */

static pesc_status read_file(patch *p, const char *name)
{
    char *file = io_join(p->dir, name);
    pesc_status s = file ? safetensors_read(p->read, file) : fail_nomem(p->dir, strlen(name));
    mem_free(file);
    return s;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static pesc_status read_files(patch *p, const char *file)
{
    char **names = NULL;
    size_t n = 0, found = 0;
    if (file)
        return read_file(p, file);
    TRY(io_list(p->dir, &names, &n));
    if (n)
        qsort(names, n, sizeof *names, by_name);
    pesc_status s = PESC_OK;
    for (size_t i = 0; s == PESC_OK && i < n; i++)
        if (str_ends(names[i], ".safetensors")) {
            s = read_file(p, names[i]);
            found++;
        }
    io_list_free(names, n);
    if (s == PESC_OK && !found)
        s = fail(PESC_IO, "%s: has no safetensors, so it is no expert patch", p->dir);
    return s;
}

/* Everything but the head has a name that begins with "model.". */
static pesc_status name_tensors(patch *p)
{
    static const char prefix[] = "model.", head[] = "lm_head.";
    for (size_t i = 0; i < weights_count(p->read); i++) {
        weight w = *weights_at(p->read, i);
        char full[sizeof prefix + WEIGHTS_MAX_NAME];
        bool whole = str_starts(w.name, prefix) || str_starts(w.name, head);
        snprintf(full, sizeof full, "%s%s", whole ? "" : prefix, w.name);
        w.name = full;
        TRY(weights_add(p->ws, &w));
    }
    return PESC_OK;
}

static pesc_status open_all(patch *p, const char *dir, const char *file)
{
    p->dir = mem_strdup(dir);
    if (!p->dir)
        return fail_nomem(dir, strlen(dir));
    if (io_kind_of(dir) != IO_DIR)
        return fail(PESC_IO,
                    "%s: is not a directory; an expert patch is one with " EXPERTCFG_FILE
                    " and safetensors",
                    dir);
    TRY(read_cfg(p));
    TRY(read_about(p));
    TRY(weights_new(&p->read));
    TRY(weights_new(&p->ws));
    TRY(read_files(p, file));
    return name_tensors(p);
}

pesc_status patch_open(patch **out, const char *dir, const char *file)
{
    *out = NULL;
    patch *p = mem_zalloc(1, sizeof *p);
    if (!p)
        return fail_nomem(dir, sizeof *p);
    pesc_status s = open_all(p, dir, file);
    if (s == PESC_OK)
        *out = p;
    else
        patch_close(p);
    return s;
}

void patch_close(patch *p)
{
    if (!p)
        return;
    weights_close(p->ws);
    weights_close(p->read);
    expertcfg_free(&p->cfg);
    mem_free(p->dir);
    mem_free(p);
}

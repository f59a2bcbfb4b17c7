#include "run/runstate.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "format/modelname.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MANIFEST "manifest.json"
#define FORMAT "pesc-checkpoint"
#define PREFIX "checkpoint-"

enum { MAX_MANIFEST = 1 << 20 };

void runstate_manifest_free(runstate_manifest *m)
{
    mem_free(m->base);
    mem_free(m->base_relative);
    *m = (runstate_manifest){ 0 };
}

/* The seal: a hash of the manifest's own values, so that no flipped bit in it goes unseen. */
static pesc_status seal_of(const json_t *manifest, char out[RUNSUMS_TEXT])
{
    str text = { 0 };
    json_t *bare = json_copy((json_t *)(uintptr_t)manifest);
    if (bare)
        json_object_del(bare, "seal");
    json_put(&text, bare, JSON_COMPACT | JSON_SORT_KEYS);
    pesc_status s =
        str_ok(&text) ? runsums_of_text(text.p, text.n, out) : fail_nomem(MANIFEST, text.n);
    json_decref(bare);
    str_free(&text);
    return s;
}

/* ---- sealing ---- */

static pesc_status add_file(json_t *files, runsums *sums, const char *dir, const char *name)
{
    char hash[RUNSUMS_TEXT];
    uint64_t bytes = 0;
    TRY(runsums_get(sums, name, hash));
    char *path = io_join(dir, name);
    if (!path)
        return fail_nomem(dir, strlen(name));
    pesc_status s = io_size(path, &bytes);
    if (s == PESC_OK &&
        json_object_set_new(files, name,
                            json_pack("{s:I, s:s}", "bytes", (json_int_t)bytes, "sha256", hash)))
        s = fail_nomem(path, 256);
    mem_free(path);
    return s;
}

static pesc_status list_files(json_t *files, runsums *sums, const char *dir)
{
    char **names = NULL;
    size_t n = 0;
    TRY(io_list(dir, &names, &n));
    pesc_status s = PESC_OK;
    for (size_t i = 0; s == PESC_OK && i < n; i++)
        if (strcmp(names[i], MANIFEST) != 0)
            s = runsums_add(sums, dir, names[i]);
    for (size_t i = 0; s == PESC_OK && i < n; i++)
        if (strcmp(names[i], MANIFEST) != 0)
            s = add_file(files, sums, dir, names[i]);
    io_list_free(names, n);
    return s;
}

static pesc_status write_manifest(const char *dir, const json_t *manifest)
{
    str text = { 0 };
    char *path = io_join(dir, MANIFEST);
    json_put(&text, manifest, JSON_INDENT(1) | JSON_SORT_KEYS);
    str_putc(&text, '\n');
    pesc_status s =
        path && str_ok(&text) ? io_write_file(path, text.p, text.n) : fail_nomem(MANIFEST, text.n);
    mem_free(path);
    str_free(&text);
    return s;
}

static json_t *manifest_json(const runstate_manifest *m, json_t *files)
{
    return json_pack("{s:s, s:i, s:s, s:I, s:s, s:s*, s:s, s:s, s:s, s:s, s:{s:s, s:s, s:s}, s:O}",
                     "format", FORMAT, "version", RUNSTATE_VERSION, "pesc", PESC_VERSION, "step",
                     (json_int_t)m->step, "base", m->base, "base_relative", m->base_relative,
                     "base_hash", m->base_hash, "tokenizer_hash", m->tokenizer_hash, "data_hash",
                     m->data_hash, "config_hash", m->config_hash, "base_identity", "config",
                     m->identity.config, "tensors", m->identity.tensors, "samples",
                     m->identity.samples, "files", files);
}

pesc_status runstate_seal(const char *dir, const runstate_manifest *m, runsums *sums)
{
    char seal[RUNSUMS_TEXT];
    runsums *own = NULL;
    if (!sums) {
        TRY(runsums_open(&own));
        sums = own;
    }
    json_t *files = json_object(), *manifest = manifest_json(m, files);
    pesc_status s = manifest
                        ? list_files(files, sums, dir)
                        : fail(PESC_USAGE, "%s: is not UTF-8, so no manifest can name it", m->base);
    if (s == PESC_OK)
        s = seal_of(manifest, seal);
    if (s == PESC_OK && json_object_set_new(manifest, "seal", json_string(seal)) != 0)
        s = fail_nomem(MANIFEST, RUNSUMS_TEXT);
    if (s == PESC_OK)
        s = write_manifest(dir, manifest);
    json_decref(manifest);
    json_decref(files);
    runsums_close(own);
    return s;
}

/* ---- checking ---- */

static pesc_status check_file(const char *dir, const char *name, const json_t *entry, bool bytes)
{
    int64_t want = 0;
    const char *hash = NULL;
    uint64_t have = 0;
    char found[RUNSUMS_TEXT];
    json_where w = { entry, name };
    TRY(json_get_i64(w, "bytes", true, 0, RUNSTATE_COUNT_MAX, &want));
    TRY(json_get_str(w, "sha256", true, &hash));
    if (strchr(name, '/') || name[0] == '.')
        return fail(PESC_FORMAT, "%s: %s: names \"%s\", which is no file of a checkpoint", dir,
                    MANIFEST, name);
    char *path = io_join(dir, name);
    if (!path)
        return fail_nomem(dir, strlen(name));
    pesc_status s = io_size(path, &have);
    if (s == PESC_OK && have != (uint64_t)want)
        s = fail(PESC_FORMAT, "%s: is %llu bytes, but %lld were written", path,
                 (unsigned long long)have, (long long)want);
    if (s == PESC_OK && bytes)
        s = runsums_of_file(path, found);
    if (s == PESC_OK && bytes && strcmp(found, hash) != 0)
        s = fail(PESC_FORMAT,
                 "%s: its bytes are not those that were written (SHA-256 %.12s..., "
                 "expected %.12s...)",
                 path, found, hash);
    mem_free(path);
    return s;
}

static pesc_status check_seal(const json_t *manifest, const char *path)
{
    const char *format = NULL, *seal = NULL;
    char found[RUNSUMS_TEXT];
    int64_t version = 0;
    json_where w = { manifest, path };
    TRY(json_get_str(w, "format", true, &format));
    TRY(json_get_i64(w, "version", true, 0, INT32_MAX, &version));
    TRY(json_get_str(w, "seal", true, &seal));
    if (strcmp(format, FORMAT) != 0)
        return fail(PESC_FORMAT, "%s: format: found \"%s\", expected \"" FORMAT "\"", path, format);
    if (version != RUNSTATE_VERSION)
        return fail(PESC_UNSUPPORTED,
                    "%s: version: found %lld, expected %d: it was written by a "
                    "newer pesc",
                    path, (long long)version, RUNSTATE_VERSION);
    TRY(seal_of(manifest, found));
    if (strcmp(found, seal) != 0)
        return fail(PESC_FORMAT, "%s: does not agree with its own seal: it was damaged or changed",
                    path);
    return PESC_OK;
}

static pesc_status copy_text(json_where w, const char *key, bool required, char out[17])
{
    const char *text = "";
    TRY(json_get_str(w, key, required, &text));
    snprintf(out, 17, "%s", text);
    return PESC_OK;
}

static pesc_status read_identity(const json_t *manifest, const char *path, runbase_identity *out)
{
    const json_t *v = json_value(manifest, "base_identity");
    json_where w = { v, path };
    if (!v)
        return PESC_OK;
    TRY(copy_text(w, "config", true, out->config));
    TRY(copy_text(w, "tensors", true, out->tensors));
    return copy_text(w, "samples", true, out->samples);
}

static pesc_status read_manifest(const json_t *manifest, const char *path, runstate_manifest *out)
{
    const char *base = NULL, *relative = NULL;
    json_where w = { manifest, path };
    TRY(json_get_i64(w, "step", true, 0, RUNSTATE_COUNT_MAX, &out->step));
    const char *writer = "";
    TRY(json_get_str(w, "pesc", false, &writer));
    snprintf(out->writer, sizeof out->writer, "%s", writer);
    TRY(copy_text(w, "base_hash", true, out->base_hash));
    TRY(copy_text(w, "tokenizer_hash", false, out->tokenizer_hash));
    TRY(copy_text(w, "data_hash", true, out->data_hash));
    TRY(copy_text(w, "config_hash", true, out->config_hash));
    TRY(read_identity(manifest, path, &out->identity));
    TRY(json_get_str(w, "base", true, &base));
    TRY(json_get_str(w, "base_relative", false, &relative));
    out->base = mem_strdup(base);
    out->base_relative = relative ? mem_strdup(relative) : NULL;
    return out->base && (!relative || out->base_relative) ? PESC_OK
                                                          : fail_nomem(path, strlen(base));
}

static pesc_status check_all(const char *dir, const char *path, const json_t *manifest, bool bytes)
{
    const json_t *files = json_object_get(manifest, "files"), *entry;
    const char *name;
    TRY(check_seal(manifest, path));
    if (!json_is_object(files))
        return fail(PESC_FORMAT, "%s: files: found %s, expected an object", path, json_kind(files));
    json_object_foreach((json_t *)(uintptr_t)files, name, entry)
        TRY(check_file(dir, name, entry, bytes));
    return PESC_OK;
}

pesc_status runstate_check(const char *dir, bool bytes, runstate_manifest *out)
{
    json_t *manifest = NULL;
    *out = (runstate_manifest){ 0 };
    char *path = io_join(dir, MANIFEST);
    if (!path)
        return fail_nomem(dir, sizeof MANIFEST);
    pesc_status s = json_read(&manifest, path, MAX_MANIFEST);
    if (s == PESC_OK && !json_is_object(manifest))
        s = fail(PESC_FORMAT, "%s: found %s, expected an object", path, json_kind(manifest));
    if (s == PESC_OK)
        s = check_all(dir, path, manifest, bytes);
    if (s == PESC_OK)
        s = read_manifest(manifest, path, out);
    if (s != PESC_OK)
        runstate_manifest_free(out);
    json_decref(manifest);
    mem_free(path);
    return s;
}

/* ---- finding ---- */

int64_t runstate_step_of(const char *name)
{
    long long step;
    bool ours = strncmp(name, PREFIX, sizeof PREFIX - 1) == 0 &&
                str_to_i64(name + sizeof PREFIX - 1, 0, RUNSTATE_COUNT_MAX, &step);
    return ours ? step : -1;
}

/* The same for an entry of a run: also of a checkpoint that an interrupted io_swap() left aside. */
static int64_t step_of_entry(const char *name)
{
    char bare[64];
    size_t n = strlen(name), tail = sizeof IO_SWAPPED - 1;
    if (!str_ends(name, IO_SWAPPED) || n - tail >= sizeof bare)
        return runstate_step_of(name);
    snprintf(bare, sizeof bare, "%.*s", (int)(n - tail), name);
    return runstate_step_of(bare);
}

/* Newest first; of one step the entry with the shorter name, which is the one in its place. */
static int by_step(const void *a, const void *b)
{
    const char *left = *(char *const *)a, *right = *(char *const *)b;
    int64_t x = step_of_entry(left), y = step_of_entry(right);
    size_t n = strlen(left), m = strlen(right);
    return x != y ? (x < y) - (x > y) : (n > m) - (n < m);
}

static pesc_status try_one(const char *run, const char *name, bool bytes, char **dir)
{
    runstate_manifest m;
    char *path = io_join(run, name);
    if (!path)
        return fail_nomem(run, strlen(name));
    pesc_status s = runstate_check(path, bytes, &m);
    if (s == PESC_OK) {
        runstate_manifest_free(&m);
        *dir = path;
        return PESC_OK;
    }
    mem_free(path);
    return s;
}

/* The name that `latest` links to, "" when it links to nothing of the kind. */
static void read_latest(const char *run, char *name, size_t cap)
{
    char link[PATH_MAX];
    int length = snprintf(link, sizeof link, "%s/latest", run);
    ssize_t n = length > 0 && (size_t)length < sizeof link ? readlink(link, name, cap - 1) : -1;
    name[n > 0 ? n : 0] = '\0';
    if (runstate_step_of(name) < 0)
        name[0] = '\0';
}

static pesc_status try_all(const char *run, char **names, size_t n, runstate_care care, char **dir)
{
    char latest[256];
    size_t tried = 0;
    read_latest(run, latest, sizeof latest);
    for (size_t pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < n; i++) {
            if (step_of_entry(names[i]) < 0 || (strcmp(names[i], latest) == 0) != (pass == 0))
                continue;
            pesc_status s = try_one(run, names[i], care != RUNSTATE_SIZES, dir);
            if (s == PESC_OK || s == PESC_NOMEM || care == RUNSTATE_STRICT)
                return s;
            log_notice("%s; this checkpoint is not used", pesc_last_error());
            tried++;
        }
    if (tried)
        return fail(PESC_FORMAT, "%s: none of its %zu checkpoints is whole; the last: %s", run,
                    tried, pesc_last_error());
    return PESC_OK;
}

pesc_status runstate_newest(const char *run, runstate_care care, char **dir)
{
    char **names = NULL;
    size_t n = 0;
    *dir = NULL;
    TRY(io_list(run, &names, &n));
    if (n)
        qsort(names, n, sizeof *names, by_step);
    pesc_status s = try_all(run, names, n, care, dir);
    io_list_free(names, n);
    return s;
}

/* On the stack: to look is not to fail. */
static bool has(const char *dir, const char *name)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    return n > 0 && (size_t)n < sizeof path && io_kind_of(path) == IO_FILE;
}

runstate_kind runstate_kind_of(const char *path)
{
    if (io_kind_of(path) != IO_DIR)
        return RUNSTATE_NEITHER;
    if (has(path, MANIFEST) && has(path, "trainer_state.json"))
        return RUNSTATE_CHECKPOINT;
    return has(path, "run.json") && has(path, "run.yaml") ? RUNSTATE_RUN : RUNSTATE_NEITHER;
}

pesc_status runstate_unsaved(const char *run)
{
    return fail(PESC_IO, "%s: is a run that has not saved a checkpoint yet", run);
}

/* The checkpoint a path means, for mem_free(); NULL: it is a plain model. */
static pesc_status checkpoint_of(char **out, const char *path)
{
    *out = NULL;
    runstate_kind kind = runstate_kind_of(path);
    if (kind == RUNSTATE_NEITHER)
        return PESC_OK;
    if (kind == RUNSTATE_CHECKPOINT) {
        *out = mem_strdup(path);
        return *out ? PESC_OK : fail_nomem(path, strlen(path));
    }
    TRY(runstate_newest(path, RUNSTATE_SIZES, out));
    return *out ? PESC_OK : runstate_unsaved(path);
}

/* The base of a checkpoint, for mem_free(). *given is used, and then set to NULL, where it is
 * `forced` or the base is not at its recorded path. */
static pesc_status base_of(char **out, const char *checkpoint, const runstate_manifest *m,
                           const char **given, bool forced)
{
    char *run = io_join(checkpoint, "..");
    runbase_place p = { run, m->base, m->base_relative ? m->base_relative : "" };
    bool use = *given && (forced || io_kind_of(m->base) == IO_NONE);
    const char *path = use ? *given : m->base;
    pesc_status s = run ? PESC_OK : fail_nomem(checkpoint, 4);
    *out = NULL;
    if (s == PESC_OK && !use)
        s = runbase_find(out, &p);
    if (s == PESC_OK && !*out && !(*out = mem_strdup(path)))
        s = fail_nomem(path, strlen(path));
    if (use)
        *given = NULL;
    mem_free(run);
    return s;
}

/* Adds what `at` is to the chain; *next is its base, NULL where it is a plain model. */
static pesc_status add_link(runstate_chain *c, const char *at, const char **given, bool forced,
                            char **next)
{
    char *checkpoint = NULL;
    *next = NULL;
    TRY(checkpoint_of(&checkpoint, at));
    if (checkpoint)
        c->dirs[c->n] = checkpoint;
    else
        TRY(modelname_find(&c->dirs[c->n], at));
    runstate_manifest *m = &c->about[c->n++];
    if (!checkpoint)
        return PESC_OK;
    if (c->n == RUNSTATE_MAX_CHAIN)
        return fail(PESC_FORMAT, "%s: is based on more than %d runs", c->dirs[0],
                    RUNSTATE_MAX_CHAIN - 1);
    TRY(runstate_check(checkpoint, false, m));
    return base_of(next, checkpoint, m, given, forced && c->n == 1);
}

static pesc_status walk_chain(runstate_chain *c, const char *path, const char **given, bool forced)
{
    char *at = NULL, *next = NULL;
    *c = (runstate_chain){ 0 };
    pesc_status s = add_link(c, path, given, forced, &next);
    while (s == PESC_OK && next) {
        at = next;
        s = add_link(c, at, given, forced, &next);
        mem_free(at);
    }
    if (s != PESC_OK) {
        mem_free(next);
        runstate_chain_free(c);
    }
    return s;
}

pesc_status runstate_resolve(runstate_chain *c, const char *path, const char *base)
{
    const char *given = base;
    TRY(walk_chain(c, path, &given, false));
    if (!given)
        return PESC_OK;
    bool run = c->n > 1;
    runstate_chain_free(c);
    if (!run)
        return fail(PESC_USAGE, "%s: is not a run, so it has no base; leave --base out", path);
    return walk_chain(c, path, &given, true);
}

void runstate_chain_free(runstate_chain *c)
{
    for (size_t i = 0; i < c->n; i++) {
        mem_free(c->dirs[i]);
        runstate_manifest_free(&c->about[i]);
    }
    *c = (runstate_chain){ 0 };
}

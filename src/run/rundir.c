#include "run/rundir.h"

#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REPLACING ".replacing" /* see rundir.h */
#define REPLACED ".replaced"
#define RESTORING ".restoring"
#define REMOVING ".removing"
#define DESCRIPTION "run.json"
#define PROBE ".probe"
#define TRASH ".trash-"

struct rundir {
    char *path;
    bool resume, overwrite;
    bool made;  /* the directory was not there before */
    bool begun; /* what is there now is of this run */
    bool saved; /* and a checkpoint is among it */
    io_lock *lock;
};

/* ---- which files are those of a run ---- */

/* Files that pesc writes into a run, by directory ("" is the run itself). Names end at a '*'. */
static const struct {
    const char *dir, *name;
} own_files[] = {
    { "", "run.yaml" },       { "", "metrics.jsonl" },  { "", "routing.jsonl" },
    { "", "eval.jsonl" },     { "", "records.json" },   { "", "SAVE" },
    { "", "STOP" },           { "tb", "events.out.*" }, { "plots", "loss.*" },
    { "plots", "experts.*" }, { "", DESCRIPTION },      { "", PROBE },
};

static bool name_fits(const char *name, const char *pattern)
{
    size_t n = strcspn(pattern, "*");
    return strncmp(name, pattern, n) == 0 && (pattern[n] == '*' || name[n] == '\0');
}

static bool is_own_file(const char *dir, const char *name)
{
    for (size_t i = 0; i < sizeof own_files / sizeof *own_files; i++)
        if (strcmp(dir, own_files[i].dir) == 0 && name_fits(name, own_files[i].name))
            return true;
    return false;
}

static bool is_link_name(const char *name)
{
    return strcmp(name, "latest") == 0 || strcmp(name, "best") == 0;
}

/* A checkpoint has a manifest that pesc wrote; `latest` and `best` are links to one. */
static bool is_own_entry(const char *run, const char *name)
{
    char target[64];
    char *path = io_join(run, name);
    bool own = path && runstate_step_of(name) >= 0 && runstate_kind_of(path) == RUNSTATE_CHECKPOINT;
    if (path && is_link_name(name)) {
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        own = runstate_step_of(target) >= 0;
    }
    mem_free(path);
    return own || is_own_file("", name);
}

/* Whether `name` is what a file of the run, a link or a checkpoint is called while it is written.
 */
static bool is_half(const char *dir, const char *name)
{
    char bare[256];
    const char *mark = strstr(name, ".tmp.");
    if (!mark || (size_t)(mark - name) >= sizeof bare)
        return false;
    snprintf(bare, sizeof bare, "%.*s", (int)(mark - name), name);
    return is_own_file(dir, bare) || (!*dir && (runstate_step_of(bare) >= 0 || is_link_name(bare)));
}

/* Whether the directory is one that rundir_describe() has written to. */
static bool is_run(const char *run)
{
    json_t *v = NULL;
    char *path = io_join(run, DESCRIPTION);
    bool run_of_pesc = path && io_kind_of(path) == IO_FILE &&
                       json_read(&v, path, 1 << 20) == PESC_OK && json_object_get(v, "version") &&
                       json_object_get(v, "argv") && json_object_get(v, "config_hash");
    json_decref(v);
    mem_free(path);
    return run_of_pesc;
}

/* ---- moving and removing the files of a run ---- */

/* What is done with one file of a run: `to` is where it goes, NULL when it is removed. */
static pesc_status move_entry(const char *run, const char *to, const char *name)
{
    char *path = io_join(run, name), *target = to ? io_join(to, name) : NULL;
    pesc_status s = path && (!to || target) ? PESC_OK : fail_nomem(run, strlen(name));
    if (s == PESC_OK)
        s = to ? io_rename(path, target) : io_remove(path);
    mem_free(target);
    mem_free(path);
    return s;
}

static bool is_empty(const char *dir)
{
    char **names = NULL;
    size_t n = 0;
    bool empty = io_list(dir, &names, &n) == PESC_OK && n == 0;
    io_list_free(names, n);
    return empty;
}

/* The files of pesc in a subdirectory; the directory itself goes when nothing else is in it. */
static pesc_status move_subdir(const char *run, const char *to, const char *sub)
{
    char *from = io_join(run, sub), *target = to ? io_join(to, sub) : NULL, **names = NULL;
    size_t n = 0;
    pesc_status s = from && (!to || target) ? PESC_OK : fail_nomem(run, strlen(sub));
    if (s == PESC_OK && io_kind_of(from) == IO_DIR) {
        s = io_list(from, &names, &n);
        if (s == PESC_OK && to)
            s = io_make_dir(target);
        for (size_t i = 0; s == PESC_OK && i < n; i++)
            if (is_own_file(sub, names[i]))
                s = move_entry(from, target, names[i]);
        if (s == PESC_OK && is_empty(from))
            s = io_remove(from);
        io_list_free(names, n);
    }
    mem_free(target);
    mem_free(from);
    return s;
}

/* Moves every file of the run in `run` to the directory `to`, or removes it where `to` is NULL.
 * run.json is last: what has none is no run. */
static pesc_status move_run(const char *run, const char *to)
{
    char **names = NULL;
    size_t n = 0;
    TRY(io_list(run, &names, &n));
    pesc_status s = PESC_OK;
    bool described = false;
    for (size_t i = 0; s == PESC_OK && i < n; i++) {
        bool last = strcmp(names[i], DESCRIPTION) == 0;
        described = described || last;
        if (!last && is_own_entry(run, names[i]))
            s = move_entry(run, to, names[i]);
    }
    io_list_free(names, n);
    if (s == PESC_OK)
        s = move_subdir(run, to, "tb");
    if (s == PESC_OK)
        s = move_subdir(run, to, "plots");
    return s == PESC_OK && described ? move_entry(run, to, DESCRIPTION) : s;
}

/* ---- the run that is replaced ---- */

static bool has_checkpoint(const char *run)
{
    char **names = NULL;
    size_t n = 0, found = 0;
    if (io_list(run, &names, &n) != PESC_OK)
        return true; /* unknown: nothing may be removed */
    for (size_t i = 0; i < n; i++)
        found += runstate_step_of(names[i]) >= 0 && is_own_entry(run, names[i]);
    io_list_free(names, n);
    return found > 0;
}

/* RUN/from becomes RUN/to. */
static pesc_status rename_aside(const char *run, const char *from, const char *to)
{
    char *a = io_join(run, from), *b = io_join(run, to);
    pesc_status s = a && b ? io_rename(a, b) : fail_nomem(run, 16);
    mem_free(a);
    mem_free(b);
    return s == PESC_OK ? io_sync_dir(run) : s;
}

static bool has_aside(const char *run, const char *name)
{
    char *path = io_join(run, name);
    bool there = path && io_kind_of(path) == IO_DIR;
    mem_free(path);
    return there;
}

/* Moves back what is in .restoring, or deletes .removing. */
static pesc_status end_aside(const char *run, const char *name, bool back)
{
    char *old = io_join(run, name);
    pesc_status s = old ? PESC_OK : fail_nomem(run, 16);
    if (s == PESC_OK && back)
        s = move_run(old, run);
    if (s == PESC_OK && back)
        s = io_sync_dir(run);
    if (s == PESC_OK)
        s = io_remove(old);
    mem_free(old);
    return s;
}

/* Puts an old run back whose replacement never saved a checkpoint, or removes it where one did. */
static pesc_status settle_replaced(const char *run)
{
    if (has_aside(run, REMOVING))
        TRY(end_aside(run, REMOVING, false));
    if (has_aside(run, REPLACING))
        TRY(rename_aside(run, REPLACING, RESTORING));
    if (has_aside(run, REPLACED) && has_checkpoint(run)) {
        TRY(rename_aside(run, REPLACED, REMOVING));
        TRY(end_aside(run, REMOVING, false));
    } else if (has_aside(run, REPLACED)) {
        TRY(move_run(run, NULL));
        TRY(rename_aside(run, REPLACED, RESTORING));
    }
    return has_aside(run, RESTORING) ? end_aside(run, RESTORING, true) : PESC_OK;
}

static pesc_status move_aside(const char *run)
{
    char *old = io_join(run, REPLACING);
    pesc_status s = old ? io_make_dir(old) : fail_nomem(run, sizeof REPLACING);
    if (s == PESC_OK)
        s = move_run(run, old);
    if (s == PESC_OK)
        s = io_sync_dir(old);
    mem_free(old);
    return s == PESC_OK ? rename_aside(run, REPLACING, REPLACED) : s;
}

/* ---- claiming ---- */

/* One of the chain is the directory itself, or a checkpoint in it. */
static bool is_of_run(const char *run, const char *model)
{
    size_t n = strlen(run);
    if (strncmp(run, model, n) != 0)
        return false;
    return model[n] == '\0' || (model[n] == '/' && runstate_step_of(model + n + 1) >= 0);
}

static pesc_status check_apart(const char *run, const char *model)
{
    runstate_chain chain = { 0 };
    char *full = NULL;
    TRY(io_absolute(&full, run));
    pesc_status s = runstate_resolve(&chain, model, NULL);
    for (size_t i = 0; s == PESC_OK && i < chain.n; i++) {
        char *dir = NULL;
        s = io_absolute(&dir, chain.dirs[i]);
        if (s == PESC_OK && is_of_run(full, dir))
            s = fail(PESC_USAGE,
                     "%s: holds the model that is trained, or a base of it; give the run another "
                     "directory",
                     run);
        mem_free(dir);
    }
    runstate_chain_free(&chain);
    mem_free(full);
    return s;
}

static pesc_status check_content(const rundir *d)
{
    char **names = NULL;
    size_t n = 0, found = 0;
    if (d->resume)
        return PESC_OK;
    TRY(io_list(d->path, &names, &n));
    for (size_t i = 0; i < n; i++)
        found +=
            strcmp(names[i], "lock") != 0 && strcmp(names[i], PROBE) != 0 && !is_half("", names[i]);
    io_list_free(names, n);
    if (found && !d->overwrite)
        return fail(PESC_USAGE,
                    "%s: is not empty; --resume continues the run in it, --overwrite replaces it",
                    d->path);
    if (found && !is_run(d->path))
        return fail(PESC_USAGE,
                    "%s: is not empty and holds no run (run.json is missing or not pesc's); "
                    "--overwrite replaces runs only, so give another directory",
                    d->path);
    return PESC_OK;
}

static pesc_status lock_dir(rundir *d)
{
    char *path = io_join(d->path, "lock");
    pesc_status s = path ? io_lock_take(&d->lock, path) : fail_nomem(d->path, 16);
    mem_free(path);
    return s;
}

/* A directory that no run has locked before is looked at first, so that one which is refused is
 * left without a lock file. What is found under the lock decides. */
static pesc_status check_before_lock(const rundir *d)
{
    char *path = io_join(d->path, "lock");
    if (!path)
        return fail_nomem(d->path, 16);
    bool locked_before = io_kind_of(path) != IO_NONE;
    mem_free(path);
    return locked_before ? PESC_OK : check_content(d);
}

static pesc_status claim(rundir *d, const char *model)
{
    io_kind kind = io_kind_of(d->path);
    if (kind != IO_NONE && kind != IO_DIR)
        return fail(PESC_USAGE, "%s: is a file; give the directory of a run", d->path);
    if (kind == IO_DIR) {
        TRY(check_apart(d->path, model));
        TRY(check_before_lock(d));
    }
    d->made = kind == IO_NONE;
    TRY(io_make_dir(d->path));
    TRY(lock_dir(d));
    TRY(settle_replaced(d->path));
    return check_content(d);
}

pesc_status rundir_claim(rundir **out, const pesc_train_options *o, const char *model)
{
    *out = NULL;
    rundir *d = mem_zalloc(1, sizeof *d);
    char *path = mem_strdup(o->output);
    if (!d || !path) {
        mem_free(d);
        mem_free(path);
        return fail_nomem(o->output, sizeof *d);
    }
    *d = (rundir){ .path = path, .resume = o->resume, .overwrite = o->overwrite };
    pesc_status s = claim(d, model);
    if (s == PESC_OK)
        *out = d;
    else
        rundir_close(d, false);
    return s;
}

/* A directory that cannot be written is found now, not at the first checkpoint. */
static pesc_status probe(const char *run)
{
    char *path = io_join(run, PROBE);
    if (!path)
        return fail_nomem(run, 16);
    pesc_status s = io_write_file(path, "x", 1);
    if (s == PESC_OK)
        s = io_remove(path);
    mem_free(path);
    return s;
}

static pesc_status sweep_dir(const char *run, const char *sub)
{
    char *dir = *sub ? io_join(run, sub) : mem_strdup(run), **names = NULL;
    size_t n = 0;
    pesc_status s = dir ? PESC_OK : fail_nomem(run, 16);
    if (s == PESC_OK && io_kind_of(dir) == IO_DIR)
        s = io_list(dir, &names, &n);
    for (size_t i = 0; s == PESC_OK && i < n; i++) {
        bool trash = !*sub && (str_starts(names[i], TRASH) || strcmp(names[i], PROBE) == 0);
        char *path = trash || is_half(sub, names[i]) ? io_join(dir, names[i]) : NULL;
        if (path)
            s = io_remove(path);
        mem_free(path);
    }
    io_list_free(names, n);
    mem_free(dir);
    return s;
}

pesc_status rundir_retire(const char *run, const char *name)
{
    str trash = { 0 };
    char *path = io_join(run, name);
    str_printf(&trash, "%s/" TRASH "%s.%ld", run, name, (long)getpid());
    pesc_status s = path && str_ok(&trash) ? PESC_OK : fail_nomem(run, 256);
    if (s == PESC_OK && io_kind_of(path) != IO_NONE)
        s = io_rename(path, trash.p);
    if (s == PESC_OK)
        s = io_remove(trash.p);
    mem_free(path);
    str_free(&trash);
    return s;
}

pesc_status rundir_sweep(const char *run)
{
    TRY(sweep_dir(run, "plots"));
    return sweep_dir(run, "");
}

pesc_status rundir_begin(rundir *d)
{
    TRY(probe(d->path));
    if (d->overwrite && is_run(d->path))
        TRY(move_aside(d->path));
    d->begun = true;
    return rundir_sweep(d->path);
}

pesc_status rundir_saved(rundir *d)
{
    d->saved = true;
    return settle_replaced(d->path);
}

/* Removes the lock and the directory where nothing else is in it. */
static void unmake(const rundir *d)
{
    char **names = NULL;
    size_t n = 0;
    if (io_list(d->path, &names, &n) == PESC_OK && n == 1 && strcmp(names[0], "lock") == 0)
        (void)io_remove(d->path);
    io_list_free(names, n);
}

/* The next try finds the directory as this one did, where this one made nothing. */
static void put_back(const rundir *d, bool unused)
{
    char why[1024];
    snprintf(why, sizeof why, "%s", pesc_last_error());
    if (d->begun && unused && !d->resume && !d->saved)
        (void)move_run(d->path, NULL);
    (void)settle_replaced(d->path);
    if (why[0]) /* a failure of the cleaning must not hide the first */
        (void)fail(PESC_IO, "%s", why);
}

void rundir_close(rundir *d, bool unused)
{
    if (!d)
        return;
    if (d->lock)
        put_back(d, unused);
    if (d->made && d->lock)
        unmake(d);
    io_lock_release(d->lock);
    mem_free(d->path);
    mem_free(d);
}

/* ---- what the run is ---- */

static pesc_status put_file(const char *run, const char *name, const char *text, size_t n)
{
    char *path = io_join(run, name);
    if (!path)
        return fail_nomem(run, strlen(name));
    pesc_status s = io_write_file(path, text, n);
    mem_free(path);
    return s;
}

/* The arguments of this process. */
static json_t *command_line(void)
{
    json_t *list = json_array();
    char *text = NULL;
    size_t n = 0;
    if (io_read_stream("/proc/self/cmdline", 1 << 20, &text, &n) != PESC_OK)
        return list;
    for (size_t at = 0; at < n; at += strlen(text + at) + 1)
        json_array_append_new(list, json_string(text + at));
    mem_free(text);
    return list;
}

pesc_status rundir_options(const char *run, const char *yaml)
{
    return put_file(run, "run.yaml", yaml, strlen(yaml));
}

pesc_status rundir_describe(const char *run, const runstate_manifest *a, const char *where)
{
    char host[256] = "", when[32] = "";
    struct tm tm;
    time_t now = time(NULL);
    str text = { 0 };
    gethostname(host, sizeof host - 1);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    json_t *v = json_pack("{s:s, s:o, s:s, s:s, s:s, s:I, s:s, s:s, s:s, s:s, s:s}", "version",
                          PESC_VERSION, "argv", command_line(), "host", host, "device", where,
                          "started", when, "pid", (json_int_t)getpid(), "base", a->base,
                          "base_hash", a->base_hash, "tokenizer_hash", a->tokenizer_hash,
                          "data_hash", a->data_hash, "config_hash", a->config_hash);
    json_put(&text, v, JSON_INDENT(1));
    str_putc(&text, '\n');
    json_decref(v);
    pesc_status s =
        str_ok(&text) ? put_file(run, DESCRIPTION, text.p, text.n) : fail_nomem(DESCRIPTION, 0);
    str_free(&text);
    return s;
}

bool rundir_asked(const char *run, const char *name)
{
    char *path = io_join(run, name);
    bool there = path && io_kind_of(path) == IO_FILE;
    if (there)
        (void)io_remove(path);
    mem_free(path);
    return there;
}

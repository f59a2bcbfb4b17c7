#include "train/rundir.h"

#include "base/mem.h"
#include "base/str.h"
#include "train/checkpoint.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

/* What a run writes; --overwrite removes these and nothing else. */
static const char *const own_files[] = { "run.yaml",   "run.json", "metrics.jsonl", "routing.jsonl",
                                         "eval.jsonl", "tb",       "plots",         "latest",
                                         "best",       "SAVE",     "STOP" };

static bool is_own(const char *name)
{
    for (size_t i = 0; i < sizeof own_files / sizeof *own_files; i++)
        if (strcmp(name, own_files[i]) == 0)
            return true;
    return runstate_step_of(name) >= 0;
}

pesc_status rundir_check(const pesc_train_options *o)
{
    char **names = NULL;
    size_t n = 0, found = 0;
    io_kind kind = io_kind_of(o->output);
    if (kind == IO_NONE)
        return PESC_OK;
    if (kind != IO_DIR)
        return fail(PESC_USAGE, "%s: is a file; give the directory of a run", o->output);
    if (o->resume || o->overwrite)
        return PESC_OK;
    TRY(io_list(o->output, &names, &n));
    for (size_t i = 0; i < n; i++)
        found += strcmp(names[i], "lock") != 0;
    io_list_free(names, n);
    return found ? fail(PESC_USAGE,
                        "%s: is not empty; --resume goes on with the run in it, --overwrite begins "
                        "anew",
                        o->output)
                 : PESC_OK;
}

/* One of the chain is the directory itself, or a checkpoint in it. */
static bool is_of_run(const char *run, const char *model)
{
    size_t n = strlen(run);
    if (strncmp(run, model, n) != 0)
        return false;
    return model[n] == '\0' || (model[n] == '/' && runstate_step_of(model + n + 1) >= 0);
}

pesc_status rundir_apart(const char *run, const char *model)
{
    runstate_chain chain = { 0 };
    char *full = NULL;
    if (io_kind_of(run) != IO_DIR)
        return PESC_OK;
    TRY(io_absolute(&full, run));
    pesc_status s = runstate_resolve(&chain, model);
    for (size_t i = 0; s == PESC_OK && i < chain.n; i++) {
        char *dir = NULL;
        s = io_absolute(&dir, chain.dirs[i]);
        if (s == PESC_OK && is_of_run(full, dir))
            s = fail(PESC_USAGE,
                     "%s: holds the model that is trained, or what that stands on; "
                     "give the run another directory",
                     run);
        mem_free(dir);
    }
    runstate_chain_free(&chain);
    mem_free(full);
    return s;
}

pesc_status rundir_clear(const char *run)
{
    char **names = NULL;
    size_t n = 0;
    TRY(io_list(run, &names, &n));
    pesc_status s = PESC_OK;
    for (size_t i = 0; s == PESC_OK && i < n; i++) {
        char *path = is_own(names[i]) ? io_join(run, names[i]) : NULL;
        if (path)
            s = io_remove(path);
        mem_free(path);
    }
    io_list_free(names, n);
    return s;
}

/* A directory that cannot be written is found now, not at the first checkpoint. */
static pesc_status probe(const char *run)
{
    char *path = io_join(run, ".probe");
    if (!path)
        return fail_nomem(run, 16);
    pesc_status s = io_write_file(path, "x", 1);
    if (s == PESC_OK)
        s = io_remove(path);
    mem_free(path);
    return s;
}

pesc_status rundir_open(io_lock **lock, const pesc_train_options *o)
{
    TRY(io_make_dir(o->output));
    char *path = io_join(o->output, "lock");
    if (!path)
        return fail_nomem(o->output, 16);
    pesc_status s = io_lock_take(lock, path);
    mem_free(path);
    TRY(s);
    TRY(probe(o->output));
    if (o->overwrite && !o->resume)
        TRY(rundir_clear(o->output));
    return checkpoint_sweep(o->output);
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

/* The words of this process' command line. */
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
        str_ok(&text) ? put_file(run, "run.json", text.p, text.n) : fail_nomem("run.json", 0);
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

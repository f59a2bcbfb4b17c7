#include "cli/replace.h"

#include "cli/command.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether the directory is there and holds anything. */
static bool is_occupied(const char *dir)
{
    DIR *d = opendir(dir);
    if (!d)
        return errno == ENOTDIR;
    int n = 0;
    for (const struct dirent *e; n == 0 && (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n > 0;
}

/* ---- --overwrite: the new model is whole before the old one goes ---- */

static const char *const model_files[] = {
    "config.json",       "generation_config.json",
    "*.safetensors",     "*.safetensors.index.json",
    "pytorch_model*",    "tokenizer*",
    "*.model",           "special_tokens_map.json",
    "added_tokens.json", "chat_template*",
    "vocab.json",        "merges.txt",
    "moe_model.bin",     "adapter_config.json",
};

static bool is_model_file(const char *name)
{
    for (size_t i = 0; i < sizeof model_files / sizeof *model_files; i++)
        if (fnmatch(model_files[i], name, 0) == 0)
            return true;
    return false;
}

/* Moves (to not NULL) or removes the model files of a directory, config.json last when moving: a
 * directory that has it is whole. */
static pesc_status sweep(const char *from, const char *to, bool config)
{
    char source[PATH_MAX], target[PATH_MAX];
    DIR *d = opendir(from);
    int failed = d ? 0 : errno;
    for (const struct dirent *e; !failed && (e = readdir(d));) {
        if (!is_model_file(e->d_name) || (strcmp(e->d_name, "config.json") == 0) != config)
            continue;
        snprintf(source, sizeof source, "%s/%s", from, e->d_name);
        snprintf(target, sizeof target, "%s/%s", to ? to : "", e->d_name);
        if (to ? rename(source, target) : unlink(source))
            failed = errno;
    }
    if (d)
        closedir(d);
    return failed
               ? out_fail(PESC_DISK, "%s: cannot be replaced: %s", to ? to : from, strerror(failed))
               : PESC_OK;
}

static pesc_status replace(const char *fresh, const char *dir)
{
    TRY(sweep(dir, NULL, true));
    TRY(sweep(dir, NULL, false));
    TRY(sweep(fresh, dir, false));
    return sweep(fresh, dir, true);
}

static pesc_status overwrite(const options *o, replace_fn make, void *ud)
{
    char fresh[PATH_MAX];
    if (snprintf(fresh, sizeof fresh - 256, "%s.XXXXXX", o->output) >= (int)sizeof fresh - 256)
        return out_fail(PESC_USAGE, "%s: -o: found a name of %zu bytes, expected a shorter one",
                        o->cmd->name, strlen(o->output));
    if (!mkdtemp(fresh))
        return out_fail(PESC_DISK, "%s: cannot be written: %s", fresh, strerror(errno));
    pesc_status st = make(o, fresh, ud);
    if (st == PESC_OK)
        st = replace(fresh, o->output);
    if (rmdir(fresh) != 0) { /* what a failure left */
        sweep(fresh, NULL, true);
        sweep(fresh, NULL, false);
        rmdir(fresh);
    }
    return st;
}

/* What is read is not written over; and a model in the directory of a run would be taken for it. */
static pesc_status check_apart(const options *o)
{
    char from[PATH_MAX], to[PATH_MAX], run[PATH_MAX];
    snprintf(run, sizeof run, "%s/run.yaml", o->output);
    if (access(run, F_OK) == 0)
        return out_fail(PESC_USAGE, "%s: is the directory of a run; give another -o", o->output);
    if (o->model && realpath(o->model, from) && realpath(o->output, to) && strcmp(from, to) == 0)
        return out_fail(PESC_USAGE, "%s: is the model itself; give another -o", o->output);
    return PESC_OK;
}

pesc_status replace_dir(const options *o, replace_fn make, void *ud)
{
    if (!o->output)
        return out_fail(PESC_USAGE, "%s: -o DIR is missing; usage: pesc %s %s", o->cmd->name,
                        o->cmd->name, o->cmd->synopsis);
    if (!*o->output)
        return out_fail(PESC_USAGE, "%s: -o: found nothing, expected DIR", o->cmd->name);
    bool occupied = is_occupied(o->output);
    if (occupied && o->overwrite)
        TRY(check_apart(o));
    char adapter[PATH_MAX];
    snprintf(adapter, sizeof adapter, "%s/adapter_model", o->output);
    if (occupied && o->overwrite && access(adapter, F_OK) == 0)
        return out_fail(PESC_USAGE,
                        "%s: holds adapter_model, a LoRA that would be applied to the new model; "
                        "remove it first",
                        o->output);
    if (!o->overwrite && occupied)
        return out_fail(PESC_USAGE, "%s: is not empty; give another -o, or --overwrite", o->output);
    return occupied ? overwrite(o, make, ud) : make(o, o->output, ud);
}

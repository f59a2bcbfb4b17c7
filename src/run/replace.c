#include "base/args.h"
#include "base/io.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "format/modeldir.h"
#include "run/runstate.h"
#include "tokenizer/tokenizer.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LIST_BYTES = 16 << 20 };

/* ---- the list ---- */

/* The names on a directory's list, as an array of strings that are plain names. */
static pesc_status read_list(const char *dir, json_t **out)
{
    char *path = io_join(dir, MODELDIR_LIST);
    json_t *v = NULL, *name;
    const char *format = NULL;
    size_t i;
    if (!path)
        return fail_nomem(dir, sizeof MODELDIR_LIST);
    if (io_kind_of(path) != IO_FILE) {
        mem_free(path);
        return fail(PESC_USAGE,
                    "%s: is not empty and was not written by pesc (it has no " MODELDIR_LIST
                    "); --overwrite replaces what pesc wrote only, so give another -o",
                    dir);
    }
    pesc_status s = json_read(&v, path, LIST_BYTES);
    if (s == PESC_OK)
        s = json_get_str((json_where){ v, path }, "format", true, &format);
    json_t *files = json_object_get(v, "files");
    bool plain = s == PESC_OK && strcmp(format, MODELDIR_FORMAT) == 0 && json_is_array(files);
    json_array_foreach(files, i, name)
    {
        const char *text = json_string_value(name);
        plain = plain && text && *text && !strchr(text, '/') && strcmp(text, "..") != 0;
    }
    if (s == PESC_OK && !plain)
        s = fail(PESC_FORMAT, "%s: is not a list of the files of a model", path);
    *out = s == PESC_OK ? json_incref(files) : NULL;
    json_decref(v);
    mem_free(path);
    return s;
}

static bool is_listed(const json_t *files, const char *text)
{
    const json_t *name;
    size_t i;
    json_array_foreach(files, i, name) if (strcmp(json_string_value(name), text) == 0) return true;
    return false;
}

/* ---- whether it may be replaced ---- */

/* A file that a loader would take for part of the new model. */
static bool is_model_file(const char *name)
{
    static const char *const ends[] = { ".safetensors", ".safetensors.index.json", ".bin",
                                        ".bin.index.json", ".model" };
    static const char *const begins[] = { "config.json", "tokenizer", "adapter_", "chat_template",
                                          TOKENIZER_MORE_TEMPLATES };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (str_ends(name, ends[i]))
            return true;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (str_starts(name, begins[i]))
            return true;
    return false;
}

static pesc_status check_content(const char *dir)
{
    json_t *files = NULL;
    char **names = NULL;
    size_t n = 0;
    TRY(read_list(dir, &files));
    pesc_status s = io_list(dir, &names, &n);
    for (size_t i = 0; s == PESC_OK && i < n; i++)
        if (!is_listed(files, names[i]) && is_model_file(names[i]))
            s = fail(
                PESC_USAGE,
                "%s: holds %s, which pesc did not write and which would be taken for a part of "
                "the new model; remove it, or give another -o",
                dir, names[i]);
    io_list_free(names, n);
    json_decref(files);
    return s;
}

/* Whether `dir` is `input`, or one of the directories that `input` is made up of. */
static pesc_status check_input(const char *dir, const char *input)
{
    runstate_chain chain = { 0 };
    char *full = NULL;
    TRY(io_absolute(&full, dir));
    pesc_status s = runstate_resolve(&chain, input, NULL);
    for (size_t i = 0; s == PESC_OK && i < chain.n; i++) {
        char *part = NULL;
        s = io_absolute(&part, chain.dirs[i]);
        size_t length = strlen(full);
        if (s == PESC_OK && strncmp(part, full, length) == 0 &&
            (part[length] == '\0' || part[length] == '/'))
            s = fail(PESC_USAGE,
                     i ? "%s: is the base of %s; give another -o"
                       : "%s: is read as %s; give another -o",
                     dir, input);
        mem_free(part);
    }
    runstate_chain_free(&chain);
    mem_free(full);
    return s;
}

/* ---- what a killed process left ---- */

/* While a model is replaced there is DIR.pesc-old beside it: the new one at first, the old one
 * after the two have changed places. Either way what it holds is in DIR too, but for directories of
 * the user that were still to be carried over. */
#define OLD ".pesc-old"

typedef enum entry { ENTRY_FILE, ENTRY_DIR } entry;

/* Carries what is not on the list from one directory to another: files by a second link before the
 * exchange, directories by renaming them after it. */
static pesc_status carry(const char *from, const char *to, const json_t *files, entry which)
{
    char **names = NULL;
    size_t n = 0;
    TRY(io_list(from, &names, &n));
    pesc_status s = PESC_OK;
    for (size_t i = 0; s == PESC_OK && i < n; i++) {
        char *path = io_join(from, names[i]), *target = io_join(to, names[i]);
        bool dir = path && io_kind_of(path) == IO_DIR;
        if (!path || !target)
            s = fail_nomem(from, strlen(names[i]));
        else if (!is_listed(files, names[i]) && dir == (which == ENTRY_DIR))
            s = dir ? io_rename(path, target) : io_link_file(path, target);
        mem_free(path);
        mem_free(target);
    }
    io_list_free(names, n);
    return s;
}

/* The list is the last file that goes, so one without it is empty. */
static pesc_status settle_old(const char *old, const char *dir)
{
    char *list = io_join(old, MODELDIR_LIST);
    json_t *files = NULL;
    pesc_status s = list ? PESC_OK : fail_nomem(old, sizeof MODELDIR_LIST);
    bool listed = list && io_kind_of(list) == IO_FILE;
    if (s == PESC_OK && listed)
        s = read_list(old, &files);
    if (s == PESC_OK && listed)
        s = carry(old, dir, files, ENTRY_DIR);
    if (s == PESC_OK && (listed || rmdir(old) != 0))
        s = listed ? io_remove(old)
                   : fail(PESC_USAGE,
                          "%s: is not what a killed pesc left there, though it has the name; "
                          "remove it or rename it",
                          old);
    json_decref(files);
    mem_free(list);
    return s;
}

/* Ends what a killed process had begun in the place of `dir`, or undoes it. */
static pesc_status settle(const char *dir)
{
    str old = { 0 }, swapped = { 0 };
    str_printf(&old, "%s" OLD, dir);
    str_printf(&swapped, "%s" IO_SWAPPED, dir);
    pesc_status s = str_ok(&old) && str_ok(&swapped) ? PESC_OK : fail_nomem(dir, strlen(dir));
    if (s == PESC_OK && io_kind_of(swapped.p) == IO_DIR && io_kind_of(old.p) == IO_NONE)
        s = io_rename(swapped.p, old.p);
    if (s == PESC_OK && io_kind_of(old.p) == IO_DIR)
        s = settle_old(old.p, dir);
    str_free(&old);
    str_free(&swapped);
    return s == PESC_OK ? io_draft_settle(dir) : s;
}

/* The directory itself, not a link to it: what is beside that counts. */
static pesc_status settle_real(const char *dir)
{
    char *full = NULL;
    if (io_kind_of(dir) != IO_DIR)
        return PESC_OK;
    TRY(io_absolute(&full, dir));
    pesc_status s = settle(full);
    mem_free(full);
    return s;
}

pesc_status pesc_model_check_replace(const char *dir, const char *const *inputs, size_t n)
{
    status_clear();
    NEED(dir);
    NEED_ARRAY(inputs, n);
    if (io_kind_of(dir) == IO_FILE)
        return io_draft_settle(dir);
    for (size_t i = 0; i < n; i++)
        if (inputs[i] && *inputs[i] && io_kind_of(inputs[i]) == IO_DIR)
            TRY(check_input(dir, inputs[i]));
    if (runstate_kind_of(dir) == RUNSTATE_RUN)
        return fail(PESC_USAGE, "%s: is the directory of a run; give another -o", dir);
    TRY(settle_real(dir));
    return check_content(dir);
}

/* ---- replacing ---- */

/* The new model, called `old` already, and `dir` change places. */
static pesc_status exchange(const char *old, const char *dir, const json_t *files)
{
    struct stat there;
    if (stat(dir, &there) == 0)
        (void)chmod(old, there.st_mode & 07777);
    TRY(carry(dir, old, files, ENTRY_FILE));
    TRY(io_sync_dir(old));
    return io_swap(old, dir);
}

pesc_status pesc_model_replace(const char *fresh, const char *dir)
{
    status_clear();
    NEED(fresh);
    NEED(dir);
    json_t *files = NULL;
    char *full = NULL;
    str old = { 0 };
    TRY(check_content(dir));
    TRY(read_list(dir, &files));
    pesc_status s = io_absolute(&full, dir);
    if (s == PESC_OK)
        str_printf(&old, "%s" OLD, full);
    if (s == PESC_OK && !str_ok(&old))
        s = fail_nomem(dir, strlen(dir));
    if (s == PESC_OK)
        s = io_rename(fresh, old.p);
    if (s == PESC_OK && (s = exchange(old.p, full, files)) != PESC_OK)
        (void)rename(old.p, fresh); /* as it was */
    else if (s == PESC_OK)
        s = settle_old(old.p, full);
    json_decref(files);
    mem_free(full);
    str_free(&old);
    return s;
}

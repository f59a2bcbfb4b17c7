#include "data/datafiles.h"

#include "base/io.h"
#include "base/mem.h"
#include "base/str.h"
#include "format/modelname.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* A directory of a folder is none of its files. */
static pesc_status add(datafiles *f, const char *folder, const char *name)
{
    char *path = folder ? io_join(folder, name) : mem_strdup(name);
    if (path && folder && io_kind_of(path) == IO_DIR) {
        mem_free(path);
        return PESC_OK;
    }
    if (!path || !mem_room((void **)&f->paths, &f->cap, f->n, sizeof *f->paths)) {
        mem_free(path);
        return fail_nomem("the list of data files", strlen(name));
    }
    f->paths[f->n++] = path;
    return PESC_OK;
}

void datafiles_free(datafiles *f)
{
    for (size_t i = 0; i < f->n; i++)
        mem_free(f->paths[i]);
    mem_free(f->paths);
    *f = (datafiles){ 0 };
}

/* ---- the files of a split ---- */

static const char *const endings[] = { ".jsonl", ".json", ".parquet", ".csv", ".tsv", ".txt" };
static const char *const packings[] = { "", ".xz", ".gz", ".zst" };
enum { N_ENDINGS = 6, N_PACKINGS = 4 };

/* Whether the name is SPLIT.jsonl or SPLIT-00000-of-00003.jsonl, of this ending; of any data file
 * where split is NULL. */
static bool is_of(const char *name, const char *split, const char *ending)
{
    size_t n = split ? strlen(split) : 0;
    if (!str_ends(name, ending) || name[0] == '.' || str_starts(name, "dataset_info"))
        return false;
    if (!split)
        return true;
    if (strncmp(name, split, n) != 0)
        return false;
    return strcmp(name + n, ending) == 0 || (name[n] == '-' && isdigit((unsigned char)name[n + 1]));
}

/* Adds the files of a folder, all with the first ending that there is. */
static pesc_status add_folder(datafiles *f, const char *folder, const char *split)
{
    char **names = NULL;
    size_t n = 0, before = f->n;
    if (io_kind_of(folder) != IO_DIR)
        return PESC_OK;
    pesc_status s = io_list(folder, &names, &n);
    for (size_t e = 0; e < N_ENDINGS * N_PACKINGS && f->n == before; e++) {
        char ending[16];
        snprintf(ending, sizeof ending, "%s%s", endings[e / N_PACKINGS], packings[e % N_PACKINGS]);
        for (size_t i = 0; s == PESC_OK && i < n; i++)
            if (is_of(names[i], split, ending))
                s = add(f, folder, names[i]);
    }
    io_list_free(names, n);
    return s;
}

/* The same of DIR/FOLDER. */
static pesc_status add_below(datafiles *f, const char *dir, const char *folder, const char *split)
{
    char *path = io_join(dir, folder);
    pesc_status s = path ? add_folder(f, path, split) : fail_nomem(dir, strlen(folder));
    mem_free(path);
    return s;
}

pesc_status datafiles_split(datafiles *f, const char *dir, const char *split)
{
    size_t before = f->n;
    TRY(add_folder(f, dir, split));
    if (f->n == before)
        TRY(add_below(f, dir, "data", split));
    return f->n == before ? add_below(f, dir, split, NULL) : PESC_OK;
}

/* ---- a name ---- */

static pesc_status refuse_saved(const char *dir)
{
    static const char *const marks[] = { "dataset_dict.json", "state.json" };
    for (int i = 0; i < 2; i++) {
        char *path;
        TRY(io_find(&path, dir, marks[i]));
        mem_free(path);
        if (path)
            return fail(PESC_FORMAT,
                        "%s: is a directory of the Python package datasets; export it: python3 -c "
                        "\"from datasets import load_from_disk; "
                        "load_from_disk('%s')%s.to_json('data.jsonl')\"",
                        dir, dir, i == 0 ? "['train']" : "");
    }
    return PESC_OK;
}

/* What is there instead: names in the directory and in its folder data. */
static void put_names(str *out, const char *dir)
{
    enum { MOST = 12 };
    char **names = NULL;
    size_t n = 0;
    if (!dir || io_kind_of(dir) != IO_DIR || io_list(dir, &names, &n) != PESC_OK)
        return;
    for (size_t i = 0; i < n && i < MOST; i++)
        str_printf(out, "%s%s", out->n ? ", " : "", names[i]);
    if (n > MOST)
        str_puts(out, ", ...");
    io_list_free(names, n);
}

static pesc_status has_no_split(const char *dir, const char *split)
{
    str found = { 0 };
    char *data = io_join(dir, "data");
    put_names(&found, dir);
    put_names(&found, data);
    mem_free(data);
    pesc_status s = fail(PESC_IO,
                         "%s: has no data files of the split %s (%s.jsonl, "
                         "%s-00000-of-00001.parquet and the like); it has %s; give DIR:SPLIT, "
                         "DIR:CONFIG/SPLIT or the files",
                         dir, split, split, split, found.n ? found.p : "nothing");
    str_free(&found);
    return s;
}

/* split NULL: none was named. */
static pesc_status add_dir(datafiles *f, const char *dir, const char *split)
{
    const char *slash = split ? strrchr(split, '/') : NULL;
    size_t before = f->n;
    TRY(refuse_saved(dir));
    if (slash) {
        char *config = mem_strndup(split, (size_t)(slash - split));
        char *below = config ? io_join(dir, config) : NULL;
        pesc_status s = below ? datafiles_split(f, below, slash + 1) : fail_nomem(dir, 0);
        mem_free(below);
        mem_free(config);
        TRY(s);
    } else {
        TRY(datafiles_split(f, dir, split ? split : "train"));
    }
    if (f->n > before)
        return PESC_OK;
    datafiles any = { 0 };
    pesc_status s = split ? PESC_OK : add_folder(&any, dir, NULL);
    if (s == PESC_OK && any.n == 1)
        s = add(f, NULL, any.paths[0]);
    datafiles_free(&any);
    TRY(s);
    return f->n > before ? PESC_OK : has_no_split(dir, split ? split : "train");
}

pesc_status datafiles_add(datafiles *f, const char *name)
{
    io_kind kind = io_kind_of(name);
    if (kind == IO_DIR)
        return add_dir(f, name, NULL);
    if (kind != IO_NONE)
        return add(f, NULL, name);
    const char *colon = strrchr(name, ':');
    char *whole = mem_strndup(name, colon ? (size_t)(colon - name) : strlen(name)), *cached = NULL;
    if (!whole)
        return fail_nomem(name, strlen(name));
    pesc_status s = PESC_OK;
    bool here = io_kind_of(whole) == IO_DIR;
    if (!here)
        s = modelname_data(&cached, whole);
    if (s == PESC_OK && (here || cached))
        s = add_dir(f, here ? whole : cached, colon ? colon + 1 : NULL);
    else if (s == PESC_OK)
        s = add(f, NULL, name); /* opening it says that it is not there */
    mem_free(cached);
    mem_free(whole);
    return s;
}

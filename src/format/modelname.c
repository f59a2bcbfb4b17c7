#include "format/modelname.h"

#include "base/io.h"
#include "base/mem.h"
#include "base/str.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PART = 96, MAX_REF = 256 };

/* Letters, digits, '.', '_' and '-', not beginning with a '.': what the hub allows in a part of a
 * name, and nothing that leads out of a directory. */
static bool is_part(const char *s, size_t n)
{
    bool fine = n > 0 && n <= MAX_PART && s[0] != '.' && s[0] != '-';
    for (size_t i = 0; fine && i < n; i++)
        fine = isalnum((unsigned char)s[i]) || strchr("._-", s[i]);
    return fine;
}

/* Whether it has the form org/name; *slash is where. A path below a directory that is here is not
 * one. */
static bool is_hub_name(const char *name, size_t *slash)
{
    const char *at = strchr(name, '/');
    if (!at || !is_part(name, (size_t)(at - name)) || !is_part(at + 1, strlen(at + 1)))
        return false;
    *slash = (size_t)(at - name);
    char *org = mem_strndup(name, *slash);
    bool here = org && io_kind_of(org) != IO_NONE;
    mem_free(org);
    return !here;
}

/* ---- the cache ---- */

static const char *set(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value ? value : NULL;
}

static void put_cache(str *out)
{
    const char *hub = set("HF_HUB_CACHE"), *home = set("HF_HOME"), *xdg = set("XDG_CACHE_HOME");
    const char *user = set("HOME");
    if (hub)
        str_puts(out, hub);
    else if (home)
        str_printf(out, "%s/hub", home);
    else if (xdg)
        str_printf(out, "%s/huggingface/hub", xdg);
    else
        str_printf(out, "%s/.cache/huggingface/hub", user ? user : "~");
}

/* The name of the snapshot that refs/main says, or of the only one; "" when neither is there. */
static pesc_status read_snapshot(const char *repo, char out[MAX_PART + 1])
{
    char *text = NULL, *ref = io_join(repo, "refs/main"), *dir = io_join(repo, "snapshots");
    char **names = NULL;
    size_t n = 0;
    pesc_status s = ref && dir ? PESC_OK : fail_nomem(repo, 0);
    out[0] = '\0';
    if (s == PESC_OK && io_kind_of(ref) == IO_FILE)
        s = io_read_file(ref, MAX_REF, &text, &n);
    while (text && n > 0 && isspace((unsigned char)text[n - 1]))
        text[--n] = '\0';
    if (s == PESC_OK && text && is_part(text, n))
        memcpy(out, text, n + 1);
    mem_free(text);
    if (s == PESC_OK && !out[0] && io_kind_of(dir) == IO_DIR) {
        s = io_list(dir, &names, &n);
        if (s == PESC_OK && n == 1 && is_part(names[0], strlen(names[0])))
            memcpy(out, names[0], strlen(names[0]) + 1);
        io_list_free(names, n);
    }
    mem_free(ref);
    mem_free(dir);
    return s;
}

/* kind: "model" or "dataset", as the cache and its command call them. */
static pesc_status find_cached(char **out, const char *kind, const char *name, size_t slash)
{
    char snapshot[MAX_PART + 1];
    str cache = { 0 }, path = { 0 };
    put_cache(&cache);
    str_printf(&path, "%s/%ss--%.*s--%s", cache.p ? cache.p : "", kind, (int)slash, name,
               name + slash + 1);
    pesc_status s = str_ok(&path) ? read_snapshot(path.p, snapshot) : fail_nomem(name, 0);
    if (s == PESC_OK && snapshot[0]) {
        str_printf(&path, "/snapshots/%s", snapshot);
        if (!str_ok(&path))
            s = fail_nomem(name, path.n);
        else if (io_kind_of(path.p) == IO_DIR)
            *out = mem_strndup(path.p, path.n);
    }
    if (s == PESC_OK && !*out)
        s = fail(
            PESC_IO,
            "%s: is neither %s here nor a %s in the cache %s; to download it: hf download %s%s",
            name, strcmp(kind, "model") == 0 ? "a directory" : "a file or directory", kind, cache.p,
            name, strcmp(kind, "model") == 0 ? "" : " --repo-type dataset");
    str_free(&cache);
    str_free(&path);
    return s;
}

pesc_status modelname_data(char **out, const char *name)
{
    size_t slash;
    *out = NULL;
    return is_hub_name(name, &slash) ? find_cached(out, "dataset", name, slash) : PESC_OK;
}

/* ---- a directory with one file ---- */

static pesc_status find_inside(char **out, const char *dir)
{
    char *config = io_join(dir, "config.json"), *file = io_join(dir, "model.gguf");
    bool memory = config && file;
    if (memory && io_kind_of(config) == IO_NONE && io_kind_of(file) == IO_FILE)
        *out = file;
    else
        mem_free(file);
    mem_free(config);
    return memory ? PESC_OK : fail_nomem(dir, 0);
}

pesc_status modelname_find(char **out, const char *name)
{
    size_t slash;
    *out = NULL;
    switch (io_kind_of(name)) {
    case IO_DIR:
        TRY(find_inside(out, name));
        break;
    case IO_NONE:
        if (is_hub_name(name, &slash))
            return find_cached(out, "model", name, slash);
        break;
    default:
        break;
    }
    if (!*out)
        *out = mem_strdup(name);
    return *out ? PESC_OK : fail_nomem(name, strlen(name));
}

#include "format/modeldir.h"

#include "base/io.h"
#include "base/mem.h"
#include "base/str.h"
#include "format/gguf.h"
#include "tokenizer/tokenizer.h"

#include <string.h>
#include <xxhash.h>

enum { FILE_BYTES = 1 << 30 };

#define CONFIG "tokenizer_config.json"

/* What decides how a model's texts become ids; then what else is copied along. The first is copied
 * with its folder. */
static const char *const tokenizer_files[] = {
    TOKENIZER_MORE_TEMPLATES "/tool_use.jinja",
    "tokenizer.json",
    "tokenizer.model",
    CONFIG,
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
};
enum {
    N_FILES = sizeof tokenizer_files / sizeof *tokenizer_files,
    N_HASHED = N_FILES - 1,
};

/* The nearest directory above (or at) the path that exists, for mem_free(). */
static char *existing_above(const char *path)
{
    char *p = mem_strdup(path);
    while (p && io_kind_of(p) == IO_NONE) {
        char *slash = strrchr(p, '/');
        if (!slash || slash == p) {
            mem_free(p);
            return mem_strdup(slash ? "/" : ".");
        }
        *slash = '\0';
    }
    return p;
}

pesc_status modeldir_check_room(const char *dir, uint64_t bytes)
{
    uint64_t room = 0;
    char *there = existing_above(dir);
    if (!there)
        return fail_nomem(dir, strlen(dir));
    pesc_status s = io_free_bytes(there, &room);
    mem_free(there);
    TRY(s);
    if (bytes <= room)
        return PESC_OK;
    return fail(
        PESC_DISK,
        "%s: needs %.1f GB of disk, and %.1f GB are free there; make room or choose another "
        "output directory",
        dir, (double)bytes / 1e9, (double)room / 1e9);
}

static pesc_status copy_file(const char *from, const char *dir, const char *name)
{
    char *text = NULL, *to = io_join(dir, name);
    size_t n;
    if (!to)
        return fail_nomem("copying a file", 0);
    pesc_status s = io_read_file(from, FILE_BYTES, &text, &n);
    if (s == PESC_OK)
        s = io_write_file(to, text, n);
    mem_free(text);
    mem_free(to);
    return s;
}

/* The files of which a tokenizer needs one. */
static const char *const models[] = { "tokenizer.json", "tokenizer.model" };

static pesc_status copy_from_file(const char *from, const char *dir)
{
    gguf *g = NULL;
    tokenizer *t = NULL;
    bool inside = false;
    TRY(gguf_is(from, &inside));
    if (!inside)
        TRY(tokenizer_open_file(&t, from));
    tokenizer_close(t);
    if (!inside)
        return copy_file(from, dir, str_ends(from, ".model") ? models[1] : models[0]);
    TRY(gguf_open(&g, from));
    pesc_status s = gguf_write_tokenizer(g, dir);
    gguf_close(g);
    return s;
}

static pesc_status copy_templates(const char *from, const char *to)
{
    char **names = NULL;
    size_t n = 0;
    TRY(io_make_dir(to));
    TRY(io_list(from, &names, &n));
    pesc_status s = PESC_OK;
    for (size_t i = 0; s == PESC_OK && i < n; i++) {
        char *path = str_ends(names[i], ".jinja") ? io_join(from, names[i]) : NULL;
        if (path && io_kind_of(path) == IO_FILE)
            s = copy_file(path, to, names[i]);
        mem_free(path);
    }
    io_list_free(names, n);
    return s;
}

/* The folder of named templates belongs to the chat_template.jinja beside it: one that was copied
 * from a base goes where that one was replaced. */
static pesc_status copy_more_templates(const char *from, const char *dir)
{
    char *jinja = io_join(from, "chat_template.jinja");
    char *more = io_join(from, TOKENIZER_MORE_TEMPLATES);
    char *to = io_join(dir, TOKENIZER_MORE_TEMPLATES);
    pesc_status s = jinja && more && to ? PESC_OK : fail_nomem("copying a tokenizer", 0);
    if (s == PESC_OK && io_kind_of(jinja) == IO_FILE)
        s = io_remove(to);
    if (s == PESC_OK && io_kind_of(more) == IO_DIR)
        s = copy_templates(more, to);
    mem_free(jinja);
    mem_free(more);
    mem_free(to);
    return s;
}

pesc_status modeldir_copy_tokenizer(const char *from, const char *dir)
{
    if (io_kind_of(from) == IO_FILE)
        return copy_from_file(from, dir);
    if (io_kind_of(from) != IO_DIR)
        return fail(PESC_IO, "%s: is neither a tokenizer file nor a directory", from);
    for (size_t i = 1; i < N_FILES; i++) {
        char *path = io_join(from, tokenizer_files[i]);
        if (!path)
            return fail_nomem("copying a tokenizer", 0);
        pesc_status s =
            io_kind_of(path) == IO_FILE ? copy_file(path, dir, tokenizer_files[i]) : PESC_OK;
        mem_free(path);
        TRY(s);
    }
    return copy_more_templates(from, dir);
}

pesc_status modeldir_copy_named_tokenizer(const char *from, const char *dir)
{
    bool found = false;
    TRY(modeldir_copy_tokenizer(from, dir));
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char *path = io_join(dir, models[i]);
        if (!path)
            return fail_nomem("copying a tokenizer", 0);
        found = found || io_kind_of(path) == IO_FILE;
        mem_free(path);
    }
    return found ? PESC_OK
                 : fail(PESC_IO, "%s: has neither tokenizer.json nor tokenizer.model", from);
}

static int set_token(json_t *config, const char *key, const tokenizer *t, int32_t id)
{
    size_t n = 0;
    const char *text = id >= 0 ? tokenizer_token(t, id, &n) : NULL;
    return !text || json_has(config, key) ? 0
                                          : json_object_set_new(config, key, json_stringn(text, n));
}

static pesc_status name_class(json_t *config, const char *dir, bool fast)
{
    tokenizer *t = NULL;
    TRY(tokenizer_open_dir(&t, dir));
    int bad = json_object_set_new(config, "tokenizer_class",
                                  json_string(fast ? "PreTrainedTokenizerFast" : "LlamaTokenizer"));
    if (!json_has(config, "model_input_names"))
        bad |= json_object_set_new(config, "model_input_names",
                                   json_pack("[ss]", "input_ids", "attention_mask"));
    bad |= set_token(config, "bos_token", t, tokenizer_bos(t));
    bad |= set_token(config, "eos_token", t, tokenizer_eos(t));
    tokenizer_close(t);
    return bad ? fail_nomem(CONFIG, 0) : modeldir_write_json(dir, CONFIG, config);
}

pesc_status modeldir_name_tokenizer(const char *dir)
{
    char *fast = NULL, *slow = NULL, *path = NULL;
    json_t *config = NULL;
    TRY(io_find(&fast, dir, models[0]));
    pesc_status s = io_find(&slow, dir, models[1]);
    if (s == PESC_OK && (fast || slow))
        s = io_find(&path, dir, CONFIG);
    if (s == PESC_OK && path)
        s = json_read_big(&config, path, FILE_BYTES);
    if (s == PESC_OK && (fast || slow) && !json_has(config, "tokenizer_class")) {
        config = config ? config : json_object();
        s = config ? name_class(config, dir, fast != NULL) : fail_nomem(CONFIG, 0);
    }
    json_decref(config);
    mem_free(fast);
    mem_free(slow);
    mem_free(path);
    return s;
}

pesc_status modeldir_copy_template(const char *from, const char *dir)
{
    static const char name[] = "chat_template.jinja";
    char *path = io_join(from, name);
    if (!path)
        return fail_nomem("copying a chat template", 0);
    pesc_status s = io_kind_of(path) == IO_FILE ? copy_file(path, dir, name) : PESC_OK;
    mem_free(path);
    return s;
}

static pesc_status hash_file(const char *path, const char *name, uint64_t *h)
{
    char *text = NULL;
    size_t n;
    if (io_kind_of(path) != IO_FILE)
        return PESC_OK;
    TRY(io_read_file(path, FILE_BYTES, &text, &n));
    *h = XXH3_64bits_withSeed(text, n, XXH3_64bits_withSeed(name, strlen(name), *h));
    mem_free(text);
    return PESC_OK;
}

pesc_status modeldir_hash_tokenizer(const char *dir, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < N_HASHED; i++) {
        char *path = io_join(dir, tokenizer_files[i]);
        if (!path)
            return fail_nomem(dir, 0);
        pesc_status s = hash_file(path, tokenizer_files[i], out);
        mem_free(path);
        TRY(s);
    }
    return PESC_OK;
}

/* The fewest digits that give back every number: 1e-05, not 1.0000000000000001e-05. */
static char *dump(const json_t *json)
{
    enum { DIGITS_MIN = 15, DIGITS_MAX = 17 };
    for (size_t digits = DIGITS_MIN;; digits++) {
        char *text =
            json_dumps(json, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(digits));
        if (!text || digits == DIGITS_MAX)
            return text;
        json_t *back = json_loads(text, JSON_DECODE_ANY, NULL);
        bool same = json_equal(back, json);
        json_decref(back);
        if (same)
            return text;
        mem_free(text);
    }
}

pesc_status modeldir_write_json(const char *dir, const char *name, const json_t *json)
{
    char *path = io_join(dir, name);
    char *text = path ? dump(json) : NULL;
    str line = { 0 };
    str_puts(&line, text ? text : "");
    str_putc(&line, '\n');
    bool ok = text && str_ok(&line);
    pesc_status s = ok ? io_write_file(path, line.p, line.n) : fail_nomem(name, 0);
    str_free(&line);
    mem_free(text);
    mem_free(path);
    return s;
}

pesc_status modeldir_list(const char *dir, const char *last)
{
    char **names = NULL;
    size_t n = 0;
    TRY(io_list(dir, &names, &n));
    json_t *files = json_array();
    int bad = files == NULL;
    for (size_t i = 0; i < n; i++)
        bad |= json_array_append_new(files, json_string(names[i]));
    if (last)
        bad |= json_array_append_new(files, json_string(last));
    bad |= json_array_append_new(files, json_string(MODELDIR_LIST));
    json_t *v =
        json_pack("{s:s, s:i, s:o}", "format", MODELDIR_FORMAT, "version", 1, "files", files);
    pesc_status s = v && !bad ? modeldir_write_json(dir, MODELDIR_LIST, v)
                              : fail_nomem(MODELDIR_LIST, n * sizeof *names);
    json_decref(v);
    io_list_free(names, n);
    return s;
}

pesc_status modeldir_finish(const char *dir, const char *name, const json_t *json)
{
    TRY(modeldir_list(dir, name));
    return modeldir_write_json(dir, name, json);
}

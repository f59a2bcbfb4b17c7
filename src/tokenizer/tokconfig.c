#include "tokenizer/tokopen.h"

#include "base/io.h"
#include "base/mem.h"
#include "base/str.h"
#include "tokenizer/pipeline.h"

#include <string.h>

#define FILE_MAX (64u << 20)

/* The JSON object in dir/name; *out NULL when there is no such file. */
static pesc_status read_object(json_t **out, const char *dir, const char *name)
{
    *out = NULL;
    char *path = io_join(dir, name);
    if (!path)
        return fail_nomem(dir, 0);
    pesc_status s = PESC_OK;
    if (io_kind_of(path) != IO_NONE)
        s = json_read_big(out, path, FILE_MAX);
    if (s == PESC_OK && *out && !json_is_object(*out)) {
        s = fail(PESC_FORMAT, "%s: found %s, expected an object", path, json_kind(*out));
        json_decref(*out);
        *out = NULL;
    }
    mem_free(path);
    return s;
}

/* "bos_token": "<s>" or {"content": "<s>", ...}. A token the vocabulary lacks is no token. */
static void find_token(const tokenizer *t, const json_t *config, const char *key, int32_t *id)
{
    const json_t *v = json_object_get(config, key);
    const char *text = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
    int32_t found = text ? tokenizer_id(t, text) : -1;
    if (found >= 0)
        *id = found;
}

/* What chat templates may name; a configuration may be NULL. */
static pesc_status name_tokens(tokenizer *t, const json_t *config)
{
    static const char *const names[] = { "bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *v = json_object_get(config, names[i]);
        v = json_is_object(v) ? json_object_get(v, "content") : v;
        if (json_is_string(v))
            TRY(pipeline_name_token(t, names[i], json_string_value(v), json_string_length(v)));
    }
    return PESC_OK;
}

/* The template of that name in a list of {"name", "template"}; NULL: none. */
static const json_t *named_template(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        const char *own = json_string_value(json_object_get(row, "name"));
        if (own && strcmp(own, name) == 0)
            return json_object_get(row, "template");
    }
    return NULL;
}

/* Takes the chat template and the one for conversations with tools; either may be NULL. */
static pesc_status take_template(tokenizer *t, const json_t *plain, const json_t *tools)
{
    if (!json_is_string(plain))
        return PESC_OK;
    char *text = mem_strdup(json_string_value(plain));
    if (!text)
        return fail_nomem(t->file, json_string_length(plain));
    mem_free(t->chat_template);
    t->chat_template = text;
    mem_free(t->tool_template);
    t->tool_template = json_is_string(tools) ? mem_strdup(json_string_value(tools)) : NULL;
    return t->tool_template || !json_is_string(tools)
               ? PESC_OK
               : fail_nomem(t->file, json_string_length(tools));
}

/* A string, or a list of named templates: "default", and "tool_use" where tools are given. */
static pesc_status keep_template(tokenizer *t, const json_t *config)
{
    const json_t *v = json_object_get(config, "chat_template");
    if (!json_is_array(v))
        return take_template(t, v, NULL);
    return take_template(t, named_template(v, "default"), named_template(v, "tool_use"));
}

/* The text of dir/name, for mem_free(); NULL: there is no such file. */
static pesc_status read_text(char **out, const char *dir, const char *name)
{
    size_t n;
    char *path = io_join(dir, name);
    *out = NULL;
    if (!path)
        return fail_nomem(dir, 0);
    pesc_status s = io_kind_of(path) == IO_FILE ? io_read_file(path, FILE_MAX, out, &n) : PESC_OK;
    mem_free(path);
    return s;
}

/* *found: there is one. transformers writes named templates as files in a folder beside it. */
static pesc_status take_template_file(tokenizer *t, const char *dir, bool *found)
{
    char *text = NULL;
    TRY(read_text(&text, dir, "chat_template.jinja"));
    *found = text != NULL;
    if (!text)
        return PESC_OK;
    mem_free(t->chat_template);
    t->chat_template = text;
    mem_free(t->tool_template);
    return read_text(&t->tool_template, dir, TOKENIZER_MORE_TEMPLATES "/tool_use.jinja");
}

/* A file of its own wins over the configuration. */
pesc_status tokenizer_take_template(tokenizer *t, const char *dir)
{
    json_t *root = NULL;
    bool own = false;
    pesc_status s = take_template_file(t, dir, &own);
    if (s == PESC_OK && !own)
        s = read_object(&root, dir, "chat_template.json");
    if (s == PESC_OK && root)
        s = keep_template(t, root);
    json_decref(root);
    return s;
}

static pesc_status add_late(tokenizer *t, added_token *a, const char *text, int64_t id,
                            const char *where)
{
    if (id < 0 || id >= INT32_MAX)
        return fail(PESC_FORMAT, "%s: '%s': the id is out of range", where, text);
    a->text = (char *)text;
    a->n = strlen(text);
    a->id = (int32_t)id;
    return pipeline_add(t, a, where);
}

/* {"32000": {"content": "<|im_start|>", "special": true, ...}, ...}. A tokenizer.json has all
 * tokens itself: then the list only says which of them are control tokens, as with Hugging Face. */
static pesc_status add_decoder_tokens(tokenizer *t, const json_t *config, const char *dir)
{
    json_t *list = json_object_get(config, "added_tokens_decoder"), *v;
    const char *key;
    json_object_foreach(list, key, v)
    {
        long long id;
        const char *text = json_string_value(json_object_get(v, "content"));
        if (!text || !str_to_i64(key, 0, INT32_MAX - 1, &id))
            return fail(PESC_FORMAT,
                        "%s/tokenizer_config.json: added_tokens_decoder: '%s' is not an id with a "
                        "content",
                        dir, key);
        added_token a = { 0 };
        json_where w = { v, "tokenizer_config.json: added_tokens_decoder" };
        TRY(added_read_flags(w, &a));
        if (t->sp || (a.special && tokenizer_id(t, text) == id))
            TRY(add_late(t, &a, text, id, w.file));
    }
    return PESC_OK;
}

/* {"<|im_start|>": 32000, ...} */
static pesc_status add_listed_tokens(tokenizer *t, const char *dir)
{
    json_t *root, *v;
    const char *text;
    TRY(read_object(&root, dir, "added_tokens.json"));
    pesc_status s = PESC_OK;
    json_object_foreach(root, text, v)
    {
        added_token a = { .special = true };
        if (s == PESC_OK && !json_is_integer(v))
            s = fail(PESC_FORMAT, "%s/added_tokens.json: '%s': found %s, expected an id", dir, text,
                     json_kind(v));
        if (s == PESC_OK && vocab_find(&t->added_vocab, text, strlen(text)) < 0)
            s = add_late(t, &a, text, json_integer_value(v), "added_tokens.json");
    }
    json_decref(root);
    return s;
}

static pesc_status configure_sp(tokenizer *t, const json_t *config, const char *dir)
{
    json_where w = { config, "tokenizer_config.json" };
    bool bos = t->front.n > 0, eos = t->back.n > 0;
    TRY(add_listed_tokens(t, dir));
    TRY(json_get_bool(w, "add_bos_token", false, &bos));
    TRY(json_get_bool(w, "add_eos_token", false, &eos));
    TRY(json_get_bool(w, "legacy", false, &t->sp_each));
    find_token(t, config, "bos_token", &t->bos);
    find_token(t, config, "eos_token", &t->eos);
    return pipeline_frame(t, bos, eos);
}

/* Where two files name bos or eos, the configuration counts. */
static pesc_status configure(tokenizer *t, const json_t *config, const json_t *map, const char *dir)
{
    TRY(add_decoder_tokens(t, config, dir));
    if (t->sp)
        TRY(configure_sp(t, config, dir));
    find_token(t, map, "bos_token", &t->bos);
    find_token(t, map, "eos_token", &t->eos);
    find_token(t, config, "bos_token", &t->bos);
    find_token(t, config, "eos_token", &t->eos);
    TRY(pipeline_mark_control(t, t->bos, "tokenizer_config.json: bos_token"));
    TRY(pipeline_mark_control(t, t->eos, "tokenizer_config.json: eos_token"));
    TRY(pipeline_seal(t));
    TRY(name_tokens(t, map));
    TRY(name_tokens(t, config));
    TRY(keep_template(t, config));
    return tokenizer_take_template(t, dir);
}

pesc_status tokconfig_read(tokenizer *t, const char *dir)
{
    json_t *config = NULL, *map = NULL;
    pesc_status s = read_object(&config, dir, "tokenizer_config.json");
    if (s == PESC_OK)
        s = read_object(&map, dir, "special_tokens_map.json");
    if (s == PESC_OK)
        s = configure(t, config, map, dir);
    json_decref(config);
    json_decref(map);
    return s;
}

#include "format/hfdir.h"

#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "format/bnb.h"
#include "format/mxfp4.h"
#include "format/textpart.h"
#include "format/fp8.h"
#include "format/gguf.h"
#include "format/peft.h"
#include "format/safetensors.h"
#include "format/shards.h"
#include "format/torchbin.h"

#include <string.h>

enum { MAX_JSON = 16 << 20 };

/* Where the weights may be; the first that is there is the model's, as in transformers. */
static const struct source {
    const char *name;
    bool index;
    shards_read_fn read;
    const char *format;
} sources[] = {
    { "model.safetensors", false, safetensors_read, "safetensors" },
    { "model.safetensors.index.json", true, safetensors_read, "safetensors" },
    { "pytorch_model.bin", false, torchbin_read, "torch" },
    { "pytorch_model.bin.index.json", true, torchbin_read, "torch" },
};

/* Which files make up the model of a directory. */
typedef struct layout {
    char *base;    /* with config.json and weights: the directory itself, or the local base model
                      that the adapter in it names */
    char *config;  /* its config.json, or the directory's own */
    char *weights; /* a file of `source`; NULL: none */
    const struct source *source;
    char *moe;     /* moe_model.bin: PESC's adapters and routers beside the weights, or NULL */
    char *adapter; /* a PEFT directory to be applied, or NULL */
} layout;

static void layout_free(layout *l)
{
    char *all[] = { l->base, l->config, l->weights, l->moe, l->adapter };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
}

static pesc_status find_weights(layout *l, const char *dir)
{
    for (size_t i = 0; i < sizeof sources / sizeof *sources && !l->weights; i++) {
        l->source = &sources[i];
        TRY(io_find(&l->weights, dir, sources[i].name));
    }
    return PESC_OK;
}

/* A PEFT adapter of the directory: the folder adapter_model/ of a Camelidae training output, or
 * the directory itself when it holds no weights of its own. */
static pesc_status find_adapter(layout *l, const char *path)
{
    char *mark = NULL;
    TRY(io_find(&l->adapter, path, "adapter_model"));
    if (l->adapter)
        return PESC_OK;
    TRY(io_find(&mark, path, "adapter_config.json"));
    if (!mark)
        return PESC_OK;
    mem_free(mark);
    if (l->weights) {
        log_notice("%s: the adapter in it is not applied; --lora applies one", path);
        return PESC_OK;
    }
    l->adapter = mem_strdup(path);
    return l->adapter ? PESC_OK : fail_nomem(path, strlen(path));
}

/* The local directory an adapter was made for. */
static pesc_status find_base(layout *l, const char *path)
{
    TRY(peft_base(&l->base, l->adapter));
    if (l->base && io_kind_of(l->base) == IO_DIR)
        return PESC_OK;
    return fail(PESC_IO,
                "%s: holds an adapter without its base model, and base_model_name_or_path of "
                "%s/adapter_config.json (%s) is not a directory here; put the base's files beside "
                "the adapter, or open the base with --lora",
                path, l->adapter, l->base ? l->base : "none");
}

static pesc_status find_layout(layout *l, const char *path)
{
    TRY(find_weights(l, path));
    TRY(io_find(&l->moe, path, "moe_model.bin"));
    TRY(find_adapter(l, path));
    TRY(io_find(&l->config, path, "config.json"));
    if (!l->weights && l->adapter) {
        TRY(find_base(l, path));
        TRY(find_weights(l, l->base));
        if (!l->config)
            TRY(io_find(&l->config, l->base, "config.json"));
    } else if (!(l->base = mem_strdup(path))) {
        return fail_nomem(path, strlen(path));
    }
    if (!l->config)
        return fail(
            PESC_IO,
            "%s: has no config.json; expected a Hugging Face model directory or a .gguf file",
            l->base);
    return PESC_OK;
}

/* ---- configuration ---- */

static pesc_status read_object(json_t **out, const char *file)
{
    TRY(json_read_big(out, file, MAX_JSON)); /* keys we do not read may hold any number */
    if (!json_is_object(*out))
        return fail(PESC_FORMAT, "%s: found %s, expected an object", file, json_kind(*out));
    return PESC_OK;
}

static pesc_status read_config(hfdir *h, layout *l)
{
    char *generation = NULL;
    h->config_file = l->config;
    l->config = NULL;
    TRY(read_object(&h->config, h->config_file));
    TRY(textpart_take(&h->config, h->config_file, &h->text_part));
    TRY(io_find(&generation, l->base, "generation_config.json"));
    if (!generation)
        return PESC_OK;
    pesc_status s = read_object(&h->generation, generation);
    mem_free(generation);
    return s;
}

/* moe_model.bin comes with the base's configuration, which knows nothing of experts. Their number
 * and size are in the tensors; top-k and scale are those of the official training script. */
static pesc_status complete_config(hfdir *h, const char *moe)
{
    const weight *router = weights_find(h->ws, "model.layers.0.mlp.moe_adapter.router.weight");
    const weight *down =
        weights_find(h->ws, "model.layers.0.mlp.moe_adapter.experts.expert_0.adapter_down.weight");
    if (!router || !down || router->nd != 2 || down->nd != 2)
        return fail(PESC_SHAPE,
                    "%s: holds no router and adapters of layer 0 as PESC's training writes them",
                    moe);
    const struct {
        const char *key;
        json_t *value;
        bool assumed;
    } rows[] = {
        { "num_experts", json_integer(router->ne[0]), false },
        { "adapter_dim", json_integer(down->ne[0]), false },
        { "topk", json_integer(2), true },
        { "moe_scaling", json_real(1), true },
    };
    pesc_status s = PESC_OK;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool given = json_has(h->config, rows[i].key);
        if (!given && rows[i].assumed)
            log_notice("%s: the configuration has no %s; %s is taken, as in the training script",
                       h->config_file, rows[i].key, i == 2 ? "2" : "1");
        if (given && rows[i].value)
            json_decref(rows[i].value);
        else if (json_object_set_new(h->config, rows[i].key, rows[i].value) != 0)
            s = fail_nomem(h->config_file, 64);
    }
    return s;
}

/* ---- weights ---- */

static pesc_status read_weights(hfdir *h, const layout *l)
{
    if (!l->weights)
        return fail(PESC_IO,
                    "%s: has no weights; expected model.safetensors, pytorch_model.bin or the "
                    ".index.json of one of them",
                    l->base);
    TRY(weights_new(&h->ws));
    if (l->source->index)
        TRY(shards_read(h->ws, l->base, l->weights, l->source->read));
    else
        TRY(l->source->read(h->ws, l->weights));
    TRY(bnb_group(h->ws));
    TRY(mxfp4_group(h->ws));
    TRY(fp8_group(h->ws, h->config, h->config_file));
    if (h->text_part)
        TRY(textpart_keep(h->ws));
    if (!l->moe)
        return PESC_OK;
    TRY(torchbin_read(h->ws, l->moe));
    return complete_config(h, l->moe);
}

static pesc_status open_dir(hfdir *h, unsigned flags)
{
    layout l = { 0 };
    pesc_status s = find_layout(&l, h->root);
    if (s == PESC_OK)
        s = read_config(h, &l);
    if (s == PESC_OK && !(flags & HFDIR_NO_WEIGHTS))
        s = read_weights(h, &l);
    if (s == PESC_OK) {
        h->format = l.weights ? l.source->format : "";
        h->lora_dir = l.adapter;
        l.adapter = NULL;
    }
    layout_free(&l);
    return s;
}

static pesc_status open_gguf(hfdir *h, unsigned flags)
{
    gguf *g = NULL;
    h->format = "gguf";
    h->config_file = mem_strdup(h->root);
    if (!h->config_file)
        return fail_nomem(h->root, strlen(h->root));
    pesc_status s = gguf_open(&g, h->root);
    if (s == PESC_OK)
        s = gguf_config(&h->config, g);
    if (s == PESC_OK && !(flags & HFDIR_NO_WEIGHTS))
        s = gguf_weights(&h->ws, g);
    gguf_close(g);
    return s;
}

/* ---- a configuration alone ---- */

/* ---- the door ---- */

static pesc_status open_any(hfdir *h, unsigned flags)
{
    bool gguf_file = false;
    io_kind kind;
    TRY(io_look(h->root, &kind));
    switch (kind) {
    case IO_DIR:
        return open_dir(h, flags);
    case IO_FILE:
        if (flags & HFDIR_CONFIG && str_ends(h->root, ".json")) {
            h->format = "config";
            h->config_file = mem_strdup(h->root);
            if (!h->config_file)
                return fail_nomem(h->root, strlen(h->root));
            TRY(read_object(&h->config, h->root));
            return textpart_take(&h->config, h->config_file, &h->text_part);
        }
        TRY(gguf_is(h->root, &gguf_file));
        if (gguf_file)
            return open_gguf(h, flags);
        return fail(PESC_FORMAT,
                    "%s: is neither a directory nor a GGUF file; give the directory that holds "
                    "config.json and the weights",
                    h->root);
    case IO_OTHER:
        return fail(PESC_IO, "%s: is neither a directory nor a regular file", h->root);
    case IO_NONE:
        break;
    }
    return fail(PESC_IO, "%s: there is no such file or directory", h->root);
}

/* ---- what is laid over it ---- */

pesc_status hfdir_lay_over(hfdir *h, const char *file, bool patch)
{
    static const char embed[] = "model.embed_tokens.weight", head[] = "lm_head.weight";
    weights *over = NULL;
    size_t n = weights_count(h->ws);
    unsigned char *drop = mem_zalloc(n + 1, 1);
    pesc_status s = drop ? weights_new(&over) : fail_nomem(file, n);
    if (s == PESC_OK)
        s = safetensors_read(over, file);
    size_t n_over = s == PESC_OK ? weights_count(over) : 0;
    bool tied = n_over && json_is_true(json_object_get(h->config, "tie_word_embeddings")) &&
                weights_find(over, embed) && !weights_find(over, head);
    for (size_t i = 0; i < n_over; i++) {
        weight *w = weights_edit(over, i);
        const weight *below = weights_find(h->ws, w->name);
        w->trained = true;
        w->patched = patch && below;
        w->before = !below ? w->dt : below->patched ? below->before : below->dt;
    }
    for (size_t i = 0; s == PESC_OK && i < n; i++) {
        const char *name = weights_at(h->ws, i)->name;
        drop[i] = weights_find(over, name) || (tied && strcmp(name, head) == 0);
    }
    if (s == PESC_OK) {
        weights_drop(h->ws, drop);
        s = safetensors_read(h->ws, file);
    }
    for (size_t i = 0; s == PESC_OK && i < n_over; i++) {
        const weight *from = weights_at(over, i), *to = weights_find(h->ws, from->name);
        weight *w = weights_edit(h->ws, (size_t)(to - weights_at(h->ws, 0)));
        w->trained = from->trained;
        w->patched = from->patched;
        w->before = from->before;
    }
    weights_close(over);
    mem_free(drop);
    return s;
}

void hfdir_forget_trained(hfdir *h)
{
    for (size_t i = 0; i < weights_count(h->ws); i++)
        weights_edit(h->ws, i)->trained = false;
}

pesc_status hfdir_add_keys(hfdir *h, const char *file)
{
    json_t *keys = NULL;
    TRY(read_object(&keys, file));
    pesc_status s =
        json_object_update(h->config, keys) == 0 ? PESC_OK : fail_nomem(file, sizeof *keys);
    json_decref(keys);
    return s;
}

pesc_status hfdir_set_lora(hfdir *h, const char *dir)
{
    mem_free(h->lora_dir);
    h->lora_dir = mem_strdup(dir);
    return h->lora_dir ? PESC_OK : fail_nomem(dir, strlen(dir));
}

pesc_status hfdir_lora(const hfdir *h, const char *given, const char **out)
{
    *out = given ? given : h->lora_dir;
    if (given && h->lora_dir)
        return fail(PESC_USAGE,
                    "%s: has a LoRA of its own, which %s would replace; fold it in first: pesc "
                    "merge %s -o DIR",
                    h->path, given, h->path);
    return PESC_OK;
}

pesc_status hfdir_set_names(hfdir *h, const char *path, const char *top)
{
    char *given = mem_strdup(path), *opened = mem_strdup(top);
    mem_free(h->path);
    mem_free(h->top);
    h->path = given;
    h->top = opened;
    return given && opened ? PESC_OK : fail_nomem(path, strlen(path));
}

pesc_status hfdir_open(hfdir **out, const char *path, unsigned flags)
{
    *out = NULL;
    hfdir *h = mem_zalloc(1, sizeof *h);
    if (!h)
        return fail_nomem(path, sizeof *h);
    h->root = mem_strdup(path);
    pesc_status s = h->root ? hfdir_set_names(h, path, path) : fail_nomem(path, strlen(path));
    if (s == PESC_OK)
        s = open_any(h, flags);
    if (s != PESC_OK) {
        hfdir_close(h);
        return s;
    }
    *out = h;
    return PESC_OK;
}

void hfdir_close(hfdir *h)
{
    if (!h)
        return;
    weights_close(h->ws);
    json_decref(h->config);
    json_decref(h->generation);
    mem_free(h->config_file);
    mem_free(h->lora_dir);
    mem_free(h->path);
    mem_free(h->top);
    mem_free(h->root);
    mem_free(h);
}

/* ---- tokenizers ---- */

static pesc_status dir_tokenizer(pesc_tokenizer **out, const char *path)
{
    layout l = { 0 };
    TRY(tokenizer_open_dir(out, path));
    if (*out)
        return PESC_OK;
    /* a training output has none: its base has */
    pesc_status s = find_layout(&l, path);
    if (s == PESC_OK && strcmp(l.base, path) != 0)
        s = tokenizer_open_dir(out, l.base);
    layout_free(&l);
    return s == PESC_NOMEM ? s : PESC_OK;
}

/* The vocabulary of the first Qwen and others, which lacks the rules that its code has. */
static void notice_tiktoken(const char *dir)
{
    char **names;
    size_t n;
    if (io_list(dir, &names, &n) != PESC_OK)
        return;
    for (size_t i = 0; i < n; i++)
        if (str_ends(names[i], ".tiktoken"))
            log_notice("%s/%s: is not read as a tokenizer; put a tokenizer.json of the model "
                       "beside it, or give the model as a GGUF file, which has one",
                       dir, names[i]);
    io_list_free(names, n);
}

pesc_status hfdir_tokenizer(pesc_tokenizer **out, const char *path)
{
    bool gguf_file = false;
    gguf *g = NULL;
    *out = NULL;
    if (io_kind_of(path) == IO_DIR) {
        TRY(dir_tokenizer(out, path));
        if (!*out)
            notice_tiktoken(path);
        return PESC_OK;
    }
    TRY(gguf_is(path, &gguf_file));
    if (!gguf_file)
        return tokenizer_open_file(out, path);
    pesc_status s = gguf_open(&g, path);
    if (s == PESC_OK)
        s = gguf_tokenizer(out, g);
    gguf_close(g);
    return s;
}

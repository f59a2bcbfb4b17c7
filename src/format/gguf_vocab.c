/* gguf_vocab: reads and checks the vocabulary inside a GGUF file, for text/ to build or write. */
#include "format/gguf_file.h"

#include "base/log.h"
#include "base/mem.h"
#include "tokenizer/bytetoken.h"

#include <math.h>
#include <string.h>

/* What a file may make us copy: several times the largest vocabulary in use. */
enum {
    MAX_TOKENS = 1 << 20,
    MAX_MERGES = 1 << 21,
    MAX_BYTES = 32 << 20,
    MAX_TEXT = 1 << 20,
    MAX_JSON = 128 << 20,
};

/* What tokenizer_from_gguf() borrows. Tokens point into the map, where no NUL follows a string;
 * merges and names are copied. */
typedef struct vocab {
    gguf_vocab v;
    const char **tokens, **merges;
    size_t *token_bytes;
    float *scores;
    int32_t *types;
    char *merge_text, *model, *pre, *template;
} vocab;

static void vocab_free(vocab *x)
{
    mem_free(x->tokens);
    mem_free(x->merges);
    mem_free(x->token_bytes);
    mem_free(x->scores);
    mem_free(x->types);
    mem_free(x->merge_text);
    mem_free(x->model);
    mem_free(x->pre);
    mem_free(x->template);
}

/* An array under `key` with elements of `type`, and `count` of them unless that is 0. */
static pesc_status find_array(const gguf *g, const char *key, gguf_type type, size_t count,
                              const gguf_value **out)
{
    const gguf_value *v = *out = gguf_find(g, key);
    if (!v)
        return PESC_OK;
    if (!v->array || v->type != type)
        return fail(PESC_FORMAT, "%s: %s: found type %s%s, expected array of %s", g->path, key,
                    v->array ? "array of " : "", gguf_type_name(v->type), gguf_type_name(type));
    if (count && v->count != count)
        return fail(PESC_FORMAT, "%s: %s: found %zu entries, expected %zu, one a token", g->path,
                    key, v->count, count);
    return PESC_OK;
}

static gguf_text next_text(const unsigned char **at)
{
    uint64_t n;
    memcpy(&n, *at, sizeof n);
    gguf_text t = { (const char *)*at + sizeof n, (size_t)n };
    *at += sizeof n + n;
    return t;
}

static pesc_status read_tokens(vocab *x, const gguf *g)
{
    const gguf_value *list;
    TRY(find_array(g, "tokenizer.ggml.tokens", GGUF_STRING, 0, &list));
    if (!list || list->count < 1 || list->count > MAX_TOKENS)
        return fail(PESC_FORMAT, "%s: tokenizer.ggml.tokens: found %zu tokens, expected 1 to %d",
                    g->path, list ? list->count : 0, MAX_TOKENS);
    size_t n = x->v.n = list->count;
    x->tokens = mem_alloc(n, sizeof *x->tokens);
    x->token_bytes = mem_alloc(n, sizeof *x->token_bytes);
    if (!x->tokens || !x->token_bytes)
        return fail_nomem(g->path, n * sizeof *x->tokens);
    const unsigned char *at = list->data;
    for (size_t i = 0; i < n; i++) {
        gguf_text t = next_text(&at);
        x->tokens[i] = t.p;
        x->token_bytes[i] = t.n;
    }
    x->v.tokens = x->tokens;
    x->v.token_bytes = x->token_bytes;
    return PESC_OK;
}

/* Scores and types are copied because the file aligns nothing. */
static pesc_status read_scores(vocab *x, const gguf *g)
{
    const gguf_value *scores, *types;
    size_t n = x->v.n;
    TRY(find_array(g, "tokenizer.ggml.scores", GGUF_F32, n, &scores));
    TRY(find_array(g, "tokenizer.ggml.token_type", GGUF_I32, n, &types));
    if (scores) {
        x->v.scores = x->scores = mem_alloc(n, sizeof *x->scores);
        if (!x->scores)
            return fail_nomem(g->path, n * sizeof *x->scores);
        memcpy(x->scores, scores->data, n * sizeof *x->scores);
    }
    if (types) {
        x->v.types = x->types = mem_alloc(n, sizeof *x->types);
        if (!x->types)
            return fail_nomem(g->path, n * sizeof *x->types);
        memcpy(x->types, types->data, n * sizeof *x->types);
    }
    return PESC_OK;
}

/* A score must have an order, a type a meaning, and a byte's token the form <0xHH>: a tokenizer
 * takes its value from there. */
static pesc_status check_tokens(const vocab *x, const gguf *g)
{
    enum { BYTE = 6, LAST_TYPE = BYTE };
    for (size_t i = 0; i < x->v.n; i++) {
        const char *s = x->tokens[i];
        size_t n = x->token_bytes[i];
        if (x->scores && !isfinite(x->scores[i]))
            return fail(PESC_FORMAT, "%s: tokenizer.ggml.scores: that of token %zu is not finite",
                        g->path, i);
        if (!x->types)
            continue;
        if (x->types[i] < 0 || x->types[i] > LAST_TYPE)
            return fail(PESC_FORMAT,
                        "%s: tokenizer.ggml.token_type: token %zu has type %d, "
                        "expected 0 to %d",
                        g->path, i, x->types[i], LAST_TYPE);
        if (x->types[i] == BYTE && bytetoken_value(s, n) < 0)
            return fail(PESC_FORMAT,
                        "%s: tokenizer.ggml.tokens: token %zu stands for a byte and is '%.*s', "
                        "expected <0x00> to <0xFF>",
                        g->path, i, (int)(n < 32 ? n : 32), s);
    }
    return PESC_OK;
}

static pesc_status read_merges(vocab *x, const gguf *g)
{
    const gguf_value *list;
    TRY(find_array(g, "tokenizer.ggml.merges", GGUF_STRING, 0, &list));
    if (!list || list->count == 0)
        return PESC_OK;
    const unsigned char *at = list->data, *end = at;
    for (size_t i = 0; i < list->count; i++)
        next_text(&end);
    if (list->count > MAX_MERGES || end - at > MAX_BYTES)
        return fail(PESC_FORMAT,
                    "%s: tokenizer.ggml.merges: found %zu merges in %zu bytes, expected at most %d "
                    "in %d",
                    g->path, list->count, (size_t)(end - at), MAX_MERGES, MAX_BYTES);
    /* eight bytes of length come before each string: room for its NUL */
    x->merge_text = mem_alloc((size_t)(end - at), 1);
    x->merges = mem_alloc(list->count, sizeof *x->merges);
    if (!x->merge_text || !x->merges)
        return fail_nomem(g->path, (size_t)(end - at));
    char *to = x->merge_text;
    for (size_t i = 0; i < list->count; i++) {
        gguf_text t = next_text(&at);
        if (memchr(t.p, 0, t.n))
            return fail(PESC_FORMAT, "%s: tokenizer.ggml.merges: entry %zu holds a NUL", g->path,
                        i);
        x->merges[i] = to;
        memcpy(to, t.p, t.n);
        to[t.n] = 0;
        to += t.n + 1;
    }
    x->v.merges = x->merges;
    x->v.n_merges = list->count;
    return PESC_OK;
}

/* A NUL-terminated copy; *out stays NULL when the key is absent. */
static pesc_status copy_text(const gguf *g, const char *key, bool required, char **out)
{
    gguf_text t = { 0 };
    TRY(gguf_get_text(g, key, required, &t));
    if (!t.p)
        return PESC_OK;
    if (t.n > MAX_TEXT || memchr(t.p, 0, t.n))
        return fail(PESC_FORMAT, "%s: %s: %s", g->path, key,
                    t.n > MAX_TEXT ? "is longer than 1 MiB" : "holds a NUL");
    *out = mem_strndup(t.p, t.n);
    return *out ? PESC_OK : fail_nomem(g->path, t.n);
}

static pesc_status read_ids(vocab *x, const gguf *g)
{
    const struct {
        const char *key;
        int64_t *out;
    } ids[] = {
        { "tokenizer.ggml.bos_token_id", &x->v.bos },
        { "tokenizer.ggml.eos_token_id", &x->v.eos },
        { "tokenizer.ggml.padding_token_id", &x->v.pad },
        { "tokenizer.ggml.unknown_token_id", &x->v.unk },
    };
    gguf_range r = { .max = x->v.json ? INT32_MAX - 1 : (int64_t)x->v.n - 1 };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        *ids[i].out = -1;
        TRY(gguf_get_int(g, ids[i].key, r, ids[i].out));
    }
    return PESC_OK;
}

/* SentencePiece's table of normalisations, as bytes of either sign. */
static pesc_status read_charsmap(vocab *x, const gguf *g)
{
    const char *key = "tokenizer.ggml.precompiled_charsmap";
    const gguf_value *v = gguf_find(g, key);
    if (!v)
        return PESC_OK;
    if (!v->array || (v->type != GGUF_U8 && v->type != GGUF_I8))
        return fail(PESC_FORMAT, "%s: %s: found type %s%s, expected array of u8", g->path, key,
                    v->array ? "array of " : "", gguf_type_name(v->type));
    if (v->count > MAX_BYTES)
        return fail(PESC_FORMAT, "%s: %s: found %zu bytes, expected at most %d", g->path, key,
                    v->count, MAX_BYTES);
    x->v.charsmap = v->data;
    x->v.charsmap_bytes = v->count;
    return PESC_OK;
}

/* What llama.cpp assumes where a file does not say: SentencePiece models start with BOS and a
 * space, byte-level ones with neither, but Llama 3 with BOS. */
static pesc_status read_flags(vocab *x, const gguf *g)
{
    static const char *const with_bos[] = { "llama3", "llama-v3", "llama-bpe" };
    bool sentencepiece = strcmp(x->model, "gpt2") != 0;
    x->v.add_bos = x->v.add_space_prefix = sentencepiece;
    for (size_t i = 0; i < 3; i++)
        x->v.add_bos |= x->pre && strcmp(x->pre, with_bos[i]) == 0;
    TRY(gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &x->v.add_bos));
    TRY(gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &x->v.add_eos));
    TRY(gguf_get_bool(g, "tokenizer.ggml.remove_extra_whitespaces",
                      &x->v.remove_extra_whitespaces));
    return gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &x->v.add_space_prefix);
}

/* A file that stands for itself: llama.cpp has no name for the way it splits text. */
static pesc_status read_json(vocab *x, const gguf *g)
{
    gguf_text text = { 0 };
    TRY(gguf_get_text(g, "tokenizer.huggingface.json", true, &text));
    if (text.n > MAX_JSON)
        return fail(PESC_FORMAT, "%s: tokenizer.huggingface.json: is longer than %d MiB", g->path,
                    MAX_JSON >> 20);
    x->v.json = text.p;
    x->v.json_bytes = text.n;
    return read_ids(x, g);
}

static pesc_status read_vocab(vocab *x, const gguf *g)
{
    TRY(copy_text(g, "tokenizer.ggml.model", true, &x->model));
    TRY(copy_text(g, "tokenizer.ggml.pre", false, &x->pre));
    bool whole = strcmp(x->model, "no_vocab") == 0;
    if (!x->pre && strcmp(x->model, "gpt2") == 0)
        return fail(
            PESC_UNSUPPORTED,
            "%s: tokenizer.ggml.pre: is missing, so how to split text is not known; convert "
            "the model again with a current converter",
            g->path);
    TRY(copy_text(g, "tokenizer.chat_template", false, &x->template));
    x->v.file = g->path;
    x->v.model = x->model;
    x->v.pre = x->pre;
    x->v.chat_template = x->template;
    if (whole)
        return read_json(x, g);
    TRY(read_tokens(x, g));
    TRY(read_scores(x, g));
    TRY(check_tokens(x, g));
    TRY(read_merges(x, g));
    TRY(read_ids(x, g));
    TRY(read_flags(x, g));
    return read_charsmap(x, g);
}

static bool has_vocab(const gguf *g)
{
    const gguf_value *model = gguf_find(g, "tokenizer.ggml.model");
    gguf_text name = { 0 };
    bool none = model && !model->array && model->type == GGUF_STRING &&
                gguf_get_text(g, "tokenizer.ggml.model", true, &name) == PESC_OK &&
                gguf_text_is(name, "no_vocab");
    return none ? gguf_find(g, "tokenizer.huggingface.json") != NULL
                : model || gguf_find(g, "tokenizer.ggml.tokens");
}

pesc_status gguf_tokenizer(tokenizer **out, const gguf *g)
{
    vocab x = { 0 };
    *out = NULL;
    if (!has_vocab(g))
        return PESC_OK;
    pesc_status s = read_vocab(&x, g);
    if (s == PESC_OK)
        s = tokenizer_from_gguf(out, &x.v);
    vocab_free(&x);
    return s;
}

pesc_status gguf_write_tokenizer(const gguf *g, const char *dir)
{
    vocab x = { 0 };
    if (!has_vocab(g)) {
        log_notice("%s: has no tokenizer, so none is written into %s", g->path, dir);
        return PESC_OK;
    }
    pesc_status s = read_vocab(&x, g);
    if (s == PESC_OK)
        s = tokenizer_write_gguf(&x.v, dir);
    vocab_free(&x);
    return s;
}

#include "tokenizer/tokopen.h"

#include "base/mem.h"
#include "tokenizer/bpebuild.h"
#include "tokenizer/jsonparts.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/postproc.h"

#include <string.h>

/* The parts of the file, found before any is read: they refer to each other in any order. */
typedef struct parts {
    json_span added_tokens, normalizer, pre_tokenizer, post_processor, decoder, model;
    json_span vocab, merges; /* of the model */
    str option_text;         /* what else the model says, as JSON: */
    json_t *options;
} parts;

typedef struct part_row {
    const char *key;
    size_t at; /* of a json_span in parts */
} part_row;

static const part_row top_rows[] = {
    { "added_tokens", offsetof(parts, added_tokens) },
    { "normalizer", offsetof(parts, normalizer) },
    { "pre_tokenizer", offsetof(parts, pre_tokenizer) },
    { "post_processor", offsetof(parts, post_processor) },
    { "decoder", offsetof(parts, decoder) },
    { "model", offsetof(parts, model) },
    { NULL, 0 },
};
static const part_row model_rows[] = {
    { "vocab", offsetof(parts, vocab) },
    { "merges", offsetof(parts, merges) },
    { NULL, 0 },
};

/* Puts the value where the rows say; *known false: no row has the key. */
static pesc_status note_part(parts *p, const part_row *rows, const char *key,
                             const json_span *value, bool *known)
{
    for (; rows->key && strcmp(rows->key, key) != 0; rows++)
        ;
    *known = rows->key != NULL;
    if (!*known)
        return PESC_OK;
    json_span *to = (json_span *)((char *)p + rows->at);
    if (to->text)
        return fail(PESC_FORMAT, "%s: byte %zu: the key \"%s\" appears twice", value->file,
                    value->start, key);
    *to = *value;
    return PESC_OK;
}

/* What no row names (version, truncation, padding) is checked to be JSON and ignored. */
static pesc_status note_top(void *ctx, const char *key, const json_span *value)
{
    bool known;
    TRY(note_part(ctx, top_rows, key, value, &known));
    json_t *v = NULL;
    pesc_status s = known ? PESC_OK : jsonparts_parse(value, &v);
    json_decref(v);
    return s;
}

/* Of the model only vocabulary and merges are large; the other members are parsed together. */
static pesc_status note_model(void *ctx, const char *key, const json_span *value)
{
    parts *p = ctx;
    bool known;
    TRY(note_part(p, model_rows, key, value, &known));
    if (known)
        return PESC_OK;
    if (strpbrk(key, "\"\\") || value->end - value->start > JSONPARTS_MAX ||
        p->option_text.n > JSONPARTS_MAX)
        return fail(PESC_UNSUPPORTED, "%s: byte %zu: model: '%.100s' is not supported", value->file,
                    value->start, key);
    str_printf(&p->option_text, "%s\"%s\":", p->option_text.n ? "," : "{", key);
    str_add(&p->option_text, value->text + value->start, value->end - value->start);
    return PESC_OK;
}

static pesc_status read_model(parts *p, const char *file)
{
    TRY(jsonparts_members(&p->model, note_model, p));
    str_puts(&p->option_text, p->option_text.n ? "}" : "{}");
    if (!str_ok(&p->option_text))
        return fail_nomem(file, p->option_text.n);
    return json_parse(&p->options, p->option_text.p, p->option_text.n, file);
}

/* A small part as an object; *out NULL when it is absent. */
static pesc_status parse_part(const json_span *s, json_t **out)
{
    *out = NULL;
    return s->text ? jsonparts_parse(s, out) : PESC_OK;
}

/* ---- BPE ---- */

static pesc_status read_tokens(void *ctx, const json_t *block, size_t first)
{
    bpe_build *b = ctx;
    const char *token;
    json_t *id;
    (void)first;
    json_object_foreach((json_t *)block, token, id)
    {
        if (!json_is_integer(id))
            return fail(PESC_FORMAT, "%s: model.vocab: '%.200s': found %s, expected an integer",
                        b->t->file, token, json_kind(id));
        TRY(bpe_build_token(b, token, strlen(token), json_integer_value(id)));
    }
    return PESC_OK;
}

/* "left right", or ["left", "right"]. */
static pesc_status read_merges(void *ctx, const json_t *block, size_t first)
{
    bpe_build *b = ctx;
    for (size_t i = 0; i < json_array_size(block); i++) {
        const json_t *v = json_array_get(block, i);
        const json_t *left = json_array_get(v, 0), *right = json_array_get(v, 1);
        if (json_is_string(v))
            TRY(bpe_build_line(b, first + i, json_string_value(v), json_string_length(v)));
        else if (json_array_size(v) == 2 && json_is_string(left) && json_is_string(right))
            TRY(bpe_build_merge(b, first + i, json_string_value(left), json_string_length(left),
                                json_string_value(right), json_string_length(right)));
        else
            return fail(PESC_FORMAT, "%s: model.merges[%zu]: found %s, expected two tokens",
                        b->t->file, first + i, json_kind(v));
    }
    return PESC_OK;
}

static pesc_status find_unk(const tokenizer *t, const char *unk, int32_t *id)
{
    *id = unk ? vocab_find(&t->vocab, unk, strlen(unk)) : -1;
    if (unk && *id < 0)
        return fail(PESC_FORMAT, "%s: model.unk_token: '%s' is not in the vocabulary", t->file,
                    unk);
    return PESC_OK;
}

static pesc_status read_bpe_options(bpe_build *b, const json_t *options)
{
    const tokenizer *t = b->t;
    json_where w = { options, t->file };
    const char *unk = NULL, *prefix = NULL, *suffix = NULL;
    double dropout = 0;
    TRY(json_get_str(w, "unk_token", false, &unk));
    TRY(json_get_str(w, "continuing_subword_prefix", false, &prefix));
    TRY(json_get_str(w, "end_of_word_suffix", false, &suffix));
    TRY(json_get_f64(w, "dropout", false, &dropout));
    TRY(json_get_bool(w, "fuse_unk", false, &b->spec.fuse_unk));
    TRY(json_get_bool(w, "byte_fallback", false, &b->spec.byte_fallback));
    TRY(json_get_bool(w, "ignore_merges", false, &b->spec.ignore_merges));
    if (prefix && *prefix)
        return fail(PESC_UNSUPPORTED, "%s: model.continuing_subword_prefix: '%s' is not supported",
                    t->file, prefix);
    if (suffix && *suffix)
        return fail(PESC_UNSUPPORTED, "%s: model.end_of_word_suffix: '%s' is not supported",
                    t->file, suffix);
    if (dropout != 0)
        return fail(PESC_UNSUPPORTED, "%s: model.dropout: %g makes ids random; not supported",
                    t->file, dropout);
    return find_unk(t, unk, &b->spec.unk);
}

static pesc_status run_bpe(bpe_build *b, const parts *p)
{
    const char *file = b->t->file;
    if (!p->vocab.text || !json_span_is(&p->vocab, '{'))
        return fail(PESC_FORMAT, "%s: model.vocab: expected an object of tokens", file);
    if (!p->merges.text || !json_span_is(&p->merges, '['))
        return fail(PESC_FORMAT, "%s: model.merges: expected an array", file);
    b->n_tokens = jsonparts_count(&p->vocab);
    TRY(jsonparts_blocks(&p->vocab, read_tokens, b));
    if (b->t->vocab.count == 0)
        return fail(PESC_FORMAT, "%s: model.vocab: has no token", file);
    TRY(read_bpe_options(b, p->options));
    TRY(bpe_build_symbols(b));
    TRY(jsonparts_blocks(&p->merges, read_merges, b));
    return bpe_build_end(b);
}

static pesc_status build_bpe(tokenizer *t, const parts *p)
{
    bpe_build b = { .t = t };
    pesc_status s = run_bpe(&b, p);
    bpe_build_free(&b);
    return s;
}

/* ---- Unigram ---- */

typedef struct unigram_build {
    tokenizer *t;
    unigram_piece *pieces;
    size_t n, cap;
} unigram_build;

/* ["piece", score]: the index is the id. */
static pesc_status read_piece(unigram_build *u, const json_t *v)
{
    const char *file = u->t->file;
    const json_t *text = json_array_get(v, 0), *score = json_array_get(v, 1);
    if (json_array_size(v) != 2 || !json_is_string(text) || !json_is_number(score))
        return fail(PESC_FORMAT, "%s: model.vocab[%zu]: found %s, expected [\"piece\", score]",
                    file, u->n, json_kind(v));
    if (u->n == u->cap)
        return fail(PESC_UNSUPPORTED, "%s: the vocabulary has more than %d pieces", file,
                    BPE_TOKENS_MAX);
    u->pieces[u->n] = (unigram_piece){ NULL, json_string_length(text), json_number_value(score) };
    switch (
        vocab_add(&u->t->vocab, json_string_value(text), json_string_length(text), (int32_t)u->n)) {
    case VOCAB_OK:
        u->n++;
        return PESC_OK;
    case VOCAB_NOMEM:
        return fail_nomem(file, json_string_length(text));
    default:
        return fail(PESC_FORMAT, "%s: model.vocab[%zu]: '%.200s' appears twice", file, u->n,
                    json_string_value(text));
    }
}

static pesc_status read_pieces(void *ctx, const json_t *block, size_t first)
{
    (void)first;
    for (size_t i = 0; i < json_array_size(block); i++)
        TRY(read_piece(ctx, json_array_get(block, i)));
    return PESC_OK;
}

static pesc_status run_unigram(unigram_build *u, const parts *p)
{
    tokenizer *t = u->t;
    json_where w = { p->options, t->file };
    unigram_spec spec = { .file = t->file, .unk_id = -1 };
    if (pretok_is_bytes(t->pre))
        return fail(PESC_UNSUPPORTED,
                    "%s: pre_tokenizer: ByteLevel with a Unigram model is not supported", t->file);
    u->pieces = mem_alloc(u->cap + 1, sizeof *u->pieces);
    if (!u->pieces)
        return fail_nomem(t->file, u->cap * sizeof *u->pieces);
    TRY(jsonparts_blocks(&p->vocab, read_pieces, u));
    if (u->n == 0)
        return fail(PESC_FORMAT, "%s: model.vocab: has no piece", t->file);
    TRY(json_get_i64(w, "unk_id", false, 0, (int64_t)u->n - 1, &spec.unk_id));
    TRY(json_get_bool(w, "byte_fallback", false, &spec.byte_fallback));
    for (size_t i = 0; i < u->n; i++)
        u->pieces[i].text = vocab_text(&t->vocab, (int64_t)i, &u->pieces[i].n);
    t->unk = (int32_t)spec.unk_id;
    spec.pieces = u->pieces;
    spec.n = u->n;
    return unigram_open(&t->unigram, &spec);
}

static pesc_status build_unigram(tokenizer *t, const parts *p)
{
    if (!p->vocab.text || !json_span_is(&p->vocab, '['))
        return fail(PESC_FORMAT, "%s: model.vocab: expected an array of pieces", t->file);
    size_t n = jsonparts_count(&p->vocab);
    unigram_build u = { .t = t, .cap = n < BPE_TOKENS_MAX ? n : BPE_TOKENS_MAX };
    pesc_status s = run_unigram(&u, p);
    mem_free(u.pieces);
    return s;
}

/* Old files have no model.type: merges are what makes a BPE. */
static const char *model_type(const parts *p)
{
    const json_t *type = json_object_get(p->options, "type");
    if (type)
        return json_is_string(type) ? json_string_value(type) : json_kind(type);
    return p->merges.text ? "BPE" : json_span_is(&p->vocab, '[') ? "Unigram" : "";
}

static pesc_status build_model(tokenizer *t, const parts *p)
{
    const char *type = model_type(p);
    if (strcmp(type, "BPE") == 0)
        return build_bpe(t, p);
    if (strcmp(type, "Unigram") == 0)
        return build_unigram(t, p);
    return fail(PESC_UNSUPPORTED, "%s: model.type: found '%s'; BPE and Unigram are supported",
                t->file, type);
}

/* ---- added tokens ---- */

static pesc_status read_added(tokenizer *t, const json_t *v, const char *where)
{
    json_where w = { v, where };
    const char *text = NULL;
    int64_t id = -1;
    added_token a = { 0 };
    if (!json_is_object(v))
        return fail(PESC_FORMAT, "%s: found %s, expected an object", where, json_kind(v));
    TRY(json_get_str(w, "content", true, &text));
    TRY(json_get_i64(w, "id", true, 0, INT32_MAX - 1, &id));
    TRY(added_read_flags(w, &a));
    a.text = (char *)text;
    a.n = json_string_length(json_object_get(v, "content"));
    a.id = (int32_t)id;
    return pipeline_add(t, &a, where);
}

static pesc_status read_added_block(void *ctx, const json_t *block, size_t first)
{
    tokenizer *t = ctx;
    str where = { 0 };
    pesc_status s = PESC_OK;
    for (size_t i = 0; s == PESC_OK && i < json_array_size(block); i++) {
        str_clear(&where);
        str_printf(&where, "%s: added_tokens[%zu]", t->file, first + i);
        s = str_ok(&where) ? read_added(t, json_array_get(block, i), where.p)
                           : fail_nomem(t->file, 0);
    }
    str_free(&where);
    return s;
}

static pesc_status read_all_added(tokenizer *t, const json_span *s)
{
    if (!s->text || json_span_is(s, 'n')) {
        json_t *v;
        pesc_status st = parse_part(s, &v); /* null, or not JSON */
        json_decref(v);
        return st;
    }
    if (!json_span_is(s, '['))
        return fail(PESC_FORMAT, "%s: added_tokens: expected an array", t->file);
    return jsonparts_blocks(s, read_added_block, t);
}

/* ---- the whole ---- */

static pesc_status open_parts(tokenizer *t, const parts *p)
{
    json_t *pre = NULL, *norm = NULL, *dec = NULL, *post = NULL;
    pesc_status s = parse_part(&p->pre_tokenizer, &pre);
    if (s == PESC_OK)
        s = parse_part(&p->normalizer, &norm);
    if (s == PESC_OK)
        s = parse_part(&p->decoder, &dec);
    if (s == PESC_OK)
        s = parse_part(&p->post_processor, &post);
    if (s == PESC_OK)
        s = pretok_open(&t->pre, pre, t->file);
    if (s == PESC_OK)
        s = normalizer_open(&t->norm, norm, t->file);
    if (s == PESC_OK)
        s = decoder_open(&t->dec, dec, t->file);
    if (s == PESC_OK)
        s = postproc_read(&t->front, &t->back, post, t->file);
    json_decref(pre);
    json_decref(norm);
    json_decref(dec);
    json_decref(post);
    return s;
}

static pesc_status build(tokenizer *t, parts *p, const json_span *root)
{
    if (!json_span_is(root, '{'))
        return fail(PESC_FORMAT, "%s: is not a tokenizer: expected a JSON object", t->file);
    TRY(jsonparts_members(root, note_top, p));
    if (!p->model.text || !json_span_is(&p->model, '{'))
        return fail(PESC_FORMAT, "%s: model: expected an object", t->file);
    TRY(read_model(p, t->file));
    TRY(open_parts(t, p));
    TRY(build_model(t, p));
    TRY(read_all_added(t, &p->added_tokens));
    TRY(pipeline_seal(t));
    return postproc_check(t);
}

pesc_status tokjson_build(tokenizer **out, const char *text, size_t n, const char *file)
{
    tokenizer *t;
    parts p = { 0 };
    json_span root = { text, 0, n, file };
    *out = NULL;
    TRY(pipeline_new(&t, file));
    pesc_status s = build(t, &p, &root);
    json_decref(p.options);
    str_free(&p.option_text);
    if (s == PESC_OK)
        *out = t;
    else
        tokenizer_close(t);
    return s;
}

/* tokgguf: the vocabulary inside a GGUF file -> a pipeline.
 *
 * "llama" and "t5" are SentencePiece models without their protobuf: they are put into an spmodel.
 * "gpt2" is a byte-level BPE, whose split patterns come from ggufpre; "gemma4" is a BPE of
 * characters, with blanks as U+2581, and bytes for those it does not know. */
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/bpebuild.h"
#include "tokenizer/bytetoken.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/control.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/tokgguf.h"
#include "tokenizer/tokopen.h"
#include "tokenizer/trie.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

/* Without a table of types the ids the file names are control tokens, and "<0x0A>" is a byte. */
static int type_of(const gguf_vocab *v, size_t i)
{
    int64_t id = (int64_t)i;
    if (v->types)
        return v->types[i] >= NORMAL && v->types[i] <= BYTE ? v->types[i] : NORMAL;
    if (id == v->unk)
        return UNKNOWN;
    if (id == v->bos || id == v->eos || id == v->pad)
        return CONTROL;
    bool byte = bytetoken_value(v->tokens[i], v->token_bytes[i]) >= 0;
    return byte && strcmp(v->model, "gpt2") != 0 ? BYTE : NORMAL;
}

static pesc_status check_token(const gguf_vocab *v, size_t i)
{
    if (!utf8_valid(v->tokens[i], v->token_bytes[i]) ||
        memchr(v->tokens[i], '\0', v->token_bytes[i]))
        return fail(PESC_FORMAT, "%s: tokenizer.ggml.tokens[%zu]: is not UTF-8 or holds a NUL",
                    v->file, i);
    return PESC_OK;
}

/* ---- SentencePiece ---- */

static pesc_status add_piece(spmodel *m, const gguf_vocab *v, size_t i, char **text)
{
    size_t n = v->token_bytes[i];
    TRY(check_token(v, i));
    sp_piece *p = &m->pieces[i];
    *p = (sp_piece){ *text, (uint32_t)n, v->scores ? v->scores[i] : 0, (sp_type)type_of(v, i) };
    if (n == 0 || n > SP_PIECE_MAX || !isfinite(p->score))
        return fail(PESC_FORMAT,
                    "%s: tokenizer.ggml.tokens[%zu]: is %zu bytes with score %g; expected 1 to %d "
                    "bytes and a finite score",
                    v->file, i, n, (double)p->score, SP_PIECE_MAX);
    memcpy(*text, v->tokens[i], n);
    (*text)[n] = '\0';
    *text += n + 1;
    if (p->type != SP_BYTE)
        return PESC_OK;
    int byte = bytetoken_value(p->text, n);
    if (byte < 0)
        return fail(PESC_FORMAT,
                    "%s: tokenizer.ggml.tokens[%zu]: '%s' is not a byte, expected <0x00> to <0xFF>",
                    v->file, i, p->text);
    m->bytes[byte] = (int32_t)i;
    return PESC_OK;
}

static pesc_status add_pieces(spmodel *m, const gguf_vocab *v)
{
    size_t bytes = 1, n_user = 0;
    for (size_t i = 0; i < v->n; i++)
        if (!ckd_add_size(&bytes, bytes, v->token_bytes[i] + 1))
            return fail_nomem(v->file, SIZE_MAX);
    char *text = m->text_ = mem_alloc(bytes, 1);
    m->pieces = mem_alloc(v->n, sizeof *m->pieces);
    trie_key *user = mem_alloc(v->n, sizeof *user);
    pesc_status s = m->text_ && m->pieces && user ? PESC_OK : fail_nomem(v->file, bytes);
    m->n = v->n;
    for (int c = 0; c < 256; c++)
        m->bytes[c] = -1;
    for (size_t i = 0; s == PESC_OK && i < v->n; i++) {
        s = add_piece(m, v, i, &text);
        if (s == PESC_OK && m->pieces[i].type == SP_USER_DEFINED)
            user[n_user++] = (trie_key){ m->pieces[i].text, m->pieces[i].n, (int32_t)i };
        if (s == PESC_OK && m->pieces[i].type == SP_UNKNOWN && m->unk < 0)
            m->unk = (int32_t)i;
    }
    if (s == PESC_OK && n_user)
        s = trie_build(&m->user_defined, user, n_user);
    mem_free(user);
    return s;
}

static pesc_status fill_sp(spmodel *m, const gguf_vocab *v)
{
    m->kind = strcmp(v->model, "t5") == 0 ? SP_UNIGRAM : SP_BPE;
    m->unk = (int32_t)v->unk;
    m->bos = (int32_t)v->bos;
    m->eos = (int32_t)v->eos;
    m->pad = (int32_t)v->pad;
    m->add_dummy_prefix = v->add_space_prefix;
    m->escape_whitespaces = true;
    m->remove_extra_whitespaces = v->remove_extra_whitespaces;
    TRY(add_pieces(m, v));
    if (m->unk < 0)
        return fail(PESC_FORMAT, "%s: tokenizer.ggml.tokens: no token is of type unknown", v->file);
    m->byte_fallback = true;
    for (int c = 0; c < 256; c++)
        m->byte_fallback &= m->bytes[c] >= 0;
    return charsmap_open(&m->map, v->charsmap, v->charsmap_bytes, v->file);
}

static pesc_status build_sp(tokenizer **out, const gguf_vocab *v)
{
    if (!v->scores)
        return fail(PESC_FORMAT, "%s: tokenizer.ggml.scores: is missing", v->file);
    spmodel *m = mem_zalloc(1, sizeof *m);
    if (!m)
        return fail_nomem(v->file, sizeof *m);
    pesc_status s = fill_sp(m, v);
    if (s == PESC_OK)
        return sptok_build(out, m, v->file);
    spmodel_close(m);
    return s;
}

/* ---- BPE ---- */

/* The steps of "gemma4", in the order of parse_steps(). */
static const char gemma4_steps[] =
    "[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[^\\n]+|[\\n]+\"},\"behavior\":\"Isolated\","
    "\"invert\":false},{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
    "{\"String\":\"\xe2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"
    "{\"type\":\"Fuse\"}]},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
    "\"content\":\"\xe2\x96\x81\"}]";

static void put_json_string(str *s, const char *text)
{
    str_putc(s, '"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            str_putc(s, '\\');
        str_putc(s, *text);
    }
    str_putc(s, '"');
}

void tokgguf_put_pretokenizer(str *out, const ggufpre *row)
{
    str_puts(out, "{\"type\":\"Sequence\",\"pretokenizers\":[");
    for (const char *const *p = row->patterns; *p; p++) {
        str_puts(out, "{\"type\":\"Split\",\"pattern\":{\"Regex\":");
        put_json_string(out, *p);
        str_puts(out, "},\"behavior\":\"Isolated\",\"invert\":false},");
    }
    str_printf(out,
               "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
               "\"use_regex\":%s}]}",
               row->gpt2 ? "true" : "false");
}

/* The components as tokenizer.json would have them: pre-tokenizer, decoder, normalizer. */
static pesc_status parse_steps(const ggufpre *row, const char *file, json_t **out)
{
    str s = { 0 };
    if (!row)
        return json_parse(out, gemma4_steps, sizeof gemma4_steps - 1, file);
    str_putc(&s, '[');
    tokgguf_put_pretokenizer(&s, row);
    str_printf(&s, ",{\"type\":\"ByteLevel\"}%s]", row->nfc ? ",{\"type\":\"NFC\"}" : "");
    pesc_status st = str_ok(&s) ? json_parse(out, s.p, s.n, file) : fail_nomem(file, s.n);
    str_free(&s);
    return st;
}

static pesc_status open_steps(tokenizer *t, const ggufpre *row)
{
    json_t *list;
    TRY(parse_steps(row, t->file, &list));
    pesc_status s = pretok_open(&t->pre, json_array_get(list, 0), t->file);
    if (s == PESC_OK)
        s = decoder_open(&t->dec, json_array_get(list, 1), t->file);
    if (s == PESC_OK)
        s = normalizer_open(&t->norm, json_array_get(list, 2), t->file);
    json_decref(list);
    return s;
}

static pesc_status add_tokens(bpe_build *b, const gguf_vocab *v)
{
    for (size_t i = 0; i < v->n; i++) {
        TRY(check_token(v, i));
        TRY(bpe_build_token(b, v->tokens[i], v->token_bytes[i], (int64_t)i));
    }
    TRY(bpe_build_symbols(b));
    for (size_t i = 0; i < v->n_merges; i++)
        TRY(bpe_build_line(b, i, v->merges[i], strlen(v->merges[i])));
    return bpe_build_end(b);
}

static pesc_status mark_tokens(tokenizer *t, const gguf_vocab *v)
{
    for (size_t i = 0; i < v->n; i++) {
        int type = type_of(v, i);
        added_token a = { .n = v->token_bytes[i], .id = (int32_t)i };
        a.special = type == CONTROL || type == UNKNOWN ||
                    (type == USER_DEFINED && control_form(v->tokens[i], a.n));
        if (!a.special && type != USER_DEFINED)
            continue;
        a.text = mem_strndup(v->tokens[i], a.n);
        pesc_status s = a.text ? pipeline_add(t, &a, v->file) : fail_nomem(v->file, a.n);
        mem_free(a.text);
        TRY(s);
    }
    return PESC_OK;
}

pesc_status tokgguf_find_pre(const gguf_vocab *v, const ggufpre **row)
{
    *row = ggufpre_find(v->pre ? v->pre : "default");
    if (!*row)
        return fail(PESC_UNSUPPORTED, "%s: tokenizer.ggml.pre: '%s' is not known", v->file, v->pre);
    return PESC_OK;
}

/* row NULL: of "gemma4". */
static pesc_status build_bpe(tokenizer **out, const gguf_vocab *v, const ggufpre *row)
{
    tokenizer *t;
    TRY(pipeline_new(&t, v->file));
    bpe_build b = { .t = t, .n_tokens = v->n };
    b.spec.ignore_merges = row && row->ignore_merges;
    b.spec.byte_fallback = b.spec.fuse_unk = !row;
    b.spec.unk = row ? -1 : (int32_t)v->unk;
    pesc_status s = open_steps(t, row);
    if (s == PESC_OK)
        s = add_tokens(&b, v);
    if (s == PESC_OK)
        s = mark_tokens(t, v);
    bpe_build_free(&b);
    if (s == PESC_OK)
        *out = t;
    else
        tokenizer_close(t);
    return s;
}

/* ---- both ---- */

static pesc_status keep_template(tokenizer *t, const gguf_vocab *v)
{
    const struct {
        const char *name;
        int64_t id;
    } named[] = { { "bos_token", v->bos },
                  { "eos_token", v->eos },
                  { "pad_token", v->pad },
                  { "unk_token", v->unk } };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        size_t n = 0;
        const char *text = tokenizer_token(t, (int32_t)named[i].id, &n);
        if (text)
            TRY(pipeline_name_token(t, named[i].name, text, n));
    }
    if (!v->chat_template)
        return PESC_OK;
    t->chat_template = mem_strdup(v->chat_template);
    return t->chat_template ? PESC_OK : fail_nomem(v->file, strlen(v->chat_template));
}

static pesc_status finish_tokenizer(tokenizer *t, const gguf_vocab *v)
{
    t->bos = (int32_t)v->bos;
    t->eos = (int32_t)v->eos;
    TRY(keep_template(t, v));
    TRY(pipeline_mark_control(t, t->bos, v->file));
    TRY(pipeline_mark_control(t, t->eos, v->file));
    if (!v->json) /* a whole file has a frame of its own */
        TRY(pipeline_frame(t, v->add_bos, v->add_eos));
    return pipeline_seal(t);
}

static pesc_status check_ids(const gguf_vocab *v, int64_t n)
{
    const int64_t ids[] = { v->bos, v->eos, v->pad, v->unk };
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (ids[i] < -1 || ids[i] >= n)
            return fail(PESC_FORMAT, "%s: tokenizer.ggml: found token id %lld among %lld tokens",
                        v->file, (long long)ids[i], (long long)n);
    return PESC_OK;
}

static pesc_status build(tokenizer **out, const gguf_vocab *v)
{
    if (v->json)
        return tokjson_build(out, v->json, v->json_bytes, v->file);
    if (v->n == 0 || v->n >= INT32_MAX)
        return fail(PESC_FORMAT, "%s: tokenizer.ggml.tokens: found %zu tokens", v->file, v->n);
    TRY(check_ids(v, (int64_t)v->n));
    if (strcmp(v->model, "gemma4") == 0)
        return build_bpe(out, v, NULL);
    if (strcmp(v->model, "gpt2") == 0) {
        const ggufpre *row;
        TRY(tokgguf_find_pre(v, &row));
        return build_bpe(out, v, row);
    }
    if (strcmp(v->model, "llama") == 0 || strcmp(v->model, "t5") == 0)
        return build_sp(out, v);
    return fail(PESC_UNSUPPORTED,
                "%s: tokenizer.ggml.model: found '%s'; llama, gpt2, gemma4 and t5 are supported",
                v->file, v->model);
}

pesc_status tokenizer_from_gguf(tokenizer **out, const gguf_vocab *v)
{
    tokenizer *t = NULL;
    *out = NULL;
    TRY(build(&t, v));
    pesc_status s = v->json ? check_ids(v, t->size) : PESC_OK;
    if (s == PESC_OK)
        s = finish_tokenizer(t, v);
    if (s == PESC_OK)
        *out = t;
    else
        tokenizer_close(t);
    return s;
}

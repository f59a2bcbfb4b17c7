#include "tokenizer/bpebuild.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/bytetoken.h"

#include <string.h>

static int shown(size_t n)
{
    return n < 200 ? (int)n : 200;
}

pesc_status bpe_build_token(bpe_build *b, const char *text, size_t n, int64_t id)
{
    tokenizer *t = b->t;
    int64_t limit = vocab_id_limit(b->n_tokens);
    if (t->vocab.count == BPE_TOKENS_MAX)
        return fail(PESC_UNSUPPORTED, "%s: the vocabulary has more than %d tokens", t->file,
                    BPE_TOKENS_MAX);
    if (id < 0 || id >= limit || n >= VOCAB_HOLE)
        return fail(PESC_FORMAT,
                    "%s: vocabulary: '%.*s' has id %lld; ids of %zu tokens are 0 to %lld", t->file,
                    shown(n), text, (long long)id, b->n_tokens, (long long)limit - 1);
    switch (vocab_add(&t->vocab, text, n, (int32_t)id)) {
    case VOCAB_OK:
        return PESC_OK;
    case VOCAB_NOMEM:
        return fail_nomem(t->file, n);
    case VOCAB_ID_TAKEN:
        return fail(PESC_FORMAT, "%s: vocabulary: '%.*s' has id %lld, which another token has too",
                    t->file, shown(n), text, (long long)id);
    default:
        return fail(PESC_FORMAT, "%s: vocabulary: '%.*s' appears twice", t->file, shown(n), text);
    }
}

/* The tokens again, as the bytes they stand for. One that holds other characters (a control token)
 * is never the result of encoding and has no entry. */
static pesc_status add_byte_texts(bpe_build *b)
{
    tokenizer *t = b->t;
    for (size_t id = 0; id < t->vocab.n; id++) {
        size_t n = 0;
        const char *text = vocab_text(&t->vocab, (int64_t)id, &n);
        str_clear(&b->text);
        if (!text || n == 0 || !bytelevel_bytes(text, n, &b->text))
            continue;
        if (!str_ok(&b->text) ||
            vocab_add(&t->symbols, b->text.p, b->text.n, (int32_t)id) == VOCAB_NOMEM)
            return fail_nomem(t->file, n);
    }
    return PESC_OK;
}

/* The letter of a byte that has no token would be spelled by tokens of the letter's own bytes. */
static pesc_status check_fallback(bpe_build *b)
{
    for (uint32_t cp = '!'; b->spec.byte_fallback && cp < BYTELEVEL_END; cp++) {
        char letter[4];
        size_t n = (size_t)utf8_encode(cp, letter), known = 0;
        str_clear(&b->text);
        if (!bytelevel_bytes(letter, n, &b->text))
            continue;
        for (size_t i = 0; i < n; i++)
            known += b->spec.byte_ids[(unsigned char)letter[i]] >= 0;
        if (known == n && vocab_find(&b->t->vocab, letter, n) < 0)
            return fail(PESC_UNSUPPORTED,
                        "%s: model.byte_fallback is not supported with ByteLevel and an alphabet "
                        "without '%.*s'",
                        b->t->file, (int)n, letter);
    }
    return PESC_OK;
}

pesc_status bpe_build_symbols(bpe_build *b)
{
    tokenizer *t = b->t;
    bpe_spec *spec = &b->spec;
    spec->bytes = pretok_is_bytes(t->pre);
    spec->vocab = spec->bytes ? &t->symbols : &t->vocab;
    spec->n_tokens = INT64_MAX;
    for (int c = 0; c < 256; c++) {
        char name[BYTETOKEN_LENGTH + 1];
        bytetoken_name(name, c);
        spec->byte_ids[c] = vocab_find(&t->vocab, name, BYTETOKEN_LENGTH);
    }
    if (!spec->bytes)
        return PESC_OK;
    TRY(check_fallback(b));
    spec->byte_fallback = false;
    return add_byte_texts(b);
}

static pesc_status find_token(const tokenizer *t, size_t i, const char *text, size_t n, int32_t *id)
{
    *id = vocab_find(&t->vocab, text, n);
    return *id >= 0 ? PESC_OK
                    : fail(PESC_FORMAT, "%s: merges[%zu]: '%.*s' is not in the vocabulary", t->file,
                           i, shown(n), text);
}

static pesc_status push(bpe_build *b, bpe_merge m)
{
    if (!mem_room((void **)&b->merges, &b->cap, b->n, sizeof *b->merges))
        return fail_nomem(b->t->file, b->cap * 2 * sizeof *b->merges);
    b->merges[b->n++] = m;
    return PESC_OK;
}

pesc_status bpe_build_merge(bpe_build *b, size_t i, const char *left, size_t left_n,
                            const char *right, size_t right_n)
{
    tokenizer *t = b->t;
    bpe_merge m = { .rank = (uint32_t)i };
    size_t n;
    if (i >= BPE_MERGES_MAX)
        return fail(PESC_UNSUPPORTED, "%s: there are more than %d merges", t->file, BPE_MERGES_MAX);
    TRY(find_token(t, i, left, left_n, &m.left));
    TRY(find_token(t, i, right, right_n, &m.right));
    str_clear(&b->text);
    str_add(&b->text, left, left_n);
    str_add(&b->text, right, right_n);
    if (!str_ok(&b->text))
        return fail_nomem(t->file, left_n + right_n);
    TRY(find_token(t, i, b->text.p, b->text.n, &m.into));
    /* Only byte-level tokens that stand for bytes are ever neighbours. */
    return vocab_text(b->spec.vocab, m.into, &n) ? push(b, m) : PESC_OK;
}

pesc_status bpe_build_line(bpe_build *b, size_t i, const char *line, size_t n)
{
    if (n >= 8 && memcmp(line, "#version", 8) == 0)
        return PESC_OK;
    const char *space = memchr(line, ' ', n), *right = space ? space + 1 : NULL;
    size_t right_n = space ? n - (size_t)(right - line) : 0;
    if (!space || memchr(right, ' ', right_n))
        return fail(PESC_FORMAT, "%s: merges[%zu]: found '%.*s', expected two tokens", b->t->file,
                    i, shown(n), line);
    return bpe_build_merge(b, i, line, (size_t)(space - line), right, right_n);
}

pesc_status bpe_build_end(bpe_build *b)
{
    b->t->unk = b->spec.unk;
    return bpe_open(&b->t->bpe, &b->spec, b->merges, b->n);
}

void bpe_build_free(bpe_build *b)
{
    mem_free(b->merges);
    str_free(&b->text);
}

#include "tokenizer/tokenizer.h"

#include "base/args.h"
#include "base/mem.h"
#include "tokenizer/pipeline.h"

#include <string.h>

/* ---- ids ---- */

pesc_status id_list_add(id_list *l, int32_t id)
{
    if (!mem_room((void **)&l->ids, &l->cap, l->n, sizeof *l->ids))
        return fail_nomem("token ids", l->cap * 2 * sizeof *l->ids);
    l->ids[l->n++] = id;
    return PESC_OK;
}

/* Only the lock of a shared tokenizer and what it guards are ever written. */
static pesc_status borrow(const tokenizer *t, encoder **e)
{
    tokenizer *shared = (tokenizer *)t;
    pthread_mutex_lock(&shared->lock);
    *e = shared->idle;
    shared->idle = NULL;
    pthread_mutex_unlock(&shared->lock);
    return *e ? PESC_OK : encoder_open(e);
}

static void give_back(const tokenizer *t, encoder *e)
{
    tokenizer *shared = (tokenizer *)t;
    pthread_mutex_lock(&shared->lock);
    bool wanted = !shared->idle;
    if (wanted)
        shared->idle = e;
    pthread_mutex_unlock(&shared->lock);
    if (!wanted)
        encoder_close(e);
}

pesc_status tokenizer_encode(const tokenizer *t, const char *text, size_t n, unsigned flags,
                             id_list *out)
{
    encoder *e;
    TRY(borrow(t, &e));
    pesc_status s = encoder_text(e, t, text, n, flags, out);
    give_back(t, e);
    return s;
}

pesc_status tokenizer_encode_pieces(const tokenizer *t, const tok_piece *pieces, size_t n,
                                    id_list *out, unsigned char **trained)
{
    encoder *e;
    if (trained)
        *trained = NULL;
    TRY(borrow(t, &e));
    pesc_status s = encoder_pieces(e, t, pieces, n, out, trained);
    give_back(t, e);
    return s;
}

/* ---- facts ---- */

int64_t tokenizer_size(const tokenizer *t)
{
    return t->size;
}

const char *tokenizer_kind(const tokenizer *t)
{
    return t->bpe ? "bpe" : "unigram";
}

int32_t tokenizer_added_id(const tokenizer *t, const char *token)
{
    return vocab_find(&t->added_vocab, token, strlen(token));
}

int32_t tokenizer_id(const tokenizer *t, const char *token)
{
    int32_t id = tokenizer_added_id(t, token);
    return id >= 0 ? id : vocab_find(&t->vocab, token, strlen(token));
}

const char *tokenizer_token(const tokenizer *t, int32_t id, size_t *n)
{
    const char *text = vocab_text(&t->added_vocab, id, n);
    return text ? text : vocab_text(&t->vocab, id, n);
}

bool tokenizer_is_special(const tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->size && t->special[id];
}

int32_t tokenizer_bos(const tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const tokenizer *t)
{
    return t->eos;
}

static bool allow_every(void *ctx, const added_token *token, size_t start, size_t end)
{
    (void)ctx, (void)token, (void)start, (void)end;
    return true;
}

pesc_status tokenizer_find_control(const tokenizer *t, const char *text, size_t n, size_t *begin,
                                   size_t *end, bool *found)
{
    added_matches m = { 0 };
    pesc_status s = added_find(t->literal, text, n, allow_every, NULL, &m);
    *found = false;
    for (size_t i = 0; s == PESC_OK && i < m.n && !*found; i++) {
        *found = tokenizer_is_special(t, m.at[i].id);
        *begin = m.at[i].start;
        *end = m.at[i].end;
    }
    mem_free(m.at);
    return s;
}

const char *tokenizer_chat_template(const tokenizer *t)
{
    return t->chat_template;
}

const char *tokenizer_tool_template(const tokenizer *t)
{
    return t->tool_template;
}

const json_t *tokenizer_named_tokens(const tokenizer *t)
{
    return t->named;
}

/* ---- public ---- */

static pesc_status check_flags(unsigned flags, unsigned known)
{
    return flags & ~known ? fail(PESC_USAGE, "flags: found %u, expected a sum of some bits of %u",
                                 flags, known)
                          : PESC_OK;
}

pesc_status pesc_tokenize(const pesc_tokenizer *t, const char *text, size_t n, unsigned flags,
                          int32_t *ids, size_t cap, size_t *count)
{
    status_clear();
    NEED(t);
    NEED_ARRAY(text, n);
    NEED_ARRAY(ids, cap);
    NEED(count);
    TRY(check_flags(flags, PESC_ADD_SPECIAL | PESC_PARSE_SPECIAL));
    id_list list = { 0 };
    pesc_status s = tokenizer_encode(t, text, n, flags, &list);
    if (s == PESC_OK) {
        size_t take = list.n < cap ? list.n : cap;
        if (take)
            memcpy(ids, list.ids, take * sizeof *ids);
        *count = list.n;
    }
    mem_free(list.ids);
    return s;
}

pesc_status decode_text(const tokenizer *t, const int32_t *ids, size_t n, unsigned flags, str *out)
{
    decode_stream *d;
    TRY(decode_open(&d, t, flags));
    pesc_status s = PESC_OK;
    for (size_t i = 0; s == PESC_OK && i < n; i++)
        s = decode_add(d, t, ids[i], out);
    if (s == PESC_OK)
        s = decode_end(d, out);
    decode_close(d);
    return s;
}

/* Where the next piece of text goes, as far as it fits. */
typedef struct sink {
    char *text;
    size_t cap, n;
} sink;

static void pour(sink *k, const char *text, size_t n)
{
    size_t room = k->n < k->cap ? k->cap - k->n : 0;
    size_t take = n < room ? n : room;
    if (take)
        memcpy(k->text + k->n, text, take);
    k->n += n;
}

static pesc_status decode_all(decode_stream *d, const pesc_tokenizer *t, const int32_t *ids,
                              size_t n, sink *k)
{
    const char *part;
    size_t part_n;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= t->size)
            return fail(PESC_USAGE, "id %d (number %zu) is not in the vocabulary of %lld tokens",
                        ids[i], i + 1, (long long)t->size);
        TRY(decode_feed(d, ids[i], &part, &part_n));
        pour(k, part, part_n);
    }
    TRY(decode_finish(d, &part, &part_n));
    pour(k, part, part_n);
    return PESC_OK;
}

pesc_status pesc_detokenize(const pesc_tokenizer *t, const int32_t *ids, size_t n, unsigned flags,
                            char *text, size_t cap, size_t *len)
{
    status_clear();
    NEED(t);
    NEED_ARRAY(ids, n);
    NEED_ARRAY(text, cap);
    NEED(len);
    TRY(check_flags(flags, PESC_SKIP_SPECIAL));
    decode_stream *d;
    TRY(decode_open(&d, t, flags));
    sink k = { text, cap, 0 };
    pesc_status s = decode_all(d, t, ids, n, &k);
    if (s == PESC_OK)
        *len = k.n;
    decode_close(d);
    return s;
}

int64_t pesc_vocab_size(const pesc_tokenizer *t)
{
    return t ? t->size : 0;
}

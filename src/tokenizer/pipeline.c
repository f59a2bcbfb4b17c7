#include "tokenizer/pipeline.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/control.h"

#include <string.h>

pesc_status pipeline_new(tokenizer **out, const char *file)
{
    *out = NULL;
    tokenizer *t = mem_zalloc(1, sizeof *t);
    if (!t)
        return fail_nomem(file, sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
    t->unk = t->bos = t->eos = -1;
    t->file = mem_strdup(file);
    if (!t->file) {
        tokenizer_close(t);
        return fail_nomem(file, strlen(file));
    }
    *out = t;
    return PESC_OK;
}

void tokenizer_close(tokenizer *t)
{
    if (!t)
        return;
    vocab_free(&t->vocab);
    vocab_free(&t->symbols);
    bpe_close(t->bpe);
    unigram_close(t->unigram);
    vocab_free(&t->added_vocab);
    vocab_free(&t->shown);
    for (size_t i = 0; i < t->n_added; i++)
        mem_free(t->added[i].text);
    mem_free(t->added);
    mem_free(t->added_at);
    added_close(t->raw);
    added_close(t->normal);
    added_close(t->literal);
    mem_free(t->special);
    mem_free(t->never);
    spmodel_close(t->sp);
    normalizer_close(t->norm);
    pretok_close(t->pre);
    decoder_close(t->dec);
    mem_free(t->front.ids);
    mem_free(t->back.ids);
    mem_free(t->chat_template);
    mem_free(t->tool_template);
    json_decref(t->named);
    encoder_close(t->idle);
    pthread_mutex_destroy(&t->lock);
    mem_free(t->file);
    mem_free(t);
}

pesc_status pipeline_name_token(tokenizer *t, const char *name, const char *token, size_t n)
{
    if (!utf8_valid(token, n))
        return PESC_OK;
    t->named = t->named ? t->named : json_object();
    return t->named && json_object_set_new(t->named, name, json_stringn(token, n)) == 0
               ? PESC_OK
               : fail_nomem(t->file, n);
}

/* Whether id and text agree with what the vocabulary says of either. */
static pesc_status check_added(const tokenizer *t, const added_token *token, const char *where)
{
    int32_t known = vocab_find(&t->vocab, token->text, token->n);
    if (known >= 0 && known != token->id)
        return fail(PESC_FORMAT, "%s: '%s' has id %d, but id %d in the vocabulary", where,
                    token->text, token->id, known);
    size_t n = 0;
    const char *other = vocab_text(&t->vocab, token->id, &n);
    if (other && known < 0)
        return fail(PESC_FORMAT, "%s: '%s' has id %d, which the vocabulary gives to '%.*s'", where,
                    token->text, token->id, (int)(n < 80 ? n : 80), other);
    int64_t limit = vocab_id_limit(t->vocab.count + t->n_added + 1);
    if (token->id >= limit)
        return fail(PESC_FORMAT, "%s: '%s' has id %d; with %zu tokens ids are below %lld", where,
                    token->text, token->id, t->vocab.count + t->n_added + 1, (long long)limit);
    return PESC_OK;
}

static pesc_status keep_added(tokenizer *t, const added_token *token, const char *where)
{
    if (!mem_room((void **)&t->added, &t->cap_added, t->n_added, sizeof *t->added))
        return fail_nomem(where, t->cap_added * 2 * sizeof *t->added);
    while ((size_t)token->id >= t->cap_added_at)
        if (!mem_room((void **)&t->added_at, &t->cap_added_at, t->cap_added_at,
                      sizeof *t->added_at))
            return fail_nomem(where, t->cap_added_at * 2 * sizeof *t->added_at);
    t->added_at[token->id] = t->n_added;
    added_token *copy = &t->added[t->n_added];
    *copy = *token;
    copy->control_form = control_form(token->text, token->n);
    copy->text = mem_strndup(token->text, token->n);
    if (!copy->text)
        return fail_nomem(where, token->n);
    t->n_added++;
    return PESC_OK;
}

/* The token is there already; what is a control token for one of two readers is one. */
static void add_again(tokenizer *t, const added_token *token)
{
    added_token *known = &t->added[t->added_at[token->id]];
    if (!token->special || known->special)
        return;
    known->special = true;
    known->normalized = token->normalized;
}

pesc_status pipeline_add(tokenizer *t, const added_token *token, const char *where)
{
    if (token->n == 0) {
        log_notice("%s: the added token is empty and left out", where);
        return PESC_OK;
    }
    if (token->n >= VOCAB_HOLE)
        return fail(PESC_UNSUPPORTED, "%s: the token is longer than 4 GiB", where);
    TRY(check_added(t, token, where));
    switch (vocab_add(&t->added_vocab, token->text, token->n, token->id)) {
    case VOCAB_OK:
        return keep_added(t, token, where);
    case VOCAB_NOMEM:
        return fail_nomem(where, token->n);
    default:
        if (vocab_find(&t->added_vocab, token->text, token->n) == token->id) {
            add_again(t, token);
            return PESC_OK;
        }
        return fail(PESC_FORMAT, "%s: '%s' with id %d contradicts another added token", where,
                    token->text, token->id);
    }
}

pesc_status pipeline_mark_control(tokenizer *t, int32_t id, const char *where)
{
    size_t n = 0;
    const char *text = tokenizer_token(t, id, &n);
    if (!text || (size_t)utf8_decode(text, n, NULL) == n)
        return PESC_OK;
    added_token a = { .n = n, .id = id, .special = true };
    a.text = mem_strndup(text, n);
    pesc_status s = a.text ? pipeline_add(t, &a, where) : fail_nomem(where, n);
    mem_free(a.text);
    return s;
}

pesc_status pipeline_frame(tokenizer *t, bool bos, bool eos)
{
    t->front.n = t->back.n = 0;
    if (bos && t->bos >= 0)
        TRY(id_list_add(&t->front, t->bos));
    return eos && t->eos >= 0 ? id_list_add(&t->back, t->eos) : PESC_OK;
}

/* The keys of one matcher. */
typedef struct key_list {
    added_key *keys;
    added_token *tokens;
    char **copies; /* of normalised texts */
    size_t n;
    budget work;
    normalize_scratch ns;
} key_list;

static pesc_status add_key(key_list *l, tokenizer *t, const added_token *a, bool normalise)
{
    const char *text = a->text;
    size_t n = a->n;
    if (normalise)
        TRY(normalizer_run(t->norm, &l->ns, a->text, a->n, &text, &n));
    if (n == 0)
        return PESC_OK;
    if (text != a->text) {
        text = l->copies[l->n] = mem_strndup(text, n);
        /* Hugging Face also decodes such a token to its normalised text. */
        if (!text || vocab_add(&t->shown, text, n, a->id) == VOCAB_NOMEM)
            return fail_nomem(t->file, n);
    }
    l->keys[l->n] = (added_key){ text, n };
    l->tokens[l->n++] = *a;
    return PESC_OK;
}

typedef enum key_set { RAW_KEYS, NORMAL_KEYS, LITERAL_KEYS } key_set;

static bool in_set(const added_token *a, key_set set)
{
    if (set == LITERAL_KEYS)
        return !a->normalized || a->special || a->control_form;
    return a->normalized == (set == NORMAL_KEYS);
}

/* Of keys that are equal after normalisation the automaton keeps the last: so the list goes from
 * the end, and what Hugging Face looks at first (control tokens, then file order) comes last. */
static pesc_status add_keys(key_list *l, tokenizer *t, key_set set)
{
    for (int special = 0; special < 2; special++)
        for (size_t i = t->n_added; i > 0; i--)
            if (t->added[i - 1].special == special && in_set(&t->added[i - 1], set))
                TRY(add_key(l, t, &t->added[i - 1], set == NORMAL_KEYS));
    return PESC_OK;
}

static pesc_status build_matcher(tokenizer *t, key_set set, added **out)
{
    key_list l = { 0 };
    l.keys = mem_alloc(t->n_added + 1, sizeof *l.keys);
    l.tokens = mem_alloc(t->n_added + 1, sizeof *l.tokens);
    l.copies = mem_zalloc(t->n_added + 1, sizeof *l.copies);
    bool room = l.keys && l.tokens && l.copies;
    l.ns.work = &l.work;
    for (size_t i = 0; i < t->n_added; i++)
        budget_add(&l.work, t->added[i].n);
    pesc_status s = room ? regex_scratch_open(&l.ns.rs) : fail_nomem(t->file, t->n_added);
    if (s == PESC_OK)
        s = add_keys(&l, t, set);
    if (s == PESC_OK)
        s = added_open(out, l.keys, l.tokens, l.n);
    for (size_t i = 0; l.copies && i <= t->n_added; i++)
        mem_free(l.copies[i]);
    normalize_scratch_free(&l.ns);
    regex_scratch_close(l.ns.rs);
    mem_free(l.keys);
    mem_free(l.tokens);
    mem_free(l.copies);
    return s;
}

pesc_status pipeline_seal(tokenizer *t)
{
    added_close(t->raw);
    added_close(t->normal);
    added_close(t->literal);
    t->raw = t->normal = t->literal = NULL;
    vocab_free(&t->shown);
    t->size = (int64_t)(t->vocab.n > t->added_vocab.n ? t->vocab.n : t->added_vocab.n);
    mem_free(t->special);
    mem_free(t->never);
    t->special = mem_zalloc((size_t)t->size + 1, 1);
    t->never = mem_zalloc((size_t)t->size + 1, 1);
    if (!t->special || !t->never)
        return fail_nomem(t->file, (size_t)t->size);
    for (size_t i = 0; i < t->n_added; i++) {
        const added_token *a = &t->added[i];
        t->special[a->id] = a->special;
        t->never[a->id] = a->special || a->control_form;
    }
    TRY(build_matcher(t, RAW_KEYS, &t->raw));
    TRY(build_matcher(t, NORMAL_KEYS, &t->normal));
    TRY(build_matcher(t, LITERAL_KEYS, &t->literal));
    if (t->bpe)
        return bpe_forbid(t->bpe, t->never);
    if (t->unigram)
        unigram_forbid(t->unigram, t->never);
    return PESC_OK;
}

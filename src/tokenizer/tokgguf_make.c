/* tokgguf_make: a tokenizer -> the vocabulary of a GGUF file.
 *
 * A byte-level BPE gives tokens and merges; how it splits text is only a name in GGUF, so the names
 * are tried one after the other. Other BPE models become SentencePiece's: the merge of rank r that
 * makes a token gives it the score -r. Either is opened again with tokenizer_from_gguf() and must
 * encode a set of texts, framed and not, as the tokenizer itself does. Where none does, the whole
 * tokenizer.json is stored, under the key that GGUF has for it. */
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "tokenizer/bytetoken.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/tokgguf.h"

#include <stdio.h>
#include <string.h>

enum { UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6, NORMAL = 1 };
enum { NAME = 24, MAX_JSON = 128 << 20 };

/* The memory of a vocabulary that was made here. */
typedef struct arrays {
    const char **tokens, **merges;
    size_t *token_bytes;
    float *scores;
    int32_t *types;
    char (*names)[NAME]; /* of rows without a token */
    str merge_text;
    char *json;
} arrays;

void tokenizer_gguf_free(gguf_vocab *v)
{
    arrays *a = v->own;
    if (!a)
        return;
    mem_free(a->tokens);
    mem_free(a->merges);
    mem_free(a->token_bytes);
    mem_free(a->scores);
    mem_free(a->types);
    mem_free(a->names);
    mem_free(a->json);
    str_free(&a->merge_text);
    mem_free(a);
    *v = (gguf_vocab){ 0 };
}

/* ---- tokens ---- */

static int type_of(const tokenizer *t, int32_t id, const char *text, size_t n, bool is_added)
{
    bool pieces = t->sp || !bpe_facts(t->bpe)->bytes;
    int type = t->sp && (size_t)id < t->sp->n ? (int)t->sp->pieces[id].type : NORMAL;
    if (id == t->unk && pieces)
        return UNKNOWN;
    if (tokenizer_is_special(t, id))
        return CONTROL;
    if (!t->sp && pieces && bytetoken_value(text, n) >= 0)
        return BYTE;
    return type == NORMAL && is_added ? USER_DEFINED : type;
}

static void fill_tokens(arrays *a, gguf_vocab *v, const tokenizer *t)
{
    for (size_t i = 0; i < t->n_added; i++) /* marked first, told apart below */
        if ((size_t)t->added[i].id < v->n)
            a->types[t->added[i].id] = USER_DEFINED;
    for (size_t i = 0; i < v->n; i++) {
        size_t n = 0;
        int32_t id = (int32_t)i;
        const char *text = tokenizer_token(t, id, &n);
        a->tokens[i] = text;
        a->token_bytes[i] = n;
        if (text) {
            a->types[i] = type_of(t, id, text, n, a->types[i] == USER_DEFINED);
            continue;
        }
        a->token_bytes[i] = (size_t)snprintf(a->names[i], NAME, "[PAD%zu]", i);
        a->tokens[i] = a->names[i];
        a->types[i] = UNUSED;
    }
}

static int64_t pad_of(const tokenizer *t)
{
    const json_t *pad = json_object_get(t->named, "pad_token");
    return json_is_string(pad) ? tokenizer_id(t, json_string_value(pad)) : -1;
}

static bool framed_by(const id_list *frame, int32_t id)
{
    return id >= 0 && frame->n == 1 && frame->ids[0] == id;
}

static int64_t below(int64_t id, size_t n)
{
    return id < (int64_t)n ? id : -1;
}

static void fill_facts(gguf_vocab *v, const tokenizer *t)
{
    v->bos = below(t->bos, v->n);
    v->eos = below(t->eos, v->n);
    v->pad = below(pad_of(t), v->n);
    v->unk = below(t->unk, v->n);
    v->add_bos = framed_by(&t->front, t->bos);
    v->add_eos = framed_by(&t->back, t->eos);
    v->chat_template = t->chat_template;
    v->add_space_prefix = t->sp && t->sp->add_dummy_prefix;
    v->remove_extra_whitespaces = t->sp && t->sp->remove_extra_whitespaces;
}

/* ---- merges and scores ---- */

static pesc_status fill_merges(arrays *a, gguf_vocab *v, const tokenizer *t)
{
    bpe_merge *list = NULL;
    size_t n = 0;
    TRY(bpe_merges(t->bpe, &list, &n));
    a->merges = mem_alloc(n + 1, sizeof *a->merges);
    for (size_t i = 0; i < n; i++) {
        size_t ln = 0, rn = 0;
        const char *left = vocab_text(&t->vocab, list[i].left, &ln);
        const char *right = vocab_text(&t->vocab, list[i].right, &rn);
        str_add(&a->merge_text, left, ln);
        str_putc(&a->merge_text, ' ');
        str_add(&a->merge_text, right, rn);
        str_putc(&a->merge_text, '\0');
    }
    mem_free(list);
    if (!a->merges || !str_ok(&a->merge_text))
        return fail_nomem(t->file, a->merge_text.n);
    const char *at = a->merge_text.p;
    for (size_t i = 0; i < n; i++, at += strlen(at) + 1)
        a->merges[i] = at;
    v->merges = a->merges;
    v->n_merges = n;
    return PESC_OK;
}

static pesc_status fill_scores(arrays *a, gguf_vocab *v, const tokenizer *t)
{
    bpe_merge *list = NULL;
    size_t n = 0;
    v->scores = a->scores = mem_zalloc(v->n, sizeof *a->scores);
    if (!a->scores)
        return fail_nomem(t->file, v->n * sizeof *a->scores);
    if (t->sp) {
        for (size_t i = 0; i < v->n && i < t->sp->n; i++)
            a->scores[i] = t->sp->pieces[i].score;
        return PESC_OK;
    }
    TRY(bpe_merges(t->bpe, &list, &n));
    for (size_t i = n; i-- > 0;) /* of several merges that make a token the first one counts */
        if ((size_t)list[i].into < v->n)
            a->scores[list[i].into] = -(float)(i + 1);
    mem_free(list);
    return PESC_OK;
}

/* ---- candidates ---- */

/* Where ways to split text differ: digits, blanks, case, short forms, scripts, marks, symbols. */
static const char *const probes[] = {
    "Hello World",
    " hello  world",
    "a   b",
    "  ",
    " ",
    "\n",
    "\n\n\n",
    " \n x",
    "\t\ttab",
    "x \n\n y\r\nz",
    "1",
    "12",
    "123",
    "1234",
    "12345678901",
    "3.14159 2,718",
    "2024-11-16T07:55:00",
    "a1b22c333",
    "I'm you're we'll they'd it's can't I've",
    "I'M YOU'RE WE'LL IT'S",
    "'s 't 'Tis",
    "don\xe2\x80\x99t",
    "camelCase PascalCase snake_case UPPER lowER",
    "HTTPServer2",
    "foo.bar(baz)[0] = {x: -1};",
    "#include <stdio.h>\nint main(void)\n{\n    return 0;\n}\n",
    "!!! ??? ... --- ___ *** ###",
    "$100 \xe2\x82\xac"
    "50 \xc2\xa3"
    "20",
    "a/b/c//d /// e",
    "caf\xc3\xa9 na\xc3\xafve r\xc3\xa9sum\xc3\xa9",
    "cafe\xcc\x81",
    "\xc3\x84\xc3\x96\xc3\x9c\xc3\x9f \xc3\xa4\xc3\xb6\xc3\xbc",
    "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82 \xd0\xbc\xd0\xb8\xd1\x80",
    "\xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c\xe4\xb8\x96\xe7\x95\x8c\xe3\x80\x82"
    "123",
    "\xe3\x81\x93\xe3\x82\x93\xe3\x81\xab\xe3\x81\xa1\xe3\x81\xaf\xe3\x82\xab\xe3\x82\xbf",
    "\xec\x95\x88\xeb\x85\x95 \xed\x95\x98\xec\x84\xb8\xec\x9a\x94",
    "\xd9\x85\xd8\xb1\xd8\xad\xd8\xa8\xd8\xa7 \xd9\xa1\xd9\xa2\xd9\xa3",
    "\xe0\xa4\xa8\xe0\xa4\xae\xe0\xa4\xb8\xe0\xa5\x8d\xe0\xa4\xa4\xe0\xa5\x87",
    "\xf0\x9f\x98\x80\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd \xf0\x9f\x87\xa9\xf0\x9f\x87\xaa",
    "\xc2\xbd \xc2\xb2 \xe2\x85\xa7 \xe2\x91\xa0",
    "x\xc2\xa0y \xe2\x80\x83z",
    "\xc7\x85 \xc7\x88 \xca\xb0",
    "word1 word2  word3   word4",
    "  leading and trailing  ",
    "a\xcc\x8a \xe1\xb8\x8d\xcc\x87",
    "\xe2\x84\xab",
};

static pesc_status encode_same(const tokenizer *a, const tokenizer *b, const char *text, size_t n,
                               unsigned flags, bool *same)
{
    id_list x = { 0 }, y = { 0 };
    pesc_status s = tokenizer_encode(a, text, n, flags, &x);
    if (s == PESC_OK)
        s = tokenizer_encode(b, text, n, flags, &y);
    *same = x.n == y.n && (x.n == 0 || memcmp(x.ids, y.ids, x.n * sizeof *x.ids) == 0);
    mem_free(x.ids);
    mem_free(y.ids);
    return s;
}

static pesc_status try_probes(const tokenizer *a, const tokenizer *b, bool *same)
{
    *same = true;
    for (size_t i = 0; *same && i < sizeof probes / sizeof *probes; i++)
        TRY(encode_same(a, b, probes[i], strlen(probes[i]), i % 2 ? PESC_ADD_SPECIAL : 0, same));
    return PESC_OK;
}

/* The text of every token, decoded and encoded again. */
static pesc_status count_others(const tokenizer *a, const tokenizer *b, size_t n, size_t *others)
{
    *others = 0;
    for (size_t i = 0; i < n; i++) {
        char text[4096];
        size_t len = 0;
        bool same = true;
        int32_t id = (int32_t)i;
        if (!tokenizer_token(a, id, &len))
            continue;
        TRY(pesc_detokenize(a, &id, 1, 0, text, sizeof text, &len));
        TRY(encode_same(a, b, text, len < sizeof text ? len : sizeof text, 0, &same));
        *others += !same;
    }
    return PESC_OK;
}

static pesc_status try_candidate(const gguf_vocab *v, const tokenizer *t, bool *found)
{
    tokenizer *back = NULL;
    size_t others = 0;
    *found = false;
    pesc_status s = tokenizer_from_gguf(&back, v);
    if (s != PESC_OK) /* what GGUF's reader refuses is no candidate */
        return s == PESC_NOMEM ? s : PESC_OK;
    s = try_probes(t, back, found);
    if (s == PESC_OK && *found)
        s = count_others(t, back, v->n, &others);
    tokenizer_close(back);
    if (s == PESC_OK && others)
        log_notice("%s: the vocabulary in the GGUF file encodes the texts of %zu of its %zu tokens "
                   "otherwise",
                   t->file, others, v->n);
    return s;
}

static pesc_status choose_split(gguf_vocab *v, const tokenizer *t, bool *found)
{
    v->model = "gpt2";
    for (const char *const *name = ggufpre_written; *name && !*found; name++) {
        v->pre = *name;
        TRY(try_candidate(v, t, found));
    }
    return PESC_OK;
}

static pesc_status choose_prefix(gguf_vocab *v, const tokenizer *t, bool *found)
{
    v->model = "llama";
    v->pre = "default";
    for (int prefix = 1; prefix >= 0 && !*found; prefix--) {
        if (t->sp && (bool)prefix != t->sp->add_dummy_prefix)
            continue;
        v->add_space_prefix = prefix;
        TRY(try_candidate(v, t, found));
    }
    return PESC_OK;
}

/* ---- the whole file ---- */

static pesc_status keep_json(arrays *a, gguf_vocab *v, const tokenizer *t)
{
    if (!str_ends(t->file, ".json"))
        return fail(PESC_UNSUPPORTED,
                    "%s: this kind of tokenizer has no place in a GGUF file; give one with "
                    "--tokenizer",
                    t->file);
    TRY(io_read_file(t->file, MAX_JSON, &a->json, &v->json_bytes));
    v->json = a->json;
    v->model = "no_vocab";
    v->pre = NULL;
    v->n = v->n_merges = 0;
    log_notice("%s: llama.cpp has no name for the way it splits text, so the file is stored whole "
               "in the GGUF file: pesc reads it there, llama.cpp finds no vocabulary",
               t->file);
    return PESC_OK;
}

static pesc_status make_arrays(arrays *a, gguf_vocab *v, const tokenizer *t)
{
    v->tokens = a->tokens = mem_alloc(v->n, sizeof *a->tokens);
    v->token_bytes = a->token_bytes = mem_alloc(v->n, sizeof *a->token_bytes);
    v->types = a->types = mem_zalloc(v->n, sizeof *a->types);
    a->names = mem_alloc(v->n, sizeof *a->names);
    if (!a->tokens || !a->token_bytes || !a->types || !a->names)
        return fail_nomem(t->file, v->n * NAME);
    fill_tokens(a, v, t);
    bool bytes = t->bpe && bpe_facts(t->bpe)->bytes;
    return bytes ? fill_merges(a, v, t) : fill_scores(a, v, t);
}

pesc_status tokenizer_to_gguf(gguf_vocab *v, const tokenizer *t, int64_t n_rows)
{
    bool found = false;
    arrays *a = mem_zalloc(1, sizeof *a);
    *v = (gguf_vocab){ .file = t->file, .n = (size_t)n_rows, .own = a };
    if (!a)
        return fail_nomem(t->file, sizeof *a);
    if (t->size > n_rows)
        log_notice("%s: its tokens from %lld on have no row in the embeddings and are left out",
                   t->file, (long long)n_rows);
    fill_facts(v, t);
    if (!t->bpe)
        return keep_json(a, v, t);
    TRY(make_arrays(a, v, t));
    TRY(bpe_facts(t->bpe)->bytes ? choose_split(v, t, &found) : choose_prefix(v, t, &found));
    return found ? PESC_OK : keep_json(a, v, t);
}

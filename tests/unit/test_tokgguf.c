/* Vocabularies as GGUF files carry them: the same ids as the tokenizer they were made from. */
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"
#include "tokenizer/pipeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX = 1024 };

typedef struct fixture {
    const char *tokens[MAX], *merges[MAX];
    size_t token_bytes[MAX];
    float scores[MAX];
    int32_t types[MAX];
    gguf_vocab v;
} fixture;

static void start(fixture *f, const char *model, const char *pre)
{
    memset(f, 0, sizeof *f);
    f->v = (gguf_vocab){
        .file = "m.gguf", .model = model, .pre = pre, .bos = -1, .eos = -1, .pad = -1, .unk = -1
    };
    f->v.tokens = f->tokens;
    f->v.token_bytes = f->token_bytes;
    f->v.types = f->types;
    f->v.merges = f->merges;
}

static void add(fixture *f, const char *text, float score, int32_t type)
{
    size_t i = f->v.n++;
    f->tokens[i] = text;
    f->token_bytes[i] = strlen(text);
    f->scores[i] = score;
    f->types[i] = type;
}

static void same(const tokenizer *a, const tokenizer *b, const json_t *rows)
{
    json_t *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        const json_t *text = json_object_get(row, "text");
        id_list x = { 0 }, y = { 0 };
        unsigned flags = PESC_PARSE_SPECIAL;
        must(tokenizer_encode(a, json_string_value(text), json_string_length(text), flags, &x));
        must(tokenizer_encode(b, json_string_value(text), json_string_length(text), flags, &y));
        assert_int_equal(x.n, y.n);
        if (x.n)
            assert_memory_equal(x.ids, y.ids, x.n * sizeof *x.ids);
        mem_free(x.ids);
        mem_free(y.ids);
    }
}

/* A SentencePiece model, as llama.cpp's converter writes it; its texts are borrowed. */
static void from_sentencepiece(fixture *f, const spmodel *m)
{
    start(f, "llama", NULL);
    assert_true(m->n < MAX);
    for (size_t i = 0; i < m->n; i++)
        add(f, m->pieces[i].text, m->pieces[i].score, (int32_t)m->pieces[i].type);
    f->v.scores = f->scores;
    f->v.unk = m->unk;
    f->v.bos = m->bos;
    f->v.eos = m->eos;
    f->v.add_bos = f->v.add_space_prefix = true;
    f->v.chat_template = "T";
}

static void equals_its_sentencepiece_model(void **state)
{
    (void)state;
    json_t *root;
    tokenizer *from_model, *from_gguf;
    static fixture f;
    must(json_read(&root, golden_path("tokenizer/sentencepiece.json"), 1 << 24));
    must(tokenizer_open_file(&from_model, golden_path("tokenizer/bpe.model")));
    const spmodel *m = from_model->sp;
    from_sentencepiece(&f, m);
    must(tokenizer_from_gguf(&from_gguf, &f.v));
    same(from_model, from_gguf, json_object_get(root, "bpe.model"));
    assert_string_equal(tokenizer_chat_template(from_gguf), "T");
    assert_int_equal(tokenizer_bos(from_gguf), m->bos);
    tokenizer_close(from_gguf);
    tokenizer_close(from_model);
    json_decref(root);
}

/* A byte-level tokenizer.json, the same way; its texts are borrowed. */
static void from_byte_level(fixture *f, const json_t *d)
{
    json_t *v;
    const char *text;
    size_t i;
    static char lines[MAX][64];
    const json_t *model = json_object_get(d, "model");
    start(f, "gpt2", "gpt-2");
    json_object_foreach(json_object_get(model, "vocab"), text, v)
    {
        i = (size_t)json_integer_value(v);
        f->tokens[i] = text;
        f->token_bytes[i] = strlen(text);
        f->types[i] = 1;
        f->v.n = i >= f->v.n ? i + 1 : f->v.n;
    }
    json_array_foreach(json_object_get(d, "added_tokens"), i, v)
    {
        bool special = json_is_true(json_object_get(v, "special"));
        add(f, json_string_value(json_object_get(v, "content")), 0, special ? 3 : 4);
    }
    json_array_foreach(json_object_get(model, "merges"), i, v)
    {
        snprintf(lines[i], sizeof lines[i], "%s %s", json_string_value(json_array_get(v, 0)),
                 json_string_value(json_array_get(v, 1)));
        f->merges[f->v.n_merges++] = lines[i];
    }
}

static void equals_its_byte_level_json(void **state)
{
    (void)state;
    json_t *root;
    size_t i;
    static fixture f;
    must(json_read(&root, golden_path("tokenizer/tokenizers.json"), 1 << 24));
    const json_t *entry = json_array_get(root, 0);
    from_byte_level(&f, json_object_get(entry, "tokenizer"));
    tokenizer *t;
    must(tokenizer_from_gguf(&t, &f.v));
    /* GGUF says nothing of lstrip and its like, nor of a normaliser: plain text must be the same */
    json_t *row;
    size_t checked = 0;
    json_array_foreach(json_object_get(entry, "lines"), i, row)
    {
        const json_t *line = json_object_get(row, "text"), *want = json_object_get(row, "ids");
        const char *s = json_string_value(line);
        if (strpbrk(s, "<[") || strstr(s, "word") || strstr(s, "e\xcc\x81"))
            continue;
        id_list ids = { 0 };
        must(tokenizer_encode(t, s, json_string_length(line), 0, &ids));
        assert_int_equal(ids.n, json_array_size(want));
        for (size_t k = 0; k < ids.n; k++)
            assert_int_equal(ids.ids[k], json_integer_value(json_array_get(want, k)));
        mem_free(ids.ids);
        checked++;
    }
    assert_true(checked > 20);
    tokenizer_close(t);
    json_decref(root);
}

/* Gemma's tokenizer.json, which has bytes for unknown characters, and what llama.cpp's converter
 * makes of it. */
static const char gemma_json[] =
    "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":266,\"content\":\"<bos>\",\"special\":true}],"
    "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\\u2581\"},"
    "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":"
    "\"MergedWithPrevious\",\"invert\":false},\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\\u2581\"},\"content\":\" \"},"
    "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},\"model\":{\"type\":\"BPE\",\"unk_token\":"
    "\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,\"ignore_merges\":false,\"merges\":"
    "[[\"\\u2581\",\"a\"],[\"b\",\"c\"],[\"\\u2581a\",\"bc\"],[\"\\n\",\"\\n\"]],\"vocab\":{"
    "\"<unk>\":0,\"\\u2581\":1,\"a\":2,\"b\":3,\"c\":4,\"bc\":5,\"\\u2581a\":6,\"\\u2581abc\":7,"
    "\"\\n\":8,\"\\n\\n\":9";

static void equals_gemmas_json(void **state)
{
    (void)state;
    static const char *const texts[] = { "a bc", " abc abc\n\n\nab", "x\xc3\xa9 \xf0\x9f\x98\x80 c",
                                         "  ",   "<bos> a\tb\n a",   "" };
    static fixture f;
    str text = { 0 };
    json_t *root, *rows = json_array();
    str_puts(&text, gemma_json);
    for (int i = 0; i < 256; i++)
        str_printf(&text, ",\"<0x%02X>\":%d", (unsigned)i, 10 + i);
    str_puts(&text, "}}}");
    must(json_parse(&root, text.p, text.n, "t.json"));
    from_byte_level(&f, root);
    f.v.model = "gemma4";
    f.v.unk = 0;
    gguf_vocab whole = { .file = "t.json", .model = "no_vocab", .bos = -1, .eos = -1 };
    whole.pad = whole.unk = -1;
    whole.json = text.p;
    whole.json_bytes = text.n;
    tokenizer *a, *b;
    must(tokenizer_from_gguf(&a, &f.v));
    must(tokenizer_from_gguf(&b, &whole));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        json_array_append_new(rows, json_pack("{s:s}", "text", texts[i]));
    same(a, b, rows);
    const int32_t ids[] = { 7, 10 + 0xc3, 10 + 0xa9, 6 };
    char out[32];
    size_t n = 0;
    must(pesc_detokenize(a, ids, 4, 0, out, sizeof out, &n));
    assert_int_equal(n, 8);
    assert_memory_equal(out, " abc\xc3\xa9 a", 8);
    json_decref(rows);
    json_decref(root);
    tokenizer_close(a);
    tokenizer_close(b);
    str_free(&text);
}

/* ---- tokenizer.json from it ---- */

/* Texts of tokens, blanks, control tokens and characters of all lengths, at random. */
static void random_text(const fixture *f, uint64_t *seed, str *out)
{
    static const char *const parts[] = {
        " ",   "  ",   "\n", "\t", "a", "e\xcc\x81",       "\xe4\xbd\xa0",
        "<s>", "</s>", "7",  "'",  ".", "\xf0\x9f\xa6\x99"
    };
    enum { PARTS = sizeof parts / sizeof *parts };
    str_clear(out);
    str_puts(out, "");
    for (int i = 0; i < 24; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t pick = *seed >> 33;
        size_t id = pick / 2 % f->v.n;
        if (pick % 2)
            str_puts(out, parts[pick / 2 % PARTS]);
        else
            str_add(out, f->tokens[id], f->token_bytes[id]);
    }
}

static void same_ids(const tokenizer *a, const tokenizer *b, const str *text, unsigned flags)
{
    id_list x = { 0 }, y = { 0 };
    must(tokenizer_encode(a, text->p, text->n, flags, &x));
    must(tokenizer_encode(b, text->p, text->n, flags, &y));
    if (x.n != y.n || (x.n && memcmp(x.ids, y.ids, x.n * sizeof *x.ids) != 0))
        fail_msg("encoded otherwise: '%s'", text->p);
    char back[2][2048];
    size_t n[2];
    must(pesc_detokenize(a, x.ids, x.n, PESC_SKIP_SPECIAL, back[0], sizeof back[0], &n[0]));
    must(pesc_detokenize(b, x.ids, x.n, PESC_SKIP_SPECIAL, back[1], sizeof back[1], &n[1]));
    if (n[0] != n[1] || memcmp(back[0], back[1], n[0]) != 0)
        fail_msg("decoded otherwise: '%.*s', '%.*s'", (int)n[0], back[0], (int)n[1], back[1]);
    mem_free(x.ids);
    mem_free(y.ids);
}

static void note(void *ud, const char *text)
{
    (void)ud;
    fail_msg("%s", text);
}

/* What is written from a vocabulary gives the same ids and texts. */
static void check_written(fixture *f)
{
    tokenizer *own, *written;
    str text = { 0 };
    uint64_t seed = 1;
    pesc_events events = PESC_INIT(pesc_events);
    events.notice = note;
    files_clear();
    must(io_make_dir(files_path("")));
    const pesc_events *before = log_swap(&events);
    must(tokenizer_write_gguf(&f->v, files_path("")));
    log_swap(before);
    must(tokenizer_from_gguf(&own, &f->v));
    must(tokenizer_open_dir(&written, files_path("")));
    assert_int_equal(tokenizer_size(own), tokenizer_size(written));
    assert_int_equal(tokenizer_bos(own), tokenizer_bos(written));
    assert_int_equal(tokenizer_eos(own), tokenizer_eos(written));
    const char *template = tokenizer_chat_template(own);
    assert_string_equal(template ? template : "", template ? tokenizer_chat_template(written) : "");
    for (size_t i = 0; i < f->v.n; i++)
        assert_int_equal(tokenizer_is_special(own, (int32_t)i),
                         tokenizer_is_special(written, (int32_t)i));
    for (int i = 0; i < 3000; i++) {
        random_text(f, &seed, &text);
        same_ids(own, written, &text,
                 (i & 1 ? PESC_ADD_SPECIAL : 0u) | (i & 2 ? PESC_PARSE_SPECIAL : 0u));
    }
    str_free(&text);
    tokenizer_close(own);
    tokenizer_close(written);
}

static void writes_a_sentencepiece_vocabulary(void **state)
{
    (void)state;
    static fixture f;
    tokenizer *from_model;
    must(tokenizer_open_file(&from_model, golden_path("tokenizer/bpe.model")));
    from_sentencepiece(&f, from_model->sp);
    for (size_t i = 0; i < f.v.n;
         i++) /* see tokgguf_write.c: those it cannot express with a prefix */
        if (f.types[i] == 4)
            f.types[i] = 1;
    check_written(&f);
    f.v.add_eos = true;
    f.v.add_bos = false;
    check_written(&f);
    from_sentencepiece(&f, from_model->sp);
    f.v.add_space_prefix = false;
    f.v.chat_template = "{{ \"a\nb\" }}\xc3\xa9";
    check_written(&f);
    tokenizer_close(from_model);
}

static void writes_a_byte_level_vocabulary(void **state)
{
    (void)state;
    static const char *const names[] = { "gpt-2", "qwen2", "llama-bpe", "deepseek-llm", "smollm" };
    static fixture f;
    json_t *root;
    must(json_read(&root, golden_path("tokenizer/tokenizers.json"), 1 << 24));
    from_byte_level(&f, json_object_get(json_array_get(root, 0), "tokenizer"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        f.v.pre = names[i];
        f.v.eos = (int64_t)f.v.n - 1;
        f.v.add_eos = i % 2;
        check_written(&f);
    }
    json_decref(root);
}

static void writes_nothing_of_other_kinds(void **state)
{
    (void)state;
    static fixture f;
    start(&f, "t5", NULL);
    add(&f, "<unk>", 0, 2);
    files_clear();
    must(tokenizer_write_gguf(&f.v, files_path("")));
    assert_false(files_there("tokenizer.json"));
}

static void small_bytes(fixture *f)
{
    start(f, "gpt2", "qwen2");
    add(f, "a", 0, 1);
    add(f, "b", 0, 1);
    add(f, "ab", 0, 1);
    add(f, "<s>", 0, 3);
    f->merges[f->v.n_merges++] = "a b";
    f->v.bos = 3;
    f->v.add_bos = true;
}

static void frames_and_cuts(void **state)
{
    (void)state;
    static const char *const names[] = { "qwen2",       "llama-bpe",      "deepseek-llm",
                                         "deepseek-v3", "deepseek-coder", "tekken",
                                         "gpt-4o",      "smollm",         "default" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        static fixture f;
        small_bytes(&f);
        f.v.pre = names[i];
        tokenizer *t;
        id_list ids = { 0 };
        must(tokenizer_from_gguf(&t, &f.v));
        must(tokenizer_encode(t, "ab<s>", 5, PESC_ADD_SPECIAL | PESC_PARSE_SPECIAL, &ids));
        assert_int_equal(ids.n, 3);
        assert_int_equal(ids.ids[0], 3);
        assert_int_equal(ids.ids[1], 2);
        mem_free(ids.ids);
        tokenizer_close(t);
    }
}

static void refuse(const fixture *f, pesc_status want, const char *part)
{
    tokenizer *t = NULL;
    must_fail(tokenizer_from_gguf(&t, &f->v), want, part);
    assert_null(t);
}

static void refuses_what_does_not_fit(void **state)
{
    (void)state;
    static fixture f;
    small_bytes(&f);
    f.v.pre = "martian";
    refuse(&f, PESC_UNSUPPORTED, "'martian'");
    small_bytes(&f);
    f.v.model = "bert";
    refuse(&f, PESC_UNSUPPORTED, "'bert'");
    small_bytes(&f);
    f.merges[0] = "a c";
    refuse(&f, PESC_FORMAT, "'c' is not in the vocabulary");
    small_bytes(&f);
    add(&f, "a", 0, 1);
    refuse(&f, PESC_FORMAT, "twice");
    small_bytes(&f);
    add(&f, "\xff", 0, 1);
    refuse(&f, PESC_FORMAT, "not UTF-8");
    small_bytes(&f);
    f.v.eos = 99;
    refuse(&f, PESC_FORMAT, "token id 99 among 4");
    small_bytes(&f);
    f.v.n = 0;
    refuse(&f, PESC_FORMAT, "found 0 tokens");
    start(&f, "llama", NULL);
    add(&f, "a", 0, 1);
    refuse(&f, PESC_FORMAT, "scores: is missing");
    f.v.scores = f.scores;
    refuse(&f, PESC_FORMAT, "no token is of type unknown");
    add(&f, "<unk>", 0, 2);
    add(&f, "<0xZZ>", 0, 6);
    refuse(&f, PESC_FORMAT, "'<0xZZ>' is not a byte");
    f.v.n--;
    f.scores[0] = NAN;
    refuse(&f, PESC_FORMAT, "finite score");
    f.scores[0] = 0;
    add(&f, "a", 0, 1);
    refuse(&f, PESC_FORMAT, "appears twice");
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static fixture f[2];
    small_bytes(&f[0]);
    start(&f[1], "llama", NULL);
    add(&f[1], "<unk>", 0, 2);
    add(&f[1], "a", -1, 1);
    add(&f[1], "ab", -2, 1);
    add(&f[1], "u", 0, 4);
    f[1].v.scores = f[1].scores;
    for (int i = 0; i < 2; i++)
        for (uint64_t k = 1;; k++) {
            tokenizer *t = NULL;
            mem_fail_at(k);
            pesc_status s = tokenizer_from_gguf(&t, &f[i].v);
            bool fired = mem_fail_fired();
            mem_fail_at(0);
            assert_int_equal(s, fired ? PESC_NOMEM : PESC_OK);
            tokenizer_close(t);
            if (!fired)
                break;
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_its_sentencepiece_model),
        cmocka_unit_test(equals_its_byte_level_json),
        cmocka_unit_test(equals_gemmas_json),
        cmocka_unit_test(writes_a_sentencepiece_vocabulary),
        cmocka_unit_test(writes_a_byte_level_vocabulary),
        cmocka_unit_test(writes_nothing_of_other_kinds),
        cmocka_unit_test(frames_and_cuts),
        cmocka_unit_test(refuses_what_does_not_fit),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("tokgguf", tests, NULL, NULL);
}

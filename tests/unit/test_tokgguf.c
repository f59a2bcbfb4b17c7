/* Vocabularies as GGUF files carry them: the same ids as the tokenizer they were made from. */
#include "base/mem.h"
#include "base/str.h"
#include "support/check.h"
#include "support/golden.h"
#include "text/pipeline.h"

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

/* A SentencePiece model, written as llama.cpp's converter writes it. */
static void equals_its_sentencepiece_model(void **state)
{
    (void)state;
    json_t *root;
    tokenizer *from_model, *from_gguf;
    static fixture f;
    must(json_read(&root, golden_path("tokenizer/sentencepiece.json"), 1 << 24));
    must(tokenizer_open_file(&from_model, golden_path("tokenizer/bpe.model")));
    const spmodel *m = from_model->sp;
    start(&f, "llama", NULL);
    assert_true(m->n < MAX);
    for (size_t i = 0; i < m->n; i++)
        add(&f, m->pieces[i].text, m->pieces[i].score, (int32_t)m->pieces[i].type);
    f.v.scores = f.scores;
    f.v.unk = m->unk;
    f.v.bos = m->bos;
    f.v.eos = m->eos;
    f.v.add_bos = f.v.add_space_prefix = true;
    f.v.chat_template = "T";
    must(tokenizer_from_gguf(&from_gguf, &f.v));
    same(from_model, from_gguf, json_object_get(root, "bpe.model"));
    assert_string_equal(tokenizer_chat_template(from_gguf), "T");
    assert_int_equal(tokenizer_bos(from_gguf), m->bos);
    tokenizer_close(from_gguf);
    tokenizer_close(from_model);
    json_decref(root);
}

/* A byte-level tokenizer.json, the same way. */
static void equals_its_byte_level_json(void **state)
{
    (void)state;
    json_t *root, *v;
    const char *text;
    size_t i;
    static fixture f;
    static char lines[MAX][64];
    must(json_read(&root, golden_path("tokenizer/tokenizers.json"), 1 << 24));
    const json_t *entry = json_array_get(root, 0), *d = json_object_get(entry, "tokenizer");
    const json_t *model = json_object_get(d, "model");
    start(&f, "gpt2", "gpt-2");
    json_object_foreach(json_object_get(model, "vocab"), text, v)
    {
        i = (size_t)json_integer_value(v);
        f.tokens[i] = text;
        f.token_bytes[i] = strlen(text);
        f.types[i] = 1;
        f.v.n = i >= f.v.n ? i + 1 : f.v.n;
    }
    json_array_foreach(json_object_get(d, "added_tokens"), i, v)
    {
        bool special = json_is_true(json_object_get(v, "special"));
        add(&f, json_string_value(json_object_get(v, "content")), 0, special ? 3 : 4);
    }
    json_array_foreach(json_object_get(model, "merges"), i, v)
    {
        snprintf(lines[i], sizeof lines[i], "%s %s", json_string_value(json_array_get(v, 0)),
                 json_string_value(json_array_get(v, 1)));
        f.merges[f.v.n_merges++] = lines[i];
    }
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
    refuse(&f, PESC_FORMAT, "none stands for the unknown");
    add(&f, "<unk>", 0, 2);
    add(&f, "<0xZZ>", 0, 6);
    refuse(&f, PESC_FORMAT, "'<0xZZ>' is not a byte");
    f.v.n--;
    f.scores[0] = NAN;
    refuse(&f, PESC_FORMAT, "finite score");
    f.scores[0] = 0;
    add(&f, "a", 0, 1);
    refuse(&f, PESC_FORMAT, "is there twice");
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
        cmocka_unit_test(frames_and_cuts),
        cmocka_unit_test(refuses_what_does_not_fit),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("tokgguf", tests, NULL, NULL);
}

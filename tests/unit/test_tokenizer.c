/* Whole tokenizers: ids and text equal to Hugging Face's and sentencepiece's
 * (tests/golden/tokenizer). */
#include "base/mem.h"
#include "base/str.h"
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void same_ids(const char *what, const json_t *row, const char *key, const id_list *got)
{
    const json_t *want = json_object_get(row, key);
    bool equal = json_array_size(want) == got->n;
    for (size_t i = 0; equal && i < got->n; i++)
        equal = json_integer_value(json_array_get(want, i)) == got->ids[i];
    if (equal)
        return;
    str s = { 0 };
    for (size_t i = 0; i < got->n; i++)
        str_printf(&s, " %d", got->ids[i]);
    char *shown = json_dumps(row, 0);
    fail_msg("%s: %s: got%s for %.600s", what, key, s.p ? s.p : " nothing", shown);
}

static void check_ids(const char *what, const tokenizer *t, const json_t *row, const char *key,
                      unsigned flags)
{
    const json_t *text = json_object_get(row, "text");
    id_list ids = { 0 };
    must(tokenizer_encode(t, json_string_value(text), json_string_length(text), flags, &ids));
    same_ids(what, row, key, &ids);
    mem_free(ids.ids);
}

static void check_text(const char *what, const tokenizer *t, const json_t *row, const char *ids_key,
                       const char *key, unsigned flags)
{
    const json_t *list = json_object_get(row, ids_key), *want = json_object_get(row, key);
    size_t n = json_array_size(list), len = 0;
    int32_t ids[512];
    assert_true(n <= 512);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    static char text[8192];
    must(pesc_detokenize(t, ids, n, flags, text, sizeof text, &len));
    if (len != json_string_length(want) || memcmp(text, json_string_value(want), len) != 0)
        fail_msg("%s: %s: got '%.*s', expected '%s'", what, key, (int)len, text,
                 json_string_value(want));
}

static void equals_hugging_face(void **state)
{
    (void)state;
    json_t *root, *entry, *row;
    size_t i, k;
    must(json_read(&root, golden_path("tokenizer/tokenizers.json"), 1 << 24));
    assert_true(json_array_size(root) >= 10);
    json_array_foreach(root, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        char *text = json_dumps(json_object_get(entry, "tokenizer"), 0);
        const char *path = files_text("tokenizer.json", text);
        mem_free(text);
        tokenizer *t;
        must(tokenizer_open_file(&t, path));
        json_array_foreach(json_object_get(entry, "lines"), k, row)
        {
            check_ids(name, t, row, "ids", 0);
            check_ids(name, t, row, "parsed", PESC_PARSE_SPECIAL);
            check_ids(name, t, row, "framed", PESC_PARSE_SPECIAL | PESC_ADD_SPECIAL);
            check_text(name, t, row, "framed", "decoded", 0);
            check_text(name, t, row, "framed", "skipped", PESC_SKIP_SPECIAL);
        }
        tokenizer_close(t);
    }
    json_decref(root);
}

static void equals_sentencepiece(void **state)
{
    (void)state;
    json_t *root, *rows, *row;
    const char *name;
    size_t k, models = 0;
    must(json_read(&root, golden_path("tokenizer/sentencepiece.json"), 1 << 24));
    json_object_foreach(root, name, rows)
    {
        char path[128];
        snprintf(path, sizeof path, "tokenizer/%s", name);
        tokenizer *t;
        must(tokenizer_open_file(&t, golden_path(path)));
        json_array_foreach(rows, k, row)
        {
            check_ids(name, t, row, "ids", 0);
            check_text(name, t, row, "ids", "decoded", 0);
        }
        tokenizer_close(t);
        models++;
    }
    assert_int_equal(models, 3);
    json_decref(root);
}

/* ---- a small one by hand ---- */

#define VOCAB "\"a\":0,\"b\":1,\"ab\":2,\"<s>\":3"
#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{" VOCAB "},\"merges\":[\"a b\"]}"
#define ADDED "\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}]"
static const char small[] = "{" MODEL "," ADDED "}";

static tokenizer *open_small(void)
{
    tokenizer *t;
    must(tokenizer_open_file(&t, files_text("small.json", small)));
    return t;
}

static void facts(void **state)
{
    (void)state;
    tokenizer *t = open_small();
    size_t n;
    assert_int_equal(tokenizer_size(t), 4);
    assert_int_equal(pesc_vocab_size(t), 4);
    assert_string_equal(tokenizer_kind(t), "bpe");
    assert_int_equal(tokenizer_id(t, "ab"), 2);
    assert_int_equal(tokenizer_id(t, "zz"), -1);
    assert_memory_equal(tokenizer_token(t, 2, &n), "ab", 2);
    assert_int_equal(n, 2);
    assert_null(tokenizer_token(t, 4, &n));
    assert_null(tokenizer_token(t, -1, &n));
    assert_true(tokenizer_is_special(t, 3));
    assert_false(tokenizer_is_special(t, 2));
    assert_false(tokenizer_is_special(t, 99));
    assert_int_equal(tokenizer_bos(t), -1);
    assert_null(tokenizer_chat_template(t));
    tokenizer_close(t);
}

static void says_what_it_needs(void **state)
{
    (void)state;
    tokenizer *t = open_small();
    int32_t ids[2] = { -7, -7 };
    size_t n = 0;
    char text[3] = "??";
    must(pesc_tokenize(t, "abba", 4, 0, ids, 1, &n));
    assert_int_equal(n, 3);
    assert_int_equal(ids[0], 2);
    assert_int_equal(ids[1], -7);
    const int32_t all[] = { 2, 1, 0 };
    must(pesc_detokenize(t, all, 3, 0, text, 1, &n)); /* no decoder: blanks between */
    assert_int_equal(n, 6);
    assert_int_equal(text[0], 'a');
    assert_int_equal(text[1], '?');
    const int32_t out = 4;
    must_fail(pesc_detokenize(t, &out, 1, 0, text, 3, &n), PESC_USAGE, "id 4");
    tokenizer_close(t);
}

static void text_never_becomes_a_control_token(void **state)
{
    (void)state;
    tokenizer *t = open_small();
    id_list ids = { 0 };
    must(tokenizer_encode(t, "a<s>b", 5, 0, &ids));
    for (size_t i = 0; i < ids.n; i++)
        assert_int_not_equal(ids.ids[i], 3);
    ids.n = 0;
    must(tokenizer_encode(t, "a<s>b", 5, PESC_PARSE_SPECIAL, &ids));
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.ids[1], 3);
    mem_free(ids.ids);
    tokenizer_close(t);
}

/* Metaspace `first` marks the word at the beginning of the text: when a normaliser takes that away,
 * Hugging Face marks none. */
static void a_beginning_that_is_taken_away_is_not_marked(void **state)
{
    (void)state;
#define STRIP "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}"
#define REPLACE(what, by)                                                                          \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" what "\"},\"content\":\"" by "\"}"
#define WITHOUT(what) REPLACE(what, "")
#define PREPEND "{\"type\":\"Prepend\",\"prepend\":\"b\"}"
    static const struct {
        const char *steps, *text, *ids;
    } rows[] = {
        { STRIP, "a a", "1 2 1 2" },
        { STRIP, " a a", "2 1 2" },
        { STRIP "," PREPEND, " a", "3 2" },
        { PREPEND "," STRIP, "a", "1 3 2" },
        { WITHOUT("b"), "ba", "2" },
        { WITHOUT("b"), "ab", "1 2" },
        { WITHOUT("b"), "bba", "2" },
        { REPLACE("aa", "b"), "aaa", "3 2" },
        { REPLACE("aa", "bb"), "aaa", "3 3 2" },
        { REPLACE("a", "b"), "aa", "1 3 3" },
        { REPLACE("\xc3\xa9", "b"), "\xc3\xa9", "1 3" },
        { REPLACE("a", "bb"), "aa", "1 3 3 3 3" },
        { "{\"type\":\"StripAccents\"}",
          "\xcc\x81"
          "a",
          "2" },
        { "{\"type\":\"StripAccents\"}", "a\xcc\x81", "1 2" },
        { "{\"type\":\"Lowercase\"}", "A", "1 2" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        str s = { 0 }, got = { 0 };
        id_list ids = { 0 };
        tokenizer *t;
        str_printf(&s,
                   "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s]},"
                   "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\","
                   "\"prepend_scheme\":\"first\"},\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\","
                   "\"vocab\":{\"?\":0,\"_\":1,\"a\":2,\"b\":3},\"merges\":[]}}",
                   rows[i].steps);
        must(tokenizer_open_file(&t, files_text("first.json", s.p)));
        must(tokenizer_encode(t, rows[i].text, strlen(rows[i].text), 0, &ids));
        for (size_t k = 0; k < ids.n; k++)
            str_printf(&got, "%s%d", k ? " " : "", ids.ids[k]);
        assert_string_equal(got.p, rows[i].ids);
        str_free(&s);
        str_free(&got);
        mem_free(ids.ids);
        tokenizer_close(t);
    }
}

/* Every start of the alphabet is a token, made by adding letters. The first merge makes the whole,
 * which is a control token, from "ab" and a part that is one too, and that no merge makes. */
static void a_part_may_be_longer_than_a_character(void **state)
{
    (void)state;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    enum { N = 26, BYTES = 1, LETTERS = BYTES + N, STARTS = LETTERS + N, PART = STARTS + N - 1 };
    str s = { 0 };
    str_printf(&s, "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"byte_fallback\":true,"
                   "\"vocab\":{\"<unk>\":0");
    for (int i = 0; i < N; i++)
        str_printf(&s, ",\"<0x%02X>\":%d,\"%c\":%d", letters[i], BYTES + i, letters[i],
                   LETTERS + i);
    for (int i = 2; i <= N; i++)
        str_printf(&s, ",\"%.*s\":%d", i, letters, STARTS + i - 2);
    str_printf(&s, ",\"%s\":%d},\"merges\":[\"ab %s\"", letters + 2, PART, letters + 2);
    for (int i = 2; i <= N; i++)
        str_printf(&s, ",\"%.*s %c\"", i - 1, letters, letters[i - 1]);
    str_printf(&s,
               "]},\"added_tokens\":[{\"id\":%d,\"content\":\"%s\",\"special\":true},"
               "{\"id\":%d,\"content\":\"%s\",\"special\":true}]}",
               PART - 1, letters, PART, letters + 2);
    tokenizer *t;
    id_list ids = { 0 };
    must(tokenizer_open_file(&t, files_text("parts.json", s.p)));
    must(tokenizer_encode(t, letters, N, 0, &ids));
    assert_int_equal(ids.n, N - 1);
    assert_int_equal(ids.ids[0], STARTS);
    for (int i = 2; i < N; i++)
        assert_int_equal(ids.ids[i - 1], BYTES + i);
    mem_free(ids.ids);
    str_free(&s);
    tokenizer_close(t);
}

/* 10^5 added tokens, each listed plain and again as a control token. */
static void many_tokens_listed_twice(void **state)
{
    (void)state;
    enum { MANY = 100000 };
    str s = { 0 };
    str_printf(&s, "{" MODEL ",\"added_tokens\":[");
    for (int i = 0; i < 2 * MANY; i++)
        str_printf(&s, "%s{\"id\":%d,\"content\":\"<%d>\",\"special\":%s}", i ? "," : "",
                   4 + i % MANY, i % MANY, i < MANY ? "false" : "true");
    str_printf(&s, "]}");
    tokenizer *t;
    clock_t begin = clock();
    must(tokenizer_open_file(&t, files_text("twice.json", s.p)));
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 4);
    assert_true(tokenizer_is_special(t, 4) && tokenizer_is_special(t, 3 + MANY));
    str_free(&s);
    tokenizer_close(t);
}

static void check_pieces(const tokenizer *t, const tok_piece *p, size_t n, const char *want)
{
    id_list ids = { 0 };
    unsigned char *trained = NULL;
    str got = { 0 };
    must(tokenizer_encode_pieces(t, p, n, &ids, &trained));
    for (size_t i = 0; i < ids.n; i++)
        str_printf(&got, "%d%s ", ids.ids[i], trained[i] ? "+" : "");
    assert_string_equal(got.p ? got.p : "", want);
    str_free(&got);
    mem_free(trained);
    mem_free(ids.ids);
}

static void pieces_join_but_keep_their_rights(void **state)
{
    (void)state;
    tokenizer *t = open_small();
    const tok_piece spelled[] = { { "<s>", 3, true, false }, { "<s>ab", 5, false, true } };
    check_pieces(t, spelled, 2, "3 2+ ");
    const tok_piece split[] = { { "<s", 2, true, false }, { ">ab", 3, false, false } };
    check_pieces(t, split, 2, "2 ");
    const tok_piece both[] = { { "<s", 2, true, false },
                               { "", 0, false, true },
                               { ">", 1, true, true } };
    check_pieces(t, both, 3, "3+ ");
    const tok_piece over[] = { { "ba", 2, true, false }, { "ba", 2, false, true } };
    check_pieces(t, over, 2, "1 2+ 0+ "); /* "ab" stretches over the seam: the later piece's */
    check_pieces(t, over, 0, "");
    tokenizer_close(t);
}

/* ---- directories ---- */

static void reads_what_stands_beside(void **state)
{
    (void)state;
    files_clear();
    tokenizer *t;
    must(tokenizer_open_dir(&t, files_path("")));
    assert_null(t);
    files_text("tokenizer.json", small);
    files_text("special_tokens_map.json",
               "{\"bos_token\":\"a\",\"eos_token\":{\"content\":\"b\"}}");
    files_text(
        "tokenizer_config.json",
        "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"gone\",\"chat_template\":"
        "[{\"name\":\"tool\",\"template\":\"T\"},{\"name\":\"default\",\"template\":\"D\"}]}");
    must(tokenizer_open_dir(&t, files_path("")));
    assert_int_equal(tokenizer_bos(t), 3);
    assert_int_equal(tokenizer_eos(t), 1);
    assert_string_equal(tokenizer_chat_template(t), "D");
    tokenizer_close(t);
    files_text("chat_template.jinja", "file wins");
    must(tokenizer_open_dir(&t, files_path("")));
    assert_string_equal(tokenizer_chat_template(t), "file wins");
    tokenizer_close(t);
    files_text("tokenizer_config.json", "[]");
    must_fail(tokenizer_open_dir(&t, files_path("")), PESC_FORMAT, "tokenizer_config.json");
    files_clear();
}

static void configures_a_sentencepiece_model(void **state)
{
    (void)state;
    files_clear();
    size_t n;
    char *bytes = files_get(golden_path("tokenizer/bpe.model"), &n);
    files_put("tokenizer.model", bytes, n);
    free(bytes);
    tokenizer *t;
    id_list ids = { 0 };
    must(tokenizer_open_dir(&t, files_path("")));
    int64_t size = tokenizer_size(t);
    must(tokenizer_encode(t, "a", 1, PESC_ADD_SPECIAL, &ids));
    assert_int_equal(ids.ids[0], tokenizer_bos(t));
    assert_int_not_equal(ids.ids[ids.n - 1], tokenizer_eos(t));
    tokenizer_close(t);
    str config = { 0 };
    str_printf(&config,
               "{\"add_bos_token\":false,\"add_eos_token\":true,\"added_tokens_decoder\":{\"%d\":"
               "{\"content\":\"<|im_start|>\",\"special\":true}}}",
               (int)size);
    files_text("tokenizer_config.json", config.p);
    must(tokenizer_open_dir(&t, files_path("")));
    assert_int_equal(tokenizer_size(t), size + 1);
    ids.n = 0;
    must(tokenizer_encode(t, "<|im_start|>", 12, PESC_ADD_SPECIAL | PESC_PARSE_SPECIAL, &ids));
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.ids[0], size);
    assert_int_equal(ids.ids[1], tokenizer_eos(t));
    tokenizer_close(t);
    mem_free(ids.ids);
    str_free(&config);
    files_clear();
}

static void encoding_survives_every_failed_allocation(void **state)
{
    (void)state;
    tokenizer *t = NULL;
    const char *path = files_text("small.json", small);
    for (uint64_t k = 1;; k++) {
        id_list ids = { 0 };
        decode_stream *d = NULL;
        const char *text;
        size_t n;
        must(tokenizer_open_file(&t, path));
        mem_fail_at(k);
        pesc_status s = tokenizer_encode(t, "ab\xff<s>ab", 8, PESC_PARSE_SPECIAL, &ids);
        if (s == PESC_OK)
            s = decode_open(&d, t, 0);
        if (s == PESC_OK)
            s = decode_feed(d, 2, &text, &n);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        assert_int_equal(s, fired ? PESC_NOMEM : PESC_OK);
        decode_close(d);
        mem_free(ids.ids);
        tokenizer_close(t);
        if (!fired)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_hugging_face),
        cmocka_unit_test(equals_sentencepiece),
        cmocka_unit_test(facts),
        cmocka_unit_test(says_what_it_needs),
        cmocka_unit_test(text_never_becomes_a_control_token),
        cmocka_unit_test(a_beginning_that_is_taken_away_is_not_marked),
        cmocka_unit_test(a_part_may_be_longer_than_a_character),
        cmocka_unit_test(many_tokens_listed_twice),
        cmocka_unit_test(pieces_join_but_keep_their_rights),
        cmocka_unit_test(reads_what_stands_beside),
        cmocka_unit_test(configures_a_sentencepiece_model),
        cmocka_unit_test(encoding_survives_every_failed_allocation),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}

#include "base/mem.h"
#include "format/gguf.h"
#include "support/check.h"
#include "support/files.h"
#include "support/ggufwire.h"
#include "support/torture.h"

#include <stdio.h>

/* SentencePiece: three control tokens, the bytes, and three pieces. */
static str build_vocabulary(void)
{
    static const char *const others[] = { "<unk>",
                                          "<s>",
                                          "</s>",
                                          "\xe2\x96\x81",
                                          "a",
                                          "\xe2\x96\x81"
                                          "a" };
    static const float scores[] = { 0, 0, 0, -3, -2, -1 };
    enum { BYTES = 256, N = BYTES + 6 };
    str s = { 0 };
    str_puts(&s, "GGUF");
    wire_u32(&s, 3);
    wire_u64(&s, 0);
    wire_u64(&s, 7);
    wire_key(&s, "tokenizer.ggml.model", WIRE_STRING);
    wire_text(&s, "llama");
    wire_key(&s, "tokenizer.ggml.bos_token_id", WIRE_U32);
    wire_u32(&s, 1);
    wire_key(&s, "tokenizer.ggml.unknown_token_id", WIRE_U32);
    wire_u32(&s, 0);
    wire_key(&s, "tokenizer.chat_template", WIRE_STRING);
    wire_text(&s, "{{ bos_token }}");
    wire_array(&s, "tokenizer.ggml.tokens", WIRE_STRING, N);
    for (int i = 0; i < N; i++) {
        char byte[8];
        snprintf(byte, sizeof byte, "<0x%02X>", (unsigned)(i - 3) & 255);
        wire_text(&s, i < 3 ? others[i] : i < 3 + BYTES ? byte : others[i - BYTES]);
    }
    wire_array(&s, "tokenizer.ggml.scores", WIRE_F32, N);
    for (int i = 0; i < N; i++)
        wire_raw(&s, &scores[i < 3 ? i : i < 3 + BYTES ? 0 : i - BYTES], sizeof *scores);
    wire_array(&s, "tokenizer.ggml.token_type", WIRE_I32, N);
    for (int i = 0; i < N; i++)
        wire_u32(&s, i == 0 ? 2 : i < 3 ? 3 : i < 3 + BYTES ? 6 : 1);
    assert_true(str_ok(&s));
    return s;
}

static pesc_status open_vocabulary(const char *path, tokenizer **out)
{
    gguf *g = NULL;
    *out = NULL;
    pesc_status s = gguf_open(&g, path);
    if (s == PESC_OK)
        s = gguf_tokenizer(out, g);
    gguf_close(g);
    return s;
}

static pesc_status read_vocabulary(const char *path)
{
    tokenizer *t;
    pesc_status s = open_vocabulary(path, &t);
    tokenizer_close(t);
    return s;
}

static void reads_a_vocabulary(void **state)
{
    (void)state;
    str s = build_vocabulary();
    tokenizer *t;
    id_list ids = { 0 };
    must(open_vocabulary(files_put("vocab.gguf", s.p, s.n), &t));
    must(tokenizer_encode(t, "ab", 2, PESC_ADD_SPECIAL, &ids));
    static const int32_t expected[] = { 1, 3 + 256 + 2, 3 + 'b' };
    assert_int_equal(ids.n, 3);
    assert_memory_equal(ids.ids, expected, sizeof expected);
    assert_string_equal(tokenizer_chat_template(t), "{{ bos_token }}");
    mem_free(ids.ids);
    tokenizer_close(t);
    str_free(&s);
}

static void a_file_may_have_no_vocabulary(void **state)
{
    (void)state;
    str s = { 0 };
    tokenizer *t;
    str_puts(&s, "GGUF");
    wire_u32(&s, 3);
    wire_u64(&s, 0);
    wire_u64(&s, 0);
    must(open_vocabulary(files_put("none.gguf", s.p, s.n), &t));
    assert_null(t);
    str_free(&s);
}

static void vocabularies_fail_with_words(void **state)
{
    (void)state;
    str s = build_vocabulary();
    torture_cuts("cut.gguf", s.p, s.n, read_vocabulary);
    torture_memory(files_put("vocab.gguf", s.p, s.n), read_vocabulary);
    str_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_vocabulary),
        cmocka_unit_test(a_file_may_have_no_vocabulary),
        cmocka_unit_test(vocabularies_fail_with_words),
    };
    return cmocka_run_group_tests_name("gguf_vocab", tests, NULL, NULL);
}

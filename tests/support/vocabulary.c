#include "support/vocabulary.h"

#include "support/check.h"
#include "tokenizer/decode.h"
#include "tokenizer/pipeline.h"

void vocabulary_open(vocabulary *v, const char *const *tokens, size_t n, size_t n_more)
{
    char byte[8];
    must(pipeline_new(&v->tok, "test"));
    for (int i = 0; i < 256; i++) {
        snprintf(byte, sizeof byte, "<0x%02X>", i);
        vocab_add(&v->tok->vocab, byte, 6, i);
    }
    for (size_t i = 0; i < n; i++)
        vocab_add(&v->tok->vocab, tokens[i], strlen(tokens[i]), (int32_t)(256 + i));
    must(decoder_open_sp(&v->tok->dec, true, false));
    must(pipeline_seal(v->tok));
    for (size_t i = 0; i < n; i++)
        v->tok->special[256 + i] = strncmp(tokens[i], "<|", 2) == 0;
    must(pieces_open(&v->p, v->tok, (int32_t)(256 + n + n_more)));
}

void vocabulary_close(vocabulary *v)
{
    pieces_close(v->p);
    tokenizer_close(v->tok);
}

vocabulary words;

int words_open(void **state)
{
    (void)state;
    vocabulary_open(&words, NULL, 0, 0);
    return 0;
}

int words_close(void **state)
{
    (void)state;
    vocabulary_close(&words);
    return 0;
}

pesc_status open_grammar(grammar **g, pesc_grammar_kind kind, const char *text)
{
    grammar_source from = { .kind = kind, .text = text, .n = strlen(text) };
    return grammar_open(g, words.p, &from);
}

bool matches(grammar *g, const char *text)
{
    bool whole, begins;
    must(grammar_matches(g, text, strlen(text), &whole, &begins));
    assert_true(begins || !whole);
    return whole;
}

void nth_text(size_t k, const char *alphabet, char *text)
{
    size_t base = strlen(alphabet), n = 0;
    for (; k > 0; k = (k - 1) / base)
        text[n++] = alphabet[(k - 1) % base];
    text[n] = '\0';
}

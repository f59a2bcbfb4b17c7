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

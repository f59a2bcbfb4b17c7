/* libFuzzer: a byte that says what the source is (JSON Schema, GBNF, regular expression; strict or
 * lenient), then the source. What compiles is asked for masks along a text of its own tokens: each
 * token that a mask allows must keep the text alive. */
#include "base/mem.h"
#include "grammar/grammar.h"
#include "tokenizer/decode.h"
#include "tokenizer/pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS = 12 };

static const piece_trie *vocabulary(void)
{
    static piece_trie *p;
    static const char *const more[] = { "ab", "\":",      "\",", "{\"", "\\u00",
                                        "  ", "\xc3\xa9", "[[",  "12" };
    char byte[8];
    tokenizer *t;
    if (p)
        return p;
    if (pipeline_new(&t, "fuzz") != PESC_OK)
        abort();
    for (int i = 0; i < 256; i++) {
        snprintf(byte, sizeof byte, "<0x%02X>", i);
        vocab_add(&t->vocab, byte, 6, i);
    }
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        vocab_add(&t->vocab, more[i], strlen(more[i]), (int32_t)(256 + i));
    if (decoder_open_sp(&t->dec, true, false) != PESC_OK || pipeline_seal(t) != PESC_OK ||
        pieces_open(&p, t, 270) != PESC_OK)
        abort();
    tokenizer_close(t);
    return p;
}

/* The token number `nth` of the set, counted round; -1: it is empty. */
static int32_t choose(const piece_trie *p, const uint32_t *set, uint32_t nth)
{
    uint32_t n = 0;
    for (int32_t id = 0; id < p->vocab; id++)
        n += set[id / 32] >> (id % 32) & 1;
    for (int32_t id = 0; n && id < p->vocab; id++)
        if ((set[id / 32] >> (id % 32) & 1) && nth-- % n == 0)
            return id;
    return -1;
}

static void follow(grammar *g, const piece_trie *p, const uint8_t *data, size_t size)
{
    matcher *m;
    int32_t ids[STEPS];
    str text = { 0 };
    if (matcher_open(&m, g) != PESC_OK)
        return;
    for (size_t n = 0; n < STEPS; n++) {
        bool accepts, whole, begins;
        const uint32_t *set = matcher_allowed(m, ids, n, &accepts);
        if (!set) /* too ambiguous */
            break;
        if (grammar_matches(g, text.p ? text.p : "", text.n, &whole, &begins) == PESC_OK &&
            (!begins || whole != accepts))
            abort();
        ids[n] = choose(p, set, size ? data[n % size] : 0);
        if (ids[n] < 0 && !accepts)
            abort(); /* with a token for every byte there is no dead end */
        if (ids[n] < 0)
            break;
        str_add(&text, p->text + p->first[ids[n]], pieces_length(p, ids[n]));
    }
    matcher_close(m);
    str_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const piece_trie *p = vocabulary();
    str ignored = { 0 };
    grammar *g = NULL;
    if (size == 0 || size > 4096)
        return 0;
    char *text = mem_strndup((const char *)data + 1, size - 1);
    grammar_source from = { .kind = (pesc_grammar_kind)(data[0] % 3),
                            .text = text,
                            .n = size - 1,
                            .ignored = data[0] & 8 ? &ignored : NULL };
    if (text && grammar_open(&g, p, &from) == PESC_OK)
        follow(g, p, data, size);
    grammar_close(g);
    str_free(&ignored);
    mem_free(text);
    return 0;
}

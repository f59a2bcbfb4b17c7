/* bpe: byte-pair encoding of a word.
 *
 * A word starts as its characters (or bytes, for a byte-level vocabulary). Then, while any two
 * neighbours can merge, the pair of the lowest rank does, the leftmost first among equals. That is
 * both Hugging Face's BPE (rank: the line of the merge) and SentencePiece's (rank: the order of the
 * scores).
 *
 * Three things make it fast, none changes the result:
 *   - A cut between two characters that no merge joins is free. So a word is first cut at such
 *     places: with SentencePiece-style vocabularies, where the whole text is one word, this gives
 *     pieces of about a word's size.
 *   - A piece that is a token, and that merging was once seen to end in that one token, is
 *     that token: one look-up.
 *   - Short pieces scan an array for the lowest rank; long ones keep their pairs in a queue. */
#ifndef PESC_TOKENIZER_BPE_H
#define PESC_TOKENIZER_BPE_H

#include "tokenizer/pairqueue.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"

typedef struct bpe bpe;

typedef struct bpe_spec {
    const vocab *vocab;    /* symbol text -> id; kept, and outlives the bpe */
    int64_t n_tokens;      /* symbols from this id on are characters that are no token */
    bool bytes;            /* a word starts as its bytes; else as its UTF-8 characters */
    bool ignore_merges;    /* a word that is a token is that token, whatever merges say */
    bool byte_fallback;    /* an unknown character becomes byte_ids, if all it needs are there */
    int32_t byte_ids[256]; /* -1: none */
    int32_t unk;           /* -1: unknown characters vanish */
    bool fuse_unk;         /* neighbouring unknown characters become one unk */
} bpe_spec;

typedef struct bpe_merge {
    int32_t left, right, into; /* ids of symbols in the vocabulary */
    uint32_t rank;             /* below UINT32_MAX */
} bpe_merge;

/* Of equal pairs the last counts. `merges` is borrowed for the call. */
pesc_status bpe_open(bpe **out, const bpe_spec *spec, const bpe_merge *merges, size_t n);
void bpe_close(bpe *b); /* NULL is allowed */

const bpe_spec *bpe_facts(const bpe *b);

/* Its merges, sorted by rank, for mem_free(). */
pesc_status bpe_merges(const bpe *b, bpe_merge **out, size_t *n);

/* From here on encoding never gives an id that has a 1 in `never` (one byte for each id, borrowed
 * until the next call): a word in which merging ends at such a token gets the two tokens of its
 * merge instead, and a character that is such a token counts as unknown. `unk` itself is given for
 * unknown characters only. Not to be called while another thread encodes. */
pesc_status bpe_forbid(bpe *b, const unsigned char *never);

/* What encoding writes besides its result: one a thread. Zero-initialise to start. */
typedef struct bpe_scratch {
    int32_t *cell;
    size_t cap;
    pairqueue queue;
} bpe_scratch;
void bpe_scratch_free(bpe_scratch *s);
void bpe_scratch_trim(bpe_scratch *s); /* frees what a very long word needed */

/* Appends the ids of the word: valid UTF-8 (any bytes with spec.bytes). */
pesc_status bpe_encode(const bpe *b, bpe_scratch *s, const char *word, size_t n, id_list *out);

#endif

/* pipeline: what a tokenizer is made of, for the readers that build one and the code that runs it.
 *
 *   text -> added tokens cut out -> normaliser -> added tokens cut out -> words -> model -> frame
 *
 * A reader (tokjson, sptok, tokgguf) fills the parts, then calls pipeline_seal(). After that
 * nothing changes any more, and any number of threads may use it: what an encoding writes is in an
 * encoder, of which one is kept for the next caller. */
#ifndef PESC_TOKENIZER_PIPELINE_H
#define PESC_TOKENIZER_PIPELINE_H

#include "tokenizer/added.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decode.h"
#include "tokenizer/normalize.h"
#include "tokenizer/pretok.h"
#include "tokenizer/spmodel.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unigram.h"
#include "tokenizer/vocab.h"

#include <pthread.h>

typedef struct encoder encoder;

struct pesc_tokenizer {
    char *file; /* for messages */

    vocab vocab;   /* the model's tokens, as the file writes them */
    vocab symbols; /* the texts BPE works on, where they differ: raw bytes, characters */
    bpe *bpe;      /* the model: one of the two */
    unigram *unigram;
    int32_t unk;
    const char *unk_text; /* what unk is decoded to; NULL: its text */

    vocab added_vocab; /* text -> id of the added tokens */
    vocab shown;       /* what added tokens that are normalised decode to, where that differs */
    added_token *added;
    size_t n_added, cap_added;
    size_t *added_at; /* [id]: the index of an added token in `added` */
    size_t cap_added_at;
    added *raw, *normal;    /* matched in the text as given, and in normalised text */
    added *literal;         /* in the text of a chat format: `raw` and every control token */
    unsigned char *special; /* [size]: 1 for control tokens */
    unsigned char *never;   /* [size]: 1 for ids the model never gives: these and their like */
    int64_t size;           /* largest id + 1 */

    spmodel *sp;         /* SentencePiece normalises by itself; NULL: */
    bool sp_each;        /* the dummy prefix goes before each text between control tokens */
    normalizer *norm;    /* NULL: text stays as it is */
    pretok *pre;         /* NULL: a text is one word */
    decoder *dec;        /* NULL: tokens are joined with blanks */
    id_list front, back; /* what PESC_ADD_SPECIAL puts around a text */

    int32_t bos, eos;    /* -1: unknown */
    char *chat_template; /* its source; NULL: none */
    char *tool_template; /* used where tools are given; NULL: the same */
    json_t *named;       /* {"bos_token": "<s>", ...}: what a template may name; NULL: nothing */

    pthread_mutex_t lock; /* of `idle` */
    encoder *idle;
};

pesc_status pipeline_new(tokenizer **out, const char *file);

/* Copies the token. An equal one already there is fine, and becomes a control token if this one is;
 * one that contradicts the vocabulary or another added token is refused; an empty one is left out,
 * as Hugging Face does. `where` names it in messages. */
pesc_status pipeline_add(tokenizer *t, const added_token *token, const char *where);

/* What PESC_ADD_SPECIAL puts around a text: bos and eos, as asked and where they are known. */
pesc_status pipeline_frame(tokenizer *t, bool bos, bool eos);

/* Makes a token of the vocabulary a control token: bos and eos, which a configuration names. A
 * single character stays text. id -1 is allowed. */
pesc_status pipeline_mark_control(tokenizer *t, int32_t id, const char *where);

/* Names a token for chat templates ("bos_token"); one that is not UTF-8 is left out. */
pesc_status pipeline_name_token(tokenizer *t, const char *name, const char *token, size_t n);

/* Builds what is found by looking at all parts, and takes the control tokens out of the model. A
 * reader that adds tokens later calls it again. */
pesc_status pipeline_seal(tokenizer *t);

/* encoder.c: see tokenizer_encode() and tokenizer_encode_pieces(). */
pesc_status encoder_open(encoder **out);
void encoder_close(encoder *e); /* NULL is allowed */
pesc_status encoder_text(encoder *e, const tokenizer *t, const char *text, size_t n, unsigned flags,
                         id_list *out);
pesc_status encoder_pieces(encoder *e, const tokenizer *t, const tok_piece *pieces, size_t n,
                           id_list *out, unsigned char **trained);

#endif

/* pretok: cuts normalised text into words.
 *
 * Every pre-tokenizer of tokenizer.json is the same step with other data: perhaps a change of the
 * text (Metaspace writes its mark for blanks, both may put something in front), then a cut along
 * the matches of a pattern, each match kept, dropped or glued to a neighbour. Steps run depth
 * first: a piece goes through all of them before the next one is looked for, so no list of pieces
 * is ever held.
 *
 * ByteLevel is only a flag here: the vocabulary is turned into raw bytes once, at load, instead of
 * writing each byte of each text as a printable character. */
#ifndef PESC_TOKENIZER_PRETOK_H
#define PESC_TOKENIZER_PRETOK_H

#include "base/json.h"
#include "base/str.h"
#include "tokenizer/chain.h"
#include "tokenizer/regex.h"

typedef struct pretok pretok;

/* `v` may be null or NULL: *out is then NULL, and a text is one word. */
pesc_status pretok_open(pretok **out, const json_t *v, const char *file);
void pretok_close(pretok *p);          /* NULL is allowed */
bool pretok_is_bytes(const pretok *p); /* words are encoded as bytes; NULL: false */

typedef struct pretok_run {
    const pretok *p; /* NULL is allowed */
    regex_scratch *rs;
    budget *work;
    str buffer[CHAIN_MAX]; /* text a step has changed; pretok_run_free() */
    pesc_status (*word)(void *ctx, const char *text, size_t n); /* never called with n 0 */
    void *ctx;
} pretok_run;

/* Calls r->word for each word. `first`: the text is the start of what the user gave. */
pesc_status pretok_split(pretok_run *r, const char *text, size_t n, bool first);
void pretok_run_free(pretok_run *r);

#endif

/* decode: the decoder chain of tokenizer.json, as a stream.
 *
 * Each step takes tokens and gives tokens; after Fuse or ByteLevel there is one token, which
 * arrives in parts. A step passes on what nothing to come can change and keeps the rest: half a
 * character, a run of byte tokens, a blank that may be the last. */
#ifndef PESC_TOKENIZER_DECODE_H
#define PESC_TOKENIZER_DECODE_H

#include "base/json.h"
#include "tokenizer/tokenizer.h"

typedef struct decoder decoder;

/* `v` null or NULL: *out NULL; tokens are then joined by blanks, as Hugging Face does. */
pesc_status decoder_open(decoder **out, const json_t *v, const char *file);

/* SentencePiece's own rules: a leading U+2581 is dropped (all of them with `drop_all`, none
 * without `drop`), the others become blanks, bytes become text, each stray one U+FFFD. */
pesc_status decoder_open_sp(decoder **out, bool drop, bool drop_all);
void decoder_close(decoder *d); /* NULL is allowed */

#endif

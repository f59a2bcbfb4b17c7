/* charsmap: the precompiled normalisation table of SentencePiece.
 *
 * A blob: a little-endian u32 with the size of a double-array trie (Darts-clone units of 4 bytes),
 * the trie, then replacement strings that each end in NUL. A key found in the trie has as its value
 * the offset of its replacement. Every step into the array and every replacement is checked against
 * the blob, so a hostile table can give wrong text but never a read outside it. */
#ifndef PESC_TOKENIZER_CHARSMAP_H
#define PESC_TOKENIZER_CHARSMAP_H

#include "base/status.h"
#include "base/str.h"

typedef struct charsmap charsmap;

/* Copies the blob. `where` names it in messages ("tokenizer.model: precompiled_charsmap").
 * An empty blob gives *out NULL with PESC_OK: nothing is replaced. */
pesc_status charsmap_open(charsmap **out, const unsigned char *blob, size_t n, const char *where);

/* The same from base64, as tokenizer.json stores it. */
pesc_status charsmap_open_base64(charsmap **out, const char *text, size_t n, const char *where);
void charsmap_close(charsmap *m); /* NULL is allowed */

/* The longest key at the start of text: how many bytes it takes (0: none) and its replacement,
 * which belongs to the map and may be empty. m may be NULL. */
size_t charsmap_match(const charsmap *m, const char *text, size_t n, const char **to, size_t *to_n);

/* Appends text as Hugging Face's `Precompiled` normaliser writes it: grapheme by grapheme, a short
 * grapheme as a whole first, else each of its characters. text is valid UTF-8. Whether all of it
 * was appended is in `out`. */
void charsmap_apply(const charsmap *m, const char *text, size_t n, str *out);

#endif

/* bytelevel: GPT-2's printable alphabet for bytes. A byte that is a printable Latin-1 character
 * stands for itself, the other 68 for U+0100 and up, in order. */
#ifndef PESC_TOKENIZER_BYTELEVEL_H
#define PESC_TOKENIZER_BYTELEVEL_H

#include "base/str.h"

enum { BYTELEVEL_END = 0x144 }; /* the character after the last of them */

/* Appends the bytes a token stands for; false (and nothing appended) when it holds a character
 * that stands for no byte. */
bool bytelevel_bytes(const char *token, size_t n, str *out);

#endif

/* bytetoken: how tokens spell bytes: as "<0x00>" to "<0xFF>", or by the letters of a byte-level
 * vocabulary. */
#ifndef PESC_TOKENIZER_BYTETOKEN_H
#define PESC_TOKENIZER_BYTETOKEN_H

#include "base/str.h"

enum { BYTETOKEN_LENGTH = 6 };

int bytetoken_value(const char *text, size_t n);                /* -1: it is none */
void bytetoken_name(char name[BYTETOKEN_LENGTH + 1], int byte); /* NUL-terminated */

/* ---- GPT-2's printable alphabet: a byte that is a printable Latin-1 character stands for itself,
 * the other 68 for U+0100 and up, in order ---- */

enum { BYTELEVEL_END = 0x144 }; /* the character after the last of them */

/* Appends the bytes a token stands for; false (and nothing appended) when it holds a character
 * that stands for no byte. */
bool bytelevel_bytes(const char *token, size_t n, str *out);

#endif

/* bytetoken: tokens that stand for one byte, "<0x00>" to "<0xFF>". */
#ifndef PESC_TOKENIZER_BYTETOKEN_H
#define PESC_TOKENIZER_BYTETOKEN_H

#include <stddef.h>

enum { BYTETOKEN_LENGTH = 6 };

int bytetoken_value(const char *text, size_t n);                /* -1: it is none */
void bytetoken_name(char name[BYTETOKEN_LENGTH + 1], int byte); /* NUL-terminated */

#endif

#include "tokenizer/bytetoken.h"

#include "base/utf8.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

int bytetoken_value(const char *text, size_t n)
{
    if (n != BYTETOKEN_LENGTH || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    int high = str_hex_digit(text[3]), low = str_hex_digit(text[4]);
    return high >= 0 && low >= 0 ? high * 16 + low : -1;
}

void bytetoken_name(char name[BYTETOKEN_LENGTH + 1], int byte)
{
    snprintf(name, BYTETOKEN_LENGTH + 1, "<0x%02X>", (unsigned)byte & 0xFF);
}

/* ---- byte-level letters ---- */

static bool stands_for_itself(int c)
{
    return (c >= '!' && c <= '~') || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

/* The byte a character stands for, or -1. The others are 0-32, 127-160 and 173: 33 + 34 + 1. */
static int byte_of(uint32_t cp)
{
    if (cp < 0x100)
        return stands_for_itself((int)cp) ? (int)cp : -1;
    if (cp < 0x100 + 33)
        return (int)(cp - 0x100);
    if (cp < 0x100 + 67)
        return (int)(cp - 0x100 - 33 + 127);
    return cp == BYTELEVEL_END - 1 ? 173 : -1;
}

bool bytelevel_bytes(const char *token, size_t n, str *out)
{
    size_t before = out->n;
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        int len = utf8_decode(token + i, n - i, &cp), byte = len ? byte_of(cp) : -1;
        if (byte < 0) {
            out->n = before;
            return false;
        }
        str_putc(out, (char)byte);
        i += (size_t)len;
    }
    return true;
}

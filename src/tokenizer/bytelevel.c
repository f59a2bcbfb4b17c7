#include "tokenizer/bytelevel.h"

#include "base/utf8.h"

#include <stdint.h>

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

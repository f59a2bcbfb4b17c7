#include "base/unicode.h"

#include "base/utf8.h"

#include <utf8proc.h>

bool unicode_is_space(uint32_t cp)
{
    if (cp < 0x80)
        return cp == ' ' || (cp >= '\t' && cp <= '\r');
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return cp == 0x85 || (c >= UTF8PROC_CATEGORY_ZS && c <= UTF8PROC_CATEGORY_ZP);
}

bool unicode_is_mark(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME;
}

bool unicode_is_word(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC ||
           cp == 0x200C || cp == 0x200D;
}

uint32_t unicode_last(const char *s, size_t n, size_t *len)
{
    size_t k = 1;
    while (k < n && k < 4 && ((unsigned char)s[n - k] & 0xC0) == 0x80)
        k++;
    uint32_t cp = 0;
    *len = (size_t)utf8_decode(s + n - k, k, &cp);
    return cp;
}

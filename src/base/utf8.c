#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

static bool continues(unsigned char c)
{
    return (c & 0xC0) == 0x80;
}

/* Table 3-7 of the Unicode standard: the range of the second byte depends on the first. */
static bool second_fits(unsigned char first, unsigned char second)
{
    switch (first) {
    case 0xE0:
        return second >= 0xA0 && second <= 0xBF;
    case 0xED:
        return second >= 0x80 && second <= 0x9F;
    case 0xF0:
        return second >= 0x90 && second <= 0xBF;
    case 0xF4:
        return second >= 0x80 && second <= 0x8F;
    default:
        return continues(second);
    }
}

static int declared_length(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first >= 0xC2 && first <= 0xDF)
        return 2;
    if (first >= 0xE0 && first <= 0xEF)
        return 3;
    if (first >= 0xF0 && first <= 0xF4)
        return 4;
    return 0;
}

/* How many of the declared bytes are there and fit; `want` receives the declared length. */
static int fitting(const unsigned char *s, size_t n, int *want)
{
    *want = declared_length(s[0]);
    if (*want == 0)
        return 0;
    int have = 1;
    while (have < *want && (size_t)have < n &&
           (have == 1 ? second_fits(s[0], s[1]) : continues(s[have])))
        have++;
    return have;
}

int utf8_decode(const char *str, size_t n, uint32_t *cp)
{
    const unsigned char *s = (const unsigned char *)str;
    int want, have = fitting(s, n, &want);
    if (want == 0 || have < want)
        return 0;
    static const unsigned char lead_mask[5] = { 0, 0x7F, 0x1F, 0x0F, 0x07 };
    uint32_t v = s[0] & lead_mask[want];
    for (int i = 1; i < want; i++)
        v = v << 6 | (s[i] & 0x3F);
    if (cp)
        *cp = v;
    return want;
}

int utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

bool utf8_valid(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        if (n - i >= 8 && (memcpy(&eight, s + i, 8), (eight & 0x8080808080808080u) == 0)) {
            i += 8;
            continue;
        }
        int len = utf8_decode(s + i, n - i, NULL);
        if (len == 0)
            return false;
        i += (size_t)len;
    }
    return true;
}

size_t utf8_partial_tail(const char *s, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const unsigned char *p = (const unsigned char *)s + n - back;
        if (continues(*p))
            continue;
        int want, have = fitting(p, back, &want);
        return want > 0 && have < want && (size_t)have == back ? back : 0;
    }
    return 0;
}

size_t utf8_bad_length(const char *s, size_t n)
{
    int want, have = fitting((const unsigned char *)s, n, &want);
    return have > 0 ? (size_t)have : 1;
}

/* Controls, line and paragraph separators, and what has no shape of its own: bidi marks, joiners,
 * annotations, tags. src/cli/show/out.c has the same list. */
static bool hidden(uint32_t cp)
{
    static const uint32_t ranges[][2] = {
        { 0x00, 0x1F },     { 0x7F, 0x9F },     { 0xAD, 0xAD },       { 0x61C, 0x61C },
        { 0x180E, 0x180E }, { 0x200B, 0x200F }, { 0x2028, 0x202E },   { 0x2060, 0x206F },
        { 0xFEFF, 0xFEFF }, { 0xFFF9, 0xFFFB }, { 0xE0000, 0xE007F },
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (cp >= ranges[i][0] && cp <= ranges[i][1])
            return true;
    return false;
}

void utf8_visible(char *out, size_t cap, const char *s, size_t n)
{
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        char piece[16];
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp), shown;
        if (len == 0) {
            shown = snprintf(piece, sizeof piece, "\\x%02X", (unsigned char)s[i]);
            len = 1;
        } else if (hidden(cp)) {
            shown = cp < 0x80 ? snprintf(piece, sizeof piece, "\\x%02X", cp)
                              : snprintf(piece, sizeof piece, "\\u{%04X}", cp);
        } else {
            memcpy(piece, s + i, (size_t)len);
            shown = len;
        }
        if (used + (size_t)shown + 4 > cap) {
            memcpy(out + used, "...", 3);
            used += 3;
            break;
        }
        memcpy(out + used, piece, (size_t)shown);
        used += (size_t)shown;
        i += (size_t)len;
    }
    out[used] = '\0';
}

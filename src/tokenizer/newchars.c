#include "tokenizer/newchars.h"

#include "base/utf8.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

enum { OTHER_ALPHABETIC = 1, OTHER_LOWERCASE = 2 }; /* beside letters, and Ll */

/* Assigned in Unicode 15, 15.1, 16 and 17, in order. A script that PCRE2 does not know either
 * cannot be asked for, and is left out. */
static const struct {
    uint32_t first, last;
    char category[3];
    uint8_t properties;
    const char *script;
} rows[] = {
    { 0x897, 0x897, "Mn", OTHER_ALPHABETIC, "Arabic" },
    { 0xCF3, 0xCF3, "Mc", OTHER_ALPHABETIC, "Kannada" },
    { 0xECE, 0xECE, "Mn", 0, "Lao" },
    { 0x1B4E, 0x1B4F, "Po", 0, "Balinese" },
    { 0x1B7F, 0x1B7F, "Po", 0, "Balinese" },
    { 0x1C89, 0x1C89, "Lu", 0, "Cyrillic" },
    { 0x1C8A, 0x1C8A, "Ll", 0, "Cyrillic" },
    { 0x2427, 0x2429, "So", 0, "Common" },
    { 0x2FFC, 0x2FFF, "So", 0, "Common" },
    { 0x31E4, 0x31E5, "So", 0, "Common" },
    { 0x31EF, 0x31EF, "So", 0, "Common" },
    { 0xA7CB, 0xA7CC, "Lu", 0, "Latin" },
    { 0xA7CD, 0xA7CD, "Ll", 0, "Latin" },
    { 0xA7DA, 0xA7DA, "Lu", 0, "Latin" },
    { 0xA7DB, 0xA7DB, "Ll", 0, "Latin" },
    { 0xA7DC, 0xA7DC, "Lu", 0, "Latin" },
    { 0x105C0, 0x105F3, "Lo", 0, "" },
    { 0x10D40, 0x10D49, "Nd", 0, "" },
    { 0x10D4A, 0x10D4D, "Lo", 0, "" },
    { 0x10D4E, 0x10D4E, "Lm", 0, "" },
    { 0x10D4F, 0x10D4F, "Lo", 0, "" },
    { 0x10D50, 0x10D65, "Lu", 0, "" },
    { 0x10D69, 0x10D69, "Mn", OTHER_ALPHABETIC, "" },
    { 0x10D6A, 0x10D6D, "Mn", 0, "" },
    { 0x10D6E, 0x10D6E, "Pd", 0, "" },
    { 0x10D6F, 0x10D6F, "Lm", 0, "" },
    { 0x10D70, 0x10D85, "Ll", 0, "" },
    { 0x10D8E, 0x10D8F, "Sm", 0, "" },
    { 0x10EC2, 0x10EC4, "Lo", 0, "Arabic" },
    { 0x10EFC, 0x10EFC, "Mn", OTHER_ALPHABETIC, "Arabic" },
    { 0x10EFD, 0x10EFF, "Mn", 0, "Arabic" },
    { 0x1123F, 0x11240, "Lo", 0, "Khojki" },
    { 0x11241, 0x11241, "Mn", OTHER_ALPHABETIC, "Khojki" },
    { 0x11380, 0x11389, "Lo", 0, "" },
    { 0x1138B, 0x1138B, "Lo", 0, "" },
    { 0x1138E, 0x1138E, "Lo", 0, "" },
    { 0x11390, 0x113B5, "Lo", 0, "" },
    { 0x113B7, 0x113B7, "Lo", 0, "" },
    { 0x113B8, 0x113BA, "Mc", OTHER_ALPHABETIC, "" },
    { 0x113BB, 0x113C0, "Mn", OTHER_ALPHABETIC, "" },
    { 0x113C2, 0x113C2, "Mc", OTHER_ALPHABETIC, "" },
    { 0x113C5, 0x113C5, "Mc", OTHER_ALPHABETIC, "" },
    { 0x113C7, 0x113CA, "Mc", OTHER_ALPHABETIC, "" },
    { 0x113CC, 0x113CD, "Mc", OTHER_ALPHABETIC, "" },
    { 0x113CE, 0x113CE, "Mn", 0, "" },
    { 0x113CF, 0x113CF, "Mc", 0, "" },
    { 0x113D0, 0x113D0, "Mn", 0, "" },
    { 0x113D1, 0x113D1, "Lo", 0, "" },
    { 0x113D2, 0x113D2, "Mn", 0, "" },
    { 0x113D3, 0x113D3, "Lo", 0, "" },
    { 0x113D4, 0x113D5, "Po", 0, "" },
    { 0x113D7, 0x113D8, "Po", 0, "" },
    { 0x113E1, 0x113E2, "Mn", 0, "" },
    { 0x116D0, 0x116E3, "Nd", 0, "Myanmar" },
    { 0x11B00, 0x11B09, "Po", 0, "Devanagari" },
    { 0x11BC0, 0x11BE0, "Lo", 0, "" },
    { 0x11BE1, 0x11BE1, "Po", 0, "" },
    { 0x11BF0, 0x11BF9, "Nd", 0, "" },
    { 0x11F00, 0x11F01, "Mn", OTHER_ALPHABETIC, "" },
    { 0x11F02, 0x11F02, "Lo", 0, "" },
    { 0x11F03, 0x11F03, "Mc", OTHER_ALPHABETIC, "" },
    { 0x11F04, 0x11F10, "Lo", 0, "" },
    { 0x11F12, 0x11F33, "Lo", 0, "" },
    { 0x11F34, 0x11F35, "Mc", OTHER_ALPHABETIC, "" },
    { 0x11F36, 0x11F3A, "Mn", OTHER_ALPHABETIC, "" },
    { 0x11F3E, 0x11F3F, "Mc", OTHER_ALPHABETIC, "" },
    { 0x11F40, 0x11F40, "Mn", OTHER_ALPHABETIC, "" },
    { 0x11F41, 0x11F41, "Mc", 0, "" },
    { 0x11F42, 0x11F42, "Mn", 0, "" },
    { 0x11F43, 0x11F4F, "Po", 0, "" },
    { 0x11F50, 0x11F59, "Nd", 0, "" },
    { 0x11F5A, 0x11F5A, "Mn", 0, "" },
    { 0x1342F, 0x1342F, "Lo", 0, "Egyptian_Hieroglyphs" },
    { 0x13439, 0x1343F, "Cf", 0, "Egyptian_Hieroglyphs" },
    { 0x13440, 0x13440, "Mn", 0, "Egyptian_Hieroglyphs" },
    { 0x13441, 0x13446, "Lo", 0, "Egyptian_Hieroglyphs" },
    { 0x13447, 0x13455, "Mn", 0, "Egyptian_Hieroglyphs" },
    { 0x13460, 0x143FA, "Lo", 0, "Egyptian_Hieroglyphs" },
    { 0x16100, 0x1611D, "Lo", 0, "" },
    { 0x1611E, 0x16129, "Mn", OTHER_ALPHABETIC, "" },
    { 0x1612A, 0x1612C, "Mc", OTHER_ALPHABETIC, "" },
    { 0x1612D, 0x1612E, "Mn", OTHER_ALPHABETIC, "" },
    { 0x1612F, 0x1612F, "Mn", 0, "" },
    { 0x16130, 0x16139, "Nd", 0, "" },
    { 0x16D40, 0x16D42, "Lm", 0, "" },
    { 0x16D43, 0x16D6A, "Lo", 0, "" },
    { 0x16D6B, 0x16D6C, "Lm", 0, "" },
    { 0x16D6D, 0x16D6F, "Po", 0, "" },
    { 0x16D70, 0x16D79, "Nd", 0, "" },
    { 0x18CFF, 0x18CFF, "Lo", 0, "Khitan_Small_Script" },
    { 0x1B132, 0x1B132, "Lo", 0, "Hiragana" },
    { 0x1B155, 0x1B155, "Lo", 0, "Katakana" },
    { 0x1CC00, 0x1CCEF, "So", 0, "Common" },
    { 0x1CCF0, 0x1CCF9, "Nd", 0, "Common" },
    { 0x1CD00, 0x1CEB3, "So", 0, "Common" },
    { 0x1D2C0, 0x1D2D3, "No", 0, "Common" },
    { 0x1DF25, 0x1DF2A, "Ll", 0, "Latin" },
    { 0x1E030, 0x1E06D, "Lm", OTHER_LOWERCASE, "Cyrillic" },
    { 0x1E08F, 0x1E08F, "Mn", OTHER_ALPHABETIC, "Cyrillic" },
    { 0x1E4D0, 0x1E4EA, "Lo", 0, "" },
    { 0x1E4EB, 0x1E4EB, "Lm", 0, "" },
    { 0x1E4EC, 0x1E4EF, "Mn", 0, "" },
    { 0x1E4F0, 0x1E4F9, "Nd", 0, "" },
    { 0x1E5D0, 0x1E5ED, "Lo", 0, "" },
    { 0x1E5EE, 0x1E5EF, "Mn", 0, "" },
    { 0x1E5F0, 0x1E5F0, "Lo", 0, "" },
    { 0x1E5F1, 0x1E5FA, "Nd", 0, "" },
    { 0x1E5FF, 0x1E5FF, "Po", 0, "" },
    { 0x1F6DC, 0x1F6DC, "So", 0, "Common" },
    { 0x1F774, 0x1F776, "So", 0, "Common" },
    { 0x1F77B, 0x1F77F, "So", 0, "Common" },
    { 0x1F7D9, 0x1F7D9, "So", 0, "Common" },
    { 0x1F8B2, 0x1F8BB, "So", 0, "Common" },
    { 0x1F8C0, 0x1F8C1, "So", 0, "Common" },
    { 0x1FA75, 0x1FA77, "So", 0, "Common" },
    { 0x1FA87, 0x1FA89, "So", 0, "Common" },
    { 0x1FA8F, 0x1FA8F, "So", 0, "Common" },
    { 0x1FAAD, 0x1FAAF, "So", 0, "Common" },
    { 0x1FABB, 0x1FABF, "So", 0, "Common" },
    { 0x1FAC6, 0x1FAC6, "So", 0, "Common" },
    { 0x1FACE, 0x1FACF, "So", 0, "Common" },
    { 0x1FADA, 0x1FADC, "So", 0, "Common" },
    { 0x1FADF, 0x1FADF, "So", 0, "Common" },
    { 0x1FAE8, 0x1FAE9, "So", 0, "Common" },
    { 0x1FAF7, 0x1FAF8, "So", 0, "Common" },
    { 0x1FBCB, 0x1FBEF, "So", 0, "Common" },
    { 0x2B739, 0x2B739, "Lo", 0, "Han" },
    { 0x2EBF0, 0x2EE5D, "Lo", 0, "Han" },
    { 0x31350, 0x323AF, "Lo", 0, "Han" },
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static bool is_new(uint32_t cp)
{
    size_t lo = 0, hi = ROWS;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (rows[mid].last < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < ROWS && rows[lo].first <= cp;
}

/* Which blocks of 4096 characters hold any: most text is done with this. */
static bool in_block(uint32_t cp)
{
    static const uint32_t blocks[] = { 0x0,  0x1,  0x2,  0x3,  0xA,  0x10, 0x11, 0x13, 0x14, 0x16,
                                       0x18, 0x1B, 0x1C, 0x1D, 0x1E, 0x1F, 0x2B, 0x2E, 0x31, 0x32 };
    uint32_t b = cp >> 12;
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        if (blocks[i] == b)
            return true;
    return false;
}

bool newchars_in(const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        if ((unsigned char)text[i] < 0xE0) { /* all are above U+07FF */
            i++;
            continue;
        }
        uint32_t cp = 0;
        i += (size_t)utf8_decode(text + i, n - i, &cp);
        if (in_block(cp) && is_new(cp))
            return true;
    }
    return false;
}

static bool is_called(const char *name, const char *what, size_t n)
{
    return strlen(name) == n && strncasecmp(name, what, n) == 0;
}

static bool row_is(size_t i, const char *what, size_t n)
{
    const char *category = rows[i].category;
    if (n > 3 && memcmp(what, "sc:", 3) == 0)
        return is_called(rows[i].script, what + 3, n - 3);
    if (is_called("Alphabetic", what, n))
        return category[0] == 'L' || rows[i].properties & OTHER_ALPHABETIC;
    if (is_called("Lowercase", what, n))
        return strcmp(category, "Ll") == 0 || rows[i].properties & OTHER_LOWERCASE;
    if (is_called("Uppercase", what, n))
        return strcmp(category, "Lu") == 0;
    if (is_called("Graphic", what, n))
        return category[0] != 'C';
    return strncmp(category, what, n) == 0;
}

void newchars_class(str *out, const char *what, size_t n)
{
    for (size_t i = 0; i < ROWS; i++)
        if (row_is(i, what, n))
            str_printf(out, "\\x{%X}-\\x{%X}", rows[i].first, rows[i].last);
}

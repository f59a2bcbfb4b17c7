/* charsmap: see charsmap.h.
 *
 * A unit of the double array: bits 0-7 the label (bit 31 marks a leaf, whose other bits are the
 * value), bit 8 says that a leaf hangs below, bits 10-30 the offset to the children, shifted left
 * by 8 more when bit 9 is set. From node p with offset o, byte c leads to p ^ o ^ c, provided that
 * the unit there is labelled c.
 *
 * charsmap_open() looks at every unit once: whatever node a walk may reach, its children begin
 * inside the array, its leaf (if it says it has one) holds an offset inside the strings, and that
 * offset begins a character. What is left to check in a walk is the one index p ^ o ^ c. */
#include "tokenizer/charsmap.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <string.h>
#include <utf8proc.h>

struct charsmap {
    unsigned char *blob;
    const unsigned char *units; /* n_units little-endian u32 */
    size_t n_units;
    const char *strings; /* n_strings bytes, the last one NUL */
    size_t n_strings;
};

#define LEAF (1u << 31)
#define STRING_MAX 1024 /* with its NUL: one character must not become a megabyte */

static uint32_t le32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t unit_at(const charsmap *m, size_t i)
{
    return le32(m->units + 4 * i);
}
static uint32_t unit_offset(uint32_t u)
{
    return (u >> 10) << ((u & 1u << 9) >> 6);
}
static bool unit_has_leaf(uint32_t u)
{
    return (u >> 8 & 1) != 0;
}

static pesc_status check_units(const charsmap *m, const char *where)
{
    for (size_t i = 0; i < m->n_units; i++) {
        uint32_t u = unit_at(m, i);
        if (u & LEAF)
            continue;
        size_t below = i ^ unit_offset(u);
        if (below >= m->n_units)
            return fail(PESC_FORMAT,
                        "%s: byte %zu: unit %zu of the trie points to unit %zu, past its %zu units",
                        where, 4 + 4 * i, i, below, m->n_units);
        if (!unit_has_leaf(u))
            continue;
        size_t value = unit_at(m, below) & ~LEAF;
        if (value >= m->n_strings)
            return fail(PESC_FORMAT,
                        "%s: byte %zu: the trie gives a replacement at %zu, past the %zu bytes of "
                        "strings",
                        where, 4 + 4 * below, value, m->n_strings);
        size_t room = m->n_strings - value;
        if (!memchr(m->strings + value, '\0', room < STRING_MAX ? room : STRING_MAX))
            return fail(PESC_FORMAT, "%s: byte %zu: the replacement at %zu is longer than %d bytes",
                        where, 4 + 4 * below, value, STRING_MAX - 1);
        if ((m->strings[value] & 0xc0) == 0x80)
            return fail(PESC_FORMAT,
                        "%s: byte %zu: the trie gives a replacement at %zu, inside a character",
                        where, 4 + 4 * below, value);
    }
    return PESC_OK;
}

static pesc_status check_blob(charsmap *m, size_t n, const char *where)
{
    if (n < 4)
        return fail(PESC_FORMAT, "%s: found %zu bytes, expected at least 4 with the trie's size",
                    where, n);
    size_t trie = le32(m->blob);
    if (trie > n - 4)
        return fail(PESC_FORMAT, "%s: byte 0: the trie has %zu bytes, but only %zu follow", where,
                    trie, n - 4);
    if (trie == 0 || trie % 4 != 0)
        return fail(PESC_FORMAT,
                    "%s: byte 0: found a trie of %zu bytes, expected a positive multiple of 4",
                    where, trie);
    m->units = m->blob + 4;
    m->n_units = trie / 4;
    m->strings = (const char *)m->blob + 4 + trie;
    m->n_strings = n - 4 - trie;
    if (m->n_strings > 0 && m->strings[m->n_strings - 1] != '\0')
        return fail(PESC_FORMAT, "%s: byte %zu: the replacement strings do not end in NUL", where,
                    n - 1);
    if (!utf8_valid(m->strings, m->n_strings))
        return fail(PESC_FORMAT, "%s: byte %zu: the replacement strings are not UTF-8", where,
                    4 + trie);
    return check_units(m, where);
}

/* Takes over the blob, also when it fails. */
static pesc_status open_owned(charsmap **out, unsigned char *blob, size_t n, const char *where)
{
    charsmap *m = mem_zalloc(1, sizeof *m);
    if (!m) {
        mem_free(blob);
        return fail_nomem("reading a normalisation table", sizeof *m);
    }
    m->blob = blob;
    pesc_status s = check_blob(m, n, where);
    if (s != PESC_OK) {
        charsmap_close(m);
        return s;
    }
    *out = m;
    return PESC_OK;
}

pesc_status charsmap_open(charsmap **out, const unsigned char *blob, size_t n, const char *where)
{
    *out = NULL;
    if (n == 0)
        return PESC_OK;
    unsigned char *copy = mem_alloc(n, 1);
    if (!copy)
        return fail_nomem("reading a normalisation table", n);
    memcpy(copy, blob, n);
    return open_owned(out, copy, n, where);
}

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

pesc_status charsmap_open_base64(charsmap **out, const char *text, size_t n, const char *where)
{
    *out = NULL;
    if (n % 4 != 0)
        return fail(PESC_FORMAT, "%s: found %zu characters of base64, expected a multiple of 4",
                    where, n);
    if (n == 0)
        return PESC_OK;
    unsigned char *blob = mem_alloc(n / 4, 3);
    if (!blob)
        return fail_nomem("reading a normalisation table", n / 4 * 3);
    size_t pad = text[n - 1] != '=' ? 0 : text[n - 2] != '=' ? 1 : 2;
    size_t made = 0;
    uint32_t bits = 0;
    for (size_t i = 0; i < n; i++) {
        int d = i >= n - pad ? 0 : base64_digit(text[i]);
        if (d < 0) {
            mem_free(blob);
            return fail(PESC_FORMAT, "%s: character %zu is not base64", where, i);
        }
        bits = bits << 6 | (uint32_t)d;
        if (i % 4 == 3) {
            blob[made++] = (unsigned char)(bits >> 16);
            blob[made++] = (unsigned char)(bits >> 8);
            blob[made++] = (unsigned char)bits;
        }
    }
    return open_owned(out, blob, made - pad, where);
}

void charsmap_close(charsmap *m)
{
    if (!m)
        return;
    mem_free(m->blob);
    mem_free(m);
}

/* Walks text; stops at the first key when `shortest`, else at the last one. 0: none. */
static size_t walk(const charsmap *m, const char *text, size_t n, bool shortest, uint32_t *value)
{
    size_t matched = 0;
    size_t node = unit_offset(unit_at(m, 0));
    for (size_t i = 0; i < n && text[i] != '\0'; i++) {
        unsigned char c = (unsigned char)text[i];
        node ^= c;
        if (node >= m->n_units)
            break;
        uint32_t u = unit_at(m, node);
        if ((u & (LEAF | 0xff)) != c)
            break;
        node ^= unit_offset(u);
        if (unit_has_leaf(u)) {
            matched = i + 1;
            *value = unit_at(m, node) & ~LEAF;
            if (shortest)
                break;
        }
    }
    return matched;
}

size_t charsmap_match(const charsmap *m, const char *text, size_t n, const char **to, size_t *to_n)
{
    uint32_t value = 0;
    size_t matched = m ? walk(m, text, n, false, &value) : 0;
    if (matched > 0) {
        *to = m->strings + value;
        *to_n = strlen(*to);
    }
    return matched;
}

/* As the Precompiled normaliser asks: the shortest key that text begins with stands for all of it.
 */
static bool replace_whole(const charsmap *m, const char *text, size_t n, str *out)
{
    uint32_t value = 0;
    if (walk(m, text, n, true, &value) == 0)
        return false;
    str_puts(out, m->strings + value);
    return true;
}

#define SHORT_GRAPHEME 6 /* bytes; from here on only its characters are looked up */

static void apply_grapheme(const charsmap *m, const char *text, size_t n, str *out)
{
    if (n < SHORT_GRAPHEME && replace_whole(m, text, n, out))
        return;
    for (size_t i = 0; i < n;) {
        int len = utf8_decode(text + i, n - i, NULL);
        size_t k = len > 0 ? (size_t)len : 1;
        if (!replace_whole(m, text + i, k, out))
            str_add(out, text + i, k);
        i += k;
    }
}

void charsmap_apply(const charsmap *m, const char *text, size_t n, str *out)
{
    if (!m) {
        str_add(out, text, n);
    } else {
        size_t from = 0, at = 0;
        uint32_t before = 0;
        utf8proc_int32_t state = 0;
        while (at < n && str_ok(out)) {
            uint32_t cp = 0xfffd;
            int len = utf8_decode(text + at, n - at, &cp);
            if (at > from && utf8proc_grapheme_break_stateful((utf8proc_int32_t)before,
                                                              (utf8proc_int32_t)cp, &state)) {
                apply_grapheme(m, text + from, at - from, out);
                from = at;
            }
            before = cp;
            at += len > 0 ? (size_t)len : 1;
        }
        apply_grapheme(m, text + from, n - from, out);
    }
}

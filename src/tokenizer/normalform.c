#include "tokenizer/normalform.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <string.h>
#include <utf8proc.h>

#define LONGEST_DECOMPOSITION 32 /* code points; Unicode's longest has 18 */

/* Hugging Face's tables are those of Unicode 9: what has a class or a decomposition only since then
 * stays as it is and stops composition. */
static const struct {
    uint32_t first, last;
} later[] = {
    { 0x7FD, 0x7FD },     { 0x898, 0x89F },     { 0x8CA, 0x8D3 },     { 0x9FE, 0x9FE },
    { 0xC3C, 0xC3C },     { 0xD3B, 0xD3C },     { 0xEBA, 0xEBA },     { 0x1715, 0x1715 },
    { 0x1ABF, 0x1ACE },   { 0x1DF6, 0x1DFA },   { 0x32FF, 0x32FF },   { 0xA7F2, 0xA7F4 },
    { 0xA82C, 0xA82C },   { 0xAB69, 0xAB69 },   { 0x10781, 0x10785 }, { 0x10787, 0x107B0 },
    { 0x107B2, 0x107BA }, { 0x10D24, 0x10D27 }, { 0x10EAB, 0x10EAC }, { 0x10EFD, 0x10EFF },
    { 0x10F46, 0x10F50 }, { 0x10F82, 0x10F85 }, { 0x11070, 0x11070 }, { 0x1133B, 0x1133B },
    { 0x1145E, 0x1145E }, { 0x11839, 0x1183A }, { 0x11938, 0x11938 }, { 0x1193D, 0x1193E },
    { 0x11943, 0x11943 }, { 0x119E0, 0x119E0 }, { 0x11A34, 0x11A34 }, { 0x11A47, 0x11A47 },
    { 0x11A99, 0x11A99 }, { 0x11D42, 0x11D42 }, { 0x11D44, 0x11D45 }, { 0x11D97, 0x11D97 },
    { 0x11F41, 0x11F42 }, { 0x16FF0, 0x16FF1 }, { 0x1E030, 0x1E06D }, { 0x1E08F, 0x1E08F },
    { 0x1E130, 0x1E136 }, { 0x1E2AE, 0x1E2AE }, { 0x1E2EC, 0x1E2EF }, { 0x1E4EC, 0x1E4EF },
    { 0x1F16C, 0x1F16C }, { 0x1FBF0, 0x1FBF9 }
};

static bool is_later(uint32_t cp)
{
    size_t lo = 0, hi = sizeof later / sizeof later[0];
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (later[mid].last < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < sizeof later / sizeof later[0] && later[lo].first <= cp;
}

static bool room(normalform_scratch *s, size_t more)
{
    if (s->cap - s->n >= more)
        return true;
    size_t cap = s->cap * 2 + more + 256;
    int32_t *cp = mem_grow(s->cp, cap, sizeof *cp);
    if (!cp)
        return false;
    s->cp = cp;
    s->cap = cap;
    return true;
}

static unsigned combining_class(int32_t cp)
{
    return cp < 0x300 ? 0 : (unsigned)utf8proc_get_property(cp)->combining_class & 0xFF;
}

/* Stable sort of marks by class: `from` to `to`, n each. */
static void sort_marks(const int32_t *from, size_t n, int32_t *to)
{
    size_t start[257] = { 0 };
    for (size_t i = 0; i < n; i++)
        start[combining_class(from[i]) + 1]++;
    for (int c = 0; c < 256; c++)
        start[c + 1] += start[c];
    for (size_t i = 0; i < n; i++)
        to[start[combining_class(from[i])]++] = from[i];
}

/* Puts each run of marks into canonical order. */
static bool order_marks(normalform_scratch *s)
{
    for (size_t i = 0, end; i < s->n; i = end + 1) {
        bool sorted = true;
        unsigned last = 0, c;
        for (end = i; end < s->n && (c = combining_class(s->cp[end])) != 0; end++) {
            sorted &= last <= c;
            last = c;
        }
        if (sorted)
            continue;
        size_t n = end - i;
        if (!room(s, n))
            return false;
        sort_marks(s->cp + i, n, s->cp + s->n);
        memcpy(s->cp + i, s->cp + s->n, n * sizeof *s->cp);
    }
    return true;
}

/* Orders and composes what is in the scratch, and writes it out. */
static bool flush(normal_form form, normalform_scratch *s, str *out)
{
    if (!order_marks(s))
        return false;
    utf8proc_ssize_t n = (utf8proc_ssize_t)s->n;
    if (form == NORMALFORM_NFC || form == NORMALFORM_NFKC)
        n = utf8proc_normalize_utf32(s->cp, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        char bytes[4];
        str_add(out, bytes, (size_t)utf8_encode((uint32_t)s->cp[i], bytes));
    }
    s->n = 0;
    return true;
}

/* A stretch that begins with at most one ASCII character and ends before the next one: nothing
 * composes across its ends. */
static bool stretch(normal_form form, const char *text, size_t n, normalform_scratch *s, str *out)
{
    bool compat = form == NORMALFORM_NFKD || form == NORMALFORM_NFKC;
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0);
    size_t len;
    s->n = 0;
    for (size_t i = 0; i < n; i += len) {
        uint32_t cp = 0;
        int boundclass = 0;
        len = (size_t)utf8_decode(text + i, n - i, &cp);
        if (is_later(cp)) {
            if (!flush(form, s, out))
                return false;
            str_add(out, text + i, len);
            continue;
        }
        if (!room(s, LONGEST_DECOMPOSITION))
            return false;
        s->n += (size_t)utf8proc_decompose_char((utf8proc_int32_t)cp, s->cp + s->n,
                                                LONGEST_DECOMPOSITION, options, &boundclass);
    }
    return flush(form, s, out);
}

bool normalform_apply(normal_form form, const char *text, size_t n, normalform_scratch *s, str *out)
{
    size_t i = 0;
    while (i < n) {
        size_t ascii = i;
        while (ascii < n && (unsigned char)text[ascii] < 0x80)
            ascii++;
        size_t end = ascii;
        while (end < n && (unsigned char)text[end] >= 0x80)
            end++;
        size_t from = ascii > i && end > ascii ? ascii - 1 : ascii;
        str_add(out, text + i, from - i);
        if (end > ascii && !stretch(form, text + from, end - from, s, out))
            return false;
        i = end;
    }
    return str_ok(out);
}

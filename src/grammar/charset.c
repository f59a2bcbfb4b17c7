#include "grammar/charset.h"

#include "base/mem.h"

#include <stdlib.h>

void charset_add(charset *s, uint32_t lo, uint32_t hi)
{
    s->failed = s->failed || !mem_room((void **)&s->r, &s->cap, s->n, sizeof *s->r);
    if (!s->failed)
        s->r[s->n++] = (char_range){ lo, hi };
}

void charset_add_set(charset *s, const charset *more)
{
    for (size_t i = 0; i < more->n; i++)
        charset_add(s, more->r[i].lo, more->r[i].hi);
    s->failed |= more->failed;
}

static int by_lo(const void *a, const void *b)
{
    const char_range *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

static void split_at_surrogates(charset *s)
{
    for (size_t i = 0, n = s->n; i < n; i++) {
        char_range r = s->r[i];
        if (r.hi < SURROGATE_FIRST || r.lo > SURROGATE_LAST)
            continue;
        s->r[i].hi = SURROGATE_FIRST - 1; /* is empty where r.lo is a surrogate */
        if (r.hi > SURROGATE_LAST)
            charset_add(s, SURROGATE_LAST + 1, r.hi);
    }
}

void charset_normalise(charset *s)
{
    size_t n = 0;
    split_at_surrogates(s);
    if (s->n)
        qsort(s->r, s->n, sizeof *s->r, by_lo);
    for (size_t i = 0; i < s->n; i++) {
        char_range r = s->r[i];
        if (r.lo > r.hi)
            continue;
        if (n && r.lo <= s->r[n - 1].hi + 1)
            s->r[n - 1].hi = r.hi > s->r[n - 1].hi ? r.hi : s->r[n - 1].hi;
        else
            s->r[n++] = r;
    }
    s->n = n;
}

void charset_negate(charset *s)
{
    charset_normalise(s);
    uint32_t from = 0;
    size_t n = s->n;
    for (size_t i = 0; i < n; i++) {
        char_range r = s->r[i];
        if (from < r.lo)
            charset_add(s, from, r.lo - 1);
        s->r[i] = (char_range){ 1, 0 };
        from = r.hi + 1;
    }
    if (from <= CHAR_LAST)
        charset_add(s, from, CHAR_LAST);
    charset_normalise(s);
}

bool charset_has(const charset *s, uint32_t c)
{
    for (size_t i = 0; i < s->n && s->r[i].lo <= c; i++)
        if (c <= s->r[i].hi)
            return true;
    return false;
}

void charset_free(charset *s)
{
    mem_free(s->r);
    *s = (charset){ 0 };
}

#include "support/xml.h"

#include <ctype.h>
#include <string.h>

enum { DEPTH = 64 };

typedef struct names {
    const char *at[DEPTH];
    size_t n[DEPTH];
    int depth;
} names;

/* Skips attributes up to the end of a tag: name="value", values without < and bare &. */
static const char *attributes(const char *p, const char *end)
{
    while (p < end && *p != '>' && *p != '/' && *p != '?') {
        while (p < end && isspace((unsigned char)*p))
            p++;
        if (p < end && (*p == '>' || *p == '/' || *p == '?'))
            break;
        const char *equals = memchr(p, '=', (size_t)(end - p));
        if (!equals || equals == p || equals + 1 >= end || equals[1] != '"')
            return NULL;
        const char *close = memchr(equals + 2, '"', (size_t)(end - equals - 2));
        if (!close || memchr(equals + 2, '<', (size_t)(close - equals - 2)))
            return NULL;
        p = close + 1;
    }
    return p;
}

static const char *tag(const char *p, const char *end, names *open)
{
    bool closing = p < end && *p == '/', declaration = p < end && *p == '?';
    p += closing || declaration;
    const char *name = p;
    while (p < end && (isalnum((unsigned char)*p) || strchr(":_-", *p)))
        p++;
    size_t n = (size_t)(p - name);
    if (n == 0)
        return NULL;
    if (closing) {
        bool fits = open->depth > 0 && open->n[open->depth - 1] == n &&
                    memcmp(open->at[open->depth - 1], name, n) == 0;
        open->depth--;
        return fits && p < end && *p == '>' ? p + 1 : NULL;
    }
    p = attributes(p, end);
    if (!p || p >= end)
        return NULL;
    if (*p == '/' || *p == '?')
        return p + 1 < end && p[1] == '>' ? p + 2 : NULL;
    if (declaration || open->depth == DEPTH)
        return NULL;
    open->at[open->depth] = name;
    open->n[open->depth++] = n;
    return p + 1;
}

bool xml_well_formed(const char *text, size_t n)
{
    names open = { .depth = 0 };
    const char *p = text, *end = text + n;
    while (p && p < end) {
        if (*p == '<')
            p = tag(p + 1, end, &open);
        else if (*p == '&' && !memchr(p, ';', (size_t)(end - p) < 8 ? (size_t)(end - p) : 8))
            return false;
        else
            p++;
    }
    return p && open.depth == 0;
}

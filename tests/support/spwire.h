/* spwire: writes SentencePiece models and their normalisation tables byte by byte, for tests. */
#ifndef TESTS_SUPPORT_SPWIRE_H
#define TESTS_SUPPORT_SPWIRE_H

#include "base/str.h"

#include <stdint.h>
#include <string.h>

static inline void wire_varint(str *s, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        str_putc(s, (char)(v | 0x80));
    str_putc(s, (char)v);
}

static inline void wire_number(str *s, unsigned field, uint64_t v)
{
    wire_varint(s, field << 3);
    wire_varint(s, v);
}

static inline void wire_bytes(str *s, unsigned field, const void *p, size_t n)
{
    wire_varint(s, field << 3 | 2);
    wire_varint(s, n);
    str_add(s, p, n);
}

static inline void wire_message(str *s, unsigned field, str *inner)
{
    wire_bytes(s, field, inner->p, inner->n);
    str_free(inner);
}

static inline void wire_float(str *s, unsigned field, float v)
{
    wire_varint(s, field << 3 | 5);
    str_add(s, (const char *)&v, sizeof v);
}

static inline void wire_piece(str *s, const char *text, float score, unsigned type)
{
    str p = { 0 };
    wire_bytes(&p, 1, text, strlen(text));
    wire_float(&p, 2, score);
    wire_number(&p, 3, type);
    wire_message(s, 1, &p);
}

/* A table of at most 64 trie nodes: each node's children fill a block of 256 units of their own, so
 * that building it needs no search. The order of keys does not matter. */
typedef struct rule {
    const char *from, *to;
} rule;

static inline void wire_charsmap(str *out, const rule *rules, size_t n)
{
    static uint32_t unit[64 * 256];
    uint32_t blocks = 1; /* block 0 holds the root */
    memset(unit, 0, sizeof unit);
    str strings = { 0 };
    str_putc(&strings, 'x'); /* so that no replacement begins at 0 */
    str_putc(&strings, '\0');
    unit[0] = (blocks++ * 256) << 10;
    for (size_t i = 0; i < n; i++) {
        uint32_t at = 0;
        for (const unsigned char *c = (const unsigned char *)rules[i].from; *c; c++) {
            at = at ^ (unit[at] >> 10) ^ *c;
            if (unit[at] == 0)
                unit[at] = *c | (at ^ (blocks++ * 256)) << 10;
        }
        unit[at] |= 1u << 8;
        unit[at ^ (unit[at] >> 10)] = 1u << 31 | (uint32_t)strings.n;
        str_add(&strings, rules[i].to, strlen(rules[i].to) + 1);
    }
    uint32_t bytes = blocks * 256 * 4;
    str_add(out, (const char *)&bytes, 4);
    str_add(out, (const char *)unit, bytes);
    str_add(out, strings.p, strings.n);
    str_free(&strings);
}

#endif

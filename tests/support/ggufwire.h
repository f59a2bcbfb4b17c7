/* ggufwire: writes GGUF files byte by byte, for tests. */
#ifndef TESTS_SUPPORT_GGUFWIRE_H
#define TESTS_SUPPORT_GGUFWIRE_H

#include "base/str.h"

#include <stdint.h>
#include <string.h>

/* GGUF's numbers for the types of values. */
enum { WIRE_U32 = 4, WIRE_I32 = 5, WIRE_F32 = 6, WIRE_BOOL = 7, WIRE_STRING = 8, WIRE_ARRAY = 9 };

static inline void wire_raw(str *s, const void *bytes, size_t n)
{
    str_add(s, bytes, n);
}

static inline void wire_u32(str *s, uint32_t v)
{
    wire_raw(s, &v, sizeof v);
}

static inline void wire_u64(str *s, uint64_t v)
{
    wire_raw(s, &v, sizeof v);
}

static inline void wire_text(str *s, const char *text)
{
    wire_u64(s, strlen(text));
    str_puts(s, text);
}

static inline void wire_key(str *s, const char *key, uint32_t type)
{
    wire_text(s, key);
    wire_u32(s, type);
}

static inline void wire_array(str *s, const char *key, uint32_t type, uint64_t count)
{
    wire_key(s, key, WIRE_ARRAY);
    wire_u32(s, type);
    wire_u64(s, count);
}

/* A tensor's entry; dimensions in PyTorch's order. */
static inline void wire_tensor(str *s, const char *name, uint32_t nd, const uint64_t *ne,
                               uint32_t type, uint64_t offset)
{
    wire_text(s, name);
    wire_u32(s, nd);
    for (uint32_t i = 0; i < nd; i++)
        wire_u64(s, ne[nd - 1 - i]);
    wire_u32(s, type);
    wire_u64(s, offset);
}

static inline void wire_pad(str *s, size_t alignment)
{
    while (s->n % alignment)
        str_putc(s, 0);
}

#endif

#include "format/tfevents.h"

#include <string.h>

/* CRC-32C (Castagnoli), a bit at a time: these records are small and few. */
static uint32_t crc32c(const char *p, size_t n)
{
    uint32_t c = ~0u;
    for (size_t i = 0; i < n; i++) {
        c ^= (unsigned char)p[i];
        for (int b = 0; b < 8; b++)
            c = c >> 1 ^ (c & 1 ? 0x82F63B78u : 0);
    }
    return ~c;
}

static void put_fixed(str *s, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        str_putc(s, (char)(v >> 8 * i));
}

static void put_masked_crc(str *s, const char *p, size_t n)
{
    uint32_t c = crc32c(p, n);
    put_fixed(s, (uint32_t)((c >> 15 | c << 17) + 0xA282EAD8u), 4);
}

static void put_varint(str *s, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        str_putc(s, (char)(v | 0x80));
    str_putc(s, (char)v);
}

enum { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };

static void put_tag(str *s, unsigned field, unsigned wire)
{
    put_varint(s, field << 3 | wire);
}

static void put_bytes(str *s, unsigned field, const char *p, size_t n)
{
    put_tag(s, field, WIRE_BYTES);
    put_varint(s, n);
    str_add(s, p, n);
}

static void put_time(str *s, double wall_time)
{
    uint64_t bits;
    memcpy(&bits, &wall_time, sizeof bits);
    put_tag(s, 1, WIRE_64);
    put_fixed(s, bits, 8);
}

static void put_record(str *out, const str *event)
{
    char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (char)((uint64_t)event->n >> 8 * i);
    str_add(out, length, 8);
    put_masked_crc(out, length, 8);
    str_add(out, event->p, event->n);
    put_masked_crc(out, event->p, event->n);
    if (!str_ok(event))
        out->failed = true;
}

void tfevents_header(str *out, double wall_time)
{
    static const char version[] = "brain.Event:2";
    str event = { 0 };
    put_time(&event, wall_time);
    put_bytes(&event, 3, version, sizeof version - 1);
    put_record(out, &event);
    str_free(&event);
}

void tfevents_scalars(str *out, double wall_time, int64_t step, const tf_scalar *s, size_t n)
{
    str event = { 0 }, summary = { 0 }, value = { 0 };
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &s[i].value, sizeof bits);
        str_clear(&value);
        put_bytes(&value, 1, s[i].tag, strlen(s[i].tag));
        put_tag(&value, 2, WIRE_32);
        put_fixed(&value, bits, 4);
        put_bytes(&summary, 1, value.p, value.n);
    }
    put_time(&event, wall_time);
    put_tag(&event, 2, WIRE_VARINT);
    put_varint(&event, (uint64_t)step);
    put_bytes(&event, 5, summary.p, summary.n);
    if (!str_ok(&summary) || !str_ok(&value))
        event.failed = true;
    put_record(out, &event);
    str_free(&event);
    str_free(&summary);
    str_free(&value);
}

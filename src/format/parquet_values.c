/* The values and levels of a page (parquet-format, Encodings.md). */
#include "base/mem.h"
#include "format/parquet_file.h"

#include <string.h>

typedef enum encoding {
    ENC_PLAIN = 0,
    ENC_PLAIN_DICTIONARY = 2,
    ENC_RLE = 3,
    ENC_DELTA = 5,
    ENC_DELTA_LENGTH = 6,
    ENC_DELTA_TEXT = 7,
    ENC_DICTIONARY = 8,
    ENC_SPLIT = 9
} encoding;

/* ---- integers of any width ---- */

static bool varint(pq_input *in, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && in->p < in->end; shift += 7) {
        uint64_t byte = *in->p++;
        *out |= (byte & 0x7F) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

/* `width` bits from bit `at` on, the lowest first; all of them are there. */
static uint64_t bits(const unsigned char *p, uint64_t at, int width)
{
    uint64_t v = 0;
    for (int have = 0; have < width;) {
        int skip = (int)((at + (uint64_t)have) & 7), take = 8 - skip;
        uint64_t byte = p[(at + (uint64_t)have) >> 3] >> skip;
        if (take > width - have)
            take = width - have;
        v |= (byte & ((1u << take) - 1)) << have;
        have += take;
    }
    return v;
}

/* Runs of equal values, and groups of eight packed ones. */
typedef struct hybrid {
    pq_input in;
    int width; /* bits of a value, up to 32 */
    bool packed;
    uint64_t run, at; /* values left of the run; packed: the bit of the next one */
    const unsigned char *base;
    uint32_t value;
} hybrid;

static bool next_run(hybrid *h)
{
    uint64_t head, bytes = (uint64_t)(h->width + 7) / 8;
    if (!varint(&h->in, &head))
        return false;
    h->packed = head & 1;
    h->run = head >> 1;
    if (!h->packed) {
        if (bytes > pq_left(&h->in))
            return false;
        h->value = (uint32_t)bits(h->in.p, 0, (int)bytes * 8);
        h->in.p += bytes;
        return h->width == 32 || h->value >> h->width == 0;
    }
    /* the last group may be cut off after its last value */
    uint64_t most = (uint64_t)pq_left(&h->in), groups = h->run;
    if (groups > most + 1)
        return false;
    uint64_t need = groups * (uint64_t)h->width;
    h->base = h->in.p;
    h->at = 0;
    h->run = need <= most || !h->width ? groups * 8 : most * 8 / (uint64_t)h->width;
    h->in.p += need < most ? need : most;
    return h->run > 0;
}

/* The next n values; false where the data ends before. */
static bool hybrid_read(hybrid *h, uint32_t *out, size_t n)
{
    for (size_t i = 0; i < n;) {
        while (h->run == 0)
            if (!next_run(h))
                return false;
        size_t take = h->run < n - i ? (size_t)h->run : n - i;
        for (size_t k = 0; k < take; k++, i++) {
            out[i] = h->packed ? (uint32_t)bits(h->base, h->at, h->width) : h->value;
            h->at += h->packed ? (uint64_t)h->width : 0;
        }
        h->run -= take;
    }
    return true;
}

static int width_of(uint32_t most)
{
    return most ? 32 - __builtin_clz(most) : 0;
}

/* DELTA_BINARY_PACKED: blocks of differences, less their minimum, in mini-blocks of one width. */
static bool read_delta(pq_input *in, int64_t *out, size_t n)
{
    uint64_t block, minis, total, v;
    if (!varint(in, &block) || !varint(in, &minis) || !varint(in, &total) || !varint(in, &v))
        return false;
    if (total != n || block == 0 || block > 1 << 20 || block % 128 || minis == 0 ||
        minis > block / 32 || block % minis || block / minis % 32)
        return false;
    uint64_t each = block / minis, value = (v >> 1) ^ -(v & 1);
    for (size_t i = 0; i < n;) {
        if (i == 0)
            out[i++] = (int64_t)value;
        if (i == n)
            break;
        const unsigned char *widths;
        if (!varint(in, &v) || minis > pq_left(in))
            return false;
        uint64_t least = (v >> 1) ^ -(v & 1);
        widths = in->p;
        in->p += minis;
        for (uint64_t m = 0; m < minis && i < n; m++) {
            uint64_t bytes = each / 8 * widths[m];
            if (widths[m] > 64 || bytes > pq_left(in))
                return false;
            for (uint64_t k = 0; k < each && i < n; k++) {
                value += least + bits(in->p, k * widths[m], widths[m]);
                out[i++] = (int64_t)value;
            }
            in->p += bytes;
        }
    }
    return true;
}

/* ---- values ---- */

static pq_value whole(const pq_leaf *l, uint64_t v)
{
    if (l->physical == PQ_INT32)
        v = l->kind == PQ_UINT ? (uint32_t)v : (uint64_t)(int64_t)(int32_t)(uint32_t)v;
    return (pq_value){ .i = (int64_t)v };
}

static const int sizes[] = { [PQ_INT32] = 4, [PQ_INT64] = 8, [PQ_FLOAT] = 4, [PQ_DOUBLE] = 8 };

/* A whole number or a real from its bytes. */
static pq_value number(const pq_leaf *l, uint64_t raw)
{
    pq_value v = whole(l, raw);
    uint32_t low = (uint32_t)raw;
    float f;
    memcpy(&f, &low, sizeof f);
    if (l->physical == PQ_FLOAT)
        v.d = (double)f;
    else if (l->physical == PQ_DOUBLE)
        memcpy(&v.d, &raw, sizeof raw);
    return v;
}

static bool plain_texts(pq_values *v)
{
    for (uint32_t i = 0; i < v->page->n_values; i++) {
        if (pq_left(&v->in) < 4)
            return false;
        uint32_t n = (uint32_t)pq_little(v->in.p, 4);
        v->in.p += 4;
        if (n > pq_left(&v->in))
            return false;
        v->page->values[i] = (pq_value){ .s = (const char *)v->in.p, .n = n };
        v->in.p += n;
    }
    return true;
}

static bool plain_values(pq_values *v)
{
    uint32_t n = v->page->n_values;
    pq_value *out = v->page->values;
    if (v->leaf->physical == PQ_BYTE_ARRAY)
        return plain_texts(v);
    if (v->leaf->physical == PQ_BOOLEAN) {
        if (((uint64_t)n + 7) / 8 > pq_left(&v->in))
            return false;
        for (uint32_t i = 0; i < n; i++)
            out[i].i = (int64_t)bits(v->in.p, i, 1);
        return true;
    }
    size_t size = (size_t)sizes[v->leaf->physical];
    if (n * size > pq_left(&v->in))
        return false;
    for (uint32_t i = 0; i < n; i++)
        out[i] = number(v->leaf, pq_little(v->in.p + i * size, (int)size));
    return true;
}

/* BYTE_STREAM_SPLIT: the first byte of every number, then the second of every one, and so on. */
static bool split_values(pq_values *v)
{
    uint32_t n = v->page->n_values;
    if (v->leaf->physical == PQ_BYTE_ARRAY || v->leaf->physical == PQ_BOOLEAN)
        return false;
    size_t size = (size_t)sizes[v->leaf->physical];
    if (n * size > pq_left(&v->in))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t raw = 0;
        for (size_t k = 0; k < size; k++)
            raw |= (uint64_t)v->in.p[k * n + i] << (8 * k);
        v->page->values[i] = number(v->leaf, raw);
    }
    return true;
}

/* Indices into the dictionary, after a byte with their width. */
static bool dictionary_values(pq_values *v)
{
    uint32_t chunk[256];
    const pq_page *d = v->dictionary;
    if (!d)
        return false;
    if (v->page->n_values == 0)
        return true;
    if (pq_left(&v->in) < 1 || *v->in.p > 32)
        return false;
    hybrid h = { .width = *v->in.p, .in = { v->in.p + 1, v->in.end } };
    for (uint32_t i = 0, n; i < v->page->n_values; i += n) {
        n = v->page->n_values - i < 256 ? v->page->n_values - i : 256;
        if (!hybrid_read(&h, chunk, n))
            return false;
        for (uint32_t k = 0; k < n; k++) {
            if (chunk[k] >= d->n_values)
                return false;
            v->page->values[i + k] = d->values[chunk[k]];
        }
    }
    return true;
}

static bool run_length_booleans(pq_values *v)
{
    if (v->leaf->physical != PQ_BOOLEAN || pq_left(&v->in) < 4)
        return false;
    uint32_t n = (uint32_t)pq_little(v->in.p, 4), one;
    if (n > pq_left(&v->in) - 4)
        return false;
    hybrid h = { .width = 1, .in = { v->in.p + 4, v->in.p + 4 + n } };
    for (uint32_t i = 0; i < v->page->n_values; i++) {
        if (!hybrid_read(&h, &one, 1))
            return false;
        v->page->values[i].i = one;
    }
    return true;
}

static bool delta_values(pq_values *v, int64_t *numbers)
{
    bool whole_number = v->leaf->physical == PQ_INT32 || v->leaf->physical == PQ_INT64;
    if (!whole_number || !read_delta(&v->in, numbers, v->page->n_values))
        return false;
    for (uint32_t i = 0; i < v->page->n_values; i++)
        v->page->values[i] = whole(v->leaf, (uint64_t)numbers[i]);
    return true;
}

/* Lengths, then all texts without gaps. */
static bool delta_length_texts(pq_values *v, int64_t *lengths)
{
    if (v->leaf->physical != PQ_BYTE_ARRAY || !read_delta(&v->in, lengths, v->page->n_values))
        return false;
    for (uint32_t i = 0; i < v->page->n_values; i++) {
        if (lengths[i] < 0 || (uint64_t)lengths[i] > pq_left(&v->in))
            return false;
        v->page->values[i] = (pq_value){ .s = (const char *)v->in.p, .n = (uint32_t)lengths[i] };
        v->in.p += lengths[i];
    }
    return true;
}

/* How much of the text before each begins with, then the rest of each. */
static pesc_status delta_texts(pq_values *v, int64_t *prefixes, int64_t *lengths, bool *fine)
{
    pq_page *g = v->page;
    uint64_t bytes = 0, before = 0;
    *fine = v->leaf->physical == PQ_BYTE_ARRAY && read_delta(&v->in, prefixes, g->n_values) &&
            delta_length_texts(v, lengths);
    for (uint32_t i = 0; *fine && i < g->n_values; i++) {
        *fine = prefixes[i] >= 0 && (uint64_t)prefixes[i] <= before;
        before = *fine ? (uint64_t)prefixes[i] + g->values[i].n : 0;
        bytes += before;
        *fine = *fine && bytes <= PQ_PAGE_MAX;
    }
    if (!*fine)
        return PESC_OK;
    g->made = mem_alloc(bytes + 1, 1);
    if (!g->made)
        return fail_nomem("a page of texts", bytes);
    g->bytes += bytes;
    char *at = (char *)g->made;
    for (uint32_t i = 0; i < g->n_values; i++) {
        size_t prefix = (size_t)prefixes[i], rest = g->values[i].n;
        if (prefix)
            memcpy(at, g->values[i - 1].s, prefix);
        memcpy(at + prefix, g->values[i].s, rest);
        g->values[i] = (pq_value){ .s = at, .n = (uint32_t)(prefix + rest) };
        at += prefix + rest;
    }
    return PESC_OK;
}

pesc_status pq_values_read(pq_values *v, uint8_t how, bool *fine)
{
    uint32_t n = v->page->n_values;
    bool delta = how == ENC_DELTA || how == ENC_DELTA_LENGTH || how == ENC_DELTA_TEXT;
    int64_t *numbers = delta ? mem_alloc(2 * (size_t)n + 2, sizeof *numbers) : NULL;
    pesc_status s = delta && !numbers ? fail_nomem("a page of numbers", n) : PESC_OK;
    if (s != PESC_OK)
        return s;
    switch (how) {
    case ENC_PLAIN:
        *fine = plain_values(v);
        break;
    case ENC_DICTIONARY:
    case ENC_PLAIN_DICTIONARY:
        *fine = dictionary_values(v);
        break;
    case ENC_RLE:
        *fine = run_length_booleans(v);
        break;
    case ENC_DELTA:
        *fine = delta_values(v, numbers);
        break;
    case ENC_SPLIT:
        *fine = split_values(v);
        break;
    case ENC_DELTA_LENGTH:
        *fine = delta_length_texts(v, numbers);
        break;
    default:
        s = delta_texts(v, numbers, numbers + n + 1, fine);
    }
    mem_free(numbers);
    return s;
}

bool pq_encoding_known(uint8_t how)
{
    return how == ENC_PLAIN || how == ENC_PLAIN_DICTIONARY || how == ENC_RLE ||
           (how >= ENC_DELTA && how <= ENC_SPLIT);
}

bool pq_encoding_repeats(uint8_t how)
{
    return how == ENC_DELTA_TEXT || pq_encoding_indexes(how);
}

/* ---- levels ---- */

bool pq_levels_read(pq_input *in, size_t bytes, uint8_t *out, uint32_t n, uint8_t most)
{
    uint32_t chunk[256];
    if (bytes > pq_left(in))
        return false;
    hybrid h = { .width = width_of(most), .in = { in->p, in->p + bytes } };
    in->p += bytes;
    for (uint32_t i = 0, take; i < n; i += take) {
        take = n - i < 256 ? n - i : 256;
        if (!hybrid_read(&h, chunk, take))
            return false;
        for (uint32_t k = 0; k < take; k++) {
            if (chunk[k] > most)
                return false;
            out[i + k] = (uint8_t)chunk[k];
        }
    }
    return true;
}

bool pq_encoding_indexes(uint8_t how)
{
    return how == ENC_DICTIONARY || how == ENC_PLAIN_DICTIONARY;
}

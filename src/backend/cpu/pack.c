#include "backend/cpu/pack.h"

#include "tensor/bf16.h"
#include "tensor/nf4.h"

#include <string.h>

static float value(const mm_side *x, int64_t i, int64_t k)
{
    if (k >= x->k)
        return 0.0f;
    int64_t at = x->k_last ? i * x->ld + k : k * x->ld + i;
    const unsigned char *bytes = x->data;
    float f;
    uint16_t h;
    switch (x->dt) {
    case DT_F32:
        memcpy(&f, bytes + at * 4, sizeof f);
        return f;
    case DT_BF16:
        memcpy(&h, bytes + at * 2, sizeof h);
        return bf16_to_f32(h);
    default: /* nf4: the earlier of two codes in the high half */
        return nf4_code[bytes[at / 2] >> (at % 2 ? 0 : 4) & 15] * x->scales[at / NF4_BLOCK];
    }
}

static mm_word word(const mm_side *x, mm_words words, int64_t i, int64_t w)
{
    if (words == MM_BF16_PAIR) {
        mm_word even = bf16_from_f32(value(x, i, 2 * w));
        return even | (mm_word)bf16_from_f32(value(x, i, 2 * w + 1)) << 16;
    }
    float f = value(x, i, w);
    if (words == MM_BF16_AS_F32)
        f = bf16_to_f32(bf16_from_f32(f));
    mm_word u;
    memcpy(&u, &f, sizeof u);
    return u;
}

void pack_rows(mm_word *dst, const mm_side *x, mm_words words, mm_box box)
{
    int64_t nw = pack_round_up(box.nw, MM_WORDS);
    for (int64_t i = 0; i < box.n; i++)
        for (int64_t w = 0; w < nw; w++)
            dst[i * MM_K + w] = w < box.nw ? word(x, words, box.i + i, box.w + w) : 0;
}

void pack_lanes(mm_word *dst, const mm_side *x, mm_words words, mm_box box)
{
    int64_t nw = pack_round_up(box.nw, MM_WORDS);
    for (int64_t w = 0; w < nw; w++)
        for (int64_t i = 0; i < MM_LANES; i++)
            dst[w * MM_LANES + i] =
                i < box.n && w < box.nw ? word(x, words, box.i + i, box.w + w) : 0;
}

pack_ahead pack_ahead_of(const mm_side *x, mm_words words, mm_box box)
{
    int64_t k = box.w * pack_per_word(words), n = box.nw * pack_per_word(words);
    int64_t bits = x->dt == DT_F32 ? 32 : x->dt == DT_BF16 ? 16 : 4;
    int64_t first = x->k_last ? box.i * x->ld + k : k * x->ld + box.i;
    return (pack_ahead){ .at = (const char *)x->data + first * bits / 8,
                         .stride = x->ld * bits / 8,
                         .bytes = (x->k_last ? n : box.n) * bits / 8,
                         .rows = x->k_last      ? box.n
                                 : n < x->k - k ? n
                                                : x->k - k };
}

void pack_fetch(pack_ahead *a, int64_t n_rows)
{
    int64_t end = a->row + n_rows < a->rows ? a->row + n_rows : a->rows;
    for (; a->row < end; a->row++)
        for (int64_t i = 0; i < a->bytes; i += 64)
            __builtin_prefetch(a->at + a->row * a->stride + i, 0, 2);
}

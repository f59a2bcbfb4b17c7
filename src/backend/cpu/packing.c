#include "backend/cpu/packing.h"

#include "tensor/bf16.h"
#include "tensor/nf4.h"
#include "tensor/quants.h"

#include <string.h>

static float value_at(const mm_operand *x, int64_t i, int64_t k)
{
    if (k >= x->k)
        return 0.0f;
    int64_t at = x->k_contiguous ? i * x->ld + k : k * x->ld + i;
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
    default: /* NF4: the earlier of two codes is in the high nibble */
        return nf4_code[bytes[at / 2] >> (at % 2 ? 0 : 4) & 15] * x->scales[at / NF4_BLOCK];
    }
}

static mm_element element_at(const mm_operand *x, mm_format format, int64_t i, int64_t e)
{
    if (format == MM_BF16_PAIR) {
        mm_element even = bf16_from_f32(value_at(x, i, 2 * e));
        return even | (mm_element)bf16_from_f32(value_at(x, i, 2 * e + 1)) << 16;
    }
    float f = value_at(x, i, e);
    if (format == MM_BF16_WIDENED)
        f = bf16_to_f32(bf16_from_f32(f));
    mm_element u;
    memcpy(&u, &f, sizeof u);
    return u;
}

void packing_rows(mm_element *dst, const mm_operand *x, mm_format format, mm_block block)
{
    int64_t n = num_round_up(block.n_elements, MM_K_GROUP);
    for (int64_t i = 0; i < block.n_rows; i++)
        for (int64_t e = 0; e < n; e++)
            dst[i * MM_KC + e] =
                e < block.n_elements ? element_at(x, format, block.row + i, block.e + e) : 0;
}

void packing_panel(mm_element *dst, const mm_operand *x, mm_format format, mm_block block)
{
    int64_t n = num_round_up(block.n_elements, MM_K_GROUP);
    for (int64_t e = 0; e < n; e++)
        for (int64_t i = 0; i < MM_NR; i++)
            dst[e * MM_NR + i] = i < block.n_rows && e < block.n_elements
                                     ? element_at(x, format, block.row + i, block.e + e)
                                     : 0;
}

static int64_t bytes_of(const mm_operand *x, int64_t n)
{
    if (x->dt == DT_NF4)
        return n / 2;
    return n / (int64_t)dtype_block(x->dt) * (int64_t)dtype_block_bytes(x->dt);
}

mm_operand packing_unpacked(const mm_engine *engine, const mm_operand *x, mm_format format,
                            mm_block *block, float *values)
{
    if (!quants_is(x->dt))
        return *x;
    int64_t k = block->e * packing_values(format);
    int64_t n_k = num_min(block->n_elements * packing_values(format), x->k - k);
    int64_t first_line = x->k_contiguous ? block->row : k, first = x->k_contiguous ? k : block->row;
    int64_t lines = x->k_contiguous ? block->n_rows : n_k;
    int64_t width = num_round_up(x->k_contiguous ? n_k : block->n_rows, QUANTS_GROUP);
    const char *row = (const char *)x->data + first_line * bytes_of(x, x->ld);
    for (int64_t i = 0; i < lines; i++, row += bytes_of(x, x->ld))
        engine->unpack(x->dt, row, first, width, values + i * width);
    *block = (mm_block){ 0, block->n_rows, 0, block->n_elements };
    return (mm_operand){ .data = values,
                         .dt = DT_F32,
                         .k_contiguous = x->k_contiguous,
                         .ld = width,
                         .n = block->n_rows,
                         .k = n_k };
}

packing_prefetch packing_prefetch_of(const mm_operand *x, mm_format format, mm_block block)
{
    int64_t k = block.e * packing_values(format), n = block.n_elements * packing_values(format);
    int64_t first = x->k_contiguous ? block.row * x->ld + k : k * x->ld + block.row;
    return (packing_prefetch){ .row = (const char *)x->data + bytes_of(x, first),
                               .stride = bytes_of(x, x->ld),
                               .bytes = bytes_of(x, x->k_contiguous ? n : block.n_rows),
                               .n_rows = x->k_contiguous ? block.n_rows : num_min(n, x->k - k) };
}

void packing_prefetch_rows(packing_prefetch *p, int64_t n)
{
    packing_prefetch_lines(p, n * num_divide_up(p->bytes, MM_CACHE_LINE));
}

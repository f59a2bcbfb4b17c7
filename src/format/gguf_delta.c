#include "format/gguf_delta.h"

#include "format/gguf_file.h"

delta_rows gguf_delta_rows_of(uint32_t flags)
{
    return flags & NAME_QKV      ? DELTA_ROWS_QKV
           : flags & NAME_VALUES ? DELTA_ROWS_VALUES
           : flags & NAME_HEADS  ? DELTA_ROWS_HEADS
                                 : DELTA_ROWS_PLAIN;
}

static int64_t key_rows(const gguf_delta *d)
{
    return d->k_heads * d->k_dim;
}

int64_t gguf_delta_count(const gguf_delta *d, delta_rows rows)
{
    return rows == DELTA_ROWS_HEADS
               ? d->v_heads
               : (rows == DELTA_ROWS_QKV ? 2 * key_rows(d) : 0) + d->v_heads * d->v_dim;
}

int64_t gguf_delta_tiled(const gguf_delta *d, delta_rows rows, int64_t i)
{
    const int64_t before = rows == DELTA_ROWS_QKV ? 2 * key_rows(d) : 0;
    const int64_t each = rows == DELTA_ROWS_HEADS ? 1 : d->v_dim;
    if (i < before)
        return i;
    int64_t head = (i - before) / each, at = (i - before) % each;
    int64_t theirs = head % d->k_heads * (d->v_heads / d->k_heads) + head / d->k_heads;
    return before + theirs * each + at;
}

int64_t gguf_delta_grouped(const gguf_delta *d, int64_t i)
{
    const int64_t keys = key_rows(d), values = d->v_heads / d->k_heads * d->v_dim;
    const int64_t all = 2 * d->k_dim + 2 * values; /* of one key head */
    const int64_t begin[] = { 0, keys, 2 * keys, 2 * keys + d->v_heads * d->v_dim };
    const int64_t width[] = { d->k_dim, d->k_dim, values, values };
    const int64_t before[] = { 0, d->k_dim, 2 * d->k_dim, 2 * d->k_dim + values };
    int part = 3;
    while (i < begin[part])
        part--;
    i -= begin[part];
    return i / width[part] * all + before[part] + i % width[part];
}
